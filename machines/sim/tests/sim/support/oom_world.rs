//! `OomWorld`: processes with memory on a small machine, for tests of OOM kills. The world has an
//! OOM killer, and a task that runs its reaper.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use plimsoll_mm::design::Design;
use plimsoll_mm::event::Event;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::oom::{
    Done, Killed, Kind, Next, OomKiller, OutOfMemory, Parted, Patience, Process, Rules, Signals,
    State,
};
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::space::budget::Budget;
use plimsoll_mm::space::reap::Reaping;
use plimsoll_mm::space::{
    AddressSpace, ExitError, Flag, MapRequest, Memory, Notified, Place, Refused, Spaces,
};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Nanos, Pages, ProcessId, Vpn};
use plimsoll_sim::{Sim, SimOptions, last_resort};

use super::balloon::Balloon;
use super::owner::WorldOwner;
use super::{Small, small};

/// The number of pages of the machine, unless a test needs fewer.
const PAGES: u32 = 1 << 17;
/// The number of CPUs of the machine.
pub(super) const CPUS: u32 = 4;
/// The page number at which mappings begin.
pub(crate) const START: Vpn = Vpn(1 << 20);

pub(crate) type Killer = OomKiller<Sim, Calls>;
pub(crate) type Space = Arc<AddressSpace<Sim>>;

/// A machine with processes, their owner, an OOM killer and its reaper.
pub(crate) struct OomWorld {
    pub(crate) small: Small,
    pub(crate) spaces: Spaces<Sim>,
    pub(crate) killer: Arc<Killer>,
    /// Relieves a shortage of memory, if necessary by a kill. The page allocator calls it only if
    /// the world was created with a [`Pressure`].
    pub(crate) oom: OutOfMemory<Sim, Calls, WorldOwner>,
    /// The notifier that is called for memory before a process is killed.
    pub(crate) balloon: Balloon,
    pub(crate) processes: RefCell<Vec<Arc<Process<Sim>>>>,
    /// The result of each finished reaping, with its time.
    pub(crate) done: RefCell<Vec<(Nanos, Done)>>,
    reaper_runs: Cell<bool>,
    free_at_first: Pages,
}

/// The size of a machine that runs out of memory, and the rules of its OOM kills.
#[derive(Clone, Copy)]
pub(crate) struct Pressure {
    pub(crate) pages: u32,
    pub(crate) rules: Rules,
}

/// The [`Signals`] of the tests. Records the requests of the OOM killer, and makes processes exit.
pub(crate) struct Calls {
    pub(crate) log: RefCell<Vec<Call>>,
    /// The time from the kill until a process begins to exit; `None` if processes never exit. A
    /// frozen process exits only after it is thawed.
    exits_after: Option<Nanos>,
    /// The processes that a task of the test runs. They notice the kill themselves, and exit.
    awake: RefCell<Vec<u32>>,
    /// True if a separate task runs the reaper; otherwise the test calls it.
    reaps: Cell<bool>,
    world: RefCell<Weak<OomWorld>>,
}

/// A call that the OOM killer made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// A process was told to die. Records whether the kill had already been counted, and whether
    /// the process had already been marked as a victim.
    Kill(u32, Counted, Marked),
    Thaw(u32),
    ReapAt(Nanos),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted(pub(crate) bool);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marked(pub(crate) bool);

impl Signals<Sim> for Calls {
    fn kill(&self, sim: &Sim, process: &Arc<Process<Sim>>) {
        let world = self.world();
        let told = |call: &&Call| matches!(call, Call::Kill(..));
        let told = self.log.borrow().iter().filter(told).count();
        let counted = Counted(world.killer.kills(sim) == told as u64 + 1);
        let marked = Marked(process.is(sim, State::Victim));
        let call = Call::Kill(process.id().0, counted, marked);
        self.log.borrow_mut().push(call);
        let is_awake = self.awake.borrow().contains(&process.id().0);
        if !process.is(sim, State::Frozen) && !is_awake {
            self.exits(sim, process);
        }
    }

