//! One zone: its free lists, every CPU's page lists for it, its watermarks and counters.
//!
//! A page is in exactly one place: on a free list, on a pcp list, in a front (a CPU's stack of
//! free blocks), allocated, or in a hole. Page numbers inside this module are relative to the
//! zone's first page.
//!
//! This file has the zone's fields. Each operation of a zone has a file of its
//! own, together with the methods of [`PageAllocator`](super::PageAllocator) that call it:
//!
//! | file | methods of [`Zone`] |
//! |---|---|
//! | `settled.rs` | read and change settings |
//! | `alloc.rs` | allocate a block from a page list or the zone; refill a list |
//! | `bulk.rs` | allocate many single pages |
//! | `free.rs` | free a block to a page list or the zone; spill a list |
//! | `quick.rs` | allocate and free a block, if only a front or a page list is needed |
//! | `front.rs` | move blocks between a front and the page lists |
//! | `front_direct.rs` | move blocks between a front and the bitmaps of the zone |
//! | `drain.rs` | empty the page lists of a CPU; decay them periodically |
//! | `hold.rs` | move pages between the free lists and a page list under one hold of the lock |
//! | `supply.rs` | decide whether the zone may give a block |
//! | `kept.rs` | keep blocks for atomic requests, and unreserve them |
//! | `resize.rs` | add and remove memory |
//! | `report.rs` | give the memory of free huge blocks back |
//! | `seed.rs` | set the initial state of the lists |
//! | `view.rs` | report the state |
//! | `owned/` | return pages to the CPUs that own the blocks around them |
//!
//! Locks: the zone lock is taken inside the pcp lock. Counters are changed after the zone lock is
//! released.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

use super::Request;
use super::buddy::{Buddy, Wanted, absent_blocks};
use super::holds::{FlushFrom, Holds};
use super::layout::{FreeIndex, ZoneKind, ZoneLayout};
use super::links::Metadata;
use super::mobility::{BlockTypes, Frames, Grouping, Mobility};
use super::owned::{Owners, Owning, Stock};
use super::pcp::{self, Pcp};
use super::settings::Settings;
use super::tag;
use super::watermark::Urgency;
use crate::machine::{CpuLock, Field, Front, Machine, Tags};
use crate::site::{LockClass, Site};
use crate::units::{CpuId, NodeId, Order, Pages, Pfn, narrow};
use crate::vmstat::counters::{Counters, ZoneItem};

/// One zone of a machine.
pub(crate) struct Zone<M: Machine> {
    pub(super) index: u32,
    pub(super) kind: ZoneKind,
    pub(super) node: NodeId,
    start: Pfn,
    spanned: Pages,
    /// The number of pages of memory. A CPU changes this number only with the sizing lock
    /// (`pcp_batch_high_lock`) held.
    ///
    /// This is an ordinary atomic and not a word of the machine, because readers need no particular
    /// order. So accesses take no time in the simulator, and model checkers do not try their
    /// interleavings.
    managed: AtomicU32,
    /// The number of entries of fronts (CPUs' stacks of free blocks) that were dropped, because
    /// their pages had been freed twice.
    pub(super) dropped: AtomicU64,
    pub(super) tags: M::Tags,
    pub(super) types: BlockTypes<M::Tags>,
    /// True if the zone keeps bitmaps of free pages.
    pub(super) has_bitmaps: bool,
    pub(super) buddy: M::Lock<Buddy>,
    pub(super) slots: Box<[PerCpu<M>]>,
    pub(super) owners: Owners<M>,
    pub(super) holds: &'static dyn Holds,
    pub(super) flush_from: FlushFrom,
    /// True if a request that tries this zone first may mix types in a page block only after it has
    /// tried all zones of the node. This rule applies only on the fast path.
    pub(super) stays_unmixed: bool,
    pub(crate) counters: Counters<M>,
    pub(super) settings: Settings<M>,
}

