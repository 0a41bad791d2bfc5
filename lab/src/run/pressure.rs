//! The parts that a testbed (a simulated machine with a memory manager) needs if memory can become
//! short: address spaces whose pages are reclaimed, swap, and a kswapd for each node.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::event::{Event, Phase, ReclaimedBy};
use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::Layout;
use plimsoll_mm::reclaim::{Embedder, Next, Reclaim};
use plimsoll_mm::space::object::{Object, ObjectKind};
use plimsoll_mm::space::{AddressSpace, Memory, Spaces};
use plimsoll_mm::units::{CpuId, Nanos, NodeId};
use plimsoll_sim::{KswapdThread, Sim};

use crate::measure::metric::{Metric, Unit};

/// The largest number of address spaces with reclaimable pages that can exist at one time.
const SPACES_MAX: u32 = 1 << 14;

/// The part of a simulated machine's memory manager that reclaims.
pub(super) type SimReclaim = Rc<Reclaim<Sim, Threads>>;

/// The address spaces of a machine on which memory is short, with the memory manager and the code
/// that reclaims their pages.
pub struct Pressure {
    mm: Weak<Manager<Sim>>,
    spaces: Spaces<Sim>,
    reclaim: Weak<Reclaim<Sim, Threads>>,
}

/// The threads of kswapd and the CPU on which they run, for the code that reclaims.
#[derive(Default)]
pub(super) struct Threads {
    pressure: RefCell<Weak<Pressure>>,
    /// For each node, the thread of its kswapd.
    threads: RefCell<Vec<Rc<KswapdThread>>>,
    /// The CPU on which kswapd runs, if the workload has chosen one.
    seat: Cell<Option<CpuId>>,
    /// The time that all allocations together have waited for kswapd, or for other CPUs that
    /// reclaim.
    paused: Cell<Nanos>,
}

/// Counts of the events of reclaim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReclaimLog {
    /// The number of times that a kswapd was woken.
    pub kswapd_wakes: u64,
    /// The number of inactive pages that reclaim looked at.
    pub scanned: u64,
    /// The number of pages that kswapd moved to swap.
    pub by_kswapd: u64,
    /// The number of pages that allocations moved to swap.
    pub by_direct: u64,
    /// The number of active pages that became inactive.
    pub deactivated: u64,
    /// The number of times that an allocation reclaimed memory itself (direct reclaim).
    pub direct: u64,
    /// The number of times that an allocation slept to wait for kswapd, or for other CPUs that
    /// reclaimed. A wait for kswapd counts once for each tick that it lasts.
    pub throttled: u64,
}

impl Pressure {
    /// Makes the component of a memory manager that reclaims. `layout` is the layout of the
    /// manager's memory. The component has no address spaces to reclaim from yet.
    pub(super) fn reclaim(sim: &Sim, layout: &Layout) -> SimReclaim {
        Rc::new(Reclaim::new(sim, layout, Threads::default()))
    }

    /// Makes the state that all address spaces of the machine share, with `swap` slots of swap
    /// space. From then on, `reclaim` reclaims pages of these address spaces.
    pub(super) fn new(
        sim: &Sim,
        mm: &Rc<Manager<Sim>>,
        design: &Design,
        swap: u32,
        reclaim: &SimReclaim,
    ) -> Rc<Self> {
        let spaces = Spaces::new(sim, design, swap).expect("four counters fit");
        let spaces = spaces.aging(sim, mm, SPACES_MAX);
        let pressure = Rc::new(Self {
            mm: Rc::downgrade(mm),
            spaces: spaces.expect("the host has memory for it"),
            reclaim: Rc::downgrade(reclaim),
        });
        reclaim
            .embedder()
            .pressure
            .replace(Rc::downgrade(&pressure));
        pressure
    }

    /// Makes the kswapd of the node of `cpu` run on `cpu`, beginning with its next wake-up. A
    /// workload that leaves CPUs idle chooses one of the idle CPUs, as a scheduler would do.
    pub(crate) fn seat_kswapd(&self, cpu: CpuId) {
        if let Some(reclaim) = self.reclaim.upgrade() {
            reclaim.embedder().seat.set(Some(cpu));
        }
    }

    /// The time that all allocations together have slept to wait for kswapd, or for other CPUs that
    /// reclaim.
    pub(crate) fn paused(&self) -> Nanos {
        let reclaim = self.reclaim.upgrade();
        reclaim.map_or(Nanos(0), |reclaim| reclaim.embedder().paused.get())
    }