    fn thaw(&self, sim: &Sim, process: &Arc<Process<Sim>>) {
        self.log.borrow_mut().push(Call::Thaw(process.id().0));
        self.exits(sim, process);
    }

    fn reap_at(&self, sim: &Sim, at: Nanos) {
        self.log.borrow_mut().push(Call::ReapAt(at));
        if self.reaps.get() {
            self.world().start_reaper(sim, at);
        }
    }
}

impl Calls {
    fn world(&self) -> Rc<OomWorld> {
        self.world.borrow().upgrade().expect("it is there")
    }

    /// Starts a task that makes `process` exit after `exits_after`, if processes exit at all.
    fn exits(&self, sim: &Sim, process: &Arc<Process<Sim>>) {
        let Some(after) = self.exits_after else {
            return;
        };
        let (world, process) = (self.world(), Arc::clone(process));
        sim.spawn(CpuId(1), move |sim| {
            sim.sleep(after);
            // The process may already have exited on its own.
            let exited = world.killer.exit(world.memory(sim), &process);
            assert!(matches!(exited, Ok(_) | Err(ExitError::Ended)));
        });
    }

    /// Makes the reaper run only when the test calls it.
    pub(crate) fn without_reaper(&self) {
        self.reaps.set(false);
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
}

impl OomWorld {
    /// Creates a world whose processes exit `exits_after` the kill, or never if that is `None`.
    pub(crate) fn new(reaping: Reaping, exits_after: Option<Nanos>) -> Rc<Self> {
        Self::with_patience(reaping, exits_after, Patience::LINUX)
    }

    /// Creates a world as [`OomWorld::new`] does, with a reaper that has `patience`.
    pub(crate) fn with_patience(
        reaping: Reaping,
        exits_after: Option<Nanos>,
        patience: Patience,
    ) -> Rc<Self> {
        let options = SimOptions::default();
        Self::with_options(options, reaping, exits_after, patience)
    }

    pub(crate) fn with_options(
        options: SimOptions,
        reaping: Reaping,
        exits_after: Option<Nanos>,
        patience: Patience,
    ) -> Rc<Self> {
        Self::build(options, reaping, exits_after, patience, None)
    }

    /// Creates a world with the memory of `pressure`, in which the page allocator calls the OOM
    /// killer.
    pub(crate) fn pressed(
        options: SimOptions,
        reaping: Reaping,
        exits_after: Option<Nanos>,
        patience: Patience,
        pressure: Pressure,
    ) -> Rc<Self> {
        Self::build(options, reaping, exits_after, patience, Some(pressure))
    }

