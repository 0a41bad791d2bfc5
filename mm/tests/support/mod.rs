//! A watched heap, a machine and a world for the tests of the heap.

pub(crate) mod heap;
pub(crate) mod machine;
pub(crate) mod world;
