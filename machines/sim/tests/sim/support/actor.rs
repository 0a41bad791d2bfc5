//! The random steps of one task of the swarm (random runs).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plimsoll_mm::Manager;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::owned::Owning;
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::page::{AllocError, FreeError, Reclaiming, Request, ZoneKind};
use plimsoll_mm::site::Work;
use plimsoll_mm::units::{CpuId, Nanos, NodeId, Order, Pages, Pfn};
use plimsoll_mm::vmstat::counters::{Direction, NodeItem, ZoneItem};
use plimsoll_sim::Sim;

use super::cache::Cache;
use super::check_owners::Owners;
use super::dice::Dice;
use super::scenario::{self, Scenario};

/// An allocated block: its first page and its order.
pub(crate) type Block = (Pfn, Order);

/// The time after which no task is left on a CPU that went offline. It is longer than any stall
/// that the simulator injects.
const SETTLE: Nanos = Nanos(2_000_000);

/// What all tasks of the swarm share: the memory manager, blocks that tasks have passed on to each
/// other, and sums to compare with the counters at the end.
pub(crate) struct Shared {
    pub(crate) scenario: Scenario,
    pub(crate) mm: Manager<Sim>,
    /// Blocks that a task has allocated and passed on. Any task may free them.
    pub(crate) passed_on: RefCell<Vec<Block>>,
    pub(crate) cache: Cache,
    /// The owners of all pages, if the tasks keep them. The tasks do so if the CPUs have fronts (stacks
    /// of free pages), because then the manager emits no event for most allocations and frees.
    owners: Option<Rc<RefCell<Owners>>>,
    /// True while a task changes the set of CPUs, so that only one task does so at a time.
    plugging: Cell<bool>,
    /// The sum of all additions to the zone counter, and the sum of all additions to the node
    /// counter.
    pub(crate) counted: [Cell<i64>; 2],
    pub(crate) out_of_memory: Cell<u32>,
    /// The number of blocks that tasks have allocated.
    pub(crate) taken: Cell<u64>,
    /// True when the run is over. Jobs that come due after that do nothing.
    pub(crate) over: Cell<bool>,
}

impl Shared {
    /// Allocates whole blocks until about `scenario.left` pages are free, so that memory can run
    /// out even in large zones.
    pub(crate) fn fill(&self, sim: &Sim) {
        let pages = self.mm.pages();
        let mut request = Request::new(Order::MAX).urgent(Urgency::Reserve);
        request.class = ZoneKind::Movable;
        let free = || pages.view(sim).iter().map(|view| view.free.0).sum::<u32>();
        while free() > self.scenario.left
            && let Ok(pfn) = pages.alloc(sim, request)
        {
            self.owns(pfn, request.order);
        }
    }

    /// `owners` are the owners of all pages, if the tasks are to keep them.
    pub(crate) fn new(
        scenario: Scenario,
        mm: Manager<Sim>,
        cache: Cache,
        owners: Option<Rc<RefCell<Owners>>>,
    ) -> Self {
        Self {
            scenario,
            mm,
            passed_on: RefCell::default(),
            cache,
            owners,
            plugging: Cell::new(false),
            counted: Default::default(),
            out_of_memory: Cell::new(0),
            taken: Cell::new(0),
            over: Cell::new(false),
        }
    }
}

impl Shared {
    /// Allocates a block. If the CPUs have fronts (stacks of free pages), the task uses that of its CPU.
    fn alloc(&self, sim: &Sim, request: Request) -> Result<Pfn, AllocError> {
        let pages = self.mm.pages();
        let pfn = if self.scenario.options.fronts {
            pages.local(sim, sim.this_cpu()).alloc(sim, request)
        } else {
            pages.alloc(sim, request)
        }?;
        self.taken.set(self.taken.get() + 1);
        self.owns(pfn, request.order);
        Ok(pfn)
    }

    /// Frees a block that a task owns. Uses the CPU's front (its stack of free pages), if there is one.
    fn free(&self, sim: &Sim, pfn: Pfn, order: Order) {
        self.gives(pfn, order);
        let pages = self.mm.pages();
        let freed = if self.scenario.options.fronts {
            pages.local(sim, sim.this_cpu()).free(sim, pfn, order)
        } else {
            pages.free(sim, pfn, order)
        };
        freed.expect("it was handed out with this order");
    }

