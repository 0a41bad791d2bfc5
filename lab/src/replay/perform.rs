//! Performs a plan (the recorded operations of each CPU) on a simulated machine.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use plimsoll_mm::Manager;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::page::{Mobility, Request};
use plimsoll_mm::site::Work;
use plimsoll_mm::units::{CpuId, Nanos, Order, Pfn};
use plimsoll_recording::Recording;
use plimsoll_sim::profile::Profile;
use plimsoll_sim::{Sim, Stats};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::plan::{Plan, PlannedOp, What, ZoneRequest};
use super::start::{Memory, Start};
use crate::catalog::designs::Named;
use crate::exact::pages::memory::layout;
use crate::measure::comparison::Sample;
use crate::measure::holds::HoldLog;
use crate::measure::locks;
use crate::run::cases::Case;
use crate::run::testbed::Testbed;
use crate::slices::{Tracer, Traces};

/// Several copies of a recording run side by side. Each copy starts at a random time within this
/// span.
const STARTS_WITHIN: Nanos = Nanos::from_ms(10);

/// How long a CPU that has to free a block sleeps before it checks again whether another CPU has
/// allocated the block.
const WAIT_STEP: Nanos = Nanos(1000);
/// How many times a CPU that has to free a block checks whether the block has been allocated. If
/// the block is still not allocated after the last check, the replay drops the free of the block.
const WAIT_STEPS_MAX: u32 = 10_000;

/// The results of one run of a replay, apart from its metrics ([`Sample`]).
#[derive(Clone, Debug)]
pub(super) struct Performed {
    pub(super) stats: Stats,
    pub(super) holds: HoldLog,
    /// The reason why the recorded state could not be set. `None` if the state was set, or if
    /// setting it was not requested.
    pub(super) refused: Option<String>,
    /// The number of pages on the page lists of all CPUs at the start.
    pub(super) listed: u64,
    /// The number of allocations that failed.
    pub(super) failed: u64,
    /// The number of frees that the replay dropped because there was no block to free.
    pub(super) dropped: u64,
    /// The largest delay of any CPU: how much later the CPU finished than in the recording.
    pub(super) lag: Nanos,
    /// The recording of this run, if one was requested.
    pub(super) recording: Option<Recording>,
}

/// The machine and the options for performing a plan (the operations of a recording).
pub(super) struct ReplaySetup<'a> {
    pub(super) profile: &'a Profile,
    /// The number of copies of the recording that run side by side.
    pub(super) scale: u32,
    /// The name of the recording's file, or `-` for standard input.
    pub(super) file: &'a str,
    pub(super) start: Start<'a>,
    /// The maximum number of events to record of this run. `None` records nothing.
    pub(super) record: Option<usize>,
    /// Where to keep the slices (what each CPU and task did, and when) of this run, and the index
    /// of the run's design. `None` traces nothing.
    pub(super) trace: Option<(&'a Traces, usize)>,
}

/// One of several copies of a recording, which the replay performs at the same time. This is the
/// state that the CPUs of the copy share.
struct Copy {
    mm: Rc<Manager<Sim>>,
    /// The blocks that were in use before the recording began. `None` if the recording does not
    /// show the state at that time.
    memory: Option<Rc<Memory>>,
    /// For each slot (which stands for one block from its allocation to its free), the first page
    /// and the order of the slot's block. `None` while the slot has no block.
    blocks: Vec<Cell<Option<(Pfn, Order)>>>,
    start: Nanos,
    tally: Rc<Tally>,
}

#[derive(Default)]
struct Tally {
    failed: Cell<u64>,
    dropped: Cell<u64>,
    lag: Cell<u64>,
}

