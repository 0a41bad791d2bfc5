//! Reads the text that `perf script` prints for the kernel's events.
//!
//! ```text
//! perf record -a -e kmem:mm_page_alloc,kmem:mm_page_free,kmem:mm_page_free_batched,\
//!     kmem:mm_page_pcpu_drain -- make
//! perf script > make.perf-script.txt        # plain, or packed with gzip or zstd
//! ```

mod events;
mod line;
mod number;
mod reader;

pub use reader::{LINE_BYTES_MAX, Reader};

/// The error of a line: the content that was expected where parsing failed.
type Expected = &'static str;