    /// Calls `f` with the machine, its memory manager, and the parts that its address spaces share.
    ///
    /// # Panics
    /// If the machine's memory manager has been dropped.
    pub fn with_memory<R>(&self, sim: &Sim, f: impl FnOnce(Memory<'_, Sim>) -> R) -> R {
        let mm = self.mm.upgrade().expect("the testbed exists");
        f(Memory::new(sim, &mm, &self.spaces))
    }

    /// Makes an address space whose pages are reclaimed.
    ///
    /// # Panics
    /// If there are too many address spaces, or the host has not enough memory.
    #[must_use]
    #[expect(
        clippy::arc_with_non_send_sync,
        reason = "on real machines it is both; a simulated one has one thread"
    )]
    pub fn space(&self, sim: &Sim) -> Arc<AddressSpace<Sim>> {
        self.with_memory(sim, |memory| {
            let space = AddressSpace::new(memory).expect("the host has memory for it");
            let space = Arc::new(space);
            let enlisted = memory.enlist(&space);
            enlisted.expect("a workload has fewer processes");
            space
        })
    }
}

impl Pressure {
    /// Makes a file whose pages are reclaimed.
    ///
    /// # Panics
    /// If there are too many files and address spaces.
    #[must_use]
    #[expect(
        clippy::arc_with_non_send_sync,
        reason = "on real machines it is both; a simulated one has one thread"
    )]
    pub(crate) fn file(&self, sim: &Sim) -> Arc<Object<Sim>> {
        let file = Arc::new(Object::new(sim, ObjectKind::File));
        let enlisted = self.with_memory(sim, |memory| memory.enlist_file(&file));
        enlisted.expect("a workload has fewer files");
        file
    }
}

impl Threads {
    fn thread(&self, node: NodeId) -> Rc<KswapdThread> {
        let mut threads = self.threads.borrow_mut();
        let nodes = threads.len().max(node.index() + 1);
        threads.resize_with(nodes, Rc::default);
        Rc::clone(&threads[node.index()])
    }
}

impl Embedder<Sim> for Threads {
    fn with_memory(&self, sim: &Sim, f: &mut dyn FnMut(Memory<'_, Sim>)) {
        let pressure = self.pressure.borrow().upgrade();
        if let Some(pressure) = pressure {
            pressure.with_memory(sim, f);
        }
    }

    /// Wakes the kswapd of `node`. If this kswapd is asleep, starts it as a thread. The candidates
    /// for its CPU are, in this order, the CPU that the workload has chosen, the calling CPU, and
    /// the first CPU of `node`. The thread runs on the first of them that belongs to `node`, or on
    /// CPU 0 if `node` has no CPU.
    fn wake_kswapd(&self, sim: &Sim, node: NodeId) {
        let Some(pressure) = self.pressure.borrow().upgrade() else {
            return;
        };
        let topology = sim.topology();
        let near = |cpu: &CpuId| topology.place(*cpu).node == node;
        let chosen = self.seat.get().filter(near);
        let here = chosen.or_else(|| Some(sim.this_cpu()).filter(near));
        let cpu = here.or_else(|| topology.ids().find(near));
        let thread = self.thread(node);
        thread.wake(sim, || {
            let (thread, reclaim) = (Rc::clone(&thread), Weak::clone(&pressure.reclaim));
            sim.spawn_daemon(cpu.unwrap_or(CpuId(0)), move |sim| {
                thread.run(sim, || match reclaim.upgrade() {
                    Some(reclaim) => reclaim.kswapd(sim, node),
                    None => Next::Woken,
                });
            })
        });
    }

    fn pause(&self, sim: &Sim, span: Nanos) -> bool {
        let began = sim.now();
        sim.sleep(span);
        let slept = sim.now().0 - began.0;
        self.paused.set(Nanos(self.paused.get().0 + slept));
        true
    }
}

impl ReclaimLog {
    /// Counts `event`, if it is an event of reclaim.
    pub(super) fn note(&mut self, event: &Event) {
        match *event {
            Event::KswapdWake(_) => self.kswapd_wakes += 1,
            Event::ShrinkActive { deactivated, .. } => {
                self.deactivated += u64::from(deactivated.0);
            }
            Event::ShrinkInactive {
                by,
                scanned,
                reclaimed,
                ..
            } => {
                self.scanned += u64::from(scanned.0);
                *match by {
                    ReclaimedBy::Kswapd => &mut self.by_kswapd,
                    ReclaimedBy::Direct => &mut self.by_direct,
                } += u64::from(reclaimed.0);
            }
            Event::Begin(Phase::DirectReclaim) => self.direct += 1,
            Event::Begin(Phase::Throttle) => self.throttled += 1,
            _ => {}
        }
    }

