//! Looking at the used pages of a node, and moving those to swap that were not touched for long
//! (Linux: `shrink_node`, `shrink_inactive_list`, `shrink_active_list`).
//!
//! A CPU isolates a batch of pages in one hold of the lock of the lists. It then checks and evicts
//! each page without that lock. In a second hold of the lock, it puts the pages that stay back on a
//! list. So this code never holds the lists' lock and the lock of a page table together. If it took
//! a table's lock inside the lists' lock, it could deadlock with a CPU that splits a huge page,
//! which takes the lists' lock inside the table's lock.
//!
//! Locks, one after the other: `Lru`; for each page that is checked, `Rmap` as a reader, with
//! `PageTable` inside; `Swap`; for each page that is evicted, `Rmap` and `PageTable` again; `Swap`;
//! `Lru`. If `Rmap` is busy, the page stays in memory. Pages are freed with none of these locks
//! held.

use super::scan::{self, CLUSTER, PRIORITY_FIRST};
use crate::event::{Event, ReclaimedBy};
use crate::machine::Machine;
use crate::site::Work;
use crate::space::Memory;
use crate::space::lru::{Aged, Fate, ISOLATED_MAX, List, Run, Taken};
use crate::space::rmap::{Owner, Rmap};
use crate::space::swap::SwapSlot;
use crate::units::{NodeId, Pages, Pfn, count_of, narrow};

/// The number of pages that are freed together (Linux: a folio batch).
const FREED_TOGETHER: usize = 31;

/// One pass over the lists of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    pub(super) by: ReclaimedBy,
    pub(super) priority: u32,
    /// The number of pages to free. Once the pass has freed this many, it ends, unless it is a pass
    /// of direct reclaim at the first priority.
    pub(super) target: u64,
    /// True if active pages become inactive even if there are enough inactive ones.
    pub(super) forced: bool,
}

/// The result of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Passed {
    /// The number of inactive pages that were looked at.
    pub(super) scanned: u64,
    /// The number of pages that were freed.
    pub(super) reclaimed: u64,
    /// True if active pages were skipped, because there were enough inactive ones.
    pub(super) skipped: bool,
}

/// The lists of one node, and what is needed to reclaim from them.
pub(super) struct Shrinker<'m, M: Machine> {
    memory: Memory<'m, M>,
    aged: &'m Aged<M>,
    rmap: &'m Rmap<M>,
    node: NodeId,
}

/// The pages of an isolated batch, and the fate of each.
type Fates = [(Taken, Fate); ISOLATED_MAX];

impl<'m, M: Machine> Shrinker<'m, M> {
    /// Returns a shrinker for `node`, or `None` if pages are not aged.
    pub(super) fn new(memory: Memory<'m, M>, node: NodeId) -> Option<Self> {
        Some(Self {
            memory,
            aged: memory.spaces.lru().aged()?,
            rmap: memory.spaces.rmap()?,
            node,
        })
    }

    /// Returns whether a CPU that allocates has to wait before it isolates pages, because other
    /// CPUs have isolated too many (Linux: `too_many_isolated`).
    pub(super) fn too_many_isolated(&self) -> bool {
        self.aged.isolated(self.node) > self.aged.len(self.node, List::Inactive) / 8
    }

    /// Runs a pass. If other CPUs have isolated too many pages, calls `pause`, which waits.
    pub(super) fn pass(&self, pass: Pass, pause: impl Fn()) -> Passed {
        let mut passed = Passed::default();
        if self.memory.spaces.swap().free() == 0 {
            return passed;
        }
        let scan = |list| scan::of_list(self.aged.len(self.node, list), pass.priority);
        let (mut inactive, mut active) = (scan(List::Inactive), scan(List::Active));
        while inactive + active > 0 {
            if inactive > 0 {
                let batch = inactive.min(CLUSTER);
                inactive -= batch;
                self.inactive(batch, pass.by, &mut passed, &pause);
            }
            if active > 0 {
                let batch = active.min(CLUSTER);
                active -= batch;
                if pass.forced || self.inactive_is_low() {
                    self.active(batch);
                } else {
                    passed.skipped = true;
                }
            }
            let first_direct = pass.by == ReclaimedBy::Direct && pass.priority == PRIORITY_FIRST;
            // Once the target is reached, Linux goes on only to keep the number of anonymous pages
            // and the number of file pages that it looks at in proportion. Here, there are no file
            // pages.
            if passed.reclaimed >= pass.target && !first_direct {
                break;
            }
        }
        self.balance();
        passed
    }

    /// Makes a batch of active pages inactive, if there are too few inactive ones.
    pub(super) fn balance(&self) {
        if self.inactive_is_low() {
            self.active(CLUSTER);
        }
    }

    fn inactive_is_low(&self) -> bool {
        let len = |list| self.aged.len(self.node, list);
        scan::inactive_is_low(len(List::Inactive), len(List::Active))
    }

    /// Makes up to `batch` active pages inactive, whether or not they were touched.
    fn active(&self, batch: u64) {
        let machine = self.memory.machine;
        let (run, mut fates) = self.isolate(List::Active, batch);
        for (_, fate) in &mut fates[..run.get().len()] {
            *fate = stays(List::Inactive, false);
        }
        for &taken in run.get() {
            // `check` also forgets that the page was touched: only later touches count.
            self.check(taken);
        }
        self.conclude(&fates[..run.get().len()]);
        machine.emit(Event::ShrinkActive {
            node: self.node,
            deactivated: Pages(count_of(run.get().len())),
        });
    }