/// One CPU's part of a zone, which shares no cache line with other CPUs' parts. In memory, the
/// words `count`, `owed` and `room` come before the lock. Whether they share a cache line with the
/// lock depends on the machine: the machine of real threads aligns its locks to pairs of cache
/// lines, so on that machine the words have a pair of cache lines to themselves.
#[repr(C, align(128))]
pub(super) struct PerCpu<M: Machine> {
    /// Single pages that the CPU allocates and frees without a lock.
    pub(super) pages: M::Front,
    /// Huge blocks that the CPU allocates and frees without a lock.
    pub(super) huge: M::Front,
    /// The number of pages on the lists, for readers that do not take the lock.
    pub(super) count: M::LocalWord,
    /// The number of pages that must still return to the zone, because their return was
    /// interrupted.
    pub(super) owed: M::LocalWord,
    /// The number of pages that the lists can hold before they need more memory for their entries.
    room: M::Field,
    pub(super) pcp: M::CpuLock<Pcp>,
}

impl<M: Machine> Zone<M> {
    pub(super) fn new(
        machine: &M,
        index: u32,
        layout: &ZoneLayout,
        metadata: Metadata,
        policy: Policy,
    ) -> Self {
        let Policy {
            holds,
            owning,
            grouping,
            cache_slice,
            stays_unmixed,
            index: wanted_index,
        } = policy;
        const { tag::fresh_is_free::<M::Tags>() };
        let topology = machine.topology();
        let on_node = |cpu: &CpuId| topology.place(*cpu).node == layout.node;
        let home = topology.ids().find(on_node).unwrap_or(CpuId(0));
        let tags = machine.tags(layout.spanned);
        let types = BlockTypes::new(machine, layout.spanned, grouping);
        let frames = Frames {
            tags: &tags,
            types: &types,
        };
        let free_index = if types.on() || owning != Owning::None {
            FreeIndex::Lists
        } else {
            wanted_index
        };
        let buddy = filled(layout, metadata, frames, free_index);
        let free = i64::from(buddy.free().0);
        let zone = Self {
            index,
            kind: layout.kind,
            node: layout.node,
            start: layout.start,
            spanned: layout.spanned,
            managed: AtomicU32::new(layout.managed().0),
            dropped: AtomicU64::new(0),
            tags,
            types,
            has_bitmaps: free_index == FreeIndex::Bitmaps,
            buddy: machine.lock(LockClass::Zone, home, buddy),
            slots: topology
                .ids()
                .zip(machine.make_fronts(Order::ZERO))
                .zip(machine.make_fronts(Order::HUGE))
                .map(|((cpu, pages), huge)| PerCpu::new(machine, cpu, [pages, huge], metadata))
                .collect(),
            owners: Owners::new(machine, owning, layout.spanned, metadata),
            holds,
            flush_from: holds.flush_from(),
            stays_unmixed,
            counters: Counters::new(machine, 0),
            settings: Settings::new(machine, cache_slice),
        };
        machine.settle(&zone.slots);
        // The counters were created with a threshold of zero, so this addition goes directly into
        // the shared word.
        zone.counters
            .add(machine, ZoneItem::FreePages as usize, free);
        zone
    }

    /// The page number of `pfn` relative to the zone's start, or `None` if the zone does not span
    /// `pfn`.
    #[inline]
    pub(super) fn page(&self, pfn: Pfn) -> Option<u32> {
        let page = pfn.0.wrapping_sub(self.start.0);
        (page < self.spanned.0).then_some(page)
    }

    /// The frame of the zone's `page`.
    #[inline]
    pub(super) fn pfn(&self, page: u32) -> Pfn {
        self.start.plus(Pages(page))
    }

