//! A machine with processes on which memory runs out: the owner of the processes, what a kill makes
//! them do, and the reaper.

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
use plimsoll_sim::{Sim, SimOptions, last_resort};

use super::Ending;
use super::population::{Person, Population};
use super::stalls::{Edge, Note, What};
use crate::room::Room;

/// The nanoseconds of a further look at a process, when all its lines are near. Measured where the
/// first look takes 180 to 190 ns, with 1000 processes.
const LOOK_AGAIN_NS: u32 = 25;

/// The town is the machine of a storm: its processes are the citizens, and their owner is the
/// mayor.
pub(super) struct Town {
    pub(super) room: Room,
    spaces: Spaces<Sim>,
    killer: Arc<OomKiller<Sim, Calls>>,
    oom: OutOfMemory<Sim, Calls, Mayor>,
    pub(super) citizens: Vec<Citizen>,
    processes: Vec<Arc<Process<Sim>>>,
    population: Population,
    ending: Ending,
    reaper_runs: Cell<bool>,
    pub(super) seen: Rc<Seen>,
}

/// A process, with what its owner knows of it.
pub(super) struct Citizen {
    pub(super) person: Person,
    pub(super) space: Arc<AddressSpace<Sim>>,
    /// The pages that it has touched and not lost.
    pub(super) held: Cell<u64>,
    /// The number of threads that have not ended.
    pub(super) threads: Cell<usize>,
    /// Whether its thread sleeps in such a way that a signal wakes it.
    pub(super) sleeps: Cell<bool>,
    dies: Cell<bool>,
    leaves: Cell<bool>,
}

/// The events since [`Town::watch`].
#[derive(Default)]
pub(super) struct Seen {
    pub(super) notes: RefCell<Vec<Note>>,
    pub(super) kills: RefCell<Vec<Kill>>,
    /// The process whose memory each CPU empties.
    emptying: RefCell<Vec<Option<u32>>>,
    /// For each process, whether this selection has looked at it.
    looked: RefCell<Vec<bool>>,
}

/// The state of the processes when one was told to die, by the pages that each had touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    /// The process that was told to die.
    pub process: u32,
    /// The pages it had.
    pub pages: u64,
    /// The most pages of any process that was not dying yet, this one included.
    pub most: u64,
}

/// The calls of the OOM killer: it kills a process, and it has the reaper started.
struct Calls(RefCell<Weak<Town>>);

/// The owner of the processes.
struct Mayor {
    town: RefCell<Weak<Town>>,
    /// The process for which each CPU allocates.
    current: RefCell<Vec<Option<Arc<Process<Sim>>>>>,
}

