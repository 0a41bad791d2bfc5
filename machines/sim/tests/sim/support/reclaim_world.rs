//! A machine whose memory is short, for tests of single rules of reclaim. Memory is short because
//! each test sets high watermarks. The tests run the steps of kswapd themselves.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::event::{Event, ReclaimedBy};
use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::sizing::Sizes;
use plimsoll_mm::page::watermark::Watermarks;
use plimsoll_mm::page::{Config, Layout, Request, ZoneKind, ZoneLayout};
use plimsoll_mm::reclaim::{Embedder, Next, Reclaim};
use plimsoll_mm::space::lru::List;
use plimsoll_mm::space::object::{Object, ObjectKind};
use plimsoll_mm::space::{Access, AddressSpace, MapRequest, Memory, Place, Spaces};
use plimsoll_mm::topology::{CpuPlace, Topology};
use plimsoll_mm::units::{CpuId, Nanos, NodeId, Order, Pages, Pfn, Vpn};
use plimsoll_sim::{Sim, SimOptions};

use super::small::profile;

pub(crate) const NODE: NodeId = NodeId(0);
/// The number of pages of a zone.
pub(crate) const PAGES: u32 = 1 << 14;
pub(crate) const START: u64 = 512;

/// A machine whose nodes have two zones each, and one CPU each.
pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(crate) mm: Rc<Manager<Sim>>,
    pub(crate) spaces: Spaces<Sim>,
    pub(crate) reclaim: Rc<Reclaim<Sim, Asks>>,
    /// For each look at inactive pages: the number of pages, and which kind of reclaim looked.
    pub(crate) looks: Rc<RefCell<Vec<(u32, ReclaimedBy)>>>,
    /// The number of active pages that became inactive.
    pub(crate) deactivated: Rc<Cell<u32>>,
}

/// An embedder that records what reclaim asks for, such as wake-ups of kswapd and pauses.
#[derive(Default)]
pub(crate) struct Asks {
    world: RefCell<Weak<World>>,
    pub(crate) woken: RefCell<Vec<NodeId>>,
    pub(crate) pauses: RefCell<Vec<Nanos>>,
    /// The number of pauses before the one in which the task is killed; `None` if the task is never
    /// killed.
    pub(crate) killed_after: Cell<Option<usize>>,
}

impl Embedder<Sim> for Asks {
    fn with_memory(&self, sim: &Sim, f: &mut dyn FnMut(Memory<'_, Sim>)) {
        if let Some(world) = self.world.borrow().upgrade() {
            f(world.memory(sim));
        }
    }

    fn wake_kswapd(&self, _: &Sim, node: NodeId) {
        self.woken.borrow_mut().push(node);
    }

    fn pause(&self, sim: &Sim, span: Nanos) -> bool {
        self.pauses.borrow_mut().push(span);
        sim.sleep(span);
        let pauses = self.pauses.borrow().len();
        self.killed_after.get().is_none_or(|after| pauses <= after)
    }
}

impl World {
    /// Makes a machine of `nodes` nodes, each with a zone DMA32 and a zone Normal of [`PAGES`]
    /// pages.
    pub(crate) fn new(nodes: u32, swap: u32, spaces_max: u32) -> Rc<Self> {
        let kinds = [ZoneKind::Dma32, ZoneKind::Normal];
        Self::of_zones(kinds, PAGES, [nodes, swap, spaces_max])
    }

