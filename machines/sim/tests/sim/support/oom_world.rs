//! `OomWorld`: processes with memory on a small machine, for tests of OOM kills. The world has an
//! OOM killer, and a task that runs its reaper.
#![expect(
    clippy::arc_with_non_send_sync,
    reason = "on real machines they are both; a simulated one has one thread"
)]

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use plimsoll_mm::design::Design;
use plimsoll_mm::event::Event;
use plimsoll_mm::laws::cast;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::oom::{
    Done, Killed, Kind, Next, OomKiller, OutOfMemory, Parted, Patience, Process, Rules, Selecting,
};
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::space::budget::Budget;
use plimsoll_mm::space::reap::Reaping;
use plimsoll_mm::space::{AddressSpace, ExitError, Memory, Notified, Refused, Spaces};
use plimsoll_mm::topology::{NodeSet, Topology};
use plimsoll_mm::units::{CpuId, Nanos, Pages, Vpn};
use plimsoll_sim::{Faults, Sim, SimOptions, last_resort};

use super::cache::Cache;
use super::embedder::{Call, Embedder, Told};
use super::{Dice, Small, small};

/// The number of CPUs of the machine.
const CPUS: u32 = 4;
/// The page number at which mappings begin.
pub(crate) const START: Vpn = Vpn(1 << 20);

pub(crate) type Space = Arc<AddressSpace<Sim>>;

/// The settings of a world: the size of its memory, how the reaper empties memory, which processes
/// are killed, and when a killed process exits.
pub(crate) struct Setting {
    pub(crate) options: SimOptions,
    pub(crate) pages: u32,
    pub(crate) reaping: Reaping,
    pub(crate) patience: Patience,
    pub(crate) rules: Rules,
    /// The time from the kill until a process begins to exit; `None` if processes never exit. A
    /// frozen process exits only after it is thawed.
    pub(crate) exits_after: Option<Nanos>,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            options: SimOptions::default(),
            // Tests that are not meant to run out of memory need fewer pages than this.
            pages: 1 << 17,
            reaping: Reaping::MeetInTheMiddle,
            patience: Patience::LINUX,
            rules: Rules::default(),
            exits_after: None,
        }
    }
}

/// A machine with processes, an OOM killer and its reaper.
pub(crate) struct OomWorld {
    pub(crate) small: Small,
    pub(crate) spaces: Spaces<Sim>,
    pub(crate) killer: Arc<OomKiller<Sim, Embedder>>,
    /// Relieves a shortage of memory, if necessary by a kill.
    pub(crate) oom: OutOfMemory<Sim, Embedder, Embedder>,
    /// A cache that frees its blocks before a process is killed.
    pub(crate) cache: Cache,
    pub(crate) processes: RefCell<Vec<Arc<Process<Sim>>>>,
    /// The calls that the OOM killer has made to the embedder, in their order.
    pub(crate) log: RefCell<Vec<Call>>,
    pub(crate) reports: RefCell<Vec<Told>>,
    /// The result of each finished reaping, with its time.
    pub(crate) done: RefCell<Vec<(Nanos, Done)>>,
    /// The id of the process that exits just before the OOM code next lists the processes; `None`
    /// for no process.
    pub(crate) leaves: Cell<Option<u32>>,
    /// The nodes from which requests may allocate; `None` for all nodes.
    pub(crate) allowed: Cell<Option<NodeSet>>,
    /// The nodes that certain processes may use, by process id. All other processes may use all
    /// nodes.
    pub(crate) nodes: RefCell<Vec<(u32, NodeSet)>>,
    /// True if a separate task runs the reaper; otherwise the test calls it.
    pub(crate) reaps: Cell<bool>,
    /// For each CPU, the process for which it allocates. The task on that CPU performs the exit if
    /// the process is killed.
    pub(super) current: Cell<[Option<u32>; CPUS as usize]>,
    exits_after: Option<Nanos>,
    reaper_runs: Cell<bool>,
}

impl Setting {
    /// Draws random settings for the run of a swarm with `seed`. The machine has the faults
    /// `faults`.
    pub(crate) fn drawn(seed: u64, dice: &mut Dice, faults: Faults) -> Self {
        let mut below_ms = |most: u32| Nanos(u64::from(dice.below(most * 1_000_000)));
        let (delay, pause, exits_after) = (below_ms(20), below_ms(2), below_ms(30));
        Self {
            options: SimOptions {
                seed,
                shake_ns: dice.below(300),
                faults,
                ..SimOptions::default()
            },
            reaping: *dice.pick(&Reaping::ALL),
            patience: Patience {
                delay,
                pause,
                attempts_max: dice.below(4),
            },
            rules: Rules {
                selecting: *dice.pick(&Selecting::ALL),
                ..Rules::default()
            },
            exits_after: dice.chance(70).then_some(exits_after),
            ..Self::default()
        }
    }