    /// Notes that a task owns a block.
    fn owns(&self, pfn: Pfn, order: Order) {
        if let Some(owners) = &self.owners {
            owners.borrow_mut().takes(pfn, order);
        }
    }

    /// Notes that a task is about to free a block.
    pub(crate) fn gives(&self, pfn: Pfn, order: Order) {
        if let Some(owners) = &self.owners {
            owners.borrow_mut().gives(pfn, order);
        }
    }
}

/// One kind of step of a task.
type Doing = fn(&mut Actor, &Sim);

/// A task of the swarm and the blocks that it holds.
pub(crate) struct Actor {
    pub(crate) shared: Rc<Shared>,
    dice: Dice,
    held: Vec<Block>,
}

impl Actor {
    pub(crate) fn new(shared: &Rc<Shared>, sim: &Sim, number: u64) -> Self {
        Self {
            shared: Rc::clone(shared),
            dice: Dice::new(sim.seed(), 1 + number),
            held: Vec::new(),
        }
    }

    /// Does all steps of the task, then passes on the blocks that it still holds.
    pub(crate) fn act(mut self, sim: &Sim) {
        for _ in 0..self.shared.scenario.steps {
            let think_ns = self.shared.scenario.think_ns;
            sim.spend(Work::Think, self.dice.below(think_ns));
            self.step(sim);
        }
        self.shared.passed_on.borrow_mut().append(&mut self.held);
    }

    fn step(&mut self, sim: &Sim) {
        let odds = self.shared.scenario.odds;
        let steps: [(u32, Doing); 11] = [
            (odds.alloc, Self::alloc),
            (odds.free, Self::free),
            (odds.pass_on, Self::pass_on),
            (odds.free_many, Self::free_many),
            (odds.free_badly, Self::free_badly),
            (odds.drain, Self::drain),
            (odds.tune, Self::tune),
            (odds.hotplug, Self::hotplug),
            (odds.migrate, Self::migrate),
            (odds.sleep, Self::sleep),
            (odds.count, Self::count),
        ];
        let mut drawn = self.dice.below(steps.iter().map(|step| step.0).sum());
        for (odds, step) in steps {
            if drawn < odds {
                return step(self, sim);
            }
            drawn -= odds;
        }
    }

    fn alloc(&mut self, sim: &Sim) {
        let most = u32::from(self.shared.scenario.order_max);
        // Most orders are small, because a few large blocks would use up all memory.
        let order = if self.dice.chance(70) {
            self.dice.below(most.min(2) + 1)
        } else {
            self.dice.below(most + 1)
        };
        let urgencies = [
            Urgency::Normal,
            Urgency::NoWait,
            Urgency::High,
            Urgency::Atomic,
            Urgency::Victim,
            Urgency::Reserve,
        ];
        let order_wanted = Order::new(u8::try_from(order).expect("small")).expect("at most 10");
        let mut request = Request::new(order_wanted).urgent(*self.dice.pick(&urgencies));
        request.class = *self.dice.pick(&ZoneKind::ALL);
        if self.dice.chance(30) {
            request = request.from_node(NodeId(self.dice.below(5)));
        }
        let row = self.dice.chance(10);
        let blocks = if row { self.shared.scenario.burst } else { 1 };
        for _ in 0..blocks {
            match self.shared.alloc(sim, request) {
                Ok(pfn)
                    if order == 0 && self.shared.scenario.odds.reclaim && self.dice.chance(20) =>
                {
                    self.shared.cache.push(pfn, Order::ZERO);
                }
                Ok(pfn) if order > 0 && self.dice.chance(10) => {
                    self.split(sim, (pfn, request.order));
                }
                Ok(pfn) => self.held.push((pfn, request.order)),
                Err(AllocError::OutOfMemory(tried)) => {
                    assert!(tried.zones > 0, "a zone was asked: {tried:?}");
                    // A request that may not wait fails at once, without reclaim.
                    let waits = request.urgency.waits();
                    let reclaims = u32::from(waits && self.shared.scenario.odds.reclaim);
                    assert_eq!(tried.reclaimers, reclaims, "all were asked: {tried:?}");
                    let count = &self.shared.out_of_memory;
                    return count.set(count.get() + 1);
                }
                Err(AllocError::NoSuchZone) => {
                    let zones = &self.shared.scenario.layout.zones;
                    assert!(zones.iter().all(|zone| zone.kind > request.class));
                    return;
                }
            }
        }
    }

