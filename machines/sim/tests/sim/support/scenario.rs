//! A random machine with random memory and a random design, and the odds of each kind of step.
//!
//! This is swarm testing: each run disables some kinds of event completely. So the other kinds
//! coincide in ways that a run with all kinds would rarely reach.

use std::ops::Range;

use plimsoll_mm::design::{Design, HOLDS, SCHEDULES, SHEPHERDS};
use plimsoll_mm::page::owned::Owning;
use plimsoll_mm::page::{Config, Layout, ZoneKind, ZoneLayout};
use plimsoll_mm::topology::{CpuPlace, Topology};
use plimsoll_mm::tunables::{Knob, Tunables};
use plimsoll_mm::units::{Nanos, NodeId, Pages, Pfn};
use plimsoll_sim::profile::Profile;
use plimsoll_sim::{Faults, LockModel, Sim, SimOptions};

use super::dice::Dice;
use super::small;

/// All the parameters that determine a run.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) profile: Profile,
    pub(crate) options: SimOptions,
    pub(crate) layout: Layout,
    pub(crate) design: Design,
    pub(crate) tunables: Tunables,
    pub(crate) cache_slice: Pages,
    /// The number of tasks per CPU.
    pub(crate) tasks: u32,
    /// The number of steps of each task.
    pub(crate) steps: u32,
    /// Before each step, a task does local work for less than this number of nanoseconds.
    pub(crate) think_ns: u32,
    /// After a CPU has stopped, it stays offline for up to this time, or until the end of the run.
    pub(crate) offline_for: Nanos,
    /// The largest number of blocks that a task allocates in one step.
    pub(crate) burst: u32,
    /// The approximate number of pages that are free when the tasks start. All other pages are
    /// allocated before the tasks start, so that memory runs out sooner.
    pub(crate) left: u32,
    /// The largest order that tasks allocate.
    pub(crate) order_max: u8,
    pub(crate) odds: Odds,
}

/// The weight of each kind of step. The probability of a step is its weight divided by the sum of
/// all weights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Odds {
    pub(crate) alloc: u32,
    pub(crate) free: u32,
    /// The weight of this step: a task passes a block to another task, which then frees the block.
    pub(crate) pass_on: u32,
    pub(crate) free_many: u32,
    pub(crate) free_badly: u32,
    pub(crate) drain: u32,
    pub(crate) tune: u32,
    pub(crate) hotplug: u32,
    pub(crate) migrate: u32,
    pub(crate) sleep: u32,
    pub(crate) count: u32,
    /// True if the vmstat work runs.
    pub(crate) vmstat: bool,
    /// True if a reclaimer is registered that has pages to free.
    pub(crate) reclaim: bool,
}

