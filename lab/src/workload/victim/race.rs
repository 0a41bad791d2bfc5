//! A victim is killed: its last user (the thread that ends the address space) empties the address
//! space on one CPU, while helpers (the OOM reaper, or callers of `process_mrelease`) empty the
//! same address space on other CPUs.
//!
//! The kill is at time 0. Each task starts within [`START_WITHIN`] of the kill, after a random
//! delay that stands for the time to wake up the task. The race ends when all pages, page tables
//! and mappings are freed. Every run checks that each page is free again, that no counter is wrong,
//! and that no slot of swap is in use.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plimsoll_mm::design::Design;
use plimsoll_mm::event::Phase;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::space::Flag;
use plimsoll_mm::units::{CpuId, Nanos};
use plimsoll_mm::vmstat::counters::NodeItem;
use plimsoll_sim::profile::Profile;
use plimsoll_sim::{Sim, Stats};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::layout::{Contents, Victim};
use super::others::Others;
use super::victim_space::VictimSpace;
use crate::measure::phases::{PhaseRecorder, PhaseTree};
use crate::run::testbed::Testbed;

/// The length of the interval after the kill in which all tasks start.
pub(crate) const START_WITHIN: Nanos = Nanos(50_000);

/// How long the machine rests between the end of all preparations and the kill.
const REST: Nanos = Nanos::from_ms(1);

/// The victim of a race, and the CPUs of the tasks that empty it.
#[derive(Clone, Debug)]
pub(crate) struct Race {
    /// The process that is killed.
    pub(crate) victim: Victim,
    /// The CPU on which the victim's last thread exits.
    pub(crate) exit: CpuId,
    /// The CPUs of the helpers, the tasks that also empty the victim's address space.
    pub(crate) helpers: Vec<CpuId>,
    /// Says whether the helpers are the OOM reaper or callers of `process_mrelease`.
    pub(crate) help: Help,
    /// How much memory the machine has left at the kill.
    pub(crate) left: MemoryLeft,
}

/// How much memory a machine has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryLeft {
    /// The machine has all memory that the victim does not use. The victim's faults have raised the
    /// limits of page lists. So the CPU on which the victim ran can free most of the victim's pages
    /// without a zone lock.
    Plenty,
    /// The machine has no memory left, as when the OOM killer acts: every zone is at its low
    /// watermark, and page lists are short.
    None,
}

/// The kind of a helper, a task that empties the victim's address space besides the exiting thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Help {
    /// The OOM reaper. It starts at once, whereas the reaper of Linux waits for two seconds. The
    /// reaper also started at once in a published test. This was the test of the patch that makes
    /// the reaper begin at the highest mapping.
    Reaper,
    /// A task that calls `process_mrelease`.
    Asked,
}

/// Tasks whose time is measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Party {
    /// The last user.
    Exit,
    /// All helpers together.
    Helpers,
}

/// How tasks used the locks of one class in a race, in which several tasks empty one address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LockUse {
    /// The sum of the times for which all tasks waited for locks of one class, such as page-table
    /// locks.
    pub(crate) wait: Nanos,
    /// The number of acquisitions that had to wait.
    pub(crate) contentions: u64,
    /// The sum of the times for which all tasks held locks of one class, such as page-table locks.
    pub(crate) hold: Nanos,
}

/// The result of a race.
#[derive(Clone, Debug)]
pub(crate) struct Raced {
    /// The time from the kill until all memory was free.
    pub(crate) wall: Nanos,
    /// The phases of all tasks, and the lengths of these phases. A phase is a part of a task's
    /// work, such as taking page-table locks.
    pub(crate) tree: PhaseTree,
    /// The number of pages on page lists at the end of the race: free, but not in their zones yet.
    pub(crate) listed: u64,
    /// How long it takes to return the `listed` pages to their zones. Some CPU must do this work
    /// after the race.
    pub(crate) owed: Nanos,
    /// The hash of everything that happened in the run, including the creation of the victim.
    pub(crate) hash: u64,
    /// How long all CPUs together worked. The time of waiting, of taking free locks, and of moving
    /// cache lines is not included.
    pub(crate) worked: Nanos,
    help: Help,
    locks: Vec<LockUse>,
    /// The waits of the last user (the thread that ends the address space), and the waits of all
    /// helpers together. In each pair, the first time is the wait for page-table locks, and the
    /// second time is the sleep until the mmap_lock is free.
    waits: [(Nanos, Nanos); 2],
}

