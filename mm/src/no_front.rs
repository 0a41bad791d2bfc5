//! The [`Front`] (a CPU's stack of free pages) of a machine without such stacks. It never holds a
//! page.

use crate::machine::{Freed, Front, Machine};

/// A [`Front`] (a CPU's stack of free pages) that never has room for a page. Allocations and frees
/// use the page lists instead.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFront;

impl<M: Machine> Front<M> for NoFront {
    const CAPACITY: u32 = 0;

    #[inline(always)]
    fn pop(&self, _machine: &M) -> Option<u32> {
        None
    }

    #[inline(always)]
    fn free(&self, _machine: &M, _tags: &M::Tags, _page: u32, _old: u8, _new: u8) -> Freed {
        Freed::Unchanged
    }

    fn push(&self, _machine: &M, _page: u32) -> bool {
        false
    }

    fn admits(&self, _machine: &M) -> bool {
        false
    }

    fn empty(&self, _machine: &M, _f: impl FnMut(&[u32])) {}

    fn blocks(&self) -> u32 {
        0
    }

    fn is_idle(&self) -> bool {
        false
    }

    fn limit(&self) -> u32 {
        0
    }

    fn set_limit(&self, _pages: u32) {}
}
