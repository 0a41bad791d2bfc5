//! The memory that CPUs share: words, cache lines, tags, and the arena in which they lie.

pub(crate) mod arena;
pub(crate) mod line;
pub(crate) mod tags;
pub(crate) mod word;