/// The time of the kill, and the time at which all memory was free.
#[derive(Default)]
struct Times {
    killed_at: Cell<Nanos>,
    free_at: Cell<Option<Nanos>>,
}

impl Race {
    /// Creates the victim, kills it, and waits until all its memory is freed.
    ///
    /// # Panics
    /// If a part of the victim remains, which would be a bug in Plimsoll.
    #[must_use]
    pub(crate) fn run(&self, profile: &Profile, design: &Design, seed: u64) -> Raced {
        let testbed = Testbed::new(profile, *design, seed);
        let parts = self.victim.layout(seed);
        let contents = Contents::of(&parts);
        let free_before = free_pages(&testbed);
        let victim_space = Rc::new(VictimSpace::new(
            &testbed.sim,
            &testbed.mm,
            design,
            &contents,
        ));
        victim_space.build(&testbed.sim, self.exit, parts);
        let others = match self.left {
            MemoryLeft::Plenty => Others::default(),
            MemoryLeft::None => Others::take_all(&testbed, self.exit),
        };
        let recorder: Rc<RefCell<PhaseRecorder>> = Rc::default();
        let notes = Rc::clone(&recorder);
        testbed.sim.observe(move |_, cpu, now, event| {
            notes.borrow_mut().note(cpu.index(), now, event);
        });
        let before = testbed.sim.stats();
        let times = self.start(&testbed, &victim_space, seed);
        testbed.sim.run();
        let after = testbed.sim.stats();
        let listed = listed_pages(&testbed);
        let owed = drain(&testbed, self.exit);
        let victim_space = Rc::into_inner(victim_space).expect("all walkers have left");
        victim_space.end(&testbed.sim);
        others.give_back(&testbed);
        assert_eq!(free_pages(&testbed), free_before, "a page is lost");
        for item in [NodeItem::PageTables, NodeItem::AnonMapped] {
            assert_eq!(
                testbed.mm.counted_on_nodes(&testbed.sim, item),
                0,
                "{item:?}"
            );
        }
        let (stats, _) = testbed.finish();
        Raced {
            wall: times.wall(),
            tree: recorder.take().finish(),
            listed,
            owed,
            hash: stats.hash,
            worked: worked(&before, &after),
            help: self.help,
            locks: locks(&before, &after),
            waits: [Site::Exit, self.help.site()].map(|site| waits(&before, &after, site)),
        }
    }

    /// Chooses the time of the kill, and starts the exiting thread and the helpers soon after the
    /// kill.
    fn start(&self, testbed: &Testbed, victim_space: &Rc<VictimSpace>, seed: u64) -> Rc<Times> {
        let kill = testbed.sim.stats().now + REST;
        let times: Rc<Times> = Rc::default();
        times.killed_at.set(kill);
        // The layout is drawn from `seed`. The times at which tasks start come from another random
        // stream, so that these times do not depend on the layout.
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(!seed);
        let mut enter = |cpu: CpuId, work: fn(&VictimSpace, &Sim, Help)| {
            let (victim_space, help, times) =
                (Rc::clone(victim_space), self.help, Rc::clone(&times));
            let at = kill + Nanos(rng.random_range(0..START_WITHIN.0));
            testbed.sim.spawn(cpu, move |sim| {
                sim.sleep_until(at);
                work(&victim_space, sim, help);
                times.note_end(sim, &victim_space);
            });
        };
        enter(self.exit, |victim_space, sim, _| victim_space.exit(sim));
        for &cpu in &self.helpers {
            enter(cpu, |victim_space, sim, help| match help {
                Help::Reaper => victim_space.reap(sim),
                Help::Asked => drop(
                    victim_space
                        .space
                        .release(victim_space.memory(sim), || false),
                ),
            });
        }
        times
    }
}

impl Times {
    /// Notes that a task has finished its work. If the address space has ended, all memory is free.
    /// The end of the race is the earliest time at which a task finds this.
    fn note_end(&self, sim: &Sim, victim_space: &VictimSpace) {
        let now = sim.now();
        if victim_space.space.has(sim, Flag::Ended) {
            let earliest = self.free_at.get().map_or(now, |earlier| earlier.min(now));
            self.free_at.set(Some(earliest));
        }
    }

    fn wall(&self) -> Nanos {
        let free_at = self.free_at.get();
        let free_at = free_at.expect("the last walker has ended the address space");
        Nanos(free_at.0 - self.killed_at.get().0)
    }
}