impl Scenario {
    /// Draws a random scenario from `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        let dice = &mut Dice::new(seed, 0);
        let (cpus, nodes) = (dice.between(1, 24), dice.between(1, 3));
        let hz = *dice.pick(&[100, 250, 300, 1000]);
        let mut tunables = Tunables::default();
        for _ in 0..dice.below(4) {
            let (knob, value) = knob(dice);
            tunables.set(knob, value).expect("drawn within its bounds");
        }
        // A run lasts only milliseconds. So the interval of the vmstat work is short: otherwise
        // this work would never come due in a run.
        tunables
            .set(Knob::StatInterval, u64::from(dice.between(1, 20)))
            .expect("in bounds");
        let is_large = dice.chance(30);
        let layout = layout(dice, nodes, is_large);
        Self {
            profile: small::profile(topology(dice, cpus, nodes), hz),
            options: options(dice, seed),
            layout,
            design: Design {
                schedule: *dice.pick(&SCHEDULES),
                shepherd: *dice.pick(&SHEPHERDS),
                holds: *dice.pick(&HOLDS),
                // This choice is computed from the seed and not drawn from `dice`. So the other
                // choices of each seed stayed the same when this choice was added.
                owning: Owning::ALL[usize::try_from(seed).expect("64 bits") % Owning::ALL.len()],
                ..Design::OURS
            },
            tunables,
            cache_slice: Pages(*dice.pick(&[0, 2, 8, 256])),
            tasks: dice.between(1, 3),
            steps: dice.between(50, 400),
            think_ns: 3000,
            offline_for: Nanos(4_000_000),
            burst: *dice.pick(if is_large { &[40, 500] } else { &[1, 40] }),
            left: dice.between(1000, 12_000),
            order_max: *dice.pick(&[0, 1, 3, 9, 10]),
            odds: odds(dice),
        }
    }

    /// Draws a scenario for `seed` in which CPUs that own blocks go offline again and again, while
    /// the other CPUs free pages of these blocks.
    ///
    /// The tasks are preempted often, and do little local work between their steps. So when a CPU
    /// loses its blocks, some other task has often read that this CPU owns a page, but has not yet
    /// sent the page to the CPU.
    pub(crate) fn with_owners_that_leave(seed: u64) -> Self {
        let dice = &mut Dice::new(seed, u64::MAX);
        let drawn = Self::new(seed);
        // Tasks free more than they allocate, so that memory seldom runs out. An allocation that
        // finds no memory drains all lists, and so finds the pages that a CPU has left behind.
        let odds = Odds {
            alloc: 20,
            free: 25,
            pass_on: 20,
            hotplug: 20,
            drain: 0,
            reclaim: false,
            ..drawn.odds
        };
        Self {
            profile: small::profile(Topology::flat(dice.between(3, 6)), 1000),
            options: SimOptions {
                shake_ns: *dice.pick(&[100, 1000, 5000]),
                faults: Faults::default(),
                slice: Nanos(u64::from(dice.between(1000, 20_000))),
                ..drawn.options
            },
            layout: Layout::arena(Pages(*dice.pick(&[300, 2000, 20_000]))),
            design: Design {
                owning: Owning::Inbox,
                ..drawn.design
            },
            tasks: 3,
            // A CPU is offline for more than 2 ms, and a run must last longer.
            steps: dice.between(2000, 12_000),
            think_ns: 100,
            offline_for: Nanos(500_000),
            burst: 10,
            left: 12_000,
            order_max: 1,
            odds,
            ..drawn
        }
    }

    /// Draws a scenario for `seed` in which the CPUs have fronts (stacks of free pages), most zones have
    /// bitmaps, and tasks allocate and free many pages in a row.
    pub(crate) fn with_fronts(seed: u64) -> Self {
        let dice = &mut Dice::new(seed, u64::MAX - 1);
        let drawn = Self::new(seed);
        let mut layout = match dice.below(3) {
            0 => drawn.layout,
            1 => drawn.layout.with_bitmaps(),
            _ => Layout::arena(Pages(*dice.pick(&[2000, 20_000]))).with_bitmaps(),
        };
        let mut tunables = drawn.tunables;
        let mut profile = drawn.profile;
        let mut bursts: &[u32] = &[1, 40, 500];
        if dice.chance(40) {
            // In a large zone with few CPUs, fronts are long. Tasks can fill the lists behind them.
            layout = Layout::arena(Pages(1 << 18)).with_bitmaps();
            profile = small::profile(Topology::flat(dice.between(1, 3)), 1000);
            bursts = &[500, 6000];
            let fraction = *dice.pick(&[8, 40, 100]);
            tunables
                .set(Knob::HighFraction, fraction)
                .expect("in bounds");
        }
        Self {
            profile,
            options: SimOptions {
                fronts: true,
                ..drawn.options
            },
            layout,
            design: Design {
                owning: Owning::None,
                ..drawn.design
            },
            tunables,
            burst: *dice.pick(bursts),
            left: dice.between(1000, 60_000),
            order_max: *dice.pick(&[0, 0, 1, 9, 10]),
            odds: Odds {
                alloc: dice.between(20, 40),
                free_many: dice.between(0, 40),
                drain: dice.between(0, 4),
                // The reclaimer of these tests frees pages, but does not note their owners.
                reclaim: false,
                ..drawn.odds
            },
            ..drawn
        }
    }

    /// Returns the configuration of the manager, without reclaimers.
    pub(crate) fn config(&self) -> Config<Sim> {
        let mut config = Config::new(self.layout.clone());
        config.design = self.design;
        config.tunables = self.tunables;
        config.cache_slice = self.cache_slice;
        config
    }
}

/// Draws a topology, with or without SMT. Either neighbouring cores share a node, or cores are
/// assigned to the nodes in turn.
pub(crate) fn topology(dice: &mut Dice, cpus: u32, nodes: u32) -> Topology {
    let (in_turns, threads) = (dice.chance(30), dice.between(1, 2));
    let cores = cpus.div_ceil(threads);
    let place = |cpu: u32| {
        let core = cpu / threads;
        let node = if in_turns {
            core % nodes
        } else {
            core * nodes / cores
        };
        CpuPlace {
            core,
            llc: node,
            node: NodeId(node),
            socket: node / 2,
        }
    };
    Topology::new((0..cpus).map(place).collect())
}