impl Town {
    /// A town in which every process exists and has nothing yet.
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
        let me: Rc<RefCell<Weak<Self>>> = Rc::default();
        let town = Rc::clone(&me);
        let last_resort = last_resort(move |sim, pages, request| {
            let town = town.borrow().upgrade().expect("it is there");
            town.note(sim, What::Ask(Edge::Begin));
            let relief = town.oom.relieve(sim, pages, request);
            town.note(sim, What::Ask(Edge::End));
            relief
        });
        let options = SimOptions {
            seed,
            ..SimOptions::default()
        };
        let room = Room::with_last_resort(profile, design, options, Some(last_resort));
        let (sim, cpus) = (&room.sim, profile.topology.cpus() as usize);
        let killer = Arc::new(OomKiller::new(
            sim,
            Calls(RefCell::default()),
            Patience::LINUX,
        ));
        let mayor = Mayor {
            town: RefCell::default(),
            current: RefCell::new(vec![None; cpus]),
        };
        let oom = OutOfMemory::new(
            sim,
            Arc::clone(&killer),
            mayor,
            Rules::of(&design),
            Vec::new(),
        );
        let count = population.people.len();
        oom.reserve(sim, count)
            .expect("the host has memory for slots");
        let spaces = Spaces::new(sim, &design, 0).expect("four counters fit");
        let memory = Memory::new(sim, &room.mm, &spaces);
        let citizens: Vec<Citizen> = population
            .people
            .iter()
            .map(|person| Citizen::new(person, memory))
            .collect();
        let enroll = |(id, citizen): (u32, &Citizen)| {
            let space = Some(Arc::clone(&citizen.space));
            let process = killer.enroll(sim, ProcessId(id), Kind::Process, space);
            Arc::new(process.expect("the host has memory for it"))
        };
        let processes = (0..).zip(&citizens).map(enroll).collect();
        let seen = Rc::new(Seen {
            emptying: RefCell::new(vec![None; cpus]),
            looked: RefCell::new(vec![false; count]),
            ..Seen::default()
        });
        let town = Rc::new(Self {
            spaces,
            killer,
            oom,
            citizens,
            processes,
            population,
            ending,
            reaper_runs: Cell::new(false),
            seen,
            room,
        });
        town.killer.signals().0.replace(Rc::downgrade(&town));
        town.oom.owner().town.replace(Rc::downgrade(&town));
        me.replace(Rc::downgrade(&town));
        town
    }

    /// Notes what happens from now on.
    pub(super) fn watch(&self) {
        let seen = Rc::clone(&self.seen);
        self.room
            .sim
            .observe(move |_, cpu, at, event| seen.hear(cpu, at, event));
    }

    pub(super) fn memory<'t>(&'t self, sim: &'t Sim) -> Memory<'t, Sim> {
        Memory::new(sim, &self.room.mm, &self.spaces)
    }

    fn note(&self, sim: &Sim, what: What) {
        self.seen.note(sim.this_cpu(), sim.now(), what);
    }

    /// Makes this CPU allocate for process `id` from now on.
    pub(super) fn becomes(&self, sim: &Sim, id: u32) {
        let current = Some(Arc::clone(&self.processes[id as usize]));
        self.oom.owner().current.borrow_mut()[sim.this_cpu().index()] = current;
    }

    pub(super) fn is_killed(&self, sim: &Sim, id: u32) -> bool {
        self.processes[id as usize].is(sim, State::Killed)
    }

    /// Ends a thread of process `id`. The last thread of a process that was told to die empties its
    /// memory.
    pub(super) fn thread_ends(&self, sim: &Sim, id: u32) {
        let threads = &self.citizens[id as usize].threads;
        threads.set(threads.get() - 1);
        if threads.get() == 0 && self.is_killed(sim, id) {
            self.leave(sim, id);
        }
    }

    /// Process `id` leaves its memory, unless it has already.
    pub(super) fn leave(&self, sim: &Sim, id: u32) {
        let citizen = &self.citizens[id as usize];
        if citizen.leaves.replace(true) {
            return;
        }
        self.empties(sim, id, || {
            let exited = self
                .killer
                .exit(self.memory(sim), &self.processes[id as usize]);
            assert!(exited.is_ok(), "a process leaves once: {exited:?}");
        });
    }

    /// Does `work`, which empties the memory of process `id`, and notes when it begins and what it
    /// frees.
    fn empties(&self, sim: &Sim, id: u32, work: impl FnOnce()) {
        let cpu = sim.this_cpu();
        self.note(sim, What::Empty(id));
        self.seen.emptying.borrow_mut()[cpu.index()] = Some(id);
        work();
        self.seen.emptying.borrow_mut()[cpu.index()] = None;
        if self.citizens[id as usize].space.has(sim, Flag::Ended) {
            self.note(sim, What::Free(id));
        }
    }

    /// Starts the reaper in a task that ends when no victim waits for it; does nothing if the task
    /// runs.
    fn start_reaper(self: &Rc<Self>, sim: &Sim, at: Nanos) {
        if self.reaper_runs.replace(true) {
            return;
        }
        let town = Rc::clone(self);
        sim.spawn(self.population.reaper, move |sim| {
            let mut next = Next::At(at);
            while let Next::At(at) = next {
                sim.sleep_until(at);
                let stepped = town.killer.reaper().step(town.memory(sim));
                if let Some(done) = stepped.done {
                    assert_eq!(done.bad_rss, None, "pages of a victim were miscounted");
                    if done.how == How::Emptied {
                        town.note(sim, What::Free(done.process.0));
                    }
                }
                next = stepped.next;
            }
            town.reaper_runs.set(false);
        });
    }

    /// Starts a daemon that hears of the kill of process `id` and calls `process_mrelease`.
    fn start_helper(self: &Rc<Self>, sim: &Sim, id: u32) {
        let town = Rc::clone(self);
        sim.spawn(self.population.helper, move |sim| {
            town.empties(sim, id, || {
                let (process, all) = (&town.processes[id as usize], town.processes.iter());
                // The result does not matter: the call may come too late, or leave the rest to the
                // exit.
                let _ = release(town.memory(sim), Some(process), all, 0, || false);
            });
        });
    }

    /// The processes, and the CPUs on which reaper, helper and device run.
    pub(super) const fn population(&self) -> &Population {
        &self.population
    }

    /// Lets all processes leave that have not, and gives everything back.
    ///
    /// # Panics
    /// When anything of a process is left.
    pub(super) fn end(self: Rc<Self>) -> Room {
        let last = Rc::clone(&self);
        self.room.sim.spawn(CpuId(0), move |sim| {
            for id in (0..).take(last.citizens.len()) {
                last.leave(sim, id);
            }
        });
        self.room.sim.run();
        let town = Rc::into_inner(self).expect("all tasks have ended");
        let sim = &town.room.sim;
        assert_eq!(town.killer.victims(sim), 0, "a victim is left");
        assert_eq!(
            town.killer.reaper().queued(sim),
            0,
            "the reaper has something to do"
        );
        for citizen in town.citizens {
            assert!(citizen.space.has(sim, Flag::Ended), "it has not ended");
            assert_eq!(citizen.space.table_pages(sim), 0, "a page table is left");
        }
        town.oom.owner().current.borrow_mut().clear();
        for process in town.processes {
            assert_eq!(town.killer.retire(sim, process), Ok(()), "a counter is off");
        }
        assert_eq!(town.spaces.lru().total(sim), 0, "a page is still aged");
        town.room
    }
}

