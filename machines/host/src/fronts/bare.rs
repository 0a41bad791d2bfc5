//! The restartable sequences of a front with nothing around them, for measurements.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll_mm::machine::{Freed, Front, Tags};
use plimsoll_mm::units::Pages;

use super::front::HostFront;
use super::rseq;
use super::stack::Stack;
use crate::tags::PageTags;

/// A stack of pages and the tags of these pages, which a thread uses by the same restartable
/// sequences as a front of the kind [`Fronts::Restartable`](super::Fronts::Restartable). There are
/// no page lists, no zone and no counters behind the stack. So the time of an allocation or a free
/// is a lower bound of the time that the page allocator needs with such fronts.
pub struct BareFront {
    stack: Stack,
    tags: PageTags,
}

/// The tag of an allocated page.
const ALLOCATED: u8 = 1;
/// The tag of a page on the stack.
const FREE: u8 = 2;

impl BareFront {
    /// Creates a stack of 1024 free pages, which have the numbers below 1024. Returns `None` if
    /// this process cannot use restartable sequences.
    #[must_use]
    pub fn new() -> Option<Self> {
        if !rseq::is_available() {
            return None;
        }
        let pages = HostFront::CAPACITY;
        let stack = Stack::new();
        let tags = PageTags::new(Pages(pages));
        for page in 0..pages {
            tags.set(page, FREE);
            stack.pages[page as usize].store(page, Relaxed);
        }
        stack.limit.store(pages, Relaxed);
        stack.state.store(u64::from(pages), Relaxed);
        Some(Self { stack, tags })
    }

    /// Lets threads on the calling thread's real CPU use the stack from now on, and no other threads.
    /// Returns `false`, and changes nothing, if another thread calls this function at the same time.
    pub fn enter(&self) -> bool {
        let me = rseq::set_up().and_then(rseq::Area::cpu);
        me.is_some_and(|me| self.stack.admit(me, 1, rseq::abort_on))
    }

    /// Pops a page and tags it as allocated. Returns `None` if the stack is empty, or if the thread
    /// does not run on the CPU whose threads may use the stack.
    #[inline(always)]
    pub fn alloc(&self) -> Option<u32> {
        let page = rseq::pop(rseq::mine(), &self.stack)?;
        if self.tags.get(page) != FREE {
            return None;
        }
        self.tags.set(page, ALLOCATED);
        Some(page)
    }

    /// Frees an allocated page. Returns `false`, without having done anything, if the page is not
    /// allocated, or if the thread does not run on the CPU whose threads may use the stack.
    ///
    /// # Panics
    /// If the stack has no page of this number.
    #[inline(always)]
    pub fn free(&self, page: u32) -> bool {
        let tag = self.tags.of(page);
        rseq::free(rseq::mine(), &self.stack, page, tag, [ALLOCATED, FREE]) == Freed::Pushed
    }
}

impl fmt::Debug for BareFront {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BareFront")
            .field("pages", &self.stack.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::{self, CpuMask};

    #[test]
    fn a_bare_front_gives_each_page_once_and_takes_it_back_once() {
        let Some(front) = BareFront::new() else {
            return;
        };
        assert_eq!(front.alloc(), None, "no thread has entered");
        let before = CpuMask::of_this_thread();
        let cpu = before.cpus()[0];
        affinity::pin(&CpuMask::only(cpu)).expect("the thread may run on this CPU");
        assert!(front.enter());
        let mut pages: Vec<u32> = std::iter::from_fn(|| front.alloc()).collect();
        assert!(pages.iter().all(|&page| front.free(page)));
        assert!(!front.free(pages[0]), "it is free");
        pages.sort_unstable();
        assert!(pages.into_iter().eq(0..1024));
        assert_eq!(std::iter::from_fn(|| front.alloc()).count(), 1024);
    }
}
