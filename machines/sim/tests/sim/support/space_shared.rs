//! A random machine with random address spaces, for the tasks that use, kill and empty them.

#![allow(
    clippy::arc_with_non_send_sync,
    reason = "address spaces share by Arc on every machine"
)]

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_mm::Manager;
use plimsoll_mm::counter::Counting;
use plimsoll_mm::design::{Design, HOLDS, SCHEDULES, SHEPHERDS};
use plimsoll_mm::page::{Config, Layout, ZoneKind, ZoneLayout};
use plimsoll_mm::reclaim::Reclaim;
use plimsoll_mm::space::budget::Budget;
use plimsoll_mm::space::object::{Object, ObjectKind};
use plimsoll_mm::space::reap::Reaping;
use plimsoll_mm::space::{AddressSpace, Flag, Memory, Notified, Refused, Spaces};
use plimsoll_mm::units::{NodeId, Pages, Pfn, Vpn};
use plimsoll_sim::Sim;

use super::check_tables::{self, Helpers, UnderWay};
use super::dice::Dice;
use super::presses::Presses;
use super::shadow::Shadow;
use super::{scenario, small};

/// What all tasks of a run share: the memory manager, the processes with their address spaces, and
/// counts of the rare cases that the run has encountered.
pub(crate) struct SpaceShared {
    pub(crate) design: Design,
    pub(crate) layout: Layout,
    pub(crate) mm: Manager<Sim>,
    pub(crate) spaces: Spaces<Sim>,
    pub(crate) processes: Vec<Process>,
    pub(crate) budgets: Vec<Arc<Budget<Sim>>>,
    pub(crate) objects: Vec<Arc<Object<Sim>>>,
    pub(crate) listeners: Arc<Listeners>,
    /// How often this run has encountered each rare case.
    pub(crate) met: RefCell<Met>,
    pub(crate) plan: Plan,
    /// The part that moves used pages out of memory; `None` if this run does not reclaim.
    pub(crate) reclaim: Option<Rc<Reclaim<Sim, Presses>>>,
    /// True when the run is over. Jobs that come due after that do nothing.
    pub(crate) over: Cell<bool>,
}

/// The sizes of a run: how many tasks of each kind there are, and what they may do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) users: u32,
    pub(crate) helpers: u32,
    pub(crate) steps: u32,
    /// The most pages in one mapping.
    pub(crate) span: u32,
    pub(crate) swappers: u32,
    pub(crate) hotplug: bool,
    pub(crate) vmstat: bool,
    /// The percentage of ranges whose unmapping a listener (Linux: MMU notifier) refuses if it must
    /// not wait.
    pub(crate) refusals: u32,
}

/// One address space, and the number of threads that still use it.
pub(crate) struct Process {
    pub(crate) space: Arc<AddressSpace<Sim>>,
    /// A device that keeps translations to the pages of the process, to check that Plimsoll
    /// notifies the device before a page is unmapped.
    pub(crate) shadow: Shadow,
    pub(crate) users: Cell<u32>,
    /// The changes of the process's mappings that are in progress.
    pub(crate) changes: UnderWay,
    /// All operations on the address space that are in progress.
    pub(crate) steps: UnderWay,
    /// The helpers (tasks other than the last user) that are emptying the address space.
    pub(crate) helpers: Helpers,
    /// True when helpers such as the reaper have emptied everything. After that, faults do not add
    /// private pages.
    pub(crate) is_reaped: Cell<bool>,
    /// The number of times that a listener of the address space (Linux: MMU notifier) has refused
    /// an unmapping.
    refusals: Arc<AtomicU32>,
    /// The number of successful calls of `exit`; there must be exactly one.
    pub(crate) exits: Cell<u32>,
}

/// How often the swarm has encountered the cases that it is meant to cover; see `space_swarm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Met {
    pub(crate) out_of_memory: u64,
    pub(crate) over_budget: u64,
    pub(crate) unstable: u64,
    pub(crate) killed_waiting: u64,
    pub(crate) swapped_in: u64,
    pub(crate) huge: u64,
    pub(crate) gave_way: u64,
    pub(crate) partly: u64,
    pub(crate) busy: u64,
    pub(crate) left_to_helpers: u64,
    pub(crate) given_up: u64,
    /// Two counts of faults. The first counts faults of a thread on a page in another thread's part
    /// of the address space. The second counts those of these faults that found the page unmapped.
    pub(crate) elsewhere: [u64; 2],
    /// Two counts: how often the counters were compared with the page tables, and how often helpers
    /// such as the reaper had emptied everything. In the latter case, the check allows no private
    /// page to be left.
    pub(crate) compared: [u64; 2],
    pub(crate) ended_by: [u64; Reaping::ALL.len()],
    /// Three numbers of pages: those that kswapd reclaimed, those that direct reclaim reclaimed,
    /// and the active pages that became inactive.
    pub(crate) reclaimed: [u64; 3],
}