impl Help {
    const fn site(self) -> Site {
        match self {
            Self::Reaper => Site::Reap,
            Self::Asked => Site::Release,
        }
    }

    const fn phase(self) -> Phase {
        match self {
            Self::Reaper => Phase::Reap,
            Self::Asked => Phase::Release,
        }
    }
}

impl Raced {
    /// How long the tasks of `who` ran on CPUs. Waits for spinlocks are included, but sleeps are
    /// not.
    #[must_use]
    pub(crate) fn ran(&self, who: Party) -> Nanos {
        let root = self.root(who);
        let (_, asleep) = self.waits[who as usize];
        Nanos(self.tree.time(root, root).0.saturating_sub(asleep.0))
    }

    /// How long the tasks of `who` took to get page-table locks, with or without a wait. A profile
    /// of Linux shows this time as `__pte_offset_map_lock`.
    #[must_use]
    pub(crate) fn table_lock(&self, who: Party) -> Nanos {
        self.tree.time(self.root(who), Phase::TableLock)
    }

    /// How long the tasks of `who` waited for page-table locks that another task held. This is a
    /// part of [`Raced::table_lock`].
    #[must_use]
    pub(crate) fn table_wait(&self, who: Party) -> Nanos {
        self.waits[who as usize].0
    }

    /// How long the tasks of `who` took to remove reverse mappings.
    #[must_use]
    pub(crate) fn rmap(&self, who: Party) -> Nanos {
        self.tree.time(self.root(who), Phase::Rmap)
    }

    /// How long the tasks of `who` took to remove mappings from the address space, after the pages
    /// had been unmapped.
    #[must_use]
    pub(crate) fn forgetting(&self, who: Party) -> Nanos {
        self.tree.time(self.root(who), Phase::ForgetMappings)
    }

    /// How long the tasks of `who` slept while they waited for the mmap_lock.
    #[must_use]
    pub(crate) fn asleep(&self, who: Party) -> Nanos {
        self.waits[who as usize].1
    }

    /// How much the locks of `class` were used, over all call sites.
    #[must_use]
    pub(crate) fn lock(&self, class: LockClass) -> LockUse {
        self.locks[class as usize]
    }

    const fn root(&self, who: Party) -> Phase {
        match who {
            Party::Exit => Phase::Exit,
            Party::Helpers => self.help.phase(),
        }
    }
}

/// The number of pages in free blocks or on page lists.
fn free_pages(testbed: &Testbed) -> u64 {
    let zones = testbed.mm.pages().view(&testbed.sim).into_iter();
    zones
        .map(|zone| u64::from(zone.free.0) + u64::from(zone.listed.0))
        .sum()
}

/// The number of pages on page lists.
fn listed_pages(testbed: &Testbed) -> u64 {
    let zones = testbed.mm.pages().view(&testbed.sim).into_iter();
    zones.map(|zone| u64::from(zone.listed.0)).sum()
}

/// Makes `cpu` return the pages on all CPUs' page lists to their zones. Returns how long this work
/// takes.
fn drain(testbed: &Testbed, cpu: CpuId) -> Nanos {
    let before = testbed.sim.stats();
    let mm = Rc::clone(&testbed.mm);
    testbed.sim.spawn(cpu, move |sim| {
        mm.pages().drain_all_sync(sim);
    });
    testbed.sim.run();
    worked(&before, &testbed.sim.stats())
}

/// How long all CPUs together worked between two moments. The time of waiting, of taking free
/// locks, and of moving cache lines is not included.
fn worked(before: &Stats, after: &Stats) -> Nanos {
    let sum = |stats: &Stats| stats.work_ns.iter().sum::<u64>();
    Nanos(sum(after) - sum(before))
}

/// The use of the locks of each class between the two moments at which the statistics `before` and
/// `after` were taken.
fn locks(before: &Stats, after: &Stats) -> Vec<LockUse> {
    let used = |class: &LockClass| {
        let (before, after) = (before.class(*class), after.class(*class));
        LockUse {
            wait: Nanos(after.wait_total.0 - before.wait_total.0),
            contentions: after.contentions - before.contentions,
            hold: Nanos(after.hold_total.0 - before.hold_total.0),
        }
    };
    LockClass::ALL.iter().map(used).collect()
}