    /// Returns the counts as metrics.
    #[must_use]
    pub fn metrics(&self) -> [(Metric, f64); 7] {
        [
            ("kswapd_wakes", Unit::Count, self.kswapd_wakes),
            ("direct_reclaims", Unit::Count, self.direct),
            ("throttled", Unit::Count, self.throttled),
            ("pages_scanned", Unit::Pages, self.scanned),
            ("pages_out_kswapd", Unit::Pages, self.by_kswapd),
            ("pages_out_direct", Unit::Pages, self.by_direct),
            ("pages_deactivated", Unit::Pages, self.deactivated),
        ]
        .map(|(name, unit, count)| (Metric::neither(name, unit), count as f64))
    }
}

impl std::fmt::Debug for Pressure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pressure").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::page::Request;
    use plimsoll_mm::page::watermark::Watermarks;
    use plimsoll_mm::units::{Order, Pages};
    use plimsoll_sim::SimOptions;
    use plimsoll_sim::profile::Card;

    use super::*;
    use crate::catalog::machines;
    use crate::run::testbed::Testbed;

    #[test]
    fn all_pauses_of_allocations_count() {
        let profile = machines::load("laptop-2", Card::Mid).expect("it is built in");
        let sim = Sim::new(&profile, SimOptions::default());
        let threads = Rc::new(Threads::default());
        let pausing = Rc::clone(&threads);
        sim.spawn(CpuId(0), move |sim| {
            for ms in [1, 2, 4] {
                assert!(pausing.pause(sim, Nanos::from_ms(ms)));
            }
        });
        sim.run();
        let paused = threads.paused.get();
        assert!(
            (Nanos::from_ms(7)..Nanos::from_ms(8)).contains(&paused),
            "{paused:?}"
        );
    }

    #[test]
    fn a_wait_of_an_allocation_counts_once() {
        let mut log = ReclaimLog::default();
        for phase in [Phase::Throttle, Phase::DirectReclaim] {
            log.note(&Event::Begin(phase));
            log.note(&Event::End(phase));
        }
        assert_eq!((log.throttled, log.direct), (1, 1));
    }

    /// The workload has chosen a CPU of the first node. The kswapd of the second node runs on its
    /// own node all the same.
    #[test]
    fn kswapd_runs_on_its_node_if_the_chosen_cpu_is_on_another() {
        let profile = machines::load("epyc-9654-2s", Card::Mid).expect("it is built in");
        let topology = profile.topology.clone();
        let home = move |cpu| topology.place(cpu).node;
        for node in [NodeId(0), NodeId(1)] {
            let testbed = Testbed::with_pressure(&profile, Design::OURS, 1, 100);
            let pressure = testbed.pressure.clone().expect("it was asked for");
            let chosen = CpuId(3);
            assert_eq!(home(chosen), NodeId(0));
            pressure.seat_kswapd(chosen);
            let pages = testbed.mm.pages();
            for (zone, view) in (0..).zip(&pages.view(&testbed.sim)) {
                let marks = Watermarks {
                    high: Pages(2 * view.managed.0),
                    ..Watermarks::default()
                };
                let set = pages.seed_sizes(&testbed.sim, zone, marks, view.sizes);
                set.expect("there is such a zone");
            }
            let ran = Rc::new(RefCell::new(Vec::new()));
            let seen = Rc::clone(&ran);
            testbed.sim.observe(move |_, cpu, _, event| {
                if let Event::KswapdWake(of) = *event {
                    seen.borrow_mut().push((of, cpu));
                }
            });
            let mm = Rc::clone(&testbed.mm);
            testbed.sim.spawn(CpuId(0), move |sim| {
                let reclaim = pressure.reclaim.upgrade().expect("it exists");
                let request = Request::new(Order::ZERO).from_node(node);
                reclaim.wake(sim, mm.pages(), request);
                sim.sleep(Nanos::from_ms(10));
            });
            testbed.sim.run();
            let ran = ran.borrow();
            let (_, cpu) = ran
                .iter()
                .find(|(of, _)| *of == node)
                .expect("it was woken");
            assert_eq!(home(*cpu), node);
            assert_eq!(*cpu == chosen, node == NodeId(0));
        }
    }
}