/// Draws a few small zones, with gaps between them and holes inside. If `is_large` is true, the
/// first zone is large enough for a batch of more than a page or two.
fn layout(dice: &mut Dice, nodes: u32, is_large: bool) -> Layout {
    let mut zones = Vec::new();
    let mut start = 1024 * dice.below(3);
    for node in (0..nodes).map(NodeId) {
        for kind in ZoneKind::ALL {
            let wanted = if kind == ZoneKind::Normal { 90 } else { 30 };
            if !dice.chance(wanted) {
                continue;
            }
            let spanned = if is_large && zones.is_empty() {
                dice.between(1 << 15, (1 << 18) + 5000)
            } else {
                let most = *dice.pick(&[40, 1500, 5000]);
                dice.between(1, most)
            };
            let spanned = Pages(spanned);
            let holes = holes(dice, start..start + spanned.0);
            zones.push(ZoneLayout {
                kind,
                node,
                start: Pfn(start),
                spanned,
                holes,
            });
            start = (start + spanned.0).next_multiple_of(1024) + 1024 * dice.below(3);
        }
    }
    if zones.is_empty() {
        return Layout::arena(Pages(dice.between(1, 3000)));
    }
    let layout = Layout::of(zones);
    if dice.chance(50) {
        layout.lazily()
    } else {
        layout
    }
}

/// Draws up to four holes in `span`, which never cover all of it.
fn holes(dice: &mut Dice, span: Range<u32>) -> Vec<Range<u32>> {
    let (mut holes, mut from) = (Vec::new(), span.start);
    for _ in 0..dice.below(5) {
        let start = from + dice.below(span.end.saturating_sub(from));
        let end = (start + dice.between(1, 300)).min(span.end - 1);
        if start < end {
            holes.push(start..end);
            from = end;
        }
    }
    holes
}

pub(crate) fn options(dice: &mut Dice, seed: u64) -> SimOptions {
    let mut faults = Faults::default();
    if dice.chance(40) {
        faults.stall_every = Nanos(u64::from(dice.between(100_000, 2_000_000)));
        faults.stall_for = Nanos(u64::from(dice.between(1000, 300_000)));
    }
    if dice.chance(40) {
        faults.migrate_every = Nanos(u64::from(dice.between(50_000, 2_000_000)));
    }
    if dice.chance(40) {
        faults.timer_late_jiffies = u64::from(dice.between(1, 5));
    }
    SimOptions {
        seed,
        lock_model: *dice.pick(&[LockModel::RunAhead, LockModel::ReleaseEvent]),
        strict: dice.chance(50),
        slice: Nanos(u64::from(dice.between(10_000, 3_000_000))),
        shake_ns: *dice.pick(&[0, 0, 100, 1000]),
        faults,
        jitter: dice.chance(30),
        ..SimOptions::default()
    }
}

fn odds(dice: &mut Dice) -> Odds {
    let mut on = |percent: u32, most: u32| {
        if dice.chance(percent) {
            dice.between(1, most)
        } else {
            0
        }
    };
    Odds {
        alloc: 20 + on(50, 30),
        free: 10 + on(50, 30),
        pass_on: on(60, 10),
        free_many: on(60, 10),
        free_badly: on(50, 5),
        drain: on(50, 4),
        tune: on(40, 2),
        hotplug: on(40, 2),
        migrate: on(40, 4),
        sleep: on(60, 6),
        count: on(50, 20),
        vmstat: on(80, 1) > 0,
        reclaim: on(40, 1) > 0,
    }
}

/// Draws a knob and a value within its bounds, which is often one of the bounds.
pub(crate) fn knob(dice: &mut Dice) -> (Knob, u64) {
    let knob = *dice.pick(&Knob::ALL);
    let spec = knob.spec();
    let usual = match knob {
        Knob::StatInterval => u64::from(dice.between(1, 50)),
        Knob::BatchScaleMax => u64::from(dice.between(0, 6)),
        Knob::HighFraction => *dice.pick(&[0, 8, 100, u64::from(u32::MAX)]),
        Knob::MinFree => *dice.pick(&[0, 16, 512, 4096]),
        Knob::WatermarkScale => *dice.pick(&[1, 10, 500, 3000]),
        Knob::ReserveRatioDma | Knob::ReserveRatioDma32 | Knob::ReserveRatioNormal => {
            *dice.pick(&[0, 1, 8, 256])
        }
        Knob::HoldTimeMax => *dice.pick(&[0, 1, 500, 20_000]),
    };
    let value = if dice.chance(90) || knob == Knob::StatInterval {
        usual
    } else if dice.chance(50) {
        spec.min
    } else {
        spec.max
    };
    (knob, value)
}