/// The times that tasks waited for locks at `site` between two moments: first for page-table locks,
/// then for the mmap_lock.
fn waits(before: &Stats, after: &Stats, site: Site) -> (Nanos, Nanos) {
    let wait = |class| {
        let [before, after] = [before, after].map(|stats| stats.site(class, site).wait_total.0);
        after - before
    };
    let tables = wait(LockClass::PageTable) + wait(LockClass::UpperTable);
    (Nanos(tables), Nanos(wait(LockClass::Mmap)))
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::space::reap::Reaping;
    use plimsoll_sim::profile::Card;

    use super::*;

    fn raced(victim: Victim, reaping: Reaping, helpers: u32) -> Raced {
        raced_with(MemoryLeft::Plenty, victim, reaping, helpers)
    }

    fn raced_with(left: MemoryLeft, victim: Victim, reaping: Reaping, helpers: u32) -> Raced {
        let profile = Profile::load("phone-8", Card::Mid).expect("built in");
        let design = Design {
            reaping,
            ..Design::UNPATCHED
        };
        let race = Race {
            victim,
            exit: CpuId(4),
            helpers: (5..5 + helpers).map(CpuId).collect(),
            help: Help::Reaper,
            left,
        };
        race.run(&profile, &design, 1)
    }

    const APP: Victim = Victim::App { mappings: 300 };

    #[test]
    fn whoever_exits_alone_waits_for_nobody() {
        let alone = raced(APP, Reaping::Ascending, 0);
        assert_eq!(alone.table_wait(Party::Exit), Nanos(0));
        assert_eq!(alone.ran(Party::Helpers), Nanos(0));
        assert!(
            alone.wall.0 <= alone.ran(Party::Exit).0 + START_WITHIN.0,
            "{alone:?}"
        );
    }

    /// If the exiting thread and a helper empty page tables in the same direction, they wait for
    /// each other's page-table locks. If both reserve (claim) page tables before they empty them,
    /// neither waits.
    #[test]
    fn in_the_same_direction_they_wait_and_for_claimed_tables_nobody_does() {
        let ascending = raced(APP, Reaping::Ascending, 1);
        assert!(ascending.table_wait(Party::Exit).0 + ascending.table_wait(Party::Helpers).0 > 0);
        let ours = raced(APP, Reaping::MeetInTheMiddle, 1);
        assert_eq!(ours.lock(LockClass::PageTable).wait, Nanos(0));
        assert!(
            ours.wall < ascending.wall,
            "{} {}",
            ours.wall.0,
            ascending.wall.0
        );
    }

    /// If the machine has no memory left, the page lists are short, so the exit itself returns most
    /// of the victim's pages to their zones.
    #[test]
    fn without_memory_pages_go_on_to_their_zones() {
        let victim = Victim::One { pages: 9000 };
        let of = |left| raced_with(left, victim, Reaping::Ascending, 0);
        let (plenty, none) = (of(MemoryLeft::Plenty), of(MemoryLeft::None));
        // If memory is left, the page lists keep thousands of pages, which some CPU must still
        // return to their zones.
        assert!(
            none.listed < plenty.listed / 4,
            "{} {}",
            none.listed,
            plenty.listed
        );
        assert!(none.owed < plenty.owed);
        assert!(none.ran(Party::Exit) > plenty.ran(Party::Exit));
    }

    /// The pages of a victim return to the nodes from which they came, even if a CPU of another
    /// node frees them.
    #[test]
    fn pages_of_two_nodes_go_back_to_both_whoever_empties() {
        let profile = Profile::load("epyc-9654-2s", Card::Mid).expect("built in");
        let race = Race {
            victim: Victim::Server {
                pages: 20_000,
                huge: false,
            },
            exit: CpuId(0),
            helpers: vec![CpuId(96)],
            help: Help::Asked,
            left: MemoryLeft::Plenty,
        };
        // `run` itself checks the counters of the nodes, and the number of free pages.
        let raced = race.run(&profile, &Design::OURS, 1);
        assert!(raced.ran(Party::Helpers) > Nanos(0));
    }

    #[test]
    fn every_victim_is_gone_in_every_way_with_any_number_of_helpers() {
        let server = |huge| Victim::Server {
            pages: 20_000,
            huge,
        };
        for victim in [
            APP,
            Victim::One { pages: 9000 },
            server(false),
            server(true),
        ] {
            for reaping in Reaping::ALL {
                for helpers in [0, 1, 3] {
                    assert!(raced(victim, reaping, helpers).wall > Nanos(0));
                }
            }
        }
    }
}