    pub(crate) fn world(self) -> Rc<OomWorld> {
        let design = Design {
            reaping: self.reaping,
            ..Design::OURS
        };
        let mut config = Config::new(Layout::arena(Pages(self.pages)));
        config.design = design;
        Rc::new_cyclic(|world: &Weak<OomWorld>| {
            let embedder = || Embedder(Weak::clone(world));
            let asked = embedder();
            config.last_resort = Some(last_resort(move |sim, pages, request| {
                asked.world().oom.relieve(sim, pages, request)
            }));
            let profile = small::profile(Topology::flat(CPUS), 1000);
            let small = Small::with_options(&profile, config, self.options);
            let killer = Arc::new(OomKiller::new(&small.sim, embedder(), self.patience));
            let cache = Cache::default();
            OomWorld {
                spaces: Spaces::new(&small.sim, &design, 0).expect("countable"),
                oom: OutOfMemory::new(
                    &small.sim,
                    Arc::clone(&killer),
                    embedder(),
                    self.rules,
                    vec![Box::new(cache.clone())],
                ),
                cache,
                killer,
                processes: RefCell::default(),
                log: RefCell::default(),
                reports: RefCell::default(),
                done: RefCell::default(),
                leaves: Cell::default(),
                allowed: Cell::default(),
                nodes: RefCell::default(),
                reaps: Cell::new(true),
                current: Cell::default(),
                exits_after: self.exits_after,
                reaper_runs: Cell::default(),
                small,
            }
        })
    }
}

impl OomWorld {
    /// Creates a world whose processes begin to exit when the time `exits_after` has passed since
    /// the kill. If `exits_after` is `None`, they never exit.
    pub(crate) fn new(reaping: Reaping, exits_after: Option<Nanos>) -> Rc<Self> {
        let setting = Setting {
            reaping,
            exits_after,
            ..Setting::default()
        };
        setting.world()
    }

    pub(crate) fn memory<'m>(&'m self, sim: &'m Sim) -> Memory<'m, Sim> {
        Memory::new(sim, &self.small.mm, &self.spaces)
    }

    /// Runs `body` on CPU 0 to its end, together with every task that it starts.
    pub(crate) fn run(self: &Rc<Self>, body: impl FnOnce(&Sim, &Self) + 'static) {
        let world = Rc::clone(self);
        self.small.on(0, move |sim, _| body(sim, &world));
    }

    /// Starts a task on `cpu` that runs `body` at time `at`. The caller runs the machine.
    pub(crate) fn at(
        self: &Rc<Self>,
        cpu: u32,
        at: Nanos,
        body: impl FnOnce(&Sim, &Self) + 'static,
    ) {
        let world = Rc::clone(self);
        self.small.sim.spawn(CpuId(cpu), move |sim| {
            sim.sleep_until(at);
            body(sim, &world);
        });
    }

    /// Creates an empty address space under `budget`. If `notified` is given, this device is
    /// notified before pages are unmapped.
    pub(crate) fn space(
        &self,
        sim: &Sim,
        budget: Option<&Arc<Budget<Sim>>>,
        notified: Option<Device>,
    ) -> Space {
        let mut space = AddressSpace::new(self.memory(sim)).expect("there is memory");
        if let Some(budget) = budget {
            space = space.limited(Arc::clone(budget));
        }
        if let Some(notified) = notified {
            space = space.notifying(notified);
        }
        Arc::new(space)
    }

    /// Creates an address space that uses `pages` pages, without a budget or a device.
    pub(crate) fn filled(&self, sim: &Sim, pages: u64) -> Space {
        let space = self.space(sim, None, None);
        self.fill(sim, &space, START, pages);
        space
    }

    /// Maps `pages` pages from `start` on and populates them. Returns their range.
    pub(crate) fn fill(&self, sim: &Sim, space: &Space, start: Vpn, pages: u64) -> Range<Vpn> {
        cast::fill(self.memory(sim), space, start, pages)
    }

    /// Adds process `id`, which uses `space`, to the processes of the world.
    pub(crate) fn enroll(
        &self,
        sim: &Sim,
        id: u32,
        kind: Kind,
        space: &Space,
    ) -> Arc<Process<Sim>> {
        let process = cast::enroll(sim, &self.killer, id, kind, Some(Arc::clone(space)));
        self.processes.borrow_mut().push(Arc::clone(&process));
        process
    }

    pub(crate) fn process(&self, id: u32) -> Arc<Process<Sim>> {
        let processes = self.processes.borrow();
        let found = processes.iter().find(|process| process.id().0 == id);
        Arc::clone(found.expect("it was enrolled"))
    }

    pub(crate) fn space_of(&self, sim: &Sim, id: u32) -> Space {
        let process = self.process(id);
        Arc::clone(process.space(sim).expect("it has not left"))
    }

    pub(crate) fn kill(&self, sim: &Sim, id: u32) -> Killed {
        self.kill_for(sim, id, None)
    }

