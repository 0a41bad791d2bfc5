//! Gives an allocator the state of another allocator: the same free blocks, and the same contents
//! of the CPUs' lists.
//!
//! When a recording of a real machine begins, memory is already in use. The functions here set the
//! known parts of that state before the recording is replayed.
//!
//! Locks: the zone lock for free blocks and a pcp lock for lists, but never both at once.

use alloc::vec::Vec;
use core::fmt;

use super::carve::{FreeBlocks, Piece, Plan, plan};
use super::list_state::{ListState, TypedBlock};
use super::mobility::Mobility;
use super::pcp::{Pcp, list_of};
use super::sizing::Sizes;
use super::watermark::Watermarks;
use super::zone::Zone;
use super::{FreeError, PageAllocator, tag};
use crate::machine::{CpuLock, LocalWord, Machine, Tags};
use crate::site::Site;
use crate::tunables::Knob;
use crate::units::{CpuId, Nanos, Order, Pfn};
use crate::vmstat::counters::ZoneItem;
use crate::vmstat::threshold;

/// The reason why the given state of a zone or of its page lists cannot be set. Nothing changes
/// unless the variant says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeedError {
    /// There is no zone with this index.
    NoSuchZone(u32),
    /// Some pages of the zone are allocated or on a CPU's list.
    NotFresh(u32),
    /// The zone is too small for the requested free blocks.
    TooSmall(u32),
    /// A block is of this order, for which there is no list. The tuning values of the [`ListState`]
    /// have been set, and the blocks before this one in `ListState::blocks` are on the lists.
    NotListed(Order),
    /// A block is of this order, and its list has no room for it. The tuning values of the
    /// [`ListState`] have been set, and the blocks before this one in `ListState::blocks` are on
    /// the lists.
    NoRoom(Order),
    /// A block was not allocated with the order given for it. The tuning values of the
    /// [`ListState`] have been set, and the blocks before this one in `ListState::blocks` are on
    /// the lists.
    Block(FreeError),
    /// No lists can have these sizes: see [`Sizes::is_possible`].
    Sizes(Sizes),
}

impl fmt::Display for SeedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchZone(zone) => write!(f, "there is no zone {zone}"),
            Self::NotFresh(zone) => write!(
                f,
                "zone {zone} is in use: give it its free blocks before anything is allocated"
            ),
            Self::TooSmall(zone) => write!(f, "zone {zone} is too small for these free blocks"),
            Self::NotListed(order) => {
                write!(
                    f,
                    "no page list holds blocks of order {order}: use 0 to 3, or 9"
                )
            }
            Self::NoRoom(order) => {
                write!(
                    f,
                    "the page list for blocks of order {order} is full: give it fewer, or set a \
                     larger `high_max`"
                )
            }
            Self::Block(error) => error.fmt(f),
            Self::Sizes(Sizes {
                batch,
                high_min,
                high_max,
            }) => write!(
                f,
                "lists cannot have batch {batch}, high_min {high_min} and high_max {high_max}: the \
                 batch must be 1 to {}, high_min at most high_max, and high_max at most {}",
                Sizes::BATCH_MAX,
                Sizes::HIGH_MAX
            ),
        }
    }
}

impl core::error::Error for SeedError {}

impl<M: Machine> PageAllocator<M> {
    /// Cuts up a zone that is entirely free so that its free lists hold exactly the blocks of
    /// `free`. Returns all other memory of the zone as allocated blocks, which the caller may free,
    /// [split](PageAllocator::split_to) or keep. The addresses of the blocks are unspecified.
    ///
    /// # Errors
    /// If there is no such zone, if the zone is not entirely free, or if the zone is too small. The
    /// free blocks alone must not fill the zone: two free blocks must not be buddies, so each free
    /// block needs pages in use beside it.
    pub fn seed_free(
        &self,
        machine: &M,
        zone: u32,
        free: &FreeBlocks,
    ) -> Result<Vec<TypedBlock>, SeedError> {
        self.seed_free_arranged(machine, zone, free, |_| {})
    }