    /// The tags of the zone's page frames and the types of its page blocks, which are read without
    /// a lock.
    #[inline]
    pub(super) fn frames(&self) -> Frames<'_, M::Tags> {
        Frames {
            tags: &self.tags,
            types: &self.types,
        }
    }

    /// The numbers of the frames that the zone spans.
    pub(super) fn frames_range(&self) -> core::ops::Range<u32> {
        self.start.0..self.start.plus(self.spanned).0
    }

    /// The node that this zone belongs to.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// The number of pages of memory in the zone, without holes.
    pub(crate) fn managed(&self) -> Pages {
        // Relaxed is enough: the settings that depend on this number of pages are computed under
        // the sizing lock (`pcp_batch_high_lock`). All other readers may use an outdated number.
        Pages(self.managed.load(Relaxed))
    }

    /// Records that the zone has `pages` pages of memory from now on. The caller holds the sizing
    /// lock (Linux: `pcp_batch_high_lock`).
    pub(super) fn set_managed(&self, pages: Pages) {
        // Relaxed is enough: readers may use an old number, as in `managed`.
        self.managed.store(pages.0, Relaxed);
    }

    /// The number of pages that the zone spans, holes included.
    pub(super) fn spanned(&self) -> Pages {
        self.spanned
    }

    /// The part of the zone that belongs to `cpu`, with its page lists.
    #[inline]
    pub(super) fn slot(&self, cpu: CpuId) -> &PerCpu<M> {
        match self.slots.get(cpu.index()) {
            Some(slot) => slot,
            None => no_such_cpu(cpu, self.slots.len()),
        }
    }

    /// Allocates memory for the longest lists that `cpu` may have at the current sizes. Does
    /// nothing if the lists already have enough memory. Must be called with no lock held.
    pub(super) fn provide_lists(&self, machine: &M, cpu: CpuId) {
        let (slot, sizes) = (self.slot(cpu), self.sizes(machine));
        let longest = u64::from(sizes.high_max.0);
        if slot.room.get() >= longest {
            return;
        }
        let grouped = self.types.on();
        // Make room for an eighth more pages. When a CPU goes offline, the lists of the other CPUs
        // may become longer; with this extra room, most such changes need no new allocation.
        let longest = longest + longest / 8;
        let pages = Pages(narrow(longest));
        let mut longer = pcp::lists_for(pages, sizes.batch, self.managed(), grouped);
        let on = self.owners.is_on();
        let mut stock = on.then(|| Stock::with_room(pages));
        slot.pcp.with(machine, Site::Control, |pcp| {
            pcp.replace(&mut longer);
            stock
                .iter_mut()
                .for_each(|longer| pcp.stock.replace(longer));
        });
        // Two CPUs may run this function for the same lists at once. Then `replace` keeps the
        // longer lists, even if `room` ends up with the smaller of the two lengths.
        slot.room.set(longest);
    }
}

impl<M: Machine> PerCpu<M> {
    /// The CPU's front (its stack of free blocks) for blocks of `order`, which is 0 or that of huge
    /// blocks.
    #[inline(always)]
    pub(super) fn front(&self, order: Order) -> &M::Front {
        debug_assert!(matches!(order, Order::ZERO | Order::HUGE), "has no front");
        if order == Order::HUGE {
            &self.huge
        } else {
            &self.pages
        }
    }

    /// The number of pages in the CPU's fronts (its stacks of free blocks). The number may be
    /// outdated.
    pub(super) fn fronted(&self) -> u32 {
        self.pages.blocks() + (self.huge.blocks() << Order::HUGE.get())
    }

    fn new(machine: &M, cpu: CpuId, [pages, huge]: [M::Front; 2], metadata: Metadata) -> Self {
        let mut pcp = Pcp::new(metadata);
        pcp.stock = Stock::new(cpu, metadata);
        Self {
            pages,
            huge,
            pcp: machine.cpu_lock(LockClass::Pcp, cpu, pcp),
            room: machine.field(match metadata {
                Metadata::Eager => 0,
                // These lists allocate memory when they are used. The largest possible `room` keeps
                // `provide_lists` from allocating memory for them.
                Metadata::WhenSplit => u64::MAX,
            }),
            count: machine.local_word(cpu, 0),
            owed: machine.local_word(cpu, 0),
        }
    }
}

/// Panics, because the machine did not have the CPU `cpu` when the allocator was created.
#[cold]
#[inline(never)]
pub(super) fn no_such_cpu(cpu: CpuId, cpus: usize) -> ! {
    panic!(
        "CPU {cpu} does not exist on the machine of {cpus} CPUs with which this allocator was \
         created: pass that machine"
    )
}

