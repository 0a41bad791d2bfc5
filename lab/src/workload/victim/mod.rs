//! A process that is killed while helpers empty its address space.
//!
//! `layout`: its mappings, drawn from a seed. `race`: the last user leaves on one CPU and helpers
//! start on others, until the last page, page table and mapping is gone. `killed_apps`: such kills
//! over and over. `others`: the processes that have the rest of memory. `stage`: the address space
//! and what belongs to it.

mod killed_apps;
mod layout;
mod others;
mod race;
mod stage;

pub(crate) use self::killed_apps::KilledApps;
pub(crate) use self::layout::{Contents, Victim};
pub(crate) use self::race::{Help, MemoryLeft, Party, Race, Raced, START_WITHIN};