    pub(crate) fn kill_for(&self, sim: &Sim, id: u32, domain: Option<&Arc<Budget<Sim>>>) -> Killed {
        let (victim, all) = (self.process(id), self.processes.borrow().clone());
        self.killer
            .kill(self.memory(sim), &victim, &all.iter(), domain)
    }

    pub(crate) fn exit(&self, sim: &Sim, process: &Process<Sim>) -> Parted {
        let parted = self.killer.exit(self.memory(sim), process);
        parted.expect("it did not exit before")
    }

    /// If `exits_after` is set, starts a task that makes `process` exit after this time.
    pub(super) fn exits(self: &Rc<Self>, sim: &Sim, process: &Arc<Process<Sim>>) {
        let Some(after) = self.exits_after else {
            return;
        };
        let (world, process) = (Rc::clone(self), Arc::clone(process));
        sim.spawn(CpuId(1), move |sim| {
            sim.sleep(after);
            // The process may already have exited on its own.
            let exited = world.killer.exit(world.memory(sim), &process);
            assert!(matches!(exited, Ok(_) | Err(ExitError::Ended)));
        });
    }

    /// Makes this CPU allocate for process `id` from now on. When the process is told to die, the
    /// task on this CPU performs the process's exit.
    pub(crate) fn becomes(&self, sim: &Sim, id: u32) {
        let mut current = self.current.get();
        current[sim.this_cpu().index()] = Some(id);
        self.current.set(current);
    }

    pub(super) fn is_current(&self, id: u32) -> bool {
        self.current.get().contains(&Some(id))
    }

    /// Returns the ids of the processes that were told to die, in the order of the kills.
    pub(crate) fn killed(&self) -> Vec<u32> {
        let log = self.log.borrow();
        let killed = log.iter().filter_map(|call| match call {
            Call::Kill(id, ..) => Some(*id),
            Call::Thaw(_) | Call::ReapAt(_) => None,
        });
        killed.collect()
    }

    /// Starts the reaper at time `at`, in a task that ends when no address space is queued.
    pub(super) fn start_reaper(self: &Rc<Self>, sim: &Sim, at: Nanos) {
        if self.reaper_runs.replace(true) {
            return;
        }
        let world = Rc::clone(self);
        sim.spawn(CpuId(2), move |sim| {
            let mut next = Next::At(at);
            while let Next::At(at) = next {
                sim.sleep_until(at);
                let stepped = world.killer.reaper().step(world.memory(sim));
                if let Some(done) = stepped.done {
                    world.done.borrow_mut().push((sim.now(), done));
                }
                next = stepped.next;
            }
            world.reaper_runs.set(false);
        });
    }

    /// Returns the events of the OOM killer and the reaper, with their times.
    pub(crate) fn events(&self) -> Vec<(Nanos, Event)> {
        let seen = self.small.seen.borrow();
        let ours = seen.iter().filter(|(_, _, event)| {
            matches!(
                event,
                Event::OomKill(_)
                    | Event::MarkVictim(_)
                    | Event::WakeReaper(_)
                    | Event::StartTaskReaping(_)
                    | Event::FinishTaskReaping(_)
                    | Event::SkipTaskReaping(_)
            )
        });
        ours.map(|&(_, at, event)| (at, event)).collect()
    }

    /// Returns the times at which the reaper began an attempt.
    pub(crate) fn attempts(&self) -> Vec<Nanos> {
        let started = |event: &Event| matches!(event, Event::StartTaskReaping(_));
        let events = self.events();
        let attempts = events.iter().filter(|(_, event)| started(event));
        attempts.map(|&(at, _)| at).collect()
    }

    /// Makes every remaining process exit, and retires all of them. Then every page must be free in
    /// its zone, and every count must be 0.
    pub(crate) fn ends(self: Rc<Self>) {
        self.run(|sim, world| {
            let memory = world.memory(sim);
            cast::end(memory, &world.killer, world.processes.take());
            cast::is_whole(memory);
        });
        let bad = |done: &&(Nanos, Done)| done.1.bad_rss.is_some();
        assert!(!self.done.borrow().iter().any(|done| bad(&done)));
    }
}

/// A device that keeps translations.
#[derive(Clone, Copy)]
pub(crate) enum Device {
    /// Refuses a range if the device must not wait.
    Refuses,
    /// Never refuses a range. If the device may wait, it waits until this time.
    BusyUntil(Nanos),
}

impl Notified<Sim> for Device {
    fn start(&self, sim: &Sim, _pages: &Range<Vpn>, may_wait: bool) -> Result<(), Refused> {
        match *self {
            Self::Refuses if !may_wait => return Err(Refused),
            Self::BusyUntil(until) if may_wait => sim.sleep_until(until),
            Self::Refuses | Self::BusyUntil(_) => {}
        }
        Ok(())
    }

    fn end(&self, _sim: &Sim, _pages: &Range<Vpn>) {}

    fn release(&self, _sim: &Sim) {}
}
