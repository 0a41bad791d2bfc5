//! The memory that CPUs share: words, cache lines and tags. This module also has the CPUs' stacks of
//! free blocks, and the arena, a list that never moves its items.

pub(crate) mod arena;
pub(crate) mod front;
pub(crate) mod line;
pub(crate) mod tags;
pub(crate) mod word;