    /// Cuts up a zone that is entirely free as [`PageAllocator::seed_free`] does, but lets the
    /// caller choose which parts of the zone are cut up. `arrange` gets the zone's blocks of the
    /// largest order, each as the page number of its first page within the zone, and may reorder
    /// them. In the new order, the free blocks are cut out of the first blocks. All other blocks
    /// stay whole and in use.
    ///
    /// # Errors
    /// As [`PageAllocator::seed_free`].
    pub fn seed_free_arranged(
        &self,
        machine: &M,
        zone: u32,
        free: &FreeBlocks,
        arrange: impl FnOnce(&mut [u32]),
    ) -> Result<Vec<TypedBlock>, SeedError> {
        self.zone_at(zone)?.seed_free(machine, free, arrange)
    }

    /// Sets the state of `cpu`'s lists in a zone to `state`. The caller must have allocated each
    /// block of `state`, and hands it over to the lists. Blocks that are already on the lists stay
    /// there. The new blocks go to the ends from which the next allocations take blocks.
    ///
    /// # Errors
    /// If there is no such zone, if there is no list for the order of a block, if a list is full,
    /// or if a block was not allocated.
    pub fn seed_lists(
        &self,
        machine: &M,
        zone: u32,
        cpu: CpuId,
        state: &ListState,
    ) -> Result<(), SeedError> {
        self.zone_at(zone)?.seed_lists(machine, cpu, state)
    }

    /// Sets a zone's watermarks and list sizes to those of another machine instead of the computed
    /// values. The new values apply until a knob, the number of online CPUs or the memory of a zone
    /// changes.
    ///
    /// # Errors
    /// If there is no such zone, or if no lists can have these sizes.
    pub fn seed_sizes(
        &self,
        machine: &M,
        zone: u32,
        marks: Watermarks,
        sizes: Sizes,
    ) -> Result<(), SeedError> {
        let zone = self.zone_at(zone)?;
        if !sizes.is_possible() {
            return Err(SeedError::Sizes(sizes));
        }
        let scale = self.tunable(machine, Knob::BatchScaleMax);
        let hold = Nanos(self.tunable(machine, Knob::HoldTimeMax));
        let online = self.cpus.online(machine);
        let normal = threshold::normal(online, zone.managed());
        let distance = marks.low.saturating_sub(marks.min);
        let drift = threshold::drift_mark(online, normal, distance, marks.high);
        zone.set_watermarks(machine, marks, drift);
        zone.set_sizes(machine, sizes, scale, hold);
        zone.set_front_limits(machine, sizes, &self.cpus);
        self.provide_lists(machine);
        Ok(())
    }

    /// The state of `cpu`'s lists in a zone, or `None` if there is no such zone. Moves the blocks of
    /// the CPU's [fronts](crate::machine::Front), its stacks of free blocks, to the lists first. Waits for the pcp lock if another CPU holds it.
    pub fn list_state(&self, machine: &M, zone: u32, cpu: CpuId) -> Option<ListState> {
        let zone = self.zone_at(zone).ok()?;
        let slot = zone.slot(cpu);
        zone.empty_fronts(machine, cpu, Site::Control);
        // `room` is allocated while the pcp lock is not held. The loop ends when the blocks on the
        // lists fit into `room`, that is, when the lists have not become longer since the
        // allocation.
        let mut room = Vec::new();
        loop {
            let state = slot.pcp.with(machine, Site::Control, |pcp| {
                pcp.state(|page| zone.pfn(page), &mut room)
            });
            match state {
                Ok(state) => return Some(state),
                Err(blocks) => room = Vec::with_capacity(blocks),
            }
        }
    }

    /// The type of the page block around `pfn` (Linux: `get_pageblock_migratetype`), or `None` for
    /// a frame in no zone. Reads without a lock.
    pub fn block_type(&self, pfn: Pfn) -> Option<Mobility> {
        let (zone, page) = self.locate(pfn)?;
        Some(zone.types.of(page))
    }