    /// Looks at up to `batch` inactive pages, and moves those to swap that were not touched since
    /// the last look.
    fn inactive(&self, batch: u64, by: ReclaimedBy, passed: &mut Passed, pause: &impl Fn()) {
        if by == ReclaimedBy::Direct && self.too_many_isolated() {
            pause();
            if self.too_many_isolated() {
                return;
            }
        }
        let machine = self.memory.machine;
        let (run, mut fates) = self.isolate(List::Inactive, batch);
        let fates = &mut fates[..run.get().len()];
        for (taken, fate) in &mut *fates {
            *fate = self.check(*taken);
        }
        let (freed, len) = self.evict(fates);
        self.conclude(fates);
        self.free(&freed[..len]);
        passed.scanned += run.get().len() as u64;
        passed.reclaimed += len as u64;
        machine.emit(Event::ShrinkInactive {
            node: self.node,
            by,
            scanned: Pages(count_of(run.get().len())),
            reclaimed: Pages(count_of(len)),
        });
    }

    /// Isolates pages from the tail of a list. The fate of each is to go back to that list, unless
    /// the caller changes it.
    fn isolate(&self, list: List, batch: u64) -> (Run, Fates) {
        let Memory {
            machine,
            manager,
            spaces,
        } = self.memory;
        spaces.lru().drain(machine, manager.pages());
        let run = self.aged.isolate(machine, self.node, list, narrow(batch));
        let mut fates = [(run.any(), stays(list, false)); ISOLATED_MAX];
        for (fate, &taken) in fates.iter_mut().zip(run.get()) {
            *fate = (taken, stays(list, taken.referenced));
        }
        (run, fates)
    }

    fn conclude(&self, fates: &[(Taken, Fate)]) {
        if !fates.is_empty() {
            self.aged.conclude(self.memory.machine, self.node, fates);
        }
    }

    /// Decides whether an inactive page stays (Linux: `folio_check_references`). A page that was
    /// touched since the last look stays inactive once more. If it is touched again before the next
    /// look, that look makes it active.
    fn check(&self, taken: Taken) -> Fate {
        let machine = self.memory.machine;
        machine.spend(Work::Reference, 1);
        let touched = self.owner(taken).and_then(|owner| {
            self.rmap.with(machine, owner, |space| {
                space.was_touched(machine, owner.page, taken.pfn)
            })
        });
        match touched.flatten() {
            Some(true) if taken.referenced => stays(List::Active, true),
            Some(true) => stays(List::Inactive, true),
            Some(false) => Fate::Leaves,
            // The page is being unmapped, or its address space is busy.
            None => stays(List::Inactive, taken.referenced),
        }
    }

    /// Evicts the pages in `fates` whose fate is to leave. A page that cannot be evicted stays.
    /// Returns the evicted pages and their number.
    fn evict(&self, fates: &mut [(Taken, Fate)]) -> ([Pfn; ISOLATED_MAX], usize) {
        let Memory {
            machine, spaces, ..
        } = self.memory;
        let (mut freed, mut len) = ([Pfn(0); ISOLATED_MAX], 0);
        let leave = fates.iter().filter(|(_, fate)| *fate == Fate::Leaves);
        let wanted = leave.count();
        if wanted == 0 {
            return (freed, len);
        }
        let mut slots = [SwapSlot(0); ISOLATED_MAX];
        let got = spaces.swap().take_many(machine, &mut slots[..wanted]);
        for (taken, fate) in fates.iter_mut().filter(|(_, fate)| *fate == Fate::Leaves) {
            // No free slot of swap is left for this page. The page becomes active, because it
            // cannot leave memory until a slot is free.
            let Some(&slot) = slots[..got].get(len) else {
                *fate = stays(List::Active, false);
                continue;
            };
            if self.evict_one(*taken, slot) {
                freed[len] = taken.pfn;
                len += 1;
            } else {
                *fate = stays(List::Inactive, false);
            }
        }
        let spare = spaces.swap().give_back(machine, &slots[len..got]);
        spare.expect("the slots were just taken");
        if len > 0 {
            machine.spend(Work::TlbFlush, 1);
            machine.spend(Work::SwapOut, count_of(len));
        }
        (freed, len)
    }

    fn evict_one(&self, taken: Taken, slot: SwapSlot) -> bool {
        let machine = self.memory.machine;
        let evicted = self.owner(taken).and_then(|owner| {
            self.rmap.with(machine, owner, |space| {
                space.evict(machine, owner.page, taken.pfn, slot)
            })
        });
        evicted == Some(true)
    }

    fn owner(&self, taken: Taken) -> Option<Owner> {
        Owner::unpack(self.aged.owner(self.node, taken.pfn))
    }

    /// Frees pages that were evicted and have left the lists.
    fn free(&self, freed: &[Pfn]) {
        for pfns in freed.chunks(FREED_TOGETHER) {
            self.memory
                .machine
                .spend(Work::Release, count_of(pfns.len()));
            self.memory.give_back_evicted(pfns);
        }
    }
}

const fn stays(list: List, referenced: bool) -> Fate {
    Fate::Stays { list, referenced }
}
