//! Looking at the used pages of a node, and removing from memory those that were not touched for
//! long (Linux: `shrink_node`, `shrink_inactive_list`, `shrink_active_list`).
//!
//! A CPU isolates a batch of pages in one hold of the lock of the lists. It then checks and evicts
//! each page without that lock (see `evict`). In a second hold of the lock, it puts the pages that
//! stay back on a list. So this code never holds the lists' lock and the lock of a page table
//! together. If it took a table's lock inside the lists' lock, it could deadlock with a CPU that
//! splits a huge page, which takes the lists' lock inside the table's lock.
//!
//! Locks, one after the other: first `Lru`; then the locks that `evict` takes; then `Lru` two more
//! times. Pages are freed with none of these locks held.

use super::scan::{self, CLUSTER, PRIORITY_FIRST};
use crate::event::{Event, ReclaimedBy};
use crate::machine::Machine;
use crate::space::Memory;
use crate::space::lru::{Aged, Fate, ISOLATED_MAX, Kind, List, Run, Taken};
use crate::space::rmap::Rmap;
use crate::units::{NodeId, Pages, count_of, narrow};

/// One pass of reclaim over the lists of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    pub(super) by: ReclaimedBy,
    pub(super) priority: u32,
    /// The number of pages to free. Once the pass has freed this number of pages, it ends, unless
    /// it is a pass of direct reclaim at the first priority.
    pub(super) target: u64,
    /// True if active pages become inactive even if there are enough inactive ones.
    pub(super) forced: bool,
}

/// The result of a pass of reclaim over the lists of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Passed {
    /// The number of inactive pages that were looked at.
    pub(super) scanned: u64,
    /// The number of pages that were freed.
    pub(super) reclaimed: u64,
    /// True if active pages were skipped, because there were enough inactive ones.
    pub(super) skipped: bool,
    /// True if the allocating task was killed while it waited. Then the pass has ended early.
    pub(super) killed: bool,
}

/// The lists of one node, and what is needed to reclaim from them.
pub(super) struct Shrinker<'m, M: Machine> {
    pub(super) memory: Memory<'m, M>,
    pub(super) aged: &'m Aged<M>,
    pub(super) rmap: &'m Rmap<M>,
    pub(super) node: NodeId,
}

/// The pages of a batch that reclaim has isolated, and the decision about each page.
type Fates = [(Taken, Fate); ISOLATED_MAX];

impl<'m, M: Machine> Shrinker<'m, M> {
    /// Returns a shrinker for `node`, or `None` if reclaim is off, because there are no lists of
    /// used pages then.
    pub(super) fn new(memory: Memory<'m, M>, node: NodeId) -> Option<Self> {
        Some(Self {
            memory,
            aged: memory.spaces.lru().aged()?,
            rmap: memory.spaces.rmap()?,
            node,
        })
    }

    /// Returns whether a CPU that allocates has to wait before it isolates pages of `kind`, because
    /// other CPUs have isolated too many pages of this kind (Linux: `too_many_isolated`).
    pub(super) fn too_many_isolated(&self, kind: Kind) -> bool {
        let isolated = self.aged.isolated(self.node, kind);
        isolated > self.aged.len(self.node, kind.inactive()) / 8
    }

    /// Runs a pass. If other CPUs have isolated too many pages, calls `pause` with a function that
    /// returns whether this is still so. `pause` waits, and returns false if the allocating task
    /// was killed; the pass ends then.
    pub(super) fn pass(&self, pass: Pass, pause: impl Fn(&dyn Fn() -> bool) -> bool) -> Passed {
        let mut passed = Passed::default();
        let state = self.state(pass.forced);
        let planned = scan::counts(&state, pass.priority);
        let mut left = planned;
        let first_direct = pass.by == ReclaimedBy::Direct && pass.priority == PRIORITY_FIRST;
        let mut in_proportion = first_direct;
        while left.inactive[0] + left.inactive[1] + left.active[1] > 0 {
            for kind in Kind::ALL {
                if let Some(batch) = take(&mut left.inactive[kind as usize]) {
                    self.inactive(kind, batch, pass.by, &mut passed, &pause);
                    if passed.killed {
                        return passed;
                    }
                }
                if let Some(batch) = take(&mut left.active[kind as usize]) {
                    if state.may_deactivate[kind as usize] {
                        self.active(kind, batch);
                    } else {
                        passed.skipped = true;
                    }
                }
            }
            if passed.reclaimed < pass.target || in_proportion {
                continue;
            }
            if !scan::keep_proportion(&planned, &mut left) {
                break;
            }
            in_proportion = true;
        }
        self.balance();
        passed
    }