/// The state that all listeners (Linux: MMU notifiers) of a run share, with counts of the calls
/// that the listeners have received.
pub(crate) struct Listeners {
    dice: Mutex<Dice>,
    refusals: u32,
    /// The number of ranges whose notification has begun and has not ended.
    pub(crate) open: AtomicI64,
    pub(crate) released: AtomicI64,
}

struct Listener {
    all: Arc<Listeners>,
    /// The number of times that this listener, or another listener of the same address space, has
    /// refused an unmapping.
    refusals: Arc<AtomicU32>,
}

impl Notified<Sim> for Listener {
    fn start(&self, _: &Sim, pages: &Range<Vpn>, may_wait: bool) -> Result<(), Refused> {
        assert!(pages.start < pages.end, "a range has pages");
        let mut dice = self.all.dice.lock().unwrap_or_else(PoisonError::into_inner);
        if !may_wait && dice.chance(self.all.refusals) {
            self.refusals.fetch_add(1, Relaxed);
            return Err(Refused);
        }
        self.all.open.fetch_add(1, Relaxed);
        Ok(())
    }

    fn end(&self, _: &Sim, _: &Range<Vpn>) {
        self.all.open.fetch_sub(1, Relaxed);
    }

    fn release(&self, _: &Sim) {
        self.all.released.fetch_add(1, Relaxed);
    }
}

impl SpaceShared {
    /// Creates the state that the tasks share in the run with `seed`, and the machine of this run.
    pub(crate) fn new(seed: u64) -> (Sim, Self) {
        let dice = &mut Dice::new(seed, 0);
        let (cpus, nodes) = (dice.between(2, 16), dice.between(1, 2));
        let topology = scenario::topology(dice, cpus, nodes);
        let sim = Sim::new(
            &small::profile(topology, 1000),
            scenario::options(dice, seed),
        );
        let design = Design {
            schedule: *dice.pick(&SCHEDULES),
            shepherd: *dice.pick(&SHEPHERDS),
            holds: *dice.pick(&HOLDS),
            counting: *dice.pick(&Counting::ALL),
            reaping: *dice.pick(&Reaping::ALL),
            ..Design::OURS
        };
        let layout = layout(dice, nodes);
        let mut config = Config::new(layout.clone());
        config.design = design;
        let reclaim = dice
            .chance(50)
            .then(|| Rc::new(Reclaim::new(&sim, &layout, Presses::default())));
        config.pressure = reclaim.as_ref().map(plimsoll_sim::pressure);
        let mm = Manager::new(&sim, config).expect("the zones are apart");
        let slots = *dice.pick(&[0, 50, 5000]);
        let mut spaces = Spaces::new(&sim, &design, slots).expect("so few CPUs can be counted");
        if reclaim.is_some() {
            spaces = spaces.aging(&sim, &mm, 9).expect("there is memory");
        }
        let plan = plan(dice);
        let listeners = Arc::new(Listeners {
            dice: Mutex::new(Dice::new(seed, u64::MAX)),
            refusals: plan.refusals,
            open: AtomicI64::new(0),
            released: AtomicI64::new(0),
        });
        let mut shared = Self {
            design,
            layout,
            mm,
            spaces,
            processes: Vec::new(),
            budgets: budgets(dice, &sim),
            objects: objects(dice, &sim),
            listeners,
            met: RefCell::default(),
            plan,
            reclaim,
            over: Cell::new(false),
        };
        let memory = Memory::new(&sim, &shared.mm, &shared.spaces);
        for file in &shared.objects {
            // `enlist_file` has no effect on shared memory, or if pages are not aged.
            memory.enlist_file(file).expect("there is a number for it");
        }
        let groups = shared.budgets.clone();
        for _ in 0..dice.between(1, 6) {
            let process = shared.process(dice, &sim, &groups);
            shared.processes.push(process);
        }
        (sim, shared)
    }

    fn process(&mut self, dice: &mut Dice, sim: &Sim, groups: &[Arc<Budget<Sim>>]) -> Process {
        let memory = Memory::new(sim, &self.mm, &self.spaces);
        let mut space = AddressSpace::new(memory).expect("there is memory");
        if dice.chance(70) {
            let group = Arc::clone(dice.pick(groups));
            let budget = Arc::new(Budget::under(sim, limit(dice), group));
            self.budgets.push(Arc::clone(&budget));
            space = space.limited(budget);
        }
        // An address space has up to two listeners. If there are two and the second refuses a
        // range, the first must still be told when the refused operation on the range ends.
        let refusals = Arc::new(AtomicU32::new(0));
        for _ in 0..dice.below(3) {
            space = space.notifying(Listener {
                all: Arc::clone(&self.listeners),
                refusals: Arc::clone(&refusals),
            });
        }
        let shadow = Shadow::default();
        space = space.notifying(shadow.clone());
        if dice.chance(30) {
            space = space.with_mappings_max(dice.between(2, 12));
        }
        let space = Arc::new(space);
        if dice.chance(85) {
            memory.enlist(&space).expect("there is a number for each");
        }
        Process {
            space,
            shadow,
            users: Cell::new(0),
            changes: UnderWay::default(),
            steps: UnderWay::default(),
            helpers: Helpers::default(),
            is_reaped: Cell::new(false),
            refusals,
            exits: Cell::new(0),
        }
    }

