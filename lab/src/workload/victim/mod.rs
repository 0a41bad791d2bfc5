//! A process that is killed while others help to empty its address space.
//!
//! `layout`: what it has mapped, drawn from a seed. `race`: the last user leaves on one CPU, helpers
//! start on others, until the last page, page table and mapping is gone.

mod layout;
mod race;

pub use self::layout::{Contents, Kind, Part, Victim};
pub use self::race::{Help, LockUse, Race, Raced, START_WITHIN, Who};
