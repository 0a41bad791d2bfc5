//! A machine that runs out of memory: its processes, the effects of a kill, and the reaper.

use std::cell::{Cell, RefCell};
use std::mem;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use plimsoll_mm::design::Design;
use plimsoll_mm::event::{Event, Phase};
use plimsoll_mm::machine::Machine;
use plimsoll_mm::oom::{
    How, Kind, Look, Next, OomKiller, OutOfMemory, Owner, Patience, Process, Rules, Signals, State,
    release,
};
use plimsoll_mm::site::Work;
use plimsoll_mm::space::{AddressSpace, Flag, Memory, Spaces};
use plimsoll_mm::topology::NodeSet;
use plimsoll_mm::units::{CpuId, Jiffies, Nanos, ProcessId};
use plimsoll_sim::profile::Profile;
use plimsoll_sim::{Sim, last_resort};

use super::Ending;
use super::population::{Population, ProcSpec};
use super::stalls::{Edge, StormEvent, TimedEvent};
use crate::run::testbed::Testbed;
use crate::run::testbed::simulated;

/// The time, in nanoseconds, that the OOM killer needs to look at a process again. By then, all
/// cache lines of the process are in the caches of the OOM killer's CPU. We measured this time with
/// 1000 processes. The first look at a process takes 180 to 190 ns.
const LOOK_AGAIN_NS: u32 = 25;

/// The machine of a storm, with its processes and the OOM killer.
pub(super) struct StormWorld {
    pub(super) testbed: Testbed,
    spaces: Spaces<Sim>,
    killer: Arc<OomKiller<Sim, Embedder>>,
    oom: OutOfMemory<Sim, Embedder, Embedder>,
    pub(super) procs: Vec<Proc>,
    processes: Vec<Arc<Process<Sim>>>,
    population: Population,
    ending: Ending,
    /// For each CPU, the process for which the CPU allocates.
    current: RefCell<Vec<Option<u32>>>,
    reaper_runs: Cell<bool>,
    pub(super) seen: Rc<Seen>,
}

/// A process of a storm (a run in which memory runs out), with its address space and its state.
pub(super) struct Proc {
    pub(super) spec: ProcSpec,
    pub(super) space: Arc<AddressSpace<Sim>>,
    /// The number of pages that the process has touched so far.
    pub(super) held: Cell<u64>,
    /// The number of threads that have not ended.
    pub(super) threads: Cell<usize>,
    /// True while the process's thread sleeps in a state from which a signal wakes it.
    pub(super) sleeps: Cell<bool>,
    dies: Cell<bool>,
    leaves: Cell<bool>,
}

/// The events observed since the call of [`StormWorld::watch`].
#[derive(Default)]
pub(super) struct Seen {
    pub(super) notes: RefCell<Vec<TimedEvent>>,
    pub(super) kills: RefCell<Vec<Kill>>,
    /// For each CPU, the process whose memory the CPU is emptying.
    emptying: RefCell<Vec<Option<u32>>>,
    /// For each process, whether the current selection has looked at it.
    looked: RefCell<Vec<bool>>,
}

/// The sizes of the processes at the moment when one of them was told to die. A size is the number
/// of pages that the process has touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kill {
    /// The process that was told to die.
    pub(crate) process: u32,
    /// The size of the process that was told to die, in pages.
    pub(crate) pages: u64,
    /// The size of the largest candidate for this kill, in pages. The candidates are the processes
    /// that were not dying before the kill.
    pub(crate) most: u64,
}

/// The program that embeds the OOM code. This program lists the processes, makes killed processes
/// exit, and starts the reaper.
struct Embedder(Weak<StormWorld>);