pub(super) fn run(plan: &Plan, setup: &ReplaySetup<'_>, case: &Case<Named>) -> (Sample, Performed) {
    let (scale, seed) = (setup.scale, case.seed);
    let (testbed, memory, refused) = begin(plan, setup, case);
    let cpus = testbed.sim.topology().ids();
    let listed = cpus.map(|cpu| u64::from(testbed.mm.pages().listed(&testbed.sim, cpu).0));
    let listed = listed.sum();
    let recorder = setup.record.map(|events_max| testbed.record(events_max));
    let tracer = setup.trace.map(|(traces, _)| {
        let limits = traces.limits(&setup.profile.name, &case.design.name);
        Tracer::attach(&testbed.sim, &testbed.mm, limits)
    });
    let streams: Rc<Vec<Vec<PlannedOp>>> = Rc::new(plan.streams.clone());
    let tally = Rc::new(Tally::default());
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    for nth in 0..scale {
        let start = Nanos(if nth == 0 {
            0
        } else {
            rng.random_range(0..STARTS_WITHIN.0)
        });
        let copy = Rc::new(Copy {
            mm: Rc::clone(&testbed.mm),
            memory: memory.clone(),
            blocks: (0..plan.slots).map(|_| Cell::new(None)).collect(),
            start,
            tally: Rc::clone(&tally),
        });
        for stream in 0..plan.cpus() {
            let (copy, streams) = (Rc::clone(&copy), Rc::clone(&streams));
            let cpu = CpuId(nth * plan.cpus() + stream);
            testbed
                .sim
                .spawn(cpu, move |sim| copy.play(sim, &streams[stream as usize]));
        }
    }
    testbed.sim.run();
    if let Some(((traces, design), tracer)) = setup.trace.zip(tracer) {
        let slices = tracer.finish(&testbed.sim);
        let slices = slices.named(&setup.profile.name, &case.design.name);
        traces.keep((0, design), slices);
    }
    let recording = recorder.map(|recorder| {
        let release = format!("{} on {}", case.design.name, setup.profile.name);
        let command = format!("replay of {}, {scale} times, seed {seed}", setup.file);
        recorder.finish(&testbed.sim, release, command)
    });
    let (stats, log) = testbed.finish();
    let sample = Sample {
        hash: stats.hash,
        metrics: locks::metrics(&stats, &log.holds),
    };
    let performed = Performed {
        stats,
        holds: log.holds,
        refused,
        listed,
        failed: tally.failed.get(),
        dropped: tally.dropped.get(),
        lag: Nanos(tally.lag.get()),
        recording,
    };
    (sample, performed)
}

/// Returns the machine in the recorded state, and the blocks that are in use in this state. If the
/// replay starts without the recorded state, returns a machine with all memory free. If the
/// recorded state could not be set, the third value is the reason.
fn begin(
    plan: &Plan,
    setup: &ReplaySetup<'_>,
    case: &Case<Named>,
) -> (Testbed, Option<Rc<Memory>>, Option<String>) {
    let (profile, design) = (setup.profile, case.design.design);
    let Start::Recorded(state) = setup.start else {
        return (Testbed::new(profile, design, case.seed), None, None);
    };
    let areas = Memory::areas(state, &profile.topology, plan.cpus(), setup.scale);
    let testbed = Testbed::laid_out(profile, design, case.seed, layout(&areas));
    match Memory::begin(&testbed, state, &plan.ids, setup.scale) {
        Ok(memory) => (testbed, Some(Rc::new(memory)), None),
        Err(error) => (Testbed::new(profile, design, case.seed), None, Some(error)),
    }
}

impl Copy {
    fn play(&self, sim: &Sim, steps: &[PlannedOp]) {
        for step in steps {
            let at = Nanos(self.start.0 + step.at_ns);
            wait_until(sim, at);
            match step.what {
                What::Alloc(ask) => self.alloc(sim, step.slot, ask),
                What::Bulk(ask, count) => self.bulk(sim, step.slot..step.slot + count, ask),
                What::Free(mobility) => self.free(sim, step.slot, mobility),
                What::FreeOld(ask) => self.free_old(sim, ask),
                What::Split(order, first) => self.split(sim, step.slot, order, first),
            }
        }
        let end = self.start.0 + steps.last().map_or(0, |step| step.at_ns);
        let lag = sim.now().since(Nanos(end));
        self.tally.lag.set(self.tally.lag.get().max(lag.0));
    }

