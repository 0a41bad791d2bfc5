//! A process that is killed while helpers (the OOM reaper, or callers of `process_mrelease`) empty
//! its address space.
//!
//! The submodule `layout` draws the victim's mappings from a seed. `race` lets the last user (the
//! thread that ends the address space) exit on one CPU and helpers start on other CPUs, until all
//! pages, page tables and mappings are freed. `killed_apps` repeats such kills. `others` has the
//! processes that use the rest of memory, and `victim_space` the address space with its files and
//! shared memory.

mod killed_apps;
mod layout;
mod others;
mod race;
mod victim_space;

pub(crate) use self::killed_apps::KilledApps;
pub(crate) use self::layout::{Contents, Victim};
pub(crate) use self::race::{Help, MemoryLeft, Party, Race, Raced, START_WITHIN};
