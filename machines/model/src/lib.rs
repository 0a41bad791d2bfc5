//! Model checkers as [`Machine`](plimsoll_mm::machine::Machine)s.
//!
//! [`loom`] tries every interleaving of two or three small bodies, and every value a relaxed
//! load may see. [`shuttle`] tries random interleavings of more and longer bodies; its memory is
//! sequentially consistent. Both need laws without spinning on words: a loop that waits for
//! another body has endless interleavings.
//!
//! Every thread has its own handle, on its own CPU. Time stands still unless a law moves it, and
//! deferred jobs run when a body runs them, so that a checker chooses when a timer fires.
//!
//! The modules `machine` and `rw_lock` hold the parts that both machines share, as macros over the
//! checker's crate.
#![forbid(unsafe_code)]

pub mod jobs;
pub mod loom;
mod machine;
mod rw_lock;
pub mod shuttle;

use plimsoll_mm::units::Hz;

/// Ticks per second of both machines.
const HZ: Hz = Hz::new(1000).expect("1000 is between 1 and 10,000");

/// A zone of at most this many pages has tags that are words of the model checker. Tags of a larger
/// zone are plain atomics: no interleaving is tried around them. A zone lock guards them in either
/// case, and a thousand modelled words would make every run slow.
const MODELLED_TAGS_MAX: u32 = 64;

/// The value of a page's tag before its first store.
fn fresh_tag(head: u8, page: u32) -> u8 {
    if page.is_multiple_of(1024) { head } else { 0 }
}