    fn alloc(&self, sim: &Sim, slot: u32, ask: ZoneRequest) {
        let pages = self.mm.pages();
        let any = Request::new(ask.order).of_mobility(ask.mobility);
        let got = match &self.memory {
            // Allocate from the zone that stands for the recorded zone or, if this zone has no
            // block, from any zone.
            Some(memory) => pages
                .alloc(sim, memory.request(sim, ask).urgent(Urgency::NoWait))
                .or_else(|_| pages.alloc(sim, any)),
            None => pages.alloc(sim, any),
        };
        match got {
            Ok(pfn) => self.blocks[slot as usize].set(Some((pfn, ask.order))),
            Err(_) => self.tally.failed.set(self.tally.failed.get() + 1),
        }
    }

    fn bulk(&self, sim: &Sim, slots: Range<u32>, ask: ZoneRequest) {
        let mut pfns = vec![Pfn(0); slots.len()];
        let memory = self.memory.as_ref();
        let request = memory.map(|memory| memory.request(sim, ask));
        let got = request.map_or(0, |request| {
            self.mm.pages().alloc_bulk(sim, request, &mut pfns)
        });
        for (at, slot) in slots.enumerate() {
            match pfns[..got].get(at) {
                Some(&pfn) => self.blocks[slot as usize].set(Some((pfn, Order::ZERO))),
                // If the bulk allocation supplied too few pages, the CPU allocates the missing
                // pages singly, as Linux's callers do.
                None => self.alloc(sim, slot, ask),
            }
        }
    }

    fn free(&self, sim: &Sim, slot: u32, mobility: Option<Mobility>) {
        match self.wait_for(sim, slot) {
            Some((pfn, order)) => self.give(sim, pfn, order, mobility),
            None => self.tally.dropped.set(self.tally.dropped.get() + 1),
        }
    }

    fn give(&self, sim: &Sim, pfn: Pfn, order: Order, mobility: Option<Mobility>) {
        let pages = self.mm.pages();
        let freed = match mobility {
            Some(mobility) => pages.free_as(sim, pfn, order, mobility),
            None => pages.free(sim, pfn, order),
        };
        freed.expect("a slot is freed once, with its own order");
    }

    fn free_old(&self, sim: &Sim, ask: ZoneRequest) {
        let memory = self.memory.as_ref();
        match memory.and_then(|memory| memory.take_old(&self.mm, sim, ask)) {
            Some(pfn) => self.give(sim, pfn, ask.order, Some(ask.mobility)),
            None => self.tally.dropped.set(self.tally.dropped.get() + 1),
        }
    }

    fn split(&self, sim: &Sim, slot: u32, order: Order, first: u32) {
        let Some((pfn, whole)) = self.wait_for(sim, slot) else {
            return;
        };
        let split = self.mm.pages().split_to(sim, pfn, whole, order);
        split.expect("the block of a slot was handed out with its order");
        let parts = (pfn.0..pfn.0 + whole.pages().0).step_by(order.pages().0 as usize);
        for (slot, frame) in (first..).zip(parts) {
            self.blocks[slot as usize].set(Some((Pfn(frame), order)));
        }
    }

    /// Takes the block of `slot`, or returns `None` if no CPU allocates the block in time. The CPU
    /// that allocates the block may do so later than in the recording, so this function sleeps
    /// until that CPU has caught up.
    fn wait_for(&self, sim: &Sim, slot: u32) -> Option<(Pfn, Order)> {
        for _turn in 0..WAIT_STEPS_MAX {
            if let Some(block) = self.blocks[slot as usize].take() {
                return Some(block);
            }
            sim.sleep(WAIT_STEP);
        }
        None
    }
}

/// Waits until the time `at`, as a program would do: sleeps if the wait is long, and computes if
/// the wait is short.
fn wait_until(sim: &Sim, at: Nanos) {
    const SHORT: Nanos = Nanos(20_000);
    let gap = at.since(sim.now());
    if gap > SHORT {
        sim.sleep_until(at);
    } else if gap.0 > 0 {
        sim.spend(Work::Think, u32::try_from(gap.0).unwrap_or(u32::MAX));
    }
}
