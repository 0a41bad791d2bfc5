//! Runs random machines with random memory, designs and faults, and checks that all promises
//! (statements that must hold in every run) hold. Each file `check_*.rs` checks one promise.
//!
//! Nightly, in release (about two minutes of one core):
//! `PLIMSOLL_SEEDS=10000 cargo test --release -p plimsoll-sim --test sim swarm::`

use crate::support;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plimsoll_mm::Manager;
use plimsoll_mm::event::Event;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::{ZoneKind, ZoneView};
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::{CpuId, Nanos, Order, Pages};
use plimsoll_mm::vmstat::counters::{NodeItem, ZoneItem};
use plimsoll_sim::Sim;
use support::actor::{Actor, Shared};
use support::cache::Cache;
use support::check_holds::HoldLimit;
use support::check_owners::Owners;
use support::scenario::Scenario;
use support::{check_shepherd, check_whole, seeds, small};

/// One run of the swarm: the state that its tasks share, and the checkers that observe
/// the run.
struct Play {
    sim: Sim,
    shared: Rc<Shared>,
    owners: Rc<RefCell<Owners>>,
}

impl Play {
    fn new(scenario: Scenario) -> Self {
        let sim = Sim::new(&scenario.profile, scenario.options.clone());
        let cache = Cache::default();
        let mut config = scenario.config();
        if scenario.odds.reclaim {
            config.reclaimers.push(Box::new(cache.clone()));
        }
        let mm = Manager::new(&sim, config).expect("a random layout is possible");
        let owners = Rc::new(RefCell::new(Owners::new(&scenario.layout)));
        let limit = HoldLimit::new(scenario.design.holds, scenario.layout.index);
        let kept_by_tasks = scenario.options.fronts.then(|| Rc::clone(&owners));
        let watch = kept_by_tasks.is_none().then(|| Rc::clone(&owners));
        sim.observe_pages();
        sim.observe(move |_, _, _, event| {
            if let Some(owners) = &watch {
                owners.borrow_mut().note(event);
            }
            limit.note(event);
        });
        let shared = Rc::new(Shared::new(scenario, mm, cache, kept_by_tasks));
        let (jobs, idle) = (Rc::clone(&shared), Rc::clone(&shared));
        sim.on_job(move |sim, job| {
            if !jobs.over.get() {
                jobs.mm.run(sim, job);
            }
        });
        sim.on_idle(move |sim| idle.mm.quiet(sim));
        Self {
            sim,
            shared,
            owners,
        }
    }

    fn run(&self) {
        let scenario = &self.shared.scenario;
        self.shared.fill(&self.sim);
        if scenario.odds.vmstat {
            self.shared.mm.start(&self.sim);
        }
        let cpus = self.sim.topology().cpus();
        for task in 0..cpus * scenario.tasks {
            let actor = Actor::new(&self.shared, &self.sim, u64::from(task));
            self.sim.spawn(CpuId(task % cpus), |sim| actor.act(sim));
        }
        self.sim.run();
        self.run_on();
    }

    /// Runs the machine for 5 ms more, which is long enough for kernel work in progress to finish.
    fn run_on(&self) {
        self.sim.run_until(Nanos(self.sim.now().0 + 5_000_000));
    }

    fn check(&self) {
        let (sim, mm, layout) = (&self.sim, &self.shared.mm, &self.shared.scenario.layout);
        if self.shared.scenario.odds.vmstat {
            check_shepherd::check(sim);
        }
        self.shared.over.set(true);
        self.run_on();
        for cpu in sim.topology().ids().filter(|&cpu| !sim.is_online(cpu)) {
            let left = mm.pages().listed(sim, cpu);
            assert_eq!(left, Pages::ZERO, "{cpu:?} is offline and has no page");
        }
        check_whole::check(sim, mm.pages(), layout, &self.owners());
        let [zone, node] = &self.shared.counted;
        let counted = [
            mm.pages().counted(sim, ZoneItem::Anon),
            mm.counted_on_nodes(sim, NodeItem::AnonMapped),
        ];
        let sums = [zone, node].map(|sum| u64::try_from(sum.get()).expect("never below zero"));
        // The counter of each zone or node is clamped at zero, so the sum of the counters may be
        // larger than the expected sum.
        assert!(
            counted[0] >= sums[0] && counted[1] >= sums[1],
            "{counted:?} {sums:?}"
        );
        self.everything_comes_back();
    }

    /// Returns a copy of the owners of all pages. The checks of the zones emit events that change
    /// the original.
    fn owners(&self) -> Owners {
        self.owners.borrow().clone()
    }

