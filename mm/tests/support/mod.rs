//! The support of the heap tests: a watched heap, a machine, and a world.

pub(crate) mod heap;
pub(crate) mod lives;
pub(crate) mod machine;
pub(crate) mod world;