impl StormWorld {
    /// Creates a machine on which every process exists and has no memory yet.
    #[expect(
        clippy::arc_with_non_send_sync,
        reason = "on real machines it is both; a simulated one has one thread"
    )]
    pub(super) fn new(
        profile: &Profile,
        design: Design,
        (population, ending): (Population, Ending),
        seed: u64,
    ) -> Rc<Self> {
        Rc::new_cyclic(|world: &Weak<Self>| {
            let embedder = || Embedder(Weak::clone(world));
            let asked = embedder();
            let last_resort = last_resort(move |sim, pages, request| {
                let world = asked.world();
                world.note(sim, StormEvent::Ask(Edge::Begin));
                let relief = world.oom.relieve(sim, pages, request);
                world.note(sim, StormEvent::Ask(Edge::End));
                relief
            });
            let testbed =
                Testbed::with_last_resort(profile, design, simulated(seed), Some(last_resort));
            let (sim, cpus) = (&testbed.sim, profile.topology.cpus() as usize);
            let killer = Arc::new(OomKiller::new(sim, embedder(), Patience::LINUX));
            let (rules, notifiers) = (Rules::of(&design), Vec::new());
            let oom = OutOfMemory::new(sim, Arc::clone(&killer), embedder(), rules, notifiers);
            let count = population.specs.len();
            oom.reserve(sim, count)
                .expect("the host has memory for slots");
            let spaces = Spaces::new(sim, &design, 0).expect("four counters fit");
            let memory = Memory::new(sim, &testbed.mm, &spaces);
            let specs = population.specs.iter();
            let procs: Vec<Proc> = specs.map(|spec| Proc::new(spec, memory)).collect();
            let enroll = |(id, proc): (u32, &Proc)| {
                let space = Some(Arc::clone(&proc.space));
                let process = killer.enroll(sim, ProcessId(id), Kind::Process, space);
                Arc::new(process.expect("the host has memory for it"))
            };
            Self {
                processes: (0..).zip(&procs).map(enroll).collect(),
                current: RefCell::new(vec![None; cpus]),
                seen: Rc::new(Seen {
                    emptying: RefCell::new(vec![None; cpus]),
                    looked: RefCell::new(vec![false; count]),
                    ..Seen::default()
                }),
                spaces,
                killer,
                oom,
                procs,
                population,
                ending,
                reaper_runs: Cell::new(false),
                testbed,
            }
        })
    }

    /// Records the events of the storm from now on.
    pub(super) fn watch(&self) {
        let seen = Rc::clone(&self.seen);
        self.testbed
            .sim
            .observe(move |_, cpu, at, event| seen.hear(cpu, at, event));
    }

    pub(super) fn memory<'t>(&'t self, sim: &'t Sim) -> Memory<'t, Sim> {
        Memory::new(sim, &self.testbed.mm, &self.spaces)
    }

    fn note(&self, sim: &Sim, what: StormEvent) {
        self.seen.note(sim.this_cpu(), sim.now(), what);
    }

    /// Makes this CPU allocate on behalf of process `id` from now on.
    pub(super) fn becomes(&self, sim: &Sim, id: u32) {
        self.current.borrow_mut()[sim.this_cpu().index()] = Some(id);
    }

    pub(super) fn is_killed(&self, sim: &Sim, id: u32) -> bool {
        self.processes[id as usize].is(sim, State::Killed)
    }

    /// Ends a thread of process `id`. If the process was told to die, its last thread empties its
    /// memory.
    pub(super) fn thread_ends(&self, sim: &Sim, id: u32) {
        let threads = &self.procs[id as usize].threads;
        threads.set(threads.get() - 1);
        if threads.get() == 0 && self.is_killed(sim, id) {
            self.leave(sim, id);
        }
    }

    /// Makes process `id` exit its address space, unless the process has exited it already.
    pub(super) fn leave(&self, sim: &Sim, id: u32) {
        let proc = &self.procs[id as usize];
        if proc.leaves.replace(true) {
            return;
        }
        self.empties(sim, id, || {
            let exited = self
                .killer
                .exit(self.memory(sim), &self.processes[id as usize]);
            assert!(exited.is_ok(), "a process leaves once: {exited:?}");
        });
    }

    /// Runs `work`, which empties the memory of process `id`. Records when `work` begins, and which
    /// memory it frees.
    fn empties(&self, sim: &Sim, id: u32, work: impl FnOnce()) {
        let cpu = sim.this_cpu();
        self.note(sim, StormEvent::Empty(id));
        self.seen.emptying.borrow_mut()[cpu.index()] = Some(id);
        work();
        self.seen.emptying.borrow_mut()[cpu.index()] = None;
        if self.procs[id as usize].space.has(sim, Flag::Ended) {
            self.note(sim, StormEvent::Free(id));
        }
    }

    /// Starts a task for the reaper. The task ends when no victim waits for the reaper. Does
    /// nothing if such a task is already running.
    fn start_reaper(self: &Rc<Self>, sim: &Sim, at: Nanos) {
        if self.reaper_runs.replace(true) {
            return;
        }
        let world = Rc::clone(self);
        sim.spawn(self.population.reaper, move |sim| {
            let mut next = Next::At(at);
            while let Next::At(at) = next {
                sim.sleep_until(at);
                let stepped = world.killer.reaper().step(world.memory(sim));
                if let Some(done) = stepped.done {
                    assert_eq!(done.bad_rss, None, "pages of a victim were miscounted");
                    if done.how == How::Emptied {
                        world.note(sim, StormEvent::Free(done.process.0));
                    }
                }
                next = stepped.next;
            }
            world.reaper_runs.set(false);
        });
    }

    /// Starts the helper: a daemon that has been notified of the kill of process `id`, and calls
    /// `process_mrelease` for this process.
    fn start_helper(self: &Rc<Self>, sim: &Sim, id: u32) {
        let world = Rc::clone(self);
        sim.spawn(self.population.helper, move |sim| {
            world.empties(sim, id, || {
                let (process, all) = (&world.processes[id as usize], world.processes.iter());
                // The result does not matter. The call may come after the process's exit. It may
                // also free only a part of the process's pages and leave the other pages to the
                // exit.
                let _ = release(world.memory(sim), Some(process), all, 0, || false);
            });
        });
    }

    /// The processes, and the CPUs of the reaper, of the helper (which calls `process_mrelease`)
    /// and of the device.
    pub(super) const fn population(&self) -> &Population {
        &self.population
    }

    /// Makes all remaining processes exit, and frees everything.
    ///
    /// # Panics
    /// If a process still has a page or a page table, or one of its counts is not 0.
    pub(super) fn end(self: Rc<Self>) -> Testbed {
        let last = Rc::clone(&self);
        self.testbed.sim.spawn(CpuId(0), move |sim| {
            for id in (0..).take(last.procs.len()) {
                last.leave(sim, id);
            }
        });
        self.testbed.sim.run();
        let world = Rc::into_inner(self).expect("all tasks have ended");
        let sim = &world.testbed.sim;
        assert_eq!(world.killer.victims(sim), 0, "a victim is left");
        assert_eq!(
            world.killer.reaper().queued(sim),
            0,
            "the reaper has something to do"
        );
        for proc in world.procs {
            assert!(proc.space.has(sim, Flag::Ended), "it has not ended");
            assert_eq!(proc.space.table_pages(sim), 0, "a page table is left");
        }
        for process in world.processes {
            assert_eq!(
                world.killer.retire(sim, process),
                Ok(()),
                "a counter is off"
            );
        }
        assert_eq!(world.spaces.lru().total(sim), 0, "a page is still aged");
        world.testbed
    }
}

