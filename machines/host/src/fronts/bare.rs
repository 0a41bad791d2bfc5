//! A front with as little as possible around it, for measurements.

use std::fmt;
use std::hint;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use plimsoll_mm::machine::{Freed, Front, Tags};
use plimsoll_mm::units::Pages;

use super::front::HostFront;
use super::kinds::Fronts;
use super::rseq;
use super::stack::Stack;
use super::sync::Sitter;
use crate::locks;
use crate::tags::PageTags;

/// A stack of pages and the tags of these pages, which a thread uses in the same way as a front of
/// one kind ([`Fronts`]). There are no page lists, no zone, no counters and no locks behind the stack,
/// but only one bit for each page: a bit is 1 if the page is free and not on the stack. So an
/// allocation or a free does less than the page allocator must do with fronts of this kind. Its time
/// is no strict lower bound: it also depends on where the compiler places the code.
///
/// Only one thread at a time may use the stack. If two threads use it at once, pages may get lost, but
/// no memory is accessed unsafely.
pub struct BareFront {
    kind: Fronts,
    stack: Stack,
    tags: PageTags,
    bits: Box<[AtomicU64]>,
    /// No bit of a word with a smaller index is 1.
    lowest: AtomicUsize,
}

/// The tag of an allocated page.
const ALLOCATED: u8 = 1;
/// The tag of a page that is free.
const FREE: u8 = 2;

/// The number of pages that an empty stack takes at once, if there are so many.
const REFILL: usize = 64;
/// The number of pages that a full stack gives at once.
const SPILL: usize = 256;

impl BareFront {
    /// Creates a front for the pages with the numbers below `pages`, which are all free. `kind` says
    /// how a thread uses the front. Returns `None` if it is [`Fronts::Off`], or if this process cannot
    /// use fronts of this kind.
    #[must_use]
    pub fn new(kind: Fronts, pages: Pages) -> Option<Self> {
        if kind == Fronts::Off || !kind.is_available() {
            return None;
        }
        let stack = Stack::new();
        stack.limit.store(HostFront::CAPACITY, Relaxed);
        let tags = PageTags::new(pages);
        (0..pages.0).for_each(|page| tags.set(page, FREE));
        let word = |word: u32| match pages.0 - word * 64 {
            rest @ 0..64 => AtomicU64::new((1 << rest) - 1),
            _ => AtomicU64::new(u64::MAX),
        };
        Some(Self {
            kind,
            stack,
            tags,
            bits: (0..pages.0.div_ceil(64)).map(word).collect(),
            lowest: AtomicUsize::new(0),
        })
    }

    /// Lets the calling thread use the stack from now on, or with [`Fronts::Restartable`] all threads
    /// on its real CPU, and no other threads. Returns `false`, and changes nothing, if another thread
    /// calls this function at the same time. With [`Fronts::Owned`], also returns `false` if the thread
    /// plays no CPU of a [`Host`](crate::Host) with fronts of this kind.
    pub fn enter(&self) -> bool {
        let me = match self.kind {
            Fronts::Restartable => rseq::set_up().and_then(rseq::Area::cpu),
            Fronts::Owned => locks::mine().map(Sitter::number),
            Fronts::Off => None,
        };
        me.is_some_and(|me| self.stack.admit(me, 1, |home| self.quiesce(home)))
    }

    fn quiesce(&self, home: u32) {
        match self.kind {
            Fronts::Restartable => rseq::abort_on(home),
            Fronts::Owned => {
                locks::heavy_barrier();
                let seat = locks::seat_of(home);
                self.stack.wait_outside(seat, |_looks| hint::spin_loop());
            }
            Fronts::Off => {}
        }
    }

    /// Allocates a page. Returns `None` if no page is free, or if the thread may not use the stack.
    #[inline(always)]
    pub fn alloc(&self) -> Option<u32> {
        let page = self.pop().or_else(|| self.refill())?;
        if self.tags.get(page) != FREE {
            return None;
        }
        self.tags.set(page, ALLOCATED);
        Some(page)
    }