    /// Makes a machine of `nodes` nodes, each with two zones of these `kinds`. Each zone has
    /// `pages` pages. The machine has `swap` slots of swap. At most `spaces_max` address spaces and
    /// files can be enlisted for reclaim.
    pub(crate) fn of_zones(
        kinds: [ZoneKind; 2],
        pages: u32,
        [nodes, swap, spaces_max]: [u32; 3],
    ) -> Rc<Self> {
        let place = |cpu| CpuPlace {
            core: cpu,
            llc: cpu,
            node: NodeId(cpu),
            socket: cpu,
        };
        let mut profile = profile(Topology::new((0..nodes).map(place).collect()), 1000);
        profile.node_bytes = vec![1 << 30; nodes as usize];
        let sim = Sim::new(&profile, SimOptions::default());
        let zone = |nth: u32| ZoneLayout {
            kind: kinds[nth as usize % 2],
            node: NodeId(nth / 2),
            start: Pfn(nth * pages),
            spanned: Pages(pages),
            holes: Vec::new(),
        };
        let layout = Layout::of((0..2 * nodes).map(zone));
        let reclaim = Rc::new(Reclaim::new(&sim, &layout, Asks::default()));
        let mut config = Config::new(layout);
        config.pressure = Some(plimsoll_sim::pressure(&reclaim));
        let mm = Rc::new(Manager::new(&sim, config).expect("a sound layout"));
        let spaces = Spaces::new(&sim, &Design::OURS, swap).expect("few CPUs can be counted");
        let spaces = spaces.aging(&sim, &mm, spaces_max);
        let looks: Rc<RefCell<Vec<_>>> = Rc::default();
        let deactivated: Rc<Cell<u32>> = Rc::default();
        let (seen, counted) = (Rc::clone(&looks), Rc::clone(&deactivated));
        sim.observe(move |_, _, _, event| match *event {
            Event::ShrinkInactive { scanned, by, .. } => seen.borrow_mut().push((scanned.0, by)),
            Event::ShrinkActive { deactivated, .. } => counted.set(counted.get() + deactivated.0),
            _ => {}
        });
        let world = Rc::new(Self {
            sim,
            mm,
            spaces: spaces.expect("there is memory"),
            reclaim,
            looks,
            deactivated,
        });
        world.asks().world.replace(Rc::downgrade(&world));
        (0..2 * nodes).for_each(|zone| world.mark(zone, 0, 0));
        world
    }

    pub(crate) fn asks(&self) -> &Asks {
        self.reclaim.embedder()
    }

    pub(crate) fn memory<'m>(&'m self, sim: &'m Sim) -> Memory<'m, Sim> {
        Memory::new(sim, &self.mm, &self.spaces)
    }

    /// Sets the watermarks of zone number `zone`, in pages: min and low to `min`, high to `high`.
    pub(crate) fn mark(&self, zone: u32, min: u32, high: u32) {
        self.mark_with_lists(zone, min, high, Pages(1));
    }

    /// Sets the watermarks as [`World::mark`] does. The page lists of the zone may have up to
    /// `lists` pages.
    pub(crate) fn mark_with_lists(&self, zone: u32, min: u32, high: u32, lists: Pages) {
        let marks = Watermarks {
            min: Pages(min),
            low: Pages(min),
            high: Pages(high),
        };
        let sizes = Sizes {
            batch: Pages(lists.0.min(8)),
            high_min: lists,
            high_max: lists,
        };
        let set = self.mm.pages().seed_sizes(&self.sim, zone, marks, sizes);
        set.expect("there is such a zone");
    }

    /// Makes both zones of node 0 short of memory: sets their high watermarks to twice the size of
    /// a zone.
    pub(crate) fn press(&self) {
        (0..2).for_each(|zone| self.mark(zone, 0, 2 * PAGES));
    }

