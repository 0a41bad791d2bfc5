//! A storm: a machine runs out of memory. Processes that allocate (allocators) stall, a victim is
//! killed, and the victim's memory is freed.
//!
//! Each process has memory that several CPUs touched, and its counters are spread over these CPUs.
//! Hogs (processes that allocate until they are killed) grow on several threads, and allocators
//! allocate in bursts, until no memory is left. The settings of a storm do not say which processes
//! are killed, or when. This depends on the last resort, the function that the page allocator calls
//! when reclaim finds nothing (here, the OOM killer). The run ends when every allocator has either
//! got all its memory or died. Then all processes exit, and every page must be free again.
//!
//! The submodule `population` has the processes. `world` has a machine with these processes, their
//! reactions to a kill, and the reaper. `stalls` divides each stall of an allocation into its
//! parts.

mod population;
mod stalls;
mod world;

use std::collections::BTreeMap;
use std::rc::Rc;

use plimsoll_mm::design::Design;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::page::{Request, ZoneKind, ZoneView};
use plimsoll_mm::space::{Access, FaultError, MapRequest, Place};
use plimsoll_mm::units::{CpuId, Nanos, Order, Pages, Vpn};
use plimsoll_sim::Sim;
use plimsoll_sim::profile::Profile;
use rand::RngExt;

pub(crate) use self::population::Headcount;
use self::population::Role;
pub(crate) use self::stalls::{Death, Part, Stall};
pub(crate) use self::world::Kill;
use self::world::StormWorld;
use crate::run::testbed::Testbed;

/// The state at the start of a storm (a run in which the machine runs out of memory), and how the
/// processes behave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Storm {
    /// The number of processes of each kind.
    pub(crate) headcount: Headcount,
    /// The number of pages that can still be allocated when the storm begins.
    pub(crate) free: Pages,
    /// How many bursts of page touches each allocator (a process that allocates in bursts) makes.
    pub(crate) bursts: u32,
    /// How a hog (a process that allocates until it is told to die) dies.
    pub(crate) ending: Ending,
}

/// How a hog (a process that allocates until it is killed) dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The threads of the hog (the process) notice that they must die, and the last of them empties
    /// the hog's memory.
    AtOnce,
    /// The hog (a process that allocates until it is killed) dies as with [`Ending::AtOnce`]. In
    /// addition, a daemon on another CPU is notified of every kill and calls `process_mrelease`.
    Helped,
    /// One thread of each hog (a process that allocates until it is killed) waits for a device. The
    /// device responds at this time after the start of the storm.
    Stuck(Nanos),
}

/// The result of a storm, a run in which the machine runs out of memory.
#[derive(Clone, Debug)]
pub(crate) struct StormResult {
    /// The stalls of the allocators. A stall is left out if the last resort (the OOM killer) was
    /// not called in it, or if it ended after the allocator had been told to die.
    pub(crate) stalls: Vec<Stall>,
    /// The deaths of all processes that were told to die.
    pub(crate) deaths: Vec<Death>,
    /// The state of the processes at each kill.
    pub(crate) kills: Vec<Kill>,
    /// The hash of everything that happened in the run.
    pub(crate) hash: u64,
}

/// The first page of a process's first mapping.
const START: Vpn = Vpn(1 << 20);
/// The distance in pages between the starts of the mappings of a hog (a process that allocates
/// until it is killed).
const APART: u64 = 1 << 24;
/// The number of pages that a hog (a process that allocates until it is killed) touches before it
/// checks whether it must die.
const STEP: u64 = 32;
/// The number of pages that an allocator (a process that allocates in bursts) touches in one burst.
const BURST: u64 = 64;
/// The mean time between two bursts of an allocator (a process that allocates in bursts).
const THINK: Nanos = Nanos::from_ms(2);

impl Storm {
    /// Runs the storm, in which the machine of `profile` runs out of memory, until all processes
    /// have exited.
    ///
    /// # Panics
    /// If a page or a process is left at the end, or a count is not 0. This would be a bug in
    /// Plimsoll.
    #[must_use]
    pub(crate) fn run(&self, profile: &Profile, design: &Design, seed: u64) -> StormResult {
        let population = self.headcount.draw(profile.topology.cpus(), seed);
        let world = StormWorld::new(profile, *design, (population, self.ending), seed);
        let free_at_first = free_pages(&world.testbed);
        settle(&world, self.bursts);
        let taken = fill(&world.testbed, self.free);
        world.watch();
        self.start(&world);
        world.testbed.sim.run();
        self.end(world, free_at_first - taken)
    }