    /// Frees an allocated page. Returns `false`, without having done anything, if the page is not
    /// allocated, or if the thread may not use the stack.
    ///
    /// # Panics
    /// If there is no page of this number.
    #[inline(always)]
    pub fn free(&self, page: u32) -> bool {
        let tag = self.tags.of(page);
        let freed = if self.kind == Fronts::Restartable {
            rseq::free(rseq::mine(), &self.stack, page, tag, [ALLOCATED, FREE])
        } else {
            let Some(me) = locks::mine().filter(|me| self.stack.is_home(*me)) else {
                return false;
            };
            // Relaxed is enough: the trait `Tags` promises nothing more.
            if tag
                .compare_exchange(ALLOCATED, FREE, Relaxed, Relaxed)
                .is_err()
            {
                Freed::Unchanged
            } else if self.stack.push_at(me, page) {
                Freed::Pushed
            } else {
                Freed::Tagged
            }
        };
        match freed {
            Freed::Pushed => true,
            Freed::Tagged => self.spill(page),
            Freed::Unchanged => false,
        }
    }

    #[inline(always)]
    fn pop(&self) -> Option<u32> {
        if self.kind == Fronts::Restartable {
            rseq::pop(rseq::mine(), &self.stack)
        } else {
            self.stack.pop_at(locks::mine()?)
        }
    }

    fn push_run(&self, pages: &[u32]) -> bool {
        match self.kind {
            Fronts::Restartable => rseq::push_run(rseq::mine(), &self.stack, pages),
            _ => locks::mine().is_some_and(|me| self.stack.push_run_at(me, pages)),
        }
    }

    /// Fills the empty stack with the lowest pages that are free, and pops one of them.
    #[cold]
    #[inline(never)]
    fn refill(&self) -> Option<u32> {
        let mut run = [0; REFILL];
        let mut got = 0;
        // Relaxed is enough for all accesses to the bits: only one thread uses them at a time.
        let mut word = self.lowest.load(Relaxed);
        while let Some(free) = self.bits.get(word) {
            got += take_lowest(free, word * 64, &mut run[got..]);
            if got == run.len() {
                break;
            }
            word += 1;
        }
        self.lowest.store(word, Relaxed);
        let run = &mut run[..got];
        run.reverse();
        if !self.push_run(run) {
            self.set_bits(run);
            return None;
        }
        self.pop()
    }

    /// Makes room on the full stack, and pushes `page`, which has the tag of free pages.
    #[cold]
    #[inline(never)]
    fn spill(&self, page: u32) -> bool {
        let mut run = [0; SPILL];
        let len = match self.kind {
            Fronts::Restartable => rseq::pop_run(rseq::mine(), &self.stack, &mut run),
            _ => locks::mine().map_or(0, |me| self.stack.pop_run_at(me, &mut run)),
        };
        self.set_bits(&run[..len]);
        if !self.push_run(&[page]) {
            self.set_bits(&[page]);
        }
        true
    }

    /// Sets the bits of `pages`. The bits of successive pages that are in one word are set together.
    fn set_bits(&self, pages: &[u32]) {
        for pages in pages.chunk_by(|page, next| page / 64 == next / 64) {
            let bits = pages.iter().fold(0, |bits, page| bits | 1 << (page % 64));
            let nth = pages[0] as usize / 64;
            let word = &self.bits[nth];
            word.store(word.load(Relaxed) | bits, Relaxed);
            if nth < self.lowest.load(Relaxed) {
                self.lowest.store(nth, Relaxed);
            }
        }
    }
}

/// Changes up to `out.len()` of the lowest 1 bits of `word` to 0, and writes `first` plus the index
/// of each of these bits to `out`. Returns their number.
fn take_lowest(word: &AtomicU64, first: usize, out: &mut [u32]) -> usize {
    let mut bits = word.load(Relaxed);
    let mut got = 0;
    while bits != 0 && got < out.len() {
        let page = first + bits.trailing_zeros() as usize;
        out[got] = u32::try_from(page).expect("pages have numbers of 32 bits");
        bits &= bits - 1;
        got += 1;
    }
    word.store(bits, Relaxed);
    got
}