    fn state(&self, forced: bool) -> scan::State {
        let Memory {
            machine,
            manager,
            spaces,
        } = self.memory;
        let len = |list| self.aged.len(self.node, list);
        let balance = self.aged.balance(machine, self.node);
        let (free, high) = manager.pages().free_and_high(machine, self.node);
        // For each kind of pages, whether pages that had left memory were needed again since
        // reclaim last ended. Linux records this for anonymous pages too; here it is known only for
        // pages of files.
        let refaulted = [false, balance.has_refaulted()];
        let may = |kind: Kind| forced || refaulted[kind as usize] || self.inactive_is_low(kind);
        scan::State {
            len: scan::PerList {
                inactive: Kind::ALL.map(|kind| len(kind.inactive())),
                active: Kind::ALL.map(|kind| len(kind.active())),
            },
            may_deactivate: Kind::ALL.map(may),
            cost: balance.costs(),
            can_swap: spaces.swap().free() > 0,
            free,
            high,
        }
    }

    /// Makes a batch of active anonymous pages inactive, if there are too few inactive anonymous
    /// pages and there is swap.
    pub(super) fn balance(&self) {
        if self.memory.spaces.swap().slots() > 0 && self.inactive_is_low(Kind::Anon) {
            self.active(Kind::Anon, CLUSTER);
        }
    }

    /// Records that reclaim from the node has ended. The next reclaim considers only refaults
    /// (pages of files that are needed again) that come after this call.
    pub(super) fn end(&self) {
        self.aged.note_end(self.memory.machine, self.node);
    }

    fn inactive_is_low(&self, kind: Kind) -> bool {
        let len = |list| self.aged.len(self.node, list);
        scan::inactive_is_low(len(kind.inactive()), len(kind.active()))
    }

    /// Makes up to `batch` active pages inactive, whether or not they were touched.
    fn active(&self, kind: Kind, batch: u64) {
        let machine = self.memory.machine;
        let (run, mut fates) = self.isolate(kind.active(), batch);
        for (_, fate) in &mut fates[..run.get().len()] {
            *fate = stays(kind.inactive(), false);
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

    /// Looks at up to `batch` inactive pages, and removes from memory those that were not touched
    /// since the last look.
    fn inactive(
        &self,
        kind: Kind,
        batch: u64,
        by: ReclaimedBy,
        passed: &mut Passed,
        pause: &impl Fn(&dyn Fn() -> bool) -> bool,
    ) {
        if by == ReclaimedBy::Direct && self.too_many_isolated(kind) {
            passed.killed = !pause(&|| self.too_many_isolated(kind));
            if passed.killed || self.too_many_isolated(kind) {
                return;
            }
        }
        let machine = self.memory.machine;
        let (run, mut fates) = self.isolate(kind.inactive(), batch);
        let fates = &mut fates[..run.get().len()];
        for (taken, fate) in &mut *fates {
            *fate = self.check(*taken);
        }
        let (freed, len) = match kind {
            Kind::Anon => self.evict(fates),
            Kind::File => self.drop_files(fates, run.age),
        };
        self.conclude(fates);
        self.free(kind, &freed[..len]);
        let (scanned, reclaimed) = (run.get().len() as u64, len as u64);
        // Each evicted anonymous page was written to swap.
        let written = if kind == Kind::Anon { reclaimed } else { 0 };
        let cost = (scanned, written, reclaimed);
        self.aged.note_cost(machine, self.node, kind, cost);
        passed.scanned += scanned;
        passed.reclaimed += reclaimed;
        machine.emit(Event::ShrinkInactive {
            node: self.node,
            by,
            scanned: Pages(count_of(run.get().len())),
            reclaimed: Pages(count_of(len)),
        });
    }

    /// Isolates pages from the tail of a list. The fate of each page is to go back to that list,
    /// unless the caller changes the fate.
    pub(super) fn isolate(&self, list: List, batch: u64) -> (Run, Fates) {
        let Memory {
            machine,
            manager,
            spaces,
        } = self.memory;
        spaces.lru().drain(machine, manager.pages());
        let run = self.aged.isolate(machine, self.node, list, narrow(batch));
        let mut fates = [(run.any(), stays(list, false)); ISOLATED_MAX];
        for (fate, &taken) in fates.iter_mut().zip(run.get()) {
            *fate = (taken, stays(list, taken.past.referenced));
        }
        (run, fates)
    }

    pub(super) fn conclude(&self, fates: &[(Taken, Fate)]) {
        if !fates.is_empty() {
            self.aged.conclude(self.memory.machine, self.node, fates);
        }
    }
}

/// Subtracts up to `CLUSTER` pages from `left`, the number of pages that a pass still has to look
/// at. Returns the number subtracted; `None` if it is 0.
fn take(left: &mut u64) -> Option<u64> {
    let batch = (*left).min(CLUSTER);
    *left -= batch;
    (batch > 0).then_some(batch)
}

pub(super) const fn stays(list: List, referenced: bool) -> Fate {
    Fate::Stays { list, referenced }
}