impl Proc {
    /// Creates a process that has no memory yet.
    #[expect(
        clippy::arc_with_non_send_sync,
        reason = "on real machines it is both; a simulated one has one thread"
    )]
    fn new(spec: &ProcSpec, memory: Memory<'_, Sim>) -> Self {
        let space = AddressSpace::new(memory).expect("the host has memory for it");
        Self {
            spec: spec.clone(),
            space: Arc::new(space),
            held: Cell::new(0),
            threads: Cell::new(spec.threads.len()),
            sleeps: Cell::new(false),
            dies: Cell::new(false),
            leaves: Cell::new(false),
        }
    }
}

impl Seen {
    fn note(&self, cpu: CpuId, at: Nanos, what: StormEvent) {
        let at = at.0;
        self.notes.borrow_mut().push(TimedEvent { at, cpu, what });
    }

    fn hear(&self, cpu: CpuId, at: Nanos, event: &Event) {
        let emptying = || self.emptying.borrow()[cpu.index()];
        let what = match *event {
            Event::Begin(Phase::Stall) => Some(StormEvent::Stall(Edge::Begin)),
            Event::End(Phase::Stall) => Some(StormEvent::Stall(Edge::End)),
            Event::Begin(Phase::Select) => {
                self.looked.borrow_mut().fill(false);
                Some(StormEvent::Select(Edge::Begin))
            }
            Event::End(Phase::Select) => Some(StormEvent::Select(Edge::End)),
            Event::End(Phase::FreePages) => emptying().map(StormEvent::Back),
            Event::OomKill(process) => Some(StormEvent::Kill(process.0)),
            Event::StartTaskReaping(process) => {
                self.emptying.borrow_mut()[cpu.index()] = Some(process.0);
                Some(StormEvent::Empty(process.0))
            }
            Event::FinishTaskReaping(_) | Event::SkipTaskReaping(_) => {
                self.emptying.borrow_mut()[cpu.index()] = None;
                None
            }
            _ => None,
        };
        if let Some(what) = what {
            self.note(cpu, at, what);
        }
    }
}

