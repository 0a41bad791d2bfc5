//! Model checkers as [`Machine`](plimsoll_mm::machine::Machine)s.
//!
//! [`loom`] tries every interleaving of two or three short threads, and every value that a relaxed
//! load may see. [`shuttle`] tries random interleavings of more and longer threads; its memory is
//! sequentially consistent.
//!
//! The tests are the [laws](plimsoll_mm::laws::Law) of the memory manager. A law is a contract that
//! must hold in every interleaving. It has several bodies, each of which is the code of one thread.
//! No body may spin on an atomic: a loop that waits for another body has endless interleavings.
//!
//! Each thread has its own handle, on its own CPU. Time advances only when a law sets it, and
//! deferred jobs run only when a body runs them. So the checker decides when a timer fires.
//!
//! The modules `machine`, `front` and `rw_lock` contain the parts that both machines share, as macros
//! that take the checker's crate as an argument.
#![forbid(unsafe_code)]

mod front;
pub mod jobs;
pub mod loom;
mod machine;
pub mod own_process;
mod rw_lock;
pub mod shuttle;

pub use self::front::Fronts;

use plimsoll_mm::units::Hz;

/// The number of ticks per second of both machines.
const HZ: Hz = Hz::new(1000).expect("1000 is between 1 and 10,000");

/// If a zone has at most this many pages, the tags of the pages (one byte each) are atomics of the
/// checker. The tags of a larger zone are atomics of `std`, at whose accesses the checker does not
/// switch threads. A thousand atomics of the checker would make every run slow. Atomics of `std`
/// are enough, because the zone lock protects all tags.
const MODELLED_TAGS_MAX: u32 = 64;

/// The value of a page's tag before the first store to it.
fn fresh_tag(head: u8, page: u32) -> u8 {
    if page.is_multiple_of(1024) { head } else { 0 }
}
