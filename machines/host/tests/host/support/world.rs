//! A machine with one address space, and the observable state of both.

use std::sync::Arc;

use plimsoll_host::Host;
use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::laws::cast;
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::space::budget::Budget;
use plimsoll_mm::space::object::{Object, ObjectKind};
use plimsoll_mm::space::rss::RssKind;
use plimsoll_mm::space::vma_tree::{Cursor, Vma};
use plimsoll_mm::space::{
    AddressSpace, Backing, MapError, MapRequest, MappingKind, Memory, Notified, Place, Spaces,
};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Pages, Pfn, Vpn};
use plimsoll_mm::vmstat::counters::{NodeItem, ZoneItem};

/// The backing of a mapping. A mapping of a file or of shared memory uses the only file or the only
/// shared memory of a [`World`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Anonymous { huge: bool },
    File { offset: u64 },
    Shared { offset: u64 },
    Reserved,
    Frames { first: u32 },
}

/// A mapping as a test sees it: its first page, its end, and its kind. The id of [`Vma`] is left
/// out.
pub(crate) type Seen = (u64, u64, MappingKind);

/// The sizes and limits of a [`World`], a machine with one address space. Sizes of memory are in
/// pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) memory: u32,
    pub(crate) swap: u32,
    pub(crate) mappings: u32,
    /// The limits of the address space's own budget, of its group's, and of the group above, in
    /// pages.
    pub(crate) limits: [u64; 3],
    /// The number of pages that other members of the address space's group use.
    pub(crate) others: u64,
}

impl Sizes {
    /// Sizes that no test exhausts.
    pub(crate) const AMPLE: Self = Self {
        memory: 1 << 14,
        swap: 1000,
        mappings: 1000,
        limits: [u64::MAX; 3],
        others: 0,
    };
}

/// A machine with one address space on it.
pub(crate) struct World {
    pub(crate) host: Host,
    pub(crate) mm: Manager<Host>,
    pub(crate) spaces: Spaces<Host>,
    pub(crate) space: AddressSpace<Host>,
    pub(crate) budgets: [Arc<Budget<Host>>; 3],
    pub(crate) file: Arc<Object<Host>>,
    pub(crate) shared: Arc<Object<Host>>,
    others: u64,
    memory: u32,
}

/// The observable state of a [`World`] while no operation is in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) mappings: Vec<Seen>,
    /// The number of resident pages of each kind, in the order of [`RssKind::ALL`].
    pub(crate) rss: [u64; 4],
    pub(crate) used: [u64; 3],
    pub(crate) swapped: u32,
    /// The number of pages used for page tables: first as the address space counts them, then as
    /// the node counts them.
    pub(crate) tables: [u64; 2],
    /// The number of anonymous pages: first as the node counts them, then as the zone counts them.
    pub(crate) anonymous: [u64; 2],
    /// The number of pages that are allocated.
    pub(crate) handed_out: u64,
    pub(crate) file: u64,
    pub(crate) shared: u64,
    pub(crate) aged: i64,
}

impl World {
    pub(crate) fn new(design: Design, sizes: Sizes) -> Self {
        let host = Host::with_topology(Topology::flat(2));
        let _entered = host.enter(CpuId(0));
        let mut config = Config::new(Layout::arena(Pages(sizes.memory)));
        config.design = design;
        let mm = Manager::new(&host, config).expect("an arena is a layout");
        let spaces = Spaces::new(&host, &design, sizes.swap).expect("two CPUs can be counted");
        let [limit, group_limit, top_limit] = sizes.limits;
        let top = Arc::new(Budget::new(&host, top_limit));
        let group = Arc::new(Budget::under(&host, group_limit, Arc::clone(&top)));
        let own = Arc::new(Budget::under(&host, limit, Arc::clone(&group)));
        group
            .charge(&host, sizes.others)
            .expect("there is room for others");
        let space = AddressSpace::new(Memory::new(&host, &mm, &spaces))
            .expect("there is memory")
            .limited(Arc::clone(&own))
            .with_mappings_max(sizes.mappings);
        let file = Arc::new(Object::new(&host, ObjectKind::File));
        let shared = Arc::new(Object::new(&host, ObjectKind::Shared));
        Self {
            mm,
            spaces,
            space,
            budgets: [own, group, top],
            file,
            shared,
            others: sizes.others,
            memory: sizes.memory,
            host,
        }
    }