    /// Starts the threads of hogs (processes that allocate until they are killed) and allocators
    /// (processes that allocate in bursts). Also starts the threads of hogs that wait for the
    /// device.
    fn start(&self, world: &Rc<StormWorld>) {
        let sim = &world.testbed.sim;
        let begin = sim.stats().now;
        for (id, proc) in (0..).zip(&world.procs) {
            for (thread, &cpu) in (0..).zip(&proc.spec.threads) {
                let (world, bursts) = (Rc::clone(world), self.bursts);
                let role = proc.spec.role;
                sim.spawn(cpu, move |sim| {
                    sim.sleep_until(begin);
                    world.becomes(sim, id);
                    match role {
                        Role::Hog => grow(sim, &world, id, thread),
                        Role::Allocator => allocate(sim, &world, id, bursts),
                        Role::Sleeper => unreachable!("sleepers have no thread that runs"),
                    }
                    world.thread_ends(sim, id);
                });
            }
            let Ending::Stuck(answers) = self.ending else {
                continue;
            };
            if proc.spec.role == Role::Hog {
                proc.threads.set(proc.threads.get() + 1);
                let device = world.population().device;
                let world = Rc::clone(world);
                sim.spawn(device, move |sim| {
                    sim.sleep_until(begin + answers);
                    world.thread_ends(sim, id);
                });
            }
        }
    }

    fn end(&self, world: Rc<StormWorld>, free_before: u64) -> StormResult {
        let (notes, kills) = (world.seen.notes.take(), world.seen.kills.take());
        let deaths = stalls::deaths(&notes);
        let told = |id| deaths.iter().find(|death| death.process == id);
        let allocators: BTreeMap<CpuId, Option<u64>> = (0..)
            .zip(&world.procs)
            .filter(|(_, proc)| proc.spec.role == Role::Allocator)
            .map(|(id, proc)| (proc.spec.home, told(id).map(|death| death.told)))
            .collect();
        // If an allocator was told to die while it waited, it got a page from the reserves or no
        // page at all. In both cases, the stall does not count.
        let had_page = |stall: &Stall| {
            let dies = allocators.get(&stall.cpu);
            dies.is_some_and(|told| told.is_none_or(|told| stall.span.end <= told))
        };
        let mut stalls = stalls::stalls(&notes, &deaths);
        // A stall that ended without the last resort (the OOM killer) needed no kill, so the result
        // leaves it out.
        stalls.retain(|stall| stall.asked > 0 && had_page(stall));
        let testbed = world.end();
        assert_eq!(free_pages(&testbed), free_before, "a page is lost");
        let (stats, _) = testbed.finish();
        StormResult {
            stalls,
            deaths,
            kills,
            hash: stats.hash,
        }
    }
}

/// Makes every process map all memory that the process can use, and touch the memory that it has at
/// the start.
fn settle(world: &Rc<StormWorld>, bursts: u32) {
    let sim = &world.testbed.sim;
    let cpus = sim.topology().cpus() as usize;
    let mut by_cpu: Vec<Vec<(u32, Vpn, u64)>> = vec![Vec::new(); cpus];
    for (id, proc) in (0..).zip(&world.procs) {
        let mut at = START;
        for &(cpu, pages) in &proc.spec.touched {
            by_cpu[cpu.index()].push((id, at, pages));
            at.0 += pages;
        }
    }
    let mapping = Rc::clone(world);
    sim.spawn(CpuId(0), move |sim| {
        for proc in &mapping.procs {
            let spec = &proc.spec;
            let hog = (0..)
                .zip(&spec.threads)
                .map(|(thread, _)| (thread, APART / 2));
            let own = spec.pages() + u64::from(bursts) * BURST;
            let mappings: Vec<(u64, u64)> = match spec.role {
                Role::Hog => hog.collect(),
                Role::Allocator | Role::Sleeper => vec![(0, own)],
            };
            for (nth, pages) in mappings {
                let request =
                    MapRequest::anonymous(Place::Fixed(Vpn(START.0 + nth * APART)), pages);
                let mapped = proc.space.map(mapping.memory(sim), request);
                mapped.expect("nothing is there");
            }
        }
    });
    sim.run();
    for (cpu, touches) in (0..).map(CpuId).zip(by_cpu) {
        let world = Rc::clone(world);
        sim.spawn(cpu, move |sim| {
            for (id, start, pages) in touches {
                let proc = &world.procs[id as usize];
                let touched = start..Vpn(start.0 + pages);
                let populated = proc.space.populate(world.memory(sim), touched);
                populated.expect("there is memory yet");
                proc.held.set(proc.held.get() + pages);
            }
        });
    }
    sim.run();
}