    pub(super) fn zone_at(&self, zone: u32) -> Result<&Zone<M>, SeedError> {
        let found = self.zones.get(zone as usize);
        found.ok_or(SeedError::NoSuchZone(zone))
    }
}

impl<M: Machine> Zone<M> {
    fn seed_free(
        &self,
        machine: &M,
        free: &FreeBlocks,
        arrange: impl FnOnce(&mut [u32]),
    ) -> Result<Vec<TypedBlock>, SeedError> {
        let frames = self.frames();
        let plan = self.locked(machine, Site::Control, |buddy| {
            if buddy.free() != self.managed() {
                return Err(SeedError::NotFresh(self.index));
            }
            let mut whole = Vec::new();
            let mut rest = Vec::new();
            let mobility = self.types.served_as(Mobility::Movable);
            for order in Order::all().rev() {
                while let Some(page) = buddy.take(frames, order, mobility) {
                    if order == Order::MAX {
                        whole.push(page);
                    } else {
                        // The block is smaller than the largest order because a hole, or the end of
                        // the zone, is next to it. Such a block is not used for the free blocks of
                        // the plan. It counts as in use.
                        rest.push(Piece {
                            page,
                            order,
                            mobility,
                        });
                    }
                }
            }
            arrange(&mut whole);
            let Some(mut plan) = plan(&whole, self.types.block(), free) else {
                whole
                    .iter()
                    .for_each(|&at| buddy.give(frames, at, Order::MAX));
                rest.iter()
                    .for_each(|piece| buddy.give(frames, piece.page, piece.order));
                return Err(SeedError::TooSmall(self.index));
            };
            plan.in_use.append(&mut rest);
            buddy.lay_out(frames, &plan.free);
            self.mark_in_use(&plan);
            Ok(plan)
        })?;
        let used: i64 = plan
            .in_use
            .iter()
            .map(|piece| i64::from(piece.order.pages().0))
            .sum();
        self.counters
            .add(machine, ZoneItem::FreePages as usize, -used);
        let block = |piece: &Piece| TypedBlock {
            pfn: self.pfn(piece.page),
            order: piece.order,
            mobility: piece.mobility,
        };
        Ok(plan.in_use.iter().map(block).collect())
    }

    fn mark_in_use(&self, plan: &Plan) {
        for &Piece {
            page,
            order,
            mobility,
        } in &plan.in_use
        {
            self.types.set(page, order, mobility);
            let mobility = self.types.served_as(mobility);
            self.tags.set(page, tag::handed_out(order, mobility));
        }
    }

    fn seed_lists(&self, machine: &M, cpu: CpuId, state: &ListState) -> Result<(), SeedError> {
        let slot = self.slot(cpu);
        self.empty_fronts(machine, cpu, Site::Control);
        slot.pcp.with(machine, Site::Control, |pcp| {
            pcp.set_state(state);
            let outcome = state.blocks.iter().try_for_each(|block| {
                let list = list_of(block.order, self.types.served_as(block.mobility));
                let list = list.ok_or(SeedError::NotListed(block.order))?;
                self.list_block(pcp, block, list)
            });
            slot.count.set(machine, i64::from(pcp.count()));
            outcome
        })
    }

    fn list_block(&self, pcp: &mut Pcp, block: &TypedBlock, list: usize) -> Result<(), SeedError> {
        let outside = SeedError::Block(FreeError::OutsideZones(block.pfn));
        let page = self.page(block.pfn).ok_or(outside)?;
        self.reclaim_tag(page, block.order)
            .map_err(SeedError::Block)?;
        if !pcp.push(list, block.order, page) {
            // The list has no room, so the caller keeps the block.
            self.tags.set(page, tag::allocated(block.order));
            return Err(SeedError::NoRoom(block.order));
        }
        Ok(())
    }
}
