//! What the heap tests share: a heap that records its uses, a simple machine, and a world (a
//! machine with a whole memory manager).

#[expect(dead_code, reason = "the heap tests use no fronts")]
pub(crate) mod front;
pub(crate) mod heap;
pub(crate) mod lives;
#[expect(dead_code, reason = "the heap tests use no fronts")]
pub(crate) mod machine;
#[expect(dead_code, reason = "the heap tests record no locks")]
pub(crate) mod watch;
pub(crate) mod world;