    pub(crate) fn memory<'m>(&'m self, sim: &'m Sim) -> Memory<'m, Sim> {
        Memory::new(sim, &self.mm, &self.spaces)
    }

    /// Counts an occurrence of a rare case.
    pub(crate) fn note(&self, what: impl FnOnce(&mut Met)) {
        what(&mut self.met.borrow_mut());
    }
}

impl Process {
    pub(crate) fn is_killed(&self, sim: &Sim) -> bool {
        self.space.has(sim, Flag::Killed)
    }

    /// Runs `f`, and counts it as an operation in progress that may change the mappings of the
    /// process.
    pub(crate) fn changing<R>(&self, f: impl FnOnce() -> R) -> R {
        self.steps.during(|| self.changes.during(f))
    }

    /// Returns the number of times that a listener of the address space has refused an unmapping.
    pub(crate) fn refusals(&self) -> u32 {
        self.refusals.load(Relaxed)
    }

    /// Notes that a user of the address space leaves. The last user empties the address space.
    pub(crate) fn leave(&self, shared: &SpaceShared, sim: &Sim) {
        self.users.set(self.users.get() - 1);
        if self.users.get() > 0 {
            return;
        }
        check_tables::check_reaped(sim, self);
        self.helpers.join();
        let exited = self.steps.during(|| self.space.exit(shared.memory(sim)));
        let exited = exited.expect("there is one last user");
        self.helpers.leave(false);
        self.exits.set(self.exits.get() + 1);
        if exited == plimsoll_mm::space::Exited::LeftToHelpers {
            assert_eq!(shared.design.reaping, Reaping::MeetInTheMiddle);
            shared.note(|met| met.left_to_helpers += 1);
        } else {
            check_tables::check_exited(sim, self);
        }
        let again = self.space.exit(shared.memory(sim));
        assert!(again.is_err(), "it ends once");
    }
}

/// Draws zones of a few thousand pages. In some runs this is too little for the tasks.
fn layout(dice: &mut Dice, nodes: u32) -> Layout {
    let mut start = 0;
    let mut zones = Vec::new();
    for node in (0..nodes).map(NodeId) {
        let most = *dice.pick(&[3000, 9000, 30_000]);
        let spanned = Pages(dice.between(1500, most));
        zones.push(ZoneLayout {
            kind: ZoneKind::Normal,
            node,
            start: Pfn(start),
            spanned,
            holes: Vec::new(),
        });
        start = (start + spanned.0).next_multiple_of(1024);
    }
    Layout::of(zones)
}

fn plan(dice: &mut Dice) -> Plan {
    Plan {
        users: dice.between(1, 4),
        helpers: dice.below(7),
        steps: dice.between(5, 40),
        span: *dice.pick(&[30, 600, 2500]),
        swappers: dice.below(2),
        hotplug: dice.chance(30),
        vmstat: dice.chance(50),
        refusals: *dice.pick(&[0, 0, 10, 60]),
    }
}

/// Makes a top-level budget and up to two budgets below it, with random limits.
fn budgets(dice: &mut Dice, sim: &Sim) -> Vec<Arc<Budget<Sim>>> {
    let mut budgets = vec![Arc::new(Budget::new(sim, limit(dice)))];
    for _ in 0..dice.below(3) {
        let above = Arc::clone(dice.pick(&budgets));
        budgets.push(Arc::new(Budget::under(sim, limit(dice), above)));
    }
    budgets
}

fn limit(dice: &mut Dice) -> u64 {
    if dice.chance(60) {
        u64::MAX
    } else {
        u64::from(dice.between(20, 4000))
    }
}

fn objects(dice: &mut Dice, sim: &Sim) -> Vec<Arc<Object<Sim>>> {
    let kinds = [ObjectKind::File, ObjectKind::Shared];
    let object = |_| Arc::new(Object::new(sim, *dice.pick(&kinds)));
    (0..3).map(object).collect()
}

impl SpaceShared {
    /// The number of file pages that reclaim may drop.
    pub(crate) fn cached(&self, sim: &Sim) -> u64 {
        let is_cached = |object: &&Arc<Object<Sim>>| object.kind() == ObjectKind::File;
        let files = self.objects.iter().filter(is_cached);
        let present = files.map(|file| file.present(sim)).sum();
        if self.reclaim.is_some() { present } else { 0 }
    }
}

/// A reference to the state that all tasks share. Each task holds one.
pub(crate) type Shared = Rc<SpaceShared>;