    #[expect(
        clippy::arc_with_non_send_sync,
        reason = "on real machines it is both; a simulated one has one thread"
    )]
    pub(crate) fn space(&self) -> Arc<AddressSpace<Sim>> {
        let space = AddressSpace::new(self.memory(&self.sim)).expect("there is memory");
        Arc::new(space)
    }

    /// Creates an address space of `pages` pages, from which reclaim is allowed to take pages. Each
    /// page was touched once. When reclaim first looks at a page, it only finds that the page was
    /// touched. When it looks at the page again, it can evict the page.
    pub(crate) fn filled(&self, pages: u64) -> Arc<AddressSpace<Sim>> {
        let space = self.space();
        let memory = self.memory(&self.sim);
        memory.enlist(&space).expect("there is a number for it");
        self.fill(&space, pages);
        space
    }

    pub(crate) fn fill(&self, space: &AddressSpace<Sim>, pages: u64) {
        let memory = self.memory(&self.sim);
        let request = MapRequest::anonymous(Place::Fixed(Vpn(START)), pages);
        space.map(memory, request).expect("nothing is there");
        self.touch(space, START..START + pages);
        self.spaces.lru().drain(&self.sim, self.mm.pages());
    }

    pub(crate) fn touch(&self, space: &AddressSpace<Sim>, pages: std::ops::Range<u64>) {
        for page in pages {
            let faulted = space.fault(self.memory(&self.sim), Vpn(page), Access::Write);
            assert!(faulted.is_ok(), "{faulted:?}");
        }
    }

    /// Makes a file with `pages` pages in the memory of `node`, each of which was read once.
    /// Reclaim can drop such a page the first time that it looks at the page.
    #[expect(
        clippy::arc_with_non_send_sync,
        reason = "on real machines it is both; a simulated one has one thread"
    )]
    pub(crate) fn cached(&self, pages: u64, node: NodeId) -> Arc<Object<Sim>> {
        let file = Arc::new(Object::new(&self.sim, ObjectKind::File));
        let enlisted = self.memory(&self.sim).enlist_file(&file);
        enlisted.expect("there is a number for it");
        self.read(&file, 0..pages, node);
        file
    }

    /// Reads pages of a file. A page that is not in memory gets memory of `node`.
    pub(crate) fn read(&self, file: &Object<Sim>, pages: std::ops::Range<u64>, node: NodeId) {
        let request = Request::new(Order::ZERO).from_node(node);
        for index in pages {
            let read = self.memory(&self.sim).read_file(file, index, request);
            assert!(read.is_ok(), "{read:?}");
        }
        self.spaces.lru().drain(&self.sim, self.mm.pages());
    }

    pub(crate) fn len(&self, list: List) -> u64 {
        self.spaces.lru().len(NODE, list)
    }

    pub(crate) fn swapped(&self) -> u64 {
        self.spaces.swap().used(&self.sim).into()
    }

    pub(crate) fn ask(&self, class: ZoneKind) {
        let request = Request::new(Order::ZERO).of_class(class);
        self.reclaim.wake(&self.sim, self.mm.pages(), request);
    }

    /// Runs one step of the kswapd of node 0.
    pub(crate) fn step(&self) -> Next {
        self.reclaim.kswapd(&self.sim, NODE)
    }

    /// Runs `rounds` rounds of kswapd in which there is nothing to reclaim.
    pub(crate) fn fail(&self, rounds: u32) {
        for _ in 0..rounds {
            assert_eq!(self.step(), Next::At(self.sim.now()), "it tries again");
        }
    }

    /// Runs a step of kswapd. Returns whether kswapd has given up, that is, whether it sleeps
    /// although memory is short.
    pub(crate) fn is_hopeless(&self) -> bool {
        let now = self.sim.now();
        let dozes = self.step() != Next::At(now);
        if dozes {
            assert_eq!(self.step(), Next::Woken);
        }
        dozes
    }

    /// Reclaims on CPU 0 as an allocation does. Returns the number of pages that were freed.
    pub(crate) fn direct(self: &Rc<Self>) -> Pages {
        self.direct_for(Request::new(Order::ZERO))
    }

    /// Reclaims on CPU 0 as an allocation with this request does. Returns the number of pages that
    /// were freed.
    pub(crate) fn direct_for(self: &Rc<Self>, request: Request) -> Pages {
        let freed = Rc::new(Cell::new(Pages::ZERO));
        let (world, seen) = (Rc::clone(self), Rc::clone(&freed));
        self.sim.spawn(CpuId(0), move |sim| {
            let reclaimed = world.reclaim.reclaim(sim, request);
            seen.set(reclaimed.unwrap_or_default());
        });
        self.sim.run();
        freed.get()
    }
}