impl fmt::Debug for BareFront {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BareFront")
            .field("kind", &self.kind)
            .field("pages", &self.stack.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{iter, thread};

    use plimsoll_mm::topology::Topology;
    use plimsoll_mm::units::CpuId;

    use super::*;
    use crate::affinity::{self, CpuMask};
    use crate::{Host, OwnerLocks};

    /// The pages are more than the stack has room for, so some pass the bits.
    #[test]
    fn a_bare_front_gives_each_page_once_and_takes_it_back_once() {
        const PAGES: u32 = 2000;
        let cpu = CpuMask::of_this_thread().cpus()[0];
        affinity::pin(&CpuMask::only(cpu)).expect("the thread may run on this CPU");
        for kind in [Fronts::Restartable, Fronts::Owned] {
            let Some(front) = BareFront::new(kind, Pages(PAGES)) else {
                continue;
            };
            let host = Host::with_fronts(Topology::flat(1), kind, OwnerLocks::Exchanged);
            let _entered = host.enter(CpuId(0));
            assert_eq!(front.alloc(), None, "no thread has entered");
            assert!(front.enter());
            let lowest: Vec<u32> = (0..REFILL).filter_map(|_| front.alloc()).collect();
            assert!(lowest.iter().copied().eq(0..64), "in ascending order");
            assert!(lowest.into_iter().all(|page| front.free(page)));
            for _ in 0..3 {
                let mut pages: Vec<u32> = iter::from_fn(|| front.alloc()).collect();
                assert!(pages.iter().all(|&page| front.free(page)));
                assert!(!front.free(pages[0]), "it is free");
                pages.sort_unstable();
                assert!(pages.into_iter().eq(0..PAGES));
            }
        }
        assert!(BareFront::new(Fronts::Off, Pages(64)).is_none());
    }

    /// With fronts of this kind, the user is a thread. It stops being the user when another thread
    /// enters.
    #[test]
    fn an_owned_bare_front_has_one_user_after_the_other() {
        let Some(front) = BareFront::new(Fronts::Owned, Pages(100)) else {
            return;
        };
        let host = Host::with_fronts(Topology::flat(2), Fronts::Owned, OwnerLocks::Exchanged);
        let _entered = host.enter(CpuId(0));
        assert!(front.enter());
        let first = front.alloc().expect("the thread is the user");
        let others: Vec<u32> = thread::scope(|scope| {
            let other = scope.spawn(|| {
                let _entered = host.enter(CpuId(1));
                assert_eq!(front.alloc(), None, "the thread has not entered");
                assert!(front.enter());
                iter::from_fn(|| front.alloc()).collect()
            });
            other.join().expect("no panic")
        });
        assert!(others.len() == 99 && !others.contains(&first));
        assert!(
            front.enter() && front.free(first),
            "the thread is the user again"
        );
    }

    /// A thread frees a page after another thread has become the user. The free is refused, and the
    /// page can be freed and allocated again after the thread has become the user again.
    #[test]
    fn a_page_that_is_freed_by_a_former_user_is_not_lost() {
        const PAGES: u32 = 100;
        let Some(front) = BareFront::new(Fronts::Owned, Pages(PAGES)) else {
            return;
        };
        let host = Host::with_fronts(Topology::flat(2), Fronts::Owned, OwnerLocks::Exchanged);
        let _entered = host.enter(CpuId(0));
        assert!(front.enter());
        let page = front.alloc().expect("the thread is the user");
        thread::scope(|scope| {
            scope.spawn(|| {
                let _entered = host.enter(CpuId(1));
                assert!(front.enter());
            });
        });
        assert!(!front.free(page), "another thread is the user");
        assert!(front.enter() && front.free(page));
        let mut pages: Vec<u32> = iter::from_fn(|| front.alloc()).collect();
        pages.sort_unstable();
        assert!(pages.into_iter().eq(0..PAGES));
    }
}
