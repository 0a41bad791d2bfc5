//! A process that is killed while helpers empty its address space.
//!
//! `layout`: the victim's mappings, drawn from a seed. `race`: the last user exits on one CPU and
//! helpers start on others, until the last page, page table and mapping is freed. `killed_apps`:
//! repeats such kills. `others`: the processes that use the rest of memory. `stage`: the address
//! space and its objects.

mod killed_apps;
mod layout;
mod others;
mod race;
mod stage;

pub(crate) use self::killed_apps::KilledApps;
pub(crate) use self::layout::{Contents, Victim};
pub(crate) use self::race::{Help, MemoryLeft, Party, Race, Raced, START_WITHIN};