/// Runs a thread of a hog, which touches one page after another until the hog is told to die.
fn grow(sim: &Sim, world: &StormWorld, id: u32, thread: u64) {
    let proc = &world.procs[id as usize];
    let start = START.0 + thread * APART;
    for at in (start..start + APART / 2).step_by(usize::try_from(STEP).unwrap_or(1)) {
        if world.is_killed(sim, id) {
            return;
        }
        let step = Vpn(at)..Vpn(at + STEP);
        match proc.space.populate(world.memory(sim), step) {
            Ok(()) => proc.held.set(proc.held.get() + STEP),
            Err(error) => return assert_dies(sim, world, id, &error),
        }
    }
}

/// Runs the thread of an allocator, which repeatedly sleeps and then touches a burst of pages.
fn allocate(sim: &Sim, world: &StormWorld, id: u32, bursts: u32) {
    let proc = &world.procs[id as usize];
    let mut page = START.0 + proc.spec.pages();
    for _ in 0..bursts {
        proc.sleeps.set(true);
        let think = sim.rng().random_range(0..2 * THINK.0);
        sim.sleep(Nanos(think));
        proc.sleeps.set(false);
        for _ in 0..BURST {
            if world.is_killed(sim, id) {
                return;
            }
            match proc
                .space
                .fault(world.memory(sim), Vpn(page), Access::Write)
            {
                Ok(_) => proc.held.set(proc.held.get() + 1),
                Err(error) => return assert_dies(sim, world, id, &error),
            }
            page += 1;
        }
    }
}

/// Panics unless process `id`, whose allocation failed, was told to die.
fn assert_dies(sim: &Sim, world: &StormWorld, id: u32, error: &FaultError) {
    let is_dying = world.is_killed(sim, id);
    assert!(is_dying, "process {id} is refused memory: {error}");
}

/// Allocates memory until allocations that respect the min watermarks can get only `leave` more
/// pages. Each normal zone keeps an equal share of these pages free. Returns how many pages this
/// function has allocated.
fn fill(testbed: &Testbed, leave: Pages) -> u64 {
    let block = Request::new(Order::MAX).urgent(Urgency::Reserve);
    let zones = testbed.mm.pages().view(&testbed.sim);
    let normal = zones.iter().filter(|zone| zone.kind == ZoneKind::Normal);
    let share = leave.0 / u32::try_from(normal.count().max(1)).unwrap_or(1);
    let mut taken = 0;
    for zone in &zones {
        let keep = match zone.kind {
            ZoneKind::Normal => min_mark(zone) + u64::from(share),
            // The lower zones keep no pages, as if the kernel used all their memory.
            _ => 0,
        };
        let has = u64::from(zone.free.0) + u64::from(zone.listed.0);
        let request = block.from_node(zone.node).of_class(zone.kind);
        for _ in 0..has.saturating_sub(keep) / u64::from(Order::MAX.pages().0) {
            if testbed.mm.pages().alloc(&testbed.sim, request).is_ok() {
                taken += u64::from(Order::MAX.pages().0);
            }
        }
    }
    taken
}

/// The number of pages of a zone that an allocation must leave free if the allocation can wait.
fn min_mark(zone: &ZoneView) -> u64 {
    u64::from(zone.watermarks.min.0)
}