    /// Makes the address space notify `notified` before it unmaps ranges.
    pub(crate) fn notifying(self, notified: impl Notified<Host> + 'static) -> Self {
        let space = self.space.notifying(notified);
        Self { space, ..self }
    }

    pub(crate) fn memory(&self) -> Memory<'_, Host> {
        Memory::new(&self.host, &self.mm, &self.spaces)
    }

    pub(crate) fn request(&self, place: Place, pages: u64, what: What) -> MapRequest<Host> {
        let backing = match what {
            What::Anonymous { huge } => Backing::Anonymous { huge },
            What::Reserved => Backing::Reserved,
            What::Frames { first } => Backing::Frames { first: Pfn(first) },
            What::File { offset } => Backing::PrivateFile {
                file: Arc::clone(&self.file),
                offset,
            },
            What::Shared { offset } => Backing::Shared {
                object: Arc::clone(&self.shared),
                offset,
            },
        };
        MapRequest {
            place,
            pages,
            backing,
        }
    }

    pub(crate) fn map(&self, place: Place, pages: u64, what: What) -> Result<Vma, MapError> {
        let request = self.request(place, pages, what);
        self.space.map(self.memory(), request)
    }

    /// Maps `pages` pages at `start`. No page of this range must be mapped yet.
    pub(crate) fn map_at(&self, start: u64, pages: u64, what: What) {
        let mapped = self.map(Place::Fixed(Vpn(start)), pages, what);
        mapped.expect("nothing is mapped there");
    }

    pub(crate) fn state(&self) -> State {
        let (host, mm) = (&self.host, &self.mm);
        let mut cursor = Cursor::at(self.space.mappings(), Vpn(0));
        let next = || cursor.forward().expect("no thread writes");
        let view = mm.pages().view(host);
        let idle: u32 = view.iter().map(|zone| zone.free.0 + zone.listed.0).sum();
        State {
            mappings: std::iter::from_fn(next).map(|vma| seen(&vma)).collect(),
            rss: RssKind::ALL.map(|kind| self.space.rss().precise(host, kind)),
            used: [0, 1, 2].map(|level| self.used(level)),
            swapped: self.spaces.swap().used(host),
            tables: [
                self.space.table_pages(host),
                mm.counted_on_nodes(host, NodeItem::PageTables),
            ],
            anonymous: [
                mm.counted_on_nodes(host, NodeItem::AnonMapped),
                mm.pages().counted(host, ZoneItem::Anon),
            ],
            handed_out: u64::from(self.memory - idle),
            file: self.file.present(host),
            shared: self.shared.present(host),
            aged: self.spaces.lru().total(host),
        }
    }

    /// Returns the number of pages that the address space has charged to the budget at `level`.
    fn used(&self, level: usize) -> u64 {
        let others = if level == 0 { 0 } else { self.others };
        self.budgets[level].used(&self.host) - others
    }

    /// Runs `f`, which must fail, and checks that nothing has changed. Returns the error.
    pub(crate) fn refused<T: std::fmt::Debug, E>(&self, f: impl FnOnce() -> Result<T, E>) -> E {
        let before = self.state();
        let why = f().map(|done| format!("{done:?}")).err();
        assert_eq!(self.state(), before);
        why.expect("it is refused")
    }

    /// Ends the address space, and checks that it leaves nothing behind. Then empties the file and
    /// the shared memory.
    pub(crate) fn end(self) {
        let memory = self.memory();
        self.space.exit(memory).expect("no thread ended it before");
        self.assert_ended();
        let Self {
            host,
            mm,
            spaces,
            space,
            file,
            shared,
            ..
        } = self;
        assert_eq!(space.destroy(&host), Ok(()));
        file.empty(&host, mm.pages());
        shared.empty(&host, mm.pages());
        cast::is_whole(Memory::new(&host, &mm, &spaces));
    }

    /// Checks that the ended address space leaves nothing in use, except the pages of the file and
    /// of the shared memory.
    pub(crate) fn assert_ended(&self) {
        let state = self.state();
        let ended = State {
            mappings: Vec::new(),
            rss: [0; 4],
            used: [0; 3],
            swapped: 0,
            tables: [0; 2],
            anonymous: [0; 2],
            handed_out: state.file + state.shared,
            aged: 0,
            ..state
        };
        assert_eq!(state, ended);
    }
}

pub(crate) fn seen(vma: &Vma) -> Seen {
    (vma.start.0, vma.end.0, MappingKind::of(vma))
}
