//! will-it-scale's `page_fault1`: tasks that map memory, write one byte of each page, unmap, and
//! repeat, as processes or as threads of one process.
//!
//! Resident pages are counted as Linux does: one by one when they are faulted in, a page table at
//! a time when they are unmapped. Mapping and unmapping take the mmap lock of the address space.
//! Linux lets go of half of it before it removes the pages: readers get in, but nobody else maps
//! or unmaps until they are gone, so here unmapping holds all of it. Faults take the lock of their
//! own mapping, which no other task uses, and therefore none here.
//!
//! A task's rate is that of its whole rounds: wherever in a round the run ends, it is the same.
//! Each task's first round is not counted: it fills the page lists. All go on until each has done
//! one more, so that nobody is measured while others have stopped.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plimsoll_mm::counter::Plan;
use plimsoll_mm::machine::{Lock, Machine};
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::space::rss::{Rss, RssKind};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Nanos, Pages, Pfn};
use plimsoll_sim::{Sim, Stats};
use rand::RngExt;

use super::Mapping;
use crate::room::Room;

/// What the tasks do.
#[derive(Clone, Copy, Debug)]
pub struct PageFault {
    /// Tasks, each on a CPU of its own.
    pub tasks: u32,
    /// Whether they share an address space.
    pub mode: Mode,
    /// Memory per task and round.
    pub bytes: u64,
}

/// Whether tasks share an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each has its own.
    Processes,
    /// All share one.
    Threads,
}

/// What all tasks did.
#[derive(Clone, Debug)]
pub struct Done {
    /// Faults per second of all tasks together, each over its own whole rounds.
    pub faults_per_s: f64,
    /// When the last task had ended its first round.
    pub from: Mark,
    /// When the last task had ended its second round. All tasks were busy or waiting in between.
    pub to: Mark,
}

/// A moment of the run.
#[derive(Clone, Debug)]
pub struct Mark {
    /// When it was.
    pub now: Nanos,
    /// What the machine had counted.
    pub stats: Stats,
    /// How long those had waited who waited for the mmap lock: such a wait is not in `stats`.
    pub waited: Nanos,
}

/// Tasks start within about a round of each other: what a fault takes, for each page.
const STAGGER_NS_PER_PAGE: u64 = 1500;

/// Pages faulted in before a task looks whether the run is over; as many as a page table has.
const STEP: usize = 512;

/// An address space.
struct Space {
    rss: Rss<Sim>,
    mmap_lock: <Sim as Machine>::Lock<()>,
    /// What ended tasks have left mapped.
    left: RefCell<Vec<Pfn>>,
}

/// What all tasks of a run see.
#[derive(Default)]
struct Shared {
    spaces: RefCell<Vec<Rc<Space>>>,
    /// Tasks that have ended their first round.
    settled: Cell<u32>,
    /// Tasks that have been measured.
    measured: Cell<u32>,
    from: Cell<Option<Mark>>,
    to: Cell<Option<Mark>>,
    faults_per_s: Cell<f64>,
    /// Tasks that wait for an mmap lock, and the sum of the times at which they began to.
    waiting: Cell<(u64, u64)>,
}

impl PageFault {
    /// Runs the tasks on the first CPUs of the machine, one on each core before any has two.
    ///
    /// # Panics
    /// When a counter of resident pages is wrong in the end: our bug, never the user's.
    #[must_use]
    pub fn run(self, room: &Room, plan: &Rc<Plan<Sim>>) -> Done {
        let shared = Rc::new(Shared::default());
        let one = match self.mode {
            Mode::Processes => None,
            Mode::Threads => Some(shared.space(&room.sim, plan)),
        };
        let cpus = cores_first(room.sim.topology());
        assert!(cpus.len() >= self.tasks as usize, "a CPU for each task");
        for &cpu in &cpus[..self.tasks as usize] {
            let (mm, plan) = (Rc::clone(&room.mm), Rc::clone(plan));
            let (shared, one) = (Rc::clone(&shared), one.clone());
            room.sim.spawn(cpu, move |sim| {
                let stagger = self.pages() as u64 * STAGGER_NS_PER_PAGE;
                sim.sleep(Nanos(sim.rng().random_range(0..stagger)));
                let space = one.unwrap_or_else(|| shared.space(sim, &plan));
                self.task(sim, &shared, &space, Mapping::new(&mm));
            });
        }
        drop(one);
        room.sim.run();
        shared.check(room);
        let mark = |mark: &Cell<Option<Mark>>| mark.take().expect("every task did two rounds");
        Done {
            faults_per_s: shared.faults_per_s.get(),
            from: mark(&shared.from),
            to: mark(&shared.to),
        }
    }

    fn task(&self, sim: &Sim, shared: &Shared, space: &Space, mut mapping: Mapping<'_>) {
        let mut rounds = Rounds::default();
        while !self.is_over(shared) {
            shared.locked(sim, space, Site::Mmap, || {});
            let whole = self.fault_all(sim, shared, space, &mut mapping);
            shared.locked(sim, space, Site::Munmap, || space.unmap(sim, &mut mapping));
            if whole {
                rounds.note(sim.now());
                self.note(sim, shared, rounds.ended);
            }
        }
        // Something is left to be counted when nothing is under way any more.
        let leave = sim.rng().random_range(1..=STEP);
        space.fault(sim, &mut mapping, leave);
        space.left.borrow_mut().extend(mapping.into_pages(sim));
        let faults_per_s = rounds.per_s() * self.pages() as f64;
        let all = shared.faults_per_s.get();
        shared.faults_per_s.set(all + faults_per_s);
    }