    /// Splits a block. From now on, the task holds the pages of the block as single pages.
    fn split(&mut self, sim: &Sim, (pfn, order): Block) {
        let pages = self.shared.mm.pages();
        pages.split(sim, pfn, order).expect("it was handed out");
        let singles = pfn.0..pfn.0 + order.pages().0;
        self.shared.gives(pfn, order);
        singles
            .clone()
            .for_each(|page| self.shared.owns(Pfn(page), Order::ZERO));
        self.held
            .extend(singles.map(|page| (Pfn(page), Order::ZERO)));
    }

    fn take(&mut self) -> Option<Block> {
        if self.held.is_empty() {
            return self.shared.passed_on.borrow_mut().pop();
        }
        let index = self.dice.index(self.held.len());
        Some(self.held.swap_remove(index))
    }

    fn free(&mut self, sim: &Sim) {
        if let Some((pfn, order)) = self.take() {
            self.shared.free(sim, pfn, order);
        }
    }

    fn pass_on(&mut self, sim: &Sim) {
        if self.dice.chance(50) {
            self.shared.passed_on.borrow_mut().append(&mut self.held);
        } else if let Some((pfn, order)) = self.shared.passed_on.borrow_mut().pop() {
            self.held.push((pfn, order));
        }
        sim.spend(Work::Think, 10);
    }

    fn free_many(&mut self, sim: &Sim) {
        let single = |block: &mut Block| block.1 == Order::ZERO;
        let mut pfns: Vec<Pfn> = self
            .held
            .extract_if(.., single)
            .map(|block| block.0)
            .collect();
        self.dice.shuffle(&mut pfns);
        if self.shared.scenario.options.fronts {
            // Pages that are freed in order can move to the zone as blocks.
            if self.dice.chance(50) {
                pfns.sort_unstable();
            }
            return pfns
                .iter()
                .for_each(|&pfn| self.shared.free(sim, pfn, Order::ZERO));
        }
        self.shared
            .mm
            .pages()
            .free_pages(sim, &pfns)
            .expect("all were handed out");
    }

    /// Tries to free blocks that the task does not hold, or holds with another order. The allocator
    /// must change nothing and return the reason.
    fn free_badly(&mut self, sim: &Sim) {
        let pages = self.shared.mm.pages();
        let nowhere = Pfn(u32::MAX - self.dice.below(1000));
        assert_eq!(
            pages.free(sim, nowhere, Order::ZERO),
            Err(FreeError::OutsideZones(nowhere))
        );
        let zone = self.dice.pick(&self.shared.scenario.layout.zones).clone();
        if let Some(hole) = zone.holes.first() {
            let pfn = Pfn(hole.start);
            let error = Err(FreeError::NotAllocated(pfn));
            assert_eq!(pages.free(sim, pfn, Order::ZERO), error);
        }
        let Some(&(pfn, allocated)) = self.held.last() else {
            return;
        };
        let freed = if allocated == Order::ZERO {
            Order::MAX
        } else {
            Order::ZERO
        };
        let error = FreeError::WrongOrder {
            pfn,
            allocated,
            freed,
        };
        assert_eq!(pages.free(sim, pfn, freed), Err(error));
        if allocated > Order::ZERO {
            let inside = Pfn(pfn.0 + 1 + self.dice.below(allocated.pages().0 - 1));
            let error = Err(FreeError::NotAllocated(inside));
            assert_eq!(pages.free_pages(sim, &[inside]), error);
        }
    }

