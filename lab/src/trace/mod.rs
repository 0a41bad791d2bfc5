//! Page-allocation recordings: the text that `perf script` prints of the kernel's `kmem` events.
//!
//! ```text
//! perf record -a -e kmem:mm_page_alloc,kmem:mm_page_free,kmem:mm_page_free_batched,\
//!     kmem:mm_page_pcpu_drain -- make
//! perf script > make.perf-script.txt        # plain, or packed with gzip or zstd
//! ```
//!
//! Linux emits `mm_page_free` for every free. For pages freed in a batch it emits
//! `mm_page_free_batched` in addition, a little later: that confirms a free, it is not a second
//! one. Only where a recording has no `mm_page_free` at all are the batched events the frees,
//! and then their order is not known: Linux prints 0 for all of them.
//!
//! [`Reader`] streams what is in the file; [`Recording`] holds what happened.

mod error;
mod input;
mod line;
mod reader;
mod recording;
mod summary;

use plimsoll_mm::units::Order;

pub use error::TraceError;
pub use reader::{Reader, Warning};
pub use recording::Recording;
pub use summary::{CpuCount, OrderCount, Summary};

/// One event of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When, on the recorded machine's clock.
    pub time_ns: u64,
    /// On which CPU.
    pub cpu: u32,
    /// By which thread; 0 is the idle task.
    pub pid: u32,
    /// What happened.
    pub event: Event,
}

/// What happened to a block of pages. `pfn` is the recorded machine's page frame number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A block was allocated (`mm_page_alloc`).
    Alloc {
        /// Its first page.
        pfn: u64,
        /// Its size.
        order: Order,
    },
    /// An allocation got nothing (`mm_page_alloc` without a page).
    AllocFailed {
        /// The size that was wanted.
        order: Order,
    },
    /// A block was freed (`mm_page_free`).
    Free {
        /// Its first page.
        pfn: u64,
        /// Its size.
        order: Order,
    },
    /// A free was part of a batch (`mm_page_free_batched`).
    FreeBatched {
        /// The block's first page.
        pfn: u64,
    },
    /// A block went from a per-CPU list back to the zone (`mm_page_pcpu_drain`).
    PcpuDrain {
        /// Its first page.
        pfn: u64,
        /// Its size.
        order: Order,
    },
}