    /// Frees all pages. Checks that no page is then missing from the zones, and that every block of
    /// the largest order can be allocated.
    fn everything_comes_back(&self) {
        let (sim, pages) = (&self.sim, self.shared.mm.pages());
        self.shared.cache.forget();
        for (pfn, order) in self.owners().blocks() {
            self.shared.gives(pfn, order);
            pages.free(sim, pfn, order).expect("events name the owner");
        }
        check_whole::check(sim, pages, &self.shared.scenario.layout, &self.owners());
        let largest = |view: &ZoneView| view.blocks[Order::MAX.index()];
        let count: u32 = pages.view(sim).iter().map(largest).sum();
        let mut request = small::any(Order::MAX);
        request.class = ZoneKind::Movable;
        for _ in 0..count {
            pages
                .alloc(sim, request)
                .expect("a block of that order exists");
        }
        pages.alloc(sim, request).expect_err("all are taken");
    }
}

/// Makes one run for each of the first `count` seeds, unless the environment chooses other seeds, and
/// checks the promises. `test` is the name of the test.
fn promises_hold(test: &str, count: u64, scenario: fn(u64) -> Scenario) {
    seeds::each(test, count, |seed| {
        let play = Play::new(scenario(seed));
        play.run();
        play.check();
    });
}

#[test]
fn promises_hold_on_random_machines() {
    promises_hold("promises_hold_on_random_machines", 200, Scenario::new);
}

#[test]
fn cpus_that_go_offline_leave_no_page_behind() {
    promises_hold(
        "cpus_that_go_offline_leave_no_page_behind",
        100,
        Scenario::with_owners_that_leave,
    );
}

#[test]
fn promises_hold_with_fronts() {
    promises_hold("promises_hold_with_fronts", 200, Scenario::with_fronts);
}

/// Checks that rare cases occur in the swarm with fronts (the CPUs' stacks of free pages): tasks
/// allocate from fronts, runs of 64 pages move in both directions under one hold of the zone lock,
/// page lists are drained, and CPUs stay offline.
#[test]
fn the_swarm_with_fronts_meets_what_it_is_for() {
    let mut met = [0_u64; 5];
    for seed in 0..60 {
        let play = Play::new(Scenario::with_fronts(seed));
        let seen: Rc<Cell<[u64; 4]>> = Rc::default();
        let notes = Rc::clone(&seen);
        play.sim.observe(move |_, _, _, event| {
            let mut seen = notes.get();
            match *event {
                Event::PageAlloc { .. } => seen[0] += 1,
                Event::ZoneHold {
                    site,
                    pages: Pages(64),
                    ..
                } => match site {
                    Site::Refill => seen[1] += 1,
                    Site::Spill => seen[2] += 1,
                    _ => {}
                },
                Event::PcpuDrain { .. } => seen[3] += 1,
                _ => {}
            }
            notes.set(seen);
        });
        play.run();
        let [seen_allocs, refills, spills, drains] = seen.get();
        let offline = play
            .sim
            .topology()
            .ids()
            .any(|cpu| !play.sim.is_online(cpu));
        let now = [
            play.shared.taken.get().saturating_sub(seen_allocs),
            refills,
            spills,
            drains,
            u64::from(offline),
        ];
        met.iter_mut()
            .zip(now)
            .for_each(|(runs, now)| *runs += u64::from(now > 0));
    }
    assert!(
        met.iter().all(|&runs| runs >= 3),
        "runs that met each: {met:?}"
    );
}

#[test]
fn a_seed_is_a_run() {
    for seed in 0..3 {
        let stats = || {
            let play = Play::new(Scenario::new(seed));
            play.run();
            play.sim.stats()
        };
        assert_eq!(stats(), stats());
    }
}

/// Checks that every rare case occurs in the swarm (a set of random runs). A swarm in which memory
/// never runs out, or no CPU ever goes offline, would prove little.
#[test]
fn the_swarm_meets_what_it_is_for() {
    let mut met = [0_u64; 6];
    for seed in 0..60 {
        let play = Play::new(Scenario::new(seed));
        play.run();
        let (stats, scenario) = (play.sim.stats(), &play.shared.scenario);
        let pcp = stats.class(LockClass::Pcp);
        let offline = play
            .sim
            .topology()
            .ids()
            .any(|cpu| !play.sim.is_online(cpu));
        let now = [
            u64::from(play.shared.out_of_memory.get() > 0),
            u64::from(pcp.failed_tries > 0),
            u64::from(stats.jobs_run[0] > 0),
            u64::from(offline),
            u64::from(stats.migrations > 0 && stats.stalls > 0),
            u64::from(scenario.odds.reclaim),
        ];
        met.iter_mut().zip(now).for_each(|(sum, now)| *sum += now);
    }
    assert!(
        met.iter().all(|&runs| runs >= 3),
        "runs that met each: {met:?}"
    );
}
