//! Reclaim by an allocation that finds no block (Linux: `try_to_free_pages`).
//!
//! Locks: takes the locks that `shrink` takes. The caller may hold `Mmap` as a reader.

use super::scan::{CLUSTER, PRIORITY_FIRST};
use super::shrink::{Pass, Shrinker};
use super::{Embedder, Reclaim};
use crate::event::{Event, Phase, ReclaimedBy};
use crate::machine::Machine;
use crate::page::Request;
use crate::space::Memory;
use crate::units::{Jiffies, Nanos, NodeId, Pages, narrow};

/// The longest time that an allocation waits for kswapd before the allocation reclaims pages
/// itself. In Linux, only requests that must not use file systems have this limit.
const RESERVE_WAIT: Nanos = Nanos::SECOND;

/// The results of one or more sweeps, added up. Each field has the meaning of the same field of
/// `Passed`, the result of a pass. A sweep is a series of passes over all nodes that the request
/// would try.
#[derive(Clone, Copy, Debug, Default)]
struct Swept {
    scanned: u64,
    reclaimed: u64,
    skipped: bool,
    killed: bool,
}

impl<M: Machine, E: Embedder<M>> Reclaim<M, E> {
    /// Reclaims about 32 pages for an allocation that may wait. Returns the number of pages that
    /// were freed, or `None` if none were freed because the allocating task was killed while it
    /// waited. Does not allocate.
    pub fn reclaim(&self, machine: &M, request: Request) -> Option<Pages> {
        let mut reclaimed = Some(Pages::ZERO);
        self.embedder().with_memory(machine, &mut |memory| {
            if !self.waits_for_reserve(memory, request) {
                reclaimed = None;
                return;
            }
            machine.emit(Event::Begin(Phase::DirectReclaim));
            let swept = self.reclaim_from(memory, request);
            let pages = Pages(narrow(swept.reclaimed));
            reclaimed = (pages > Pages::ZERO || !swept.killed).then_some(pages);
            machine.emit(Event::End(Phase::DirectReclaim));
        });
        reclaimed
    }

    fn reclaim_from(&self, memory: Memory<'_, M>, request: Request) -> Swept {
        let mut swept = Swept::default();
        // A sweep is a series of passes over the nodes. If the first sweep reclaims nothing, Linux
        // sweeps once more, and visits all cgroups then. If the second sweep reclaims nothing
        // either, and active pages were skipped, Linux makes active pages inactive in a third
        // sweep.
        for forced in [false, false, true] {
            if forced && !swept.skipped {
                break;
            }
            self.sweep(memory, request, forced, &mut swept);
            end_of_sweep(memory, request);
            if swept.reclaimed > 0 || swept.killed {
                break;
            }
        }
        swept
    }

    /// Runs passes over the nodes that `request` would try, until [`CLUSTER`] pages are reclaimed.
    /// Each round of passes looks at a larger part of the nodes' lists than the round before; the
    /// last round looks at the whole lists.
    fn sweep(&self, memory: Memory<'_, M>, request: Request, forced: bool, swept: &mut Swept) {
        let Memory {
            machine, manager, ..
        } = memory;
        for priority in (0..=PRIORITY_FIRST).rev() {
            manager.pages().each_node(machine, request, |node| {
                if swept.killed {
                    return;
                }
                let Some(shrinker) = Shrinker::new(memory, node) else {
                    return;
                };
                let pass = Pass {
                    by: ReclaimedBy::Direct,
                    priority,
                    target: CLUSTER,
                    forced,
                };
                let passed =
                    shrinker.pass(pass, |too_many| self.pause_for_isolated(machine, too_many));
                swept.scanned += passed.scanned;
                swept.reclaimed += passed.reclaimed;
                swept.skipped |= passed.skipped;
                swept.killed |= passed.killed;
                if passed.reclaimed > 0 {
                    let kswapd = self.kswapd_of(node);
                    kswapd
                        .into_iter()
                        .for_each(|kswapd| kswapd.note_progress(machine));
                }
            });
            if swept.reclaimed >= CLUSTER || swept.killed {
                return;
            }
        }
    }

    /// Waits, one tick at a time, while other CPUs have isolated too many pages, that is, have
    /// taken them off their lists. Waits for at most a fiftieth of a second (Linux:
    /// `VMSCAN_THROTTLE_ISOLATED`). Returns `false` if the allocating task was killed.
    fn pause_for_isolated(&self, machine: &M, too_many: &dyn Fn() -> bool) -> bool {
        let ticks = u64::from(machine.hz().get()) / 50;
        machine.emit(Event::Begin(Phase::Throttle));
        let mut lives = true;
        for _ in 0..ticks.max(1) {
            if !lives || !too_many() {
                break;
            }
            lives = self.pause_a_tick(machine);
        }
        machine.emit(Event::End(Phase::Throttle));
        lives
    }

    /// Waits for kswapd until the first node that `request` would try has more free pages than half
    /// the sum of the min watermarks of its zones. Stops waiting after a second, or if kswapd has
    /// given up, or if no page can be reclaimed. Returns `false` if the allocating task was killed
    /// while it waited; the task then need not reclaim. A task that had been killed before does not
    /// wait (Linux: `throttle_direct_reclaim`).
    fn waits_for_reserve(&self, memory: Memory<'_, M>, request: Request) -> bool {
        let Memory {
            machine, manager, ..
        } = memory;
        let pages = manager.pages();
        let mut first: Option<NodeId> = None;
        pages.each_node(machine, request, |node| first = first.or(Some(node)));
        let Some(node) = first else { return true };
        let Some(kswapd) = self.kswapd_of(node) else {
            return true;
        };
        let until = machine.now().0 + RESERVE_WAIT.0;
        let mut has_waited = false;
        while !pages.has_reserve(machine, node)
            && !kswapd.is_hopeless(machine)
            && super::reclaimable(memory, node) > 0
            && machine.now().0 < until
        {
            self.wake(machine, pages, request);
            machine.emit(Event::Begin(Phase::Throttle));
            let lives = self.pause_a_tick(machine);
            machine.emit(Event::End(Phase::Throttle));
            if !lives {
                return !has_waited;
            }
            has_waited = true;
        }
        true
    }

    fn pause_a_tick(&self, machine: &M) -> bool {
        let tick = machine.hz().nanos(Jiffies(1));
        self.embedder().pause(machine, tick)
    }
}

/// For each node that `request` would try, records that a sweep (a series of passes over all these
/// nodes) has ended.
fn end_of_sweep<M: Machine>(memory: Memory<'_, M>, request: Request) {
    let Memory {
        machine, manager, ..
    } = memory;
    manager.pages().each_node(machine, request, |node| {
        if let Some(shrinker) = Shrinker::new(memory, node) {
            shrinker.end();
        }
    });
}
