//! A small machine with every part of the memory manager on it, and a check that everything has
//! been freed in the end.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};

use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::oom::{
    Kind, Look, OomKiller, OutOfMemory, Owner, Parted, Patience, Process, Rules, State,
};
use plimsoll_mm::page::{Config, Grouping, Layout, Pressure};
use plimsoll_mm::reclaim::{Embedder, Reclaim};
use plimsoll_mm::space::budget::Budget;
use plimsoll_mm::space::object::{Object, ObjectKind};
use plimsoll_mm::space::{
    AddressSpace, Backing, MapError, MapRequest, Memory, Notified, Place, Refused, Spaces,
};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{Nanos, NodeId, Order, Pages, ProcessId, Vpn};
use plimsoll_mm::vmstat::counters::NodeItem;

use super::heap;
use super::machine::Plain;

/// The number of CPUs of the machine. With this number of CPUs, a one-sided counter begins as one
/// shared cache line. It creates its tree when the CPU that adds to the counter has changed for the
/// second time.
pub(crate) const CPUS: u32 = 40;
pub(crate) const MEMORY: Pages = Pages(4096);

type Oom = OutOfMemory<Plain, (), OomWorld>;

/// A small machine with every part of the memory manager on it.
pub(crate) struct World {
    pub(crate) machine: Plain,
    pub(crate) kept: Arc<Kept>,
    pub(crate) oom: Arc<Oom>,
    pub(crate) budget: Arc<Budget<Plain>>,
    pub(crate) file: Arc<Object<Plain>>,
    pub(crate) shared: Arc<Object<Plain>>,
}

/// The parts of a [`World`] that the owner of processes needs in order to let a process exit.
pub(crate) struct Kept {
    pub(crate) manager: Manager<Plain>,
    pub(crate) spaces: Spaces<Plain>,
    oom: Arc<Oom>,
    /// The reclaim of used pages; `None` if this world reclaims no used pages.
    pub(crate) reclaim: Option<Arc<Reclaim<Plain, Presses>>>,
}

/// The embedder of [`Reclaim`]: it has the memory to reclaim from, and notes that kswapd was woken.
pub(crate) struct Presses {
    kept: Weak<Kept>,
    /// True if kswapd was woken and has not run since.
    pub(crate) woken: AtomicBool,
}

impl Embedder<Plain> for Presses {
    fn with_memory(&self, machine: &Plain, f: &mut dyn FnMut(Memory<'_, Plain>)) {
        if let Some(kept) = self.kept.upgrade() {
            f(kept.memory(machine));
        }
    }

    fn wake_kswapd(&self, _: &Plain, _: NodeId) {
        self.woken.store(true, Relaxed);
    }

    fn pause(&self, machine: &Plain, span: Nanos) -> bool {
        machine.pass(span);
        true
    }
}

/// The owner of the processes in tests of OOM kills.
pub(crate) struct OomWorld {
    pub(crate) all: Mutex<Vec<Arc<Process<Plain>>>>,
    kept: Weak<Kept>,
    /// True if killed processes exit; otherwise only the reaper empties their memory.
    pub(crate) die: AtomicBool,
}

impl Owner<Plain> for OomWorld {
    fn with_processes(&self, _: &Plain, look: &mut Look<'_, Plain>) {
        look(&self.all.lock().expect("one thread"));
    }

    fn current(&self, _: &Plain) -> Option<Arc<Process<Plain>>> {
        None
    }

    fn pause(&self, machine: &Plain) {
        machine.pass(Nanos::from_ms(300));
        let kept = self.kept.upgrade().expect("the world is complete");
        let (memory, killer) = (kept.memory(machine), kept.oom.killer());
        let all = self.all.lock().expect("one thread");
        for process in all.iter() {
            let killed = process.is(machine, State::Killed) && !process.is(machine, State::Left);
            if self.die.load(Relaxed) && killed {
                let parted = killer.exit(memory, process);
                assert!(parted.is_ok(), "it had not left");
            }
        }
        drop(all);
        killer.reaper().step(memory);
    }
}

/// A holder of translations (Linux: an MMU notifier) that has no translations. If it may not wait,
/// it refuses ranges that begin in a page table of odd index.
struct Choosy;

impl Notified<Plain> for Choosy {
    fn start(&self, _: &Plain, pages: &std::ops::Range<Vpn>, may: bool) -> Result<(), Refused> {
        if may || (pages.start.0 / 512).is_multiple_of(2) {
            Ok(())
        } else {
            Err(Refused)
        }
    }

    fn end(&self, _: &Plain, _: &std::ops::Range<Vpn>) {}

    fn release(&self, _: &Plain) {}
}

impl Kept {
    fn memory<'k>(&'k self, machine: &'k Plain) -> Memory<'k, Plain> {
        Memory::new(machine, &self.manager, &self.spaces)
    }
}

impl World {
    pub(crate) fn new(cpus: u32, design: Design, grouping: Grouping) -> Self {
        Self::with(cpus, design, grouping, false)
    }

    /// Makes a world in which the pages of up to two processes are reclaimed.
    pub(crate) fn pressed(cpus: u32, design: Design, grouping: Grouping) -> Self {
        Self::with(cpus, design, grouping, true)
    }

