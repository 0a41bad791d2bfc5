//! Seeds, machines and checkers, for the tests of the memory manager on simulated machines. Also a
//! runner of laws (contracts that hold on every machine).
//!
//! Each checker is in a separate file, `check_*.rs`, and checks only one promise (a statement that
//! holds in every run).

pub(crate) mod actor;
pub(crate) mod cache;
pub(crate) mod check_holds;
pub(crate) mod check_owners;
pub(crate) mod check_shepherd;
pub(crate) mod check_spaces;
pub(crate) mod check_tables;
pub(crate) mod check_whole;
pub(crate) mod dice;
pub(crate) mod embedder;
pub(crate) mod law;
pub(crate) mod lone;
pub(crate) mod oom_world;
pub(crate) mod presses;
pub(crate) mod pressure;
pub(crate) mod reclaim_world;
pub(crate) mod scenario;
pub(crate) mod seeds;
pub(crate) mod shadow;
pub(crate) mod small;
pub(crate) mod space_actor;
pub(crate) mod space_shared;
pub(crate) mod space_user;

pub(crate) use self::dice::Dice;
pub(crate) use self::lone::Lone;
pub(crate) use self::oom_world::OomWorld;
pub(crate) use self::small::Small;
