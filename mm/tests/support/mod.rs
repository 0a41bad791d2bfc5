//! What the heap tests share: a heap that records its uses, a simple machine, and a world (a
//! machine with a whole memory manager).

pub(crate) mod heap;
pub(crate) mod lives;
pub(crate) mod machine;
pub(crate) mod world;