    /// Notes that a task has ended so many rounds.
    fn note(&self, sim: &Sim, shared: &Shared, rounds: u32) {
        let (count, mark) = match rounds {
            1 => (&shared.settled, &shared.from),
            2 => (&shared.measured, &shared.to),
            _ => return,
        };
        count.set(count.get() + 1);
        if count.get() == self.tasks {
            mark.set(Some(shared.mark(sim)));
        }
    }

    /// Writes to every page; `false` if the run was over earlier.
    fn fault_all(
        &self,
        sim: &Sim,
        shared: &Shared,
        space: &Space,
        mapping: &mut Mapping<'_>,
    ) -> bool {
        let mut missing = self.pages();
        while missing > 0 && !self.is_over(shared) {
            let step = STEP.min(missing);
            space.fault(sim, mapping, step);
            missing -= step;
        }
        missing == 0
    }

    fn pages(&self) -> usize {
        Pages::from_bytes(self.bytes).index()
    }

    fn is_over(&self, shared: &Shared) -> bool {
        shared.measured.get() == self.tasks
    }
}

/// When a task's rounds ended.
#[derive(Default)]
struct Rounds {
    ended: u32,
    first: Nanos,
    last: Nanos,
}

impl Rounds {
    /// Notes the end of one.
    fn note(&mut self, now: Nanos) {
        if self.ended == 0 {
            self.first = now;
        }
        self.last = now;
        self.ended += 1;
    }

    /// Rounds after the first per second.
    fn per_s(&self) -> f64 {
        let span = self.last.0 - self.first.0;
        assert!(span > 0, "each task is measured before the run is over");
        f64::from(self.ended - 1) * Nanos::SECOND.0 as f64 / span as f64
    }
}

impl Space {
    fn fault(&self, sim: &Sim, mapping: &mut Mapping<'_>, pages: usize) {
        let mapped = || self.rss.add_growing(sim, RssKind::Anon, 1);
        let enough = mapping.fault_each(sim, pages, mapped);
        assert!(enough, "the machine has memory for every task");
    }

    fn unmap(&self, sim: &Sim, mapping: &mut Mapping<'_>) {
        let unmapped = |pages| {
            let pages = i64::try_from(pages).unwrap_or(0);
            self.rss.add_growing(sim, RssKind::Anon, -pages);
        };
        mapping.unmap_each(sim, unmapped);
    }
}

impl Shared {
    /// An address space whose locks are near the caller.
    fn space(&self, sim: &Sim, plan: &Plan<Sim>) -> Rc<Space> {
        let rss = Rss::new(sim, plan).expect("the plan is one for resident pages");
        let space = Rc::new(Space {
            rss,
            mmap_lock: sim.lock(LockClass::Mmap, sim.this_cpu(), ()),
            left: RefCell::default(),
        });
        self.spaces.borrow_mut().push(Rc::clone(&space));
        space
    }

    /// Does something under the mmap lock of `space`.
    fn locked(&self, sim: &Sim, space: &Space, site: Site, f: impl FnOnce()) {
        let asked = sim.now().0;
        let (tasks, sum) = self.waiting.get();
        self.waiting.set((tasks + 1, sum + asked));
        space.mmap_lock.with(sim, site, |()| {
            let (tasks, sum) = self.waiting.get();
            self.waiting.set((tasks - 1, sum - asked));
            f();
        });
    }

    fn mark(&self, sim: &Sim) -> Mark {
        let (tasks, sum) = self.waiting.get();
        let now = sim.now();
        Mark {
            now,
            stats: sim.stats(),
            waited: Nanos((tasks * now.0).saturating_sub(sum)),
        }
    }

    /// Every counter is exactly right with pages mapped, and 0 without.
    fn check(&self, room: &Room) {
        let sim = &room.sim;
        for space in self.spaces.take() {
            let left = space.left.take();
            let counted = space.rss.precise(sim, RssKind::Anon);
            assert_eq!(counted, left.len() as u64, "resident pages are miscounted");
            space.unmap(sim, &mut Mapping::of(&room.mm, left));
            let space = Rc::into_inner(space).expect("the tasks have ended");
            let ended = space.rss.destroy(sim);
            assert_eq!(ended, Ok(()), "an empty address space counts nothing");
        }
    }
}

/// Every CPU, one of each core before the second of any, as will-it-scale pins its tasks.
fn cores_first(topology: &Topology) -> Vec<CpuId> {
    let mut seen = vec![0_u32; topology.cpus() as usize];
    let mut cpus: Vec<(u32, CpuId)> = topology
        .ids()
        .map(|cpu| {
            let siblings = &mut seen[topology.place(cpu).core as usize];
            *siblings += 1;
            (*siblings, cpu)
        })
        .collect();
    cpus.sort_unstable();
    cpus.into_iter().map(|(_, cpu)| cpu).collect()
}
