//! The front of one CPU for one zone: a stack of free pages.

use std::fmt;
use std::hint::cold_path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll_mm::machine::{Freed, Front};
use plimsoll_mm::units::Order;

use super::depot::{self, Depot};
use super::kinds::Fronts;
use super::rseq;
use super::stack::Stack;
use super::sync::STACK_CAPACITY;
use crate::Host;
use crate::locks::{self, Sitter};
use crate::tags::PageTags;

/// A front of a [`Host`]: one CPU's stack of free pages of one zone.
#[repr(C)]
pub struct HostFront {
    stack: Stack,
    /// The depot of the zone, through which CPUs exchange pages, and the index of this front in the
    /// depot.
    depot: Arc<Depot>,
    index: usize,
    /// The largest limit that the stack may get. It is 0 if the threads of the machine use no
    /// fronts, so that no call tries to use this one.
    most: u32,
}

impl HostFront {
    /// Creates a front (a stack of free blocks of `order`) for each of `cpus` CPUs. The fronts share
    /// a depot, through which CPUs exchange single pages. `kind` is the way in which the threads of
    /// the machine use the fronts.
    pub(crate) fn of_a_zone(cpus: u32, order: Order, kind: Fronts) -> impl Iterator<Item = Self> {
        let runs = if order == Order::ZERO {
            depot::most_runs(cpus as usize)
        } else {
            0
        };
        let depot = Arc::new(Depot::new(cpus as usize, runs));
        let most = match kind {
            Fronts::Restartable | Fronts::Owned => Self::CAPACITY,
            Fronts::Off => 0,
        };
        (0..cpus as usize).map(move |index| Self {
            stack: Stack::new(),
            depot: Arc::clone(&depot),
            index,
            most,
        })
    }

    /// Makes sure that `home` (a real CPU or a thread) no longer uses this front, a stack of free
    /// pages. The caller has already stored `NOBODY` as the home of the front.
    fn quiesce(&self, machine: &Host, home: u32) {
        match machine.fronts() {
            Fronts::Restartable => rseq::abort_on(home),
            Fronts::Owned => {
                locks::heavy_barrier();
                let seat = locks::seat_of(home);
                self.stack
                    .wait_outside(seat, |looks| locks::spin_or_leave(machine, looks));
            }
            Fronts::Off => {}
        }
    }

    #[cold]
    #[inline(never)]
    fn admit(&self, machine: &Host) -> bool {
        machine.abort_in_child();
        let me = match machine.fronts() {
            Fronts::Restartable => rseq::set_up().and_then(rseq::Area::cpu),
            Fronts::Owned => locks::mine().map(Sitter::number),
            Fronts::Off => None,
        };
        let patience = machine.shared.patience;
        me.is_some_and(|me| {
            self.stack
                .admit(me, patience, |home| self.quiesce(machine, home))
        })
    }
}

impl Front<Host> for HostFront {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a state has 16 bits for the pages"
    )]
    const CAPACITY: u32 = STACK_CAPACITY as u32;

    #[inline(always)]
    fn pop(&self, machine: &Host) -> Option<u32> {
        // Test for `Restartable` first, because this kind is the fastest.
        if machine.fronts() == Fronts::Restartable {
            return rseq::pop(rseq::mine(), &self.stack);
        }
        cold_path();
        match machine.fronts() {
            Fronts::Owned => self.stack.pop_at(locks::mine()?),
            Fronts::Restartable | Fronts::Off => None,
        }
    }

    /// With [`Fronts::Owned`], an atomic exchange changes the tag, the byte that says whether the
    /// page is free. So if two threads free the same page at once, at least one of them finds that
    /// the tag has changed.
    ///
    /// With [`Fronts::Restartable`], both calls can succeed, but only if both threads are between
    /// the load of the tag and the moment at which their store of the tag takes effect. If the kernel
    /// preempts or migrates a thread there, or the thread gets a signal, the thread loads the tag
    /// again. If the CPU only handles an interrupt there, or a hypervisor pauses it, the thread does
    /// not. If the other thread has moved the page to the zone by then, the page is free there and in
    /// this front. A zone with bitmaps notices this in most cases (decision 17).
    #[inline(always)]
    fn free(&self, machine: &Host, tags: &PageTags, page: u32, old: u8, new: u8) -> Freed {
        let tag = tags.of(page);
        // Test for `Restartable` first, because this kind is the fastest.
        if machine.fronts() == Fronts::Restartable {
            return rseq::free(rseq::mine(), &self.stack, page, tag, [old, new]);
        }
        cold_path();
        match machine.fronts() {
            Fronts::Owned => {
                let Some(me) = locks::mine().filter(|me| self.stack.is_home(*me)) else {
                    return Freed::Unchanged;
                };
                // Relaxed is enough: the trait `Tags` promises nothing more.
                if tag.compare_exchange(old, new, Relaxed, Relaxed).is_err() {
                    Freed::Unchanged
                } else if self.stack.push_at(me, page) {
                    Freed::Pushed
                } else {
                    Freed::Tagged
                }
            }
            Fronts::Restartable | Fronts::Off => Freed::Unchanged,
        }
    }

    #[inline]
    fn push(&self, machine: &Host, page: u32) -> bool {
        match machine.fronts() {
            Fronts::Restartable => rseq::push(rseq::mine(), &self.stack, page),
            Fronts::Owned => locks::mine().is_some_and(|me| self.stack.push_at(me, page)),
            Fronts::Off => false,
        }
    }

    fn pop_run(&self, machine: &Host, pages: &mut [u32]) -> usize {
        match machine.fronts() {
            Fronts::Restartable => rseq::pop_run(rseq::mine(), &self.stack, pages),
            Fronts::Owned => locks::mine().map_or(0, |me| self.stack.pop_run_at(me, pages)),
            Fronts::Off => 0,
        }
    }

    /// Pushes all pages or none.
    fn push_run(&self, machine: &Host, pages: &[u32]) -> usize {
        let pushed = match machine.fronts() {
            Fronts::Restartable => rseq::push_run(rseq::mine(), &self.stack, pages),
            Fronts::Owned => locks::mine().is_some_and(|me| self.stack.push_run_at(me, pages)),
            Fronts::Off => false,
        };
        if pushed { pages.len() } else { 0 }
    }

    fn admits(&self, machine: &Host) -> bool {
        self.admit(machine)
    }

    fn empty(&self, machine: &Host, mut f: impl FnMut(&[u32])) {
        machine.abort_in_child();
        self.stack.empty(|home| self.quiesce(machine, home), &mut f);
        self.depot.return_to(self.index, f);
    }

    fn give_run(&self, _machine: &Host, pages: &[u32]) -> bool {
        self.depot.give(self.index, pages)
    }

    fn take_run(&self, _machine: &Host, pages: &mut [u32]) -> bool {
        self.depot.take(pages)
    }

    fn blocks(&self) -> u32 {
        self.stack.len() + self.depot.pages_of(self.index)
    }

    fn is_idle(&self) -> bool {
        self.stack.is_idle()
    }

    #[inline(always)]
    fn limit(&self) -> u32 {
        // Relaxed is enough: a push does not rely on this value, but loads the limit itself.
        self.stack.limit.load(Relaxed)
    }

    fn set_limit(&self, pages: u32) {
        let pages = pages.min(self.most);
        // Relaxed is enough: a stack with more pages than its limit does no harm.
        self.stack.limit.store(pages, Relaxed);
    }
}

impl fmt::Debug for HostFront {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostFront")
            .field("pages", &self.stack.len())
            .finish_non_exhaustive()
    }
}
