//! will-it-scale's `page_fault1`: each task repeatedly maps memory, writes one byte to each page,
//! and unmaps it. The tasks are processes, or threads of one process.
//!
//! Resident pages are counted as in Linux: each page when it is faulted in, and all pages of a page
//! table together when they are unmapped. A task that maps or unmaps memory takes the mmap_lock of
//! the address space as a writer. As in Linux, a task that unmaps turns its writer's lock into a
//! reader's lock before it removes the pages. Readers can then enter, but no other task can map or
//! unmap until the pages are removed.
//!
//! The submodules simulate what tasks share besides the mmap_lock:
//!
//! - `lruvec`: the lists by which the pages of a node are aged, which all tasks share
//! - `vmas`: the mappings of threads, which Linux merges, and their locks
//! - `space`: the address space, and the interrupts by which threads flush each other's
//!   translations
//!
//! A task's rate is measured over whole rounds, so it does not matter in which part of a round the
//! run ends. Each task's first round does not count, because it fills the page lists. At the end of
//! the run, all tasks continue until each task has completed one more round. So no task is measured
//! while other tasks have stopped.

mod lruvec;
mod space;
mod vmas;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plimsoll_mm::counter::Plan;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::space::rss::RssKind;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Nanos, Pages};
use plimsoll_sim::{Sim, Stats};
use rand::RngExt;

use self::lruvec::Lruvecs;
use self::space::Space;
use super::Mapping;
use crate::run::testbed::Testbed;

/// A run of will-it-scale's `page_fault1`: its tasks and their memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageFault {
    /// The number of tasks, each on its own CPU.
    pub(crate) tasks: u32,
    /// Says whether the tasks share an address space.
    pub(crate) mode: Mode,
    /// The bytes that each task maps in a round.
    pub(crate) bytes: u64,
}

/// Says whether tasks share an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Each task has its own address space.
    Processes,
    /// All tasks share one address space.
    Threads,
}

/// The results of all tasks of a run.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    /// The sum of all tasks' faults per second. Each task's rate is measured over its own whole
    /// rounds.
    pub(crate) faults_per_s: f64,
    /// The moment when the last of the tasks completed its first round.
    pub(crate) from: Mark,
    /// The moment when the last of the tasks completed its second round. Between `from` and `to`,
    /// all tasks were busy or waiting.
    pub(crate) to: Mark,
}

/// The machine's statistics at one moment of the run.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    /// The virtual time.
    pub(crate) now: Nanos,
    /// The machine's statistics up to the time `now`.
    pub(crate) stats: Stats,
    /// The sum of the waits that are not in `stats` because they have not ended. For each task that
    /// is waiting for an mmap_lock at the time `now`, it includes the time that the task has waited
    /// so far.
    pub(crate) waited: Nanos,
}

/// The approximate time of one page fault, in nanoseconds. Each task starts after a random delay,
/// so that tasks are at different points of their rounds. The longest delay is this time multiplied
/// by the number of pages in a round, which is about the length of a round.
const STAGGER_NS_PER_PAGE: u64 = 1500;

/// How many pages a task faults in before it checks whether the run is over. One page table maps
/// this number of pages.
const STEP: usize = 512;

/// The state that all tasks of a run share.
struct Shared {
    lruvecs: Lruvecs,
    spaces: RefCell<Vec<Rc<Space>>>,
    /// The number of tasks that have completed their first round.
    settled: Cell<u32>,
    /// How many tasks have completed their second round, which is the first round that counts.
    measured: Cell<u32>,
    from: Cell<Option<Mark>>,
    to: Cell<Option<Mark>>,
    faults_per_s: Cell<f64>,
    waiting: Waiting,
}

/// How many tasks wait for an mmap_lock, and the sum of the times at which their waits began. From
/// these two values and the current time, one can compute how long all these tasks together have
/// waited so far.
#[derive(Default)]
struct Waiting(Cell<(u64, u64)>);