impl Citizen {
    /// A citizen that has nothing yet.
    #[expect(
        clippy::arc_with_non_send_sync,
        reason = "on real machines it is both; a simulated one has one thread"
    )]
    fn new(person: &Person, memory: Memory<'_, Sim>) -> Self {
        let space = AddressSpace::new(memory).expect("the host has memory for it");
        Self {
            person: person.clone(),
            space: Arc::new(space),
            held: Cell::new(0),
            threads: Cell::new(person.threads.len()),
            sleeps: Cell::new(false),
            dies: Cell::new(false),
            leaves: Cell::new(false),
        }
    }
}

impl Seen {
    fn note(&self, cpu: CpuId, at: Nanos, what: What) {
        let at = at.0;
        self.notes.borrow_mut().push(Note { at, cpu, what });
    }

    fn hear(&self, cpu: CpuId, at: Nanos, event: &Event) {
        let emptying = || self.emptying.borrow()[cpu.index()];
        let what = match *event {
            Event::Begin(Phase::Stall) => Some(What::Stall(Edge::Begin)),
            Event::End(Phase::Stall) => Some(What::Stall(Edge::End)),
            Event::Begin(Phase::Select) => {
                self.looked.borrow_mut().fill(false);
                Some(What::Select(Edge::Begin))
            }
            Event::End(Phase::Select) => Some(What::Select(Edge::End)),
            Event::End(Phase::FreePages) => emptying().map(What::Back),
            Event::OomKill(process) => Some(What::Kill(process.0)),
            Event::StartTaskReaping(process) => {
                self.emptying.borrow_mut()[cpu.index()] = Some(process.0);
                Some(What::Empty(process.0))
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

impl Calls {
    fn town(&self) -> Rc<Town> {
        self.0.borrow().upgrade().expect("it is there")
    }
}

impl Signals<Sim> for Calls {
    fn kill(&self, sim: &Sim, process: &Arc<Process<Sim>>) {
        let (town, id) = (self.town(), process.id().0);
        let citizen = &town.citizens[id as usize];
        citizen.dies.set(true);
        let pages = citizen.held.get();
        let others = town.citizens.iter().filter(|other| !other.dies.get());
        let most = others.map(|other| other.held.get()).fold(pages, u64::max);
        town.seen.kills.borrow_mut().push(Kill {
            process: id,
            pages,
            most,
        });
        if citizen.threads.get() == 0 || citizen.sleeps.get() {
            let dying = Rc::clone(&town);
            sim.spawn(citizen.person.home, move |sim| dying.leave(sim, id));
        }
        if town.ending == Ending::Helped {
            town.start_helper(sim, id);
        }
    }

    fn thaw(&self, _sim: &Sim, _process: &Arc<Process<Sim>>) {
        unreachable!("no process is frozen here");
    }

    fn reap_at(&self, sim: &Sim, at: Nanos) {
        self.town().start_reaper(sim, at);
    }
}

impl Owner<Sim> for Mayor {
    fn with_processes(&self, _sim: &Sim, look: &mut Look<'_, Sim>) {
        let town = self.town.borrow().upgrade().expect("it is there");
        look(&town.processes);
    }

    fn current(&self, sim: &Sim) -> Option<Arc<Process<Sim>>> {
        self.current.borrow()[sim.this_cpu().index()].clone()
    }

    /// Sleeps for one jiffy, as the timer wheel rounds it: the current jiffy does not count (Linux:
    /// `schedule_timeout_killable(1)`).
    fn pause(&self, sim: &Sim) {
        let town = self.town.borrow().upgrade().expect("it is there");
        town.note(sim, What::Pause(Edge::Begin));
        let hz = sim.hz();
        let Jiffies(now) = hz.jiffies(sim.now());
        sim.sleep_until(hz.nanos(Jiffies(now + 2)));
        town.note(sim, What::Pause(Edge::End));
    }

    /// The OOM killer asks this once for each look at a process, so the look is charged here.
    fn nodes(&self, sim: &Sim, process: &Process<Sim>) -> NodeSet {
        let town = self.town.borrow().upgrade().expect("it is there");
        let id = process.id().0 as usize;
        let was_looked_at = mem::replace(&mut town.seen.looked.borrow_mut()[id], true);
        if was_looked_at {
            sim.spend(Work::Think, LOOK_AGAIN_NS);
        } else {
            sim.spend(Work::Candidate, 1);
        }
        NodeSet::ALL
    }
}