impl Embedder {
    fn world(&self) -> Rc<StormWorld> {
        self.0.upgrade().expect("it is there")
    }
}

impl Signals<Sim> for Embedder {
    fn kill(&self, sim: &Sim, process: &Arc<Process<Sim>>) {
        let (world, id) = (self.world(), process.id().0);
        let proc = &world.procs[id as usize];
        proc.dies.set(true);
        let pages = proc.held.get();
        let others = world.procs.iter().filter(|other| !other.dies.get());
        let most = others.map(|other| other.held.get()).fold(pages, u64::max);
        world.seen.kills.borrow_mut().push(Kill {
            process: id,
            pages,
            most,
        });
        if proc.threads.get() == 0 || proc.sleeps.get() {
            let dying = Rc::clone(&world);
            sim.spawn(proc.spec.home, move |sim| dying.leave(sim, id));
        }
        if world.ending == Ending::Helped {
            world.start_helper(sim, id);
        }
    }

    fn thaw(&self, _sim: &Sim, _process: &Arc<Process<Sim>>) {
        unreachable!("no process is frozen here");
    }

    fn reap_at(&self, sim: &Sim, at: Nanos) {
        self.world().start_reaper(sim, at);
    }
}

impl Owner<Sim> for Embedder {
    fn with_processes(&self, _sim: &Sim, look: &mut Look<'_, Sim>) {
        look(&self.world().processes);
    }

    fn current(&self, sim: &Sim) -> Option<Arc<Process<Sim>>> {
        let world = self.world();
        let id = world.current.borrow()[sim.this_cpu().index()]?;
        Some(Arc::clone(&world.processes[id as usize]))
    }

    /// Sleeps for one jiffy as Linux' timer wheel rounds it (`schedule_timeout_killable(1)`): until
    /// the second tick from now.
    fn pause(&self, sim: &Sim) {
        let world = self.world();
        world.note(sim, StormEvent::Pause(Edge::Begin));
        let hz = sim.hz();
        let Jiffies(now) = hz.jiffies(sim.now());
        sim.sleep_until(hz.nanos(Jiffies(now + 2)));
        world.note(sim, StormEvent::Pause(Edge::End));
    }

    /// The OOM killer calls this method whenever it looks at a process. So this method spends the
    /// time of the look.
    fn nodes(&self, sim: &Sim, process: &Process<Sim>) -> NodeSet {
        let world = self.world();
        let id = process.id().0 as usize;
        let was_looked_at = mem::replace(&mut world.seen.looked.borrow_mut()[id], true);
        if was_looked_at {
            sim.spend(Work::Think, LOOK_AGAIN_NS);
        } else {
            sim.spend(Work::Candidate, 1);
        }
        NodeSet::ALL
    }
}