/// The number of pages in free blocks or on page lists.
fn free_pages(testbed: &Testbed) -> u64 {
    let zones = testbed.mm.pages().view(&testbed.sim).into_iter();
    zones
        .map(|zone| u64::from(zone.free.0) + u64::from(zone.listed.0))
        .sum()
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::oom::Selecting;
    use plimsoll_mm::space::reap::Reaping;
    use plimsoll_sim::profile::Card;

    use super::*;

    /// A storm on eight CPUs. Two CPUs are for a hog (a process that allocates until it is killed),
    /// three for processes that allocate in bursts, and one each for the reaper, the helper and the
    /// device.
    fn small(ending: Ending) -> Storm {
        Storm {
            headcount: Headcount {
                sleepers: 60,
                pages: 16..=300,
                allocators: 3,
                hogs: vec![2],
            },
            free: Pages(20_000),
            bursts: 40,
            ending,
        }
    }

    fn phone() -> Profile {
        Profile::load("phone-8", Card::Mid).expect("built in")
    }

    const STUCK: Ending = Ending::Stuck(Nanos::from_ms(4000));

    #[test]
    fn parts_of_every_stall_add_up_to_it_in_every_storm() {
        for ending in [Ending::AtOnce, Ending::Helped, STUCK] {
            for design in [Design::UNPATCHED, Design::PATCHED, Design::OURS] {
                // Run several seeds: in a storm as small as this one, the seed decides whether any
                // allocation has to wait.
                let storms = (1..=6).map(|seed| small(ending).run(&phone(), &design, seed));
                let stalls: Vec<Stall> = storms.flat_map(|storm| storm.stalls).collect();
                assert!(!stalls.is_empty(), "{ending:?}");
                for stall in &stalls {
                    assert_eq!(stall.parts.iter().sum::<u64>(), stall.ns(), "{stall:?}");
                    assert!(stall.parts[Part::Attempts as usize] > 0, "{stall:?}");
                }
            }
        }
    }

    #[test]
    fn the_hog_dies_and_all_allocators_go_on() {
        for selecting in [Selecting::Precise, Selecting::TwoPass16, Selecting::Bounded] {
            for reaping in Reaping::ALL {
                let design = Design {
                    selecting,
                    reaping,
                    ..Design::OURS
                };
                let result = small(Ending::AtOnce).run(&phone(), &design, 3);
                let [kill] = result.kills[..] else {
                    panic!("{:?}", result.kills);
                };
                assert!(kill.pages > 5000 && kill.pages == kill.most, "{kill:?}");
                assert_eq!(result.deaths.len(), 1, "no allocator dies");
            }
        }
    }

    #[test]
    fn a_hog_that_is_stuck_is_emptied_by_the_reaper_after_its_delay_and_no_earlier() {
        let result = small(STUCK).run(&phone(), &Design::UNPATCHED, 1);
        let [death] = result.deaths[..] else {
            panic!("{:?}", result.deaths);
        };
        let waited = death.emptying.expect("it is emptied") - death.told;
        assert!((2_000_000_000..2_001_000_000).contains(&waited), "{waited}");
        // Run several seeds: in a storm as small as this one, the seed decides whether an
        // allocation waits until the device responds or the reaper acts.
        let storms = (1..=8).map(|seed| small(STUCK).run(&phone(), &Design::UNPATCHED, seed));
        let longest: Vec<Option<u64>> = storms
            .map(|storm| storm.stalls.iter().map(Stall::ns).max())
            .collect();
        assert!(
            longest.iter().max() > Some(&Some(1_900_000_000)),
            "{longest:?}"
        );
    }

    /// A victim begins to exit within 50 ms although the allocations of 32 other processes wait for
    /// its memory.
    #[test]
    fn a_victim_s_own_threads_are_not_kept_from_dying_by_those_who_wait_for_it() {
        let storm = Storm {
            headcount: Headcount {
                sleepers: 300,
                pages: 16..=64,
                allocators: 32,
                hogs: vec![8],
            },
            free: Pages(50_000),
            bursts: 30,
            ending: Ending::AtOnce,
        };
        let profile = Profile::load("epyc-9654-256", Card::Mid).expect("built in");
        let result = storm.run(&profile, &Design::UNPATCHED, 1);
        let first = result.deaths[0];
        let began = first.emptying.expect("it is emptied") - first.told;
        assert!(began < 50_000_000, "it begins to exit after {began} ns");
    }

    #[test]
    fn a_storm_is_a_function_of_its_seed() {
        let [one, again, other] =
            [5, 5, 6].map(|seed| small(Ending::Helped).run(&phone(), &Design::OURS, seed));
        assert_eq!(one.hash, again.hash);
        assert_eq!(one.stalls, again.stalls);
        assert_ne!(one.hash, other.hash);
    }

    #[test]
    #[should_panic(expected = "a page is lost")]
    fn a_page_that_is_not_given_back_is_found() {
        let storm = small(Ending::AtOnce);
        let population = storm.headcount.draw(8, 1);
        let world = StormWorld::new(&phone(), Design::OURS, (population, storm.ending), 1);
        let free = free_pages(&world.testbed);
        settle(&world, storm.bursts);
        let lost = world
            .testbed
            .mm
            .pages()
            .alloc(&world.testbed.sim, Request::new(Order::ZERO));
        lost.expect("there is memory yet");
        storm.end(world, free);
    }
}
