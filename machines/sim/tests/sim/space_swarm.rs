//! Runs random machines with random address spaces and random kills. Whichever CPUs empty an
//! address space together, no page is lost, freed twice or left behind.
//!
//! A run has two acts. During the first, every process lives. During the second, every process
//! ends: it is killed or exits, alone or with other threads that help to empty its memory.
//!
//! Nightly, in release:
//! `PLIMSOLL_SEEDS=10000 cargo test --release -p plimsoll-sim --test sim space_swarm::`

use crate::support;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::FreeIndex;
use plimsoll_mm::space::reap::Reaping;
use plimsoll_mm::units::{CpuId, Nanos};
use plimsoll_sim::Sim;
use support::check_holds::HoldLimit;
use support::check_owners::Owners;
use support::check_spaces::{self, Phases};
use support::check_tables::Sweeps;
use support::presses;
use support::space_actor::Actor;
use support::space_shared::{Met, SpaceShared};
use support::space_user::User;
use support::{check_whole, seeds};

/// One run of the swarm: the state that its tasks share, and the checkers that observe the run.
struct Play {
    sim: Sim,
    shared: Rc<SpaceShared>,
    owners: Rc<RefCell<Owners>>,
    phases: Rc<RefCell<Phases>>,
}

impl Play {
    fn new(seed: u64) -> Self {
        let (sim, shared) = SpaceShared::new(seed);
        let shared = Rc::new(shared);
        if let Some(reclaim) = &shared.reclaim {
            reclaim.embedder().set(&shared);
        }
        let owners = Rc::new(RefCell::new(Owners::new(&shared.layout)));
        let phases: Rc<RefCell<Phases>> = Rc::default();
        let limit = HoldLimit::new(shared.design.holds, FreeIndex::Lists);
        let sweeps = Sweeps::new(shared.design.reaping);
        let (watch, notes) = (Rc::clone(&owners), Rc::clone(&phases));
        sim.observe_pages();
        let played = Rc::downgrade(&shared);
        sim.observe(move |sim, _, _, event| {
            if let Some(shared) = played.upgrade() {
                presses::note(&shared, event);
            }
            watch.borrow_mut().note(event);
            notes.borrow_mut().note(event);
            limit.note(event);
            sweeps.note(sim, event);
        });
        let (jobs, idle) = (Rc::clone(&shared), Rc::clone(&shared));
        sim.on_job(move |sim, job| {
            if !jobs.over.get() {
                jobs.mm.run(sim, job);
            }
        });
        sim.on_idle(move |sim| idle.mm.quiet(sim));
        if shared.plan.vmstat {
            shared.mm.start(&sim);
        }
        Self {
            sim,
            shared,
            owners,
            phases,
        }
    }

    /// Runs all threads. No process ends while they run. Returns each thread with its CPU.
    fn first_act(&self) -> Vec<(CpuId, User)> {
        let cpus: Vec<CpuId> = self.sim.topology().ids().collect();
        let mut cpus = cpus.iter().copied().cycle();
        let acting: Rc<RefCell<Vec<(CpuId, User)>>> = Rc::default();
        for process in 0..self.shared.processes.len() {
            for number in 0..self.shared.plan.users {
                let cpu = cpus.next().expect("there are CPUs");
                let mut user = User::new(&self.shared, &self.sim, process, number);
                let done = Rc::clone(&acting);
                self.sim.spawn(cpu, move |sim| {
                    user.act(sim);
                    done.borrow_mut().push((cpu, user));
                });
            }
        }
        self.spawn(0, 1, Actor::swap);
        self.spawn(50, 1, Actor::press);
        self.sim.run();
        self.run_on();
        let owners = self.owners.borrow().clone();
        check_spaces::check_quiet(&self.sim, &self.shared, &owners);
        acting.take()
    }

