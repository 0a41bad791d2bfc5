//! What tests of the heap share.

pub(crate) mod heap;
pub(crate) mod machine;
pub(crate) mod world;
