//! Doing what a plan says, on a simulated machine.

use std::cell::Cell;
use std::rc::Rc;

use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::Request;
use plimsoll_mm::site::Work;
use plimsoll_mm::units::{CpuId, Nanos, Order, Pfn};
use plimsoll_mm::vmstat::Manager;
use plimsoll_recording::Recording;
use plimsoll_sim::profile::Profile;
use plimsoll_sim::{Sim, Stats};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::plan::{Plan, Step, What};
use crate::cases::Case;
use crate::compare::Sample;
use crate::designs::Named;
use crate::holds::HoldLog;
use crate::locks;
use crate::room::Room;

/// Copies start within this time of each other.
const STARTS_WITHIN: Nanos = Nanos::from_ms(10);

/// A free waits so long for its allocation on another CPU before it is dropped.
const WAIT_STEP: Nanos = Nanos(1000);
const WAIT_STEPS_MAX: u32 = 10_000;

/// The results of one run besides its sample.
#[derive(Clone, Debug)]
pub(super) struct Performed {
    pub(super) stats: Stats,
    pub(super) holds: HoldLog,
    /// Allocations that got nothing.
    pub(super) failed: u64,
    /// Frees that came long before their allocation.
    pub(super) dropped: u64,
    /// How far behind the recording the slowest CPU ended.
    pub(super) lag: Nanos,
    /// The run as a recording, if it was to be one.
    pub(super) recording: Option<Recording>,
}

/// Where a plan is performed.
pub(super) struct Scene<'a> {
    pub(super) profile: &'a Profile,
    /// How many copies run side by side.
    pub(super) scale: u32,
    /// The recording's name.
    pub(super) file: &'a str,
    /// How many events a recording of this run may have, if it is to be recorded.
    pub(super) record: Option<usize>,
}

/// What the CPUs of one copy share.
struct Copy {
    mm: Rc<Manager<Sim>>,
    /// The block of each slot, while it is allocated.
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

pub(super) fn run(plan: &Plan, scene: &Scene<'_>, case: &Case<Named>) -> (Sample, Performed) {
    let (scale, seed) = (scene.scale, case.seed);
    let room = Room::new(scene.profile, case.design.design, seed);
    let recorder = scene.record.map(|events_max| room.record(events_max));
    let streams: Rc<Vec<Vec<Step>>> = Rc::new(plan.streams.clone());
    let tally = Rc::new(Tally::default());
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    for nth in 0..scale {
        let start = Nanos(if nth == 0 {
            0
        } else {
            rng.random_range(0..STARTS_WITHIN.0)
        });
        let copy = Rc::new(Copy {
            mm: Rc::clone(&room.mm),
            blocks: (0..plan.slots).map(|_| Cell::new(None)).collect(),
            start,
            tally: Rc::clone(&tally),
        });
        for stream in 0..plan.cpus() {
            let (copy, streams) = (Rc::clone(&copy), Rc::clone(&streams));
            let cpu = CpuId(nth * plan.cpus() + stream);
            room.sim
                .spawn(cpu, move |sim| copy.play(sim, &streams[stream as usize]));
        }
    }
    room.sim.run();
    let recording = recorder.map(|recorder| {
        let release = format!("{} on {}", case.design.name, scene.profile.name);
        let command = format!("replay of {}, {scale} times, seed {seed}", scene.file);
        recorder.finish(&room.sim, release, command)
    });
    let (stats, log) = room.finish();
    let sample = Sample {
        hash: stats.hash,
        metrics: locks::metrics(&stats, &log.holds),
    };
    let performed = Performed {
        stats,
        holds: log.holds,
        failed: tally.failed.get(),
        dropped: tally.dropped.get(),
        lag: Nanos(tally.lag.get()),
        recording,
    };
    (sample, performed)
}

impl Copy {
    fn play(&self, sim: &Sim, steps: &[Step]) {
        for step in steps {
            let at = Nanos(self.start.0 + step.at_ns);
            wait_until(sim, at);
            match step.what {
                What::Alloc(order) => self.alloc(sim, step.slot, order),
                What::Free => self.free(sim, step.slot),
            }
        }
        let end = self.start.0 + steps.last().map_or(0, |step| step.at_ns);
        let lag = sim.now().since(Nanos(end));
        self.tally.lag.set(self.tally.lag.get().max(lag.0));
    }

    fn alloc(&self, sim: &Sim, slot: u32, order: Order) {
        match self.mm.pages().alloc(sim, Request::new(order)) {
            Ok(pfn) => self.blocks[slot as usize].set(Some((pfn, order))),
            Err(_) => self.tally.failed.set(self.tally.failed.get() + 1),
        }
    }

    fn free(&self, sim: &Sim, slot: u32) {
        let block = &self.blocks[slot as usize];
        // The CPU that allocates may be behind; it ends because each turn lets it go first.
        for _turn in 0..WAIT_STEPS_MAX {
            if let Some((pfn, order)) = block.take() {
                let freed = self.mm.pages().free(sim, pfn, order);
                freed.expect("a slot is freed once, with its own order");
                return;
            }
            sim.sleep(WAIT_STEP);
        }
        self.tally.dropped.set(self.tally.dropped.get() + 1);
    }
}

/// Sleeps over long gaps and computes over short ones, as a program would.
fn wait_until(sim: &Sim, at: Nanos) {
    const SHORT: Nanos = Nanos(20_000);
    let gap = at.since(sim.now());
    if gap > SHORT {
        sim.sleep_until(at);
    } else if gap.0 > 0 {
        sim.spend(Work::Think, u32::try_from(gap.0).unwrap_or(u32::MAX));
    }
}