    /// Lets the threads of `cast` continue while other tasks kill processes and help to empty their
    /// memory. Runs until all processes have ended.
    fn second_act(&self, cast: Vec<(CpuId, User)>) {
        for (cpu, user) in cast {
            self.sim.spawn(cpu, move |sim| user.act_and_leave(sim));
        }
        let plan = self.shared.plan;
        self.spawn(10, 1, Actor::kill);
        self.spawn(20, plan.helpers, Actor::help);
        self.spawn(30, plan.swappers, Actor::swap);
        self.spawn(40, u32::from(plan.hotplug), Actor::plug);
        self.spawn(60, 2, Actor::press);
        self.sim.run();
        self.run_on();
        let which = Reaping::ALL
            .iter()
            .position(|reaping| *reaping == self.shared.design.reaping);
        let which = which.expect("all variants are known");
        self.shared.note(|met| met.ended_by[which] += 1);
    }

    /// Starts `count` actors, numbered from `first` on. Each actor runs on the CPU below the CPU of
    /// the actor before it; after CPU 0 comes the highest CPU again.
    fn spawn(&self, first: u32, count: u32, act: fn(Actor, &Sim)) {
        let cpus = self.sim.topology().cpus();
        for who in first..first + count {
            let actor = Actor::new(&self.shared, &self.sim, u64::from(who));
            let cpu = CpuId(cpus - 1 - who % cpus);
            self.sim.spawn(cpu, move |sim| act(actor, sim));
        }
    }

    /// Runs the machine for 5 ms more, which is long enough for kernel work in progress to finish.
    fn run_on(&self) {
        self.sim.run_until(Nanos(self.sim.now().0 + 5_000_000));
    }

    fn check(&self) {
        let (sim, shared) = (&self.sim, &self.shared);
        shared.over.set(true);
        self.run_on();
        check_spaces::check_ended(sim, shared);
        self.phases.borrow().check(shared.processes.len());
        for object in &shared.objects {
            shared.memory(sim).release_file(object);
        }
        let owners = self.owners.borrow().clone();
        assert_eq!(owners.blocks(), [], "no space has a page");
        check_whole::check(sim, shared.mm.pages(), &shared.layout, &owners);
    }

    /// Destroys the address spaces, whose counters must be zero. Returns the counts of rare cases.
    fn strike(self) -> Met {
        let Self { sim, shared, .. } = self;
        sim.on_job(|_, _| {});
        sim.on_idle(|_| {});
        let shared = Rc::into_inner(shared).expect("no actor is on it any more");
        let mut met = shared.met.into_inner();
        for process in shared.processes {
            met.given_up += process.shadow.given_up();
            let space = Arc::into_inner(process.space).expect("it is enlisted no more");
            assert_eq!(space.destroy(&sim), Ok(()));
        }
        met
    }

    fn play(seed: u64) -> Met {
        let play = Self::new(seed);
        let cast = play.first_act();
        play.second_act(cast);
        play.check();
        play.strike()
    }
}

#[test]
fn nothing_is_left_of_those_who_end() {
    seeds::each("nothing_is_left_of_those_who_end", 200, |seed| {
        Play::play(seed);
    });
}

#[test]
fn a_seed_is_a_run() {
    for seed in 0..3 {
        let stats = || {
            let play = Play::new(seed);
            let cast = play.first_act();
            play.second_act(cast);
            play.sim.stats()
        };
        assert_eq!(stats(), stats());
    }
}

/// Checks that every rare case occurs in the swarm. Among these cases: a thread that empties an
/// address space gives way to another thread, is refused by a listener (Linux: MMU notifier), or
/// meets a helper such as the reaper. A swarm without these cases would prove little.
#[test]
fn the_swarm_meets_what_it_is_for() {
    let mut met = [0_u64; 22];
    for seed in 0..100 {
        let run = Play::play(seed);
        let now = [
            run.out_of_memory,
            run.over_budget,
            run.unstable,
            run.killed_waiting,
            run.swapped_in,
            run.huge,
            run.gave_way,
            run.partly,
            run.busy,
            run.left_to_helpers,
            run.given_up,
        ];
        let now = now.into_iter().chain(run.elsewhere);
        let now = now.chain(run.compared).chain(run.ended_by);
        let now = now.chain(run.reclaimed);
        met.iter_mut()
            .zip(now)
            .for_each(|(sum, now)| *sum += u64::from(now > 0));
    }
    assert!(
        met.iter().all(|&runs| runs >= 3),
        "runs that met each: {met:?}"
    );
}