    fn drain(&mut self, sim: &Sim) {
        let pages = self.shared.mm.pages();
        match self.dice.below(4) {
            0 => pages.drain_all(sim),
            1 => pages.drain_all_sync(sim),
            _ => pages.drain_cpu(sim, CpuId(self.dice.below(sim.topology().cpus()))),
        };
    }

    fn tune(&mut self, sim: &Sim) {
        let pages = self.shared.mm.pages();
        if self.dice.chance(20) {
            let reclaiming = *self.dice.pick(&[Reclaiming::No, Reclaiming::Yes]);
            let node = NodeId(self.dice.below(3));
            let highest = *self.dice.pick(&ZoneKind::ALL);
            return pages.set_reclaiming(sim, node, highest, reclaiming);
        }
        let (knob, value) = scenario::knob(&mut self.dice);
        pages
            .set_tunable(sim, knob, value)
            .expect("drawn within its bounds");
        assert!(self.shared.mm.pages().tunable(sim, knob) <= knob.spec().max);
    }

    /// Takes a CPU offline, waits, and usually brings it back, in the same order of steps as Linux.
    fn hotplug(&mut self, sim: &Sim) {
        let mm = &self.shared.mm;
        let cpu = CpuId(self.dice.below(sim.topology().cpus()));
        let others = sim
            .topology()
            .ids()
            .filter(|&other| other != cpu && sim.is_online(other));
        if cpu == sim.this_cpu() || others.count() == 0 || self.shared.plugging.replace(true) {
            return;
        }
        mm.cpu_going(sim, cpu);
        sim.set_online(cpu, false);
        sim.sleep(SETTLE);
        mm.cpu_dead(sim, cpu);
        self.has_no_pages(sim, cpu);
        let most = u32::try_from(self.shared.scenario.offline_for.0).expect("milliseconds");
        sim.sleep(Nanos(u64::from(self.dice.below(most))));
        self.has_no_pages(sim, cpu);
        if self.dice.chance(70) {
            sim.set_online(cpu, true);
            mm.cpu_online(sim, cpu);
        }
        self.shared.plugging.set(false);
    }

    /// Asserts that `cpu`, which is offline, has no pages. If CPUs have inboxes, first waits for
    /// CPUs that have just sent a page to `cpu` and are about to drain its inbox. If CPUs have fronts
    /// (stacks of free pages), first waits for CPUs that have begun to drain the pages of `cpu`: these
    /// pages may just be on their way from the front to the zone.
    fn has_no_pages(&self, sim: &Sim, cpu: CpuId) {
        let scenario = &self.shared.scenario;
        let waits = scenario.design.owning == Owning::Inbox || scenario.options.fronts;
        // The CPU that is about to drain the pages may be preempted for a few time slices.
        let looks = if waits { 100 } else { 1 };
        for _ in 0..looks {
            if self.shared.mm.pages().listed(sim, cpu) == Pages::ZERO {
                return;
            }
            sim.sleep(Nanos(100_000));
        }
        panic!("{cpu:?} is offline and keeps pages");
    }

    fn migrate(&mut self, sim: &Sim) {
        sim.migrate(CpuId(self.dice.below(sim.topology().cpus())));
    }

    fn sleep(&mut self, sim: &Sim) {
        sim.sleep(Nanos(u64::from(self.dice.below(2_000_000))));
    }

    fn count(&mut self, sim: &Sim) {
        let mm = &self.shared.mm;
        let up = self.dice.chance(60);
        let [zone, node] = &self.shared.counted;
        let delta = if up {
            1 + i64::from(self.dice.below(40))
        } else {
            -1
        };
        let pfn = self.dice.pick(&self.shared.scenario.layout.zones).start;
        // Leave out an addition that would make the sum negative, because readers would see 0
        // instead of a negative sum.
        if zone.get() + delta >= 0 {
            zone.set(zone.get() + delta);
            mm.pages().count(sim, pfn, ZoneItem::Anon, delta);
        }
        if up || node.get() > 0 {
            node.set(node.get() + if up { 1 } else { -1 });
            mm.step_node(
                sim,
                NodeItem::AnonMapped,
                if up { Direction::Up } else { Direction::Down },
            );
        }
    }
}