    fn with(cpus: u32, design: Design, grouping: Grouping, pressed: bool) -> Self {
        let machine = Plain::new(Topology::flat(cpus));
        let patience = Patience {
            delay: Nanos(1),
            pause: Nanos(1),
            attempts_max: 3,
        };
        let kept = Arc::new_cyclic(|kept| {
            let owner = OomWorld {
                all: Mutex::new(Vec::with_capacity(8)),
                kept: Weak::clone(kept),
                die: AtomicBool::new(true),
            };
            let killer = Arc::new(OomKiller::new(&machine, (), patience));
            let rules = Rules::of(&design);
            let oom = Arc::new(OutOfMemory::new(&machine, killer, owner, rules, Vec::new()));
            let mut config = Config::new(Layout::arena(MEMORY));
            (config.design, config.grouping) = (design, grouping);
            config.last_resort = Some(Box::new(Arc::clone(&oom)));
            let presses = Presses {
                kept: Weak::clone(kept),
                woken: AtomicBool::new(false),
            };
            let reclaim =
                pressed.then(|| Arc::new(Reclaim::new(&machine, &config.layout, presses)));
            config.pressure = reclaim
                .clone()
                .map(|reclaim| Box::new(reclaim) as Box<dyn Pressure<Plain>>);
            let manager = Manager::new(&machine, config).expect("an arena is a layout");
            let mut spaces = Spaces::new(&machine, &design, 300).expect("it can be counted");
            if pressed {
                let aging = spaces.aging(&machine, &manager, 2);
                spaces = aging.expect("there is memory");
            }
            Kept {
                manager,
                spaces,
                oom,
                reclaim,
            }
        });
        Self {
            oom: Arc::clone(&kept.oom),
            kept,
            budget: Arc::new(Budget::new(&machine, 1 << 30)),
            file: Arc::new(Object::new(&machine, ObjectKind::File)),
            shared: Arc::new(Object::new(&machine, ObjectKind::Shared)),
            machine,
        }
    }

    pub(crate) fn memory(&self) -> Memory<'_, Plain> {
        self.kept.memory(&self.machine)
    }

    /// Makes a process with an address space that notifies [`Choosy`]. Returns `None` if the heap
    /// has no memory.
    pub(crate) fn process(&self, id: u32) -> Option<Arc<Process<Plain>>> {
        let memory = self.memory();
        let space = AddressSpace::new(memory)
            .ok()?
            .limited(Arc::clone(&self.budget));
        // In one test, the heap refuses all allocations except those that an embedder makes at
        // set-up. This `Arc` and the list of notified holders are such allocations, so they always
        // succeed here.
        let space = heap::with_memory(|| Arc::new(space.notifying(Choosy)));
        memory.enlist(&space).expect("there is a number for it");
        let killer = self.oom.killer();
        let process = killer.enroll(
            &self.machine,
            ProcessId(id),
            Kind::Process,
            Some(Arc::clone(&space)),
        );
        let Ok(process) = process else {
            space.exit(memory).expect("it was not ended before");
            let space = Arc::into_inner(space).expect("no other reference is left");
            assert_eq!(space.destroy(&self.machine), Ok(()));
            return None;
        };
        let process = heap::with_memory(|| Arc::new(process));
        let mut all = self.oom.owner().all.lock().expect("one thread");
        all.push(Arc::clone(&process));
        Some(process)
    }

    /// Maps `pages` pages at `start`, replacing present mappings. Returns whether there was memory.
    pub(crate) fn map(
        &self,
        space: &AddressSpace<Plain>,
        start: u64,
        pages: u64,
        backing: Backing<Plain>,
    ) -> bool {
        let place = Place::Replace(Vpn(start));
        let request = MapRequest {
            place,
            pages,
            backing,
        };
        match space.map(self.memory(), request) {
            Ok(_) => true,
            Err(MapError::NoMemory) => false,
            Err(other) => panic!("{other}"),
        }
    }

    /// Makes all processes exit that have not exited, and retires all of them.
    pub(crate) fn end_processes(&self) {
        let machine = &self.machine;
        let take = || self.oom.owner().all.lock().expect("one thread").pop();
        while let Some(process) = take() {
            if !process.is(machine, State::Left) {
                let parted = self.oom.killer().exit(self.memory(), &process);
                assert!(matches!(parted, Ok(Parted::Last(_))), "it is the only user");
            }
            assert_eq!(self.oom.killer().retire(machine, process), Ok(()));
        }
        machine.pass(Nanos::from_ms(1000));
        while self.oom.killer().reaper().queued(machine) > 0 {
            let done = self.oom.killer().reaper().step(self.memory()).done;
            assert!(done.is_none_or(|done| done.bad_rss.is_none()), "{done:?}");
        }
    }

    /// Checks that everything is as at the start: every page and swap slot is free, no counters
    /// exist, and nothing is charged to the budget.
    pub(crate) fn assert_whole(&self) {
        let (machine, manager) = (&self.machine, &self.kept.manager);
        self.file.empty(machine, manager.pages());
        self.shared.empty(machine, manager.pages());
        manager.pages().drain_all_sync(machine);
        let views = manager.pages().view(machine);
        let managed = views[0].managed;
        let blocks = managed.0 / Order::MAX.pages().0;
        assert_eq!(views[0].free, managed, "every page is back");
        assert_eq!(views[0].blocks[Order::MAX.index()], blocks, "and whole");
        assert_eq!(views[0].counted_free, u64::from(managed.0));
        assert_eq!(self.kept.spaces.swap().used(machine), 0);
        assert_eq!(self.kept.spaces.plan().area().groups(machine), 0);
        assert_eq!(self.budget.used(machine), 0);
        for item in [NodeItem::AnonMapped, NodeItem::PageTables] {
            assert_eq!(manager.counted_on_nodes(machine, item), 0, "{item:?}");
        }
        assert_eq!(self.oom.killer().victims(machine), 0);
        assert_eq!(self.oom.killer().reaper().queued(machine), 0);
    }
}