impl PageFault {
    /// Runs the tasks on the first CPUs of the machine. Every core gets one task before any core
    /// gets a second one.
    ///
    /// # Panics
    /// If a counter of resident pages is wrong at the end, which would be a bug in Plimsoll.
    #[must_use]
    pub(crate) fn run(self, testbed: &Testbed, plan: &Rc<Plan<Sim>>) -> Done {
        let shared = Rc::new(Shared::new(&testbed.sim));
        let one = match self.mode {
            Mode::Processes => None,
            Mode::Threads => Some(shared.space(&testbed.sim, plan, self.tasks)),
        };
        let cpus = cores_first(testbed.sim.topology());
        assert!(cpus.len() >= self.tasks as usize, "a CPU for each task");
        for &cpu in &cpus[..self.tasks as usize] {
            let (mm, plan) = (Rc::clone(&testbed.mm), Rc::clone(plan));
            let (shared, one) = (Rc::clone(&shared), one.clone());
            testbed.sim.spawn(cpu, move |sim| {
                let stagger = self.pages() as u64 * STAGGER_NS_PER_PAGE;
                sim.sleep(Nanos(sim.rng().random_range(0..stagger)));
                let space = one.unwrap_or_else(|| shared.space(sim, &plan, 1));
                self.task(sim, &shared, &space, Mapping::new(&mm));
            });
        }
        drop(one);
        testbed.sim.run();
        shared.check(testbed);
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
            let place = space.map(sim, &shared.waiting);
            let whole = self.fault_all(sim, shared, (space, place), &mut mapping);
            space.unmap(sim, shared, place, &mut mapping);
            if whole {
                rounds.note(sim.now());
                self.note(sim, shared, rounds.ended);
            }
        }
        // Each task leaves some pages mapped, so that the check at the end has pages to count.
        let leave = sim.rng().random_range(1..=STEP);
        let place = space.map(sim, &shared.waiting);
        space.fault(sim, shared, place, &mut mapping, leave);
        let pages = mapping.into_pages(sim);
        space.left.borrow_mut().extend(pages);
        let faults_per_s = rounds.per_s() * self.pages() as f64;
        let all = shared.faults_per_s.get();
        shared.faults_per_s.set(all + faults_per_s);
    }

    /// Notes that a task has now completed `rounds` rounds.
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

    /// Writes to every page. Returns `false` if the run was over before the last page.
    fn fault_all(
        &self,
        sim: &Sim,
        shared: &Shared,
        (space, place): (&Space, usize),
        mapping: &mut Mapping<'_>,
    ) -> bool {
        let mut missing = self.pages();
        while missing > 0 && !self.is_over(shared) {
            let step = STEP.min(missing);
            space.fault(sim, shared, place, mapping, step);
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

/// How many rounds a task has completed, and when the first and the last of these rounds ended.
#[derive(Default)]
struct Rounds {
    ended: u32,
    first: Nanos,
    last: Nanos,
}

impl Rounds {
    /// Records that the task has ended a round at the time `now`.
    fn note(&mut self, now: Nanos) {
        if self.ended == 0 {
            self.first = now;
        }
        self.last = now;
        self.ended += 1;
    }

    /// How many rounds per second the task has completed, without the first round.
    fn per_s(&self) -> f64 {
        let span = self.last.0 - self.first.0;
        assert!(span > 0, "each task is measured before the run is over");
        f64::from(self.ended - 1) * Nanos::SECOND.0 as f64 / span as f64
    }
}

impl Waiting {
    /// Notes that a task asks for an mmap_lock. Returns the current time, in nanoseconds.
    fn begin(&self, sim: &Sim) -> u64 {
        let asked = sim.now().0;
        let (tasks, sum) = self.0.get();
        self.0.set((tasks + 1, sum + asked));
        asked
    }

    /// Notes that a task which asked for the lock at the time `asked` now holds the lock.
    fn end(&self, asked: u64) {
        let (tasks, sum) = self.0.get();
        self.0.set((tasks - 1, sum - asked));
    }
}

impl Shared {
    fn new(sim: &Sim) -> Self {
        Self {
            lruvecs: Lruvecs::new(sim),
            spaces: RefCell::default(),
            settled: Cell::default(),
            measured: Cell::default(),
            from: Cell::default(),
            to: Cell::default(),
            faults_per_s: Cell::default(),
            waiting: Waiting::default(),
        }
    }

    /// Creates an address space that `tasks` tasks use. Its locks are near the calling CPU.
    fn space(&self, sim: &Sim, plan: &Plan<Sim>, tasks: u32) -> Rc<Space> {
        let space = Rc::new(Space::new(sim, plan, tasks));
        self.spaces.borrow_mut().push(Rc::clone(&space));
        space
    }

    fn mark(&self, sim: &Sim) -> Mark {
        let (tasks, sum) = self.waiting.0.get();
        let now = sim.now();
        Mark {
            now,
            stats: sim.stats(),
            waited: Nanos((tasks * now.0).saturating_sub(sum)),
        }
    }

    /// Checks that every counter is exact while pages are mapped, and 0 after all pages are
    /// unmapped.
    fn check(&self, testbed: &Testbed) {
        let sim = &testbed.sim;
        for space in self.spaces.take() {
            let left = space.left.take();
            let counted = space.rss.precise(sim, RssKind::Anon);
            assert_eq!(counted, left.len() as u64, "resident pages are miscounted");
            space.free(sim, self, &mut Mapping::of(&testbed.mm, left));
            let space = Rc::into_inner(space).expect("the tasks have ended");
            let ended = space.rss.destroy(sim);
            assert_eq!(ended, Ok(()), "an empty address space counts nothing");
        }
    }
}

/// All CPUs in the order in which will-it-scale pins its tasks to them: first one CPU of each core,
/// then the second CPU of each core.
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