    fn build(
        options: SimOptions,
        reaping: Reaping,
        exits_after: Option<Nanos>,
        patience: Patience,
        pressure: Option<Pressure>,
    ) -> Rc<Self> {
        let design = Design {
            reaping,
            ..Design::OURS
        };
        let pages = pressure.map_or(PAGES, |pressure| pressure.pages);
        let mut config = Config::new(Layout::arena(Pages(pages)));
        config.design = design;
        let me: Rc<RefCell<Weak<Self>>> = Rc::default();
        if pressure.is_some() {
            let me = Rc::clone(&me);
            config.last_resort = Some(last_resort(move |sim, pages, request| {
                let world = me.borrow().upgrade().expect("it is there");
                world.oom.relieve(sim, pages, request)
            }));
        }
        let profile = small::profile(Topology::flat(CPUS), 1000);
        let small = Small::with_options(&profile, config, options);
        let calls = Calls {
            log: RefCell::default(),
            exits_after,
            awake: RefCell::default(),
            reaps: Cell::new(true),
            world: RefCell::default(),
        };
        let killer = killer(&small.sim, calls, patience);
        let rules = pressure.map_or_else(Rules::default, |pressure| pressure.rules);
        let balloon = Balloon::default();
        let world = Rc::new(Self {
            spaces: Spaces::new(&small.sim, &design, 0).expect("countable"),
            oom: OutOfMemory::new(
                &small.sim,
                Arc::clone(&killer),
                WorldOwner::default(),
                rules,
                vec![Box::new(balloon.clone())],
            ),
            balloon,
            killer,
            processes: RefCell::default(),
            done: RefCell::default(),
            reaper_runs: Cell::default(),
            free_at_first: small.zone().free,
            small,
        });
        let weak = || Rc::downgrade(&world);
        world.killer.signals().world.replace(weak());
        world.oom.owner().world.replace(weak());
        me.replace(weak());
        world
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

    /// Creates an empty address space under `budget`, with the device `notified`.
    #[expect(
        clippy::arc_with_non_send_sync,
        reason = "on real machines they are both; a simulated one has one thread"
    )]
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
        let request = MapRequest::anonymous(Place::Fixed(start), pages);
        let range = start..Vpn(start.0 + pages);
        let memory = self.memory(sim);
        space.map(memory, request).expect("nothing is there");
        space.populate(memory, range.clone()).expect("it fits");
        range
    }

    /// Enrolls process `id`, which uses `space`.
    #[expect(
        clippy::arc_with_non_send_sync,
        reason = "processes are shared by Arc on every machine, and the simulator has one thread"
    )]
    pub(crate) fn enroll(
        &self,
        sim: &Sim,
        id: u32,
        kind: Kind,
        space: &Space,
    ) -> Arc<Process<Sim>> {
        let space = Some(Arc::clone(space));
        let process = self.killer.enroll(sim, ProcessId(id), kind, space);
        let process = Arc::new(process.expect("there is memory"));
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

    /// Makes this CPU allocate for process `id` from now on. When the process is told to die, the
    /// task on this CPU performs its exit.
    pub(crate) fn becomes(&self, sim: &Sim, id: u32) {
        let current = self.oom.owner();
        current.current.borrow_mut()[sim.this_cpu().index()] = Some(self.process(id));
        self.killer.signals().awake.borrow_mut().push(id);
    }

    /// Starts the reaper at time `at`, in a task that ends when no address space is queued.
    fn start_reaper(self: &Rc<Self>, sim: &Sim, at: Nanos) {
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
            let processes = world.processes.take();
            for process in &processes {
                let space = process.space(sim).cloned();
                if !process.is(sim, State::Left) && world.exit(sim, process) != Parted::Shared {
                    let ended = space.is_some_and(|space| space.has(sim, Flag::Ended));
                    assert!(ended, "no process uses it");
                }
            }
            world.oom.owner().current.take();
            for process in processes {
                let retired = world.killer.retire(sim, process);
                assert_eq!(retired, Ok(()), "pages of every kind");
            }
            assert_eq!(world.killer.victims(sim), 0);
            assert_eq!(world.killer.reaper().queued(sim), 0);
            assert_eq!(world.spaces.lru().total(sim), 0);
            world.small.mm.pages().drain_all_sync(sim);
        });
        let zone = self.small.zone();
        assert_eq!(zone.free, self.free_at_first, "every page is back");
        let bad = |done: &&(Nanos, Done)| done.1.bad_rss.is_some();
        assert!(!self.done.borrow().iter().any(|done| bad(&done)));
    }
}

#[expect(
    clippy::arc_with_non_send_sync,
    reason = "on real machines they are both; a simulated one has one thread"
)]
fn killer(sim: &Sim, calls: Calls, patience: Patience) -> Arc<Killer> {
    Arc::new(OomKiller::new(sim, calls, patience))
}

/// A device that keeps translations.
#[derive(Clone, Copy)]
pub(crate) enum Device {
    /// Refuses a range if the device may not wait.
    Refuses,
    /// Never refuses. If it may wait, it takes until this time.
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
