//! The memory that CPUs share: words, cache lines and tags. Also the arena, a list that never moves
//! its items.

pub(crate) mod arena;
pub(crate) mod line;
pub(crate) mod tags;
pub(crate) mod word;