/// The parts of a [`Config`](super::Config) that a zone needs.
#[derive(Clone, Copy)]
pub(super) struct Policy {
    pub(super) holds: &'static dyn Holds,
    pub(super) owning: Owning,
    pub(super) grouping: Grouping,
    pub(super) cache_slice: Pages,
    /// True if a request that tries this zone first may mix types in a page block only after it has
    /// tried all zones of the node. This rule applies only on the fast path.
    pub(super) stays_unmixed: bool,
    /// How free blocks that are smaller than a huge block are kept, if pages are not grouped by
    /// mobility and CPUs own no blocks.
    pub(super) index: FreeIndex,
}

/// An allocation request in the form that is passed to a single zone.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZoneRequest {
    pub(super) order: Order,
    pub(super) class: ZoneKind,
    pub(super) urgency: Urgency,
    pub(super) mark: Mark,
    pub(super) mobility: Mobility,
    /// True if the request must fail rather than take a page inside a page block of another type.
    pub(super) unmixed: bool,
}

impl ZoneRequest {
    /// The first attempt to serve `request`, in a zone that does not group pages by mobility.
    pub(super) fn first(request: Request) -> Self {
        Self {
            order: request.order,
            class: request.class,
            urgency: request.urgency,
            mark: Mark::Low,
            mobility: Mobility::Unmovable,
            unmixed: false,
        }
    }

    /// The urgency that says how far below its watermark `mark` the request may go. It is the
    /// request's own urgency only if `mark` is the min watermark, which only the slow path tests.
    /// Otherwise it is `Normal`.
    pub(super) fn lowers_marks_as(&self) -> Urgency {
        match self.mark {
            Mark::Min => self.urgency,
            Mark::Low | Mark::High => Urgency::Normal,
        }
    }

    /// The block to take from the free lists for this request.
    pub(super) fn wanted(&self) -> Wanted {
        Wanted {
            order: self.order,
            mobility: self.mobility,
            unmixed: self.unmixed,
        }
    }
}

/// The watermark that the zone must stay above when it serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Min,
    Low,
    High,
}

/// Whether reclaim is active in a zone (Linux: `ZONE_RECLAIM_ACTIVE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaiming {
    /// Reclaim is not active.
    No = 0,
    /// Reclaim is active, so page lists are kept short.
    Yes = 1,
}

/// Whether the kswapd of a node is asleep or awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kswapd {
    /// Kswapd sleeps until an allocation wakes it.
    Asleep,
    /// Kswapd reclaims, or waits a tenth of a second for further work.
    Awake,
}

/// Creates free lists that contain all memory of `layout`.
fn filled<T: Tags>(
    layout: &ZoneLayout,
    metadata: Metadata,
    frames: Frames<'_, T>,
    index: FreeIndex,
) -> Buddy {
    let block = Order::MAX.pages().0;
    let absent = absent_blocks(layout);
    let mut buddy = Buddy::new(layout.spanned, metadata, absent, index);
    let first = layout.start.0;
    let mut holes = layout.holes.iter().peekable();
    for page in (0..layout.spanned.0).step_by(block as usize) {
        let end = (page + block).min(layout.spanned.0);
        while holes.next_if(|hole| hole.end - first <= page).is_some() {}
        let holed = holes.peek().is_some_and(|hole| hole.start - first < end);
        if end - page == block && !holed {
            buddy.give_fresh(page, frames.types.of(page));
            continue;
        }
        if buddy.is_absent(page) {
            frames.tags.set(page, tag::HOLE);
            continue;
        }
        for at in page..end {
            frames.tags.set(at, tag::HOLE);
        }
        let mut at = page;
        while at < end {
            // Skip the holes that end before the page `at`. Pages and holes are both in ascending
            // order, so no hole is needed again once it is skipped.
            while holes.next_if(|hole| hole.end - first <= at).is_some() {}
            match holes.peek() {
                Some(hole) if hole.start - first <= at => at = (hole.end - first).min(end),
                _ => {
                    frames.tags.set(at, tag::TAIL);
                    buddy.give(frames, at, Order::ZERO);
                    at += 1;
                }
            }
        }
    }
    buddy
}
