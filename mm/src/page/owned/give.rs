//! Returns pages to the zone when CPUs own blocks: whole blocks first, then fragments of the block
//! with the most pages.
//!
//! The coldest pages on the page lists are first sorted by the owners of the blocks around them.
//! Pages of the CPU's own blocks go to the CPU's stock (a bitmap of free pages for each of its
//! blocks), where they are merged. Pages of other CPUs' blocks go to the inboxes of those CPUs. All
//! other pages go to the zone.
//!
//! Locks: the pcp lock is held throughout; the zone lock is taken inside it for each hold.

use super::stock::Record;
use crate::machine::{CpuLock, LocalWord, Machine, Tags};
use crate::page::blocks::Blocks;
use crate::page::hold::Part;
use crate::page::pcp::Pcp;
use crate::page::tag;
use crate::page::zone::Zone;
use crate::site::{Site, Work};
use crate::units::{CpuId, Order, Pages, count_in};

impl<M: Machine> Zone<M> {
    /// Returns about `wanted` pages of `pcp` to the zone in one hold of the zone lock. A whole
    /// block may have more than `wanted` pages. Starts with the list with the index `list`, and
    /// sets `list` to the index of the list to continue with. Returns the number of pages that have
    /// left `pcp`, which is at least 1 unless `pcp` is empty.
    pub(in crate::page) fn give_by_blocks(
        &self,
        machine: &M,
        pcp: &mut Pcp,
        part: Part,
        wanted: u32,
        list: &mut usize,
    ) -> u32 {
        let before = pcp.count();
        if !self.give_whole(machine, pcp, part) {
            self.sort_out(machine, pcp, part, wanted, list);
            if pcp.count() == before && !self.give_whole(machine, pcp, part) {
                self.give_fragments(machine, pcp, part, wanted);
            }
        }
        before - pcp.count()
    }

    /// Returns whole blocks of `pcp` to the zone until no more than `high` pages are left. Keeps
    /// fragments of blocks, because the other pages of these blocks may still be freed to this CPU.
    pub(super) fn trim(&self, machine: &M, pcp: &mut Pcp) {
        let high = pcp.high().max(self.sizes(machine).high_min.0);
        let part = Part::first(Site::Spill, pcp.stock.cpu);
        while pcp.count() > high && self.give_whole(machine, pcp, part) {}
    }

    /// Moves the pages that other CPUs have freed for `cpu` (its inbox) to the bitmaps of its
    /// blocks (its stock), so that a drain or decay finds them there. Does nothing if the inbox is
    /// empty.
    pub(in crate::page) fn open_inbox(&self, machine: &M, cpu: CpuId, site: Site) {
        if self.owners.has_mail(machine, cpu) {
            let slot = self.slot(cpu);
            slot.pcp.with(machine, site, |pcp| {
                self.bring_home(machine, pcp);
                slot.count.set(machine, i64::from(pcp.count()));
            });
        }
    }

    /// Returns one whole block to the zone, after which the block has no owner. Returns false if
    /// `pcp.stock`, the free pages of the CPU's own blocks, has no whole block.
    fn give_whole(&self, machine: &M, pcp: &mut Pcp, part: Part) -> bool {
        let Some((block, _)) = pcp.stock.whole.pop() else {
            return false;
        };
        let order = self.owners.order();
        // The owner is cleared before the zone lock is taken, because another CPU may claim the
        // block as soon as the zone has it.
        self.owners.clear_owner(block);
        let mut blocks = Blocks::new();
        self.collect_piece(&mut blocks, self.owners.first_page(block), order);
        pcp.count -= order.pages().0;
        self.give_joined(machine, part, &mut blocks, order.pages().0 - 1);
        true
    }

    /// Takes up to `wanted` of the coldest pages off the lists of `pcp`. Moves each to the bitmaps
    /// of this CPU's own blocks (`pcp.stock`), to the inbox of the CPU that owns the block, or to
    /// the zone.
    fn sort_out(&self, machine: &M, pcp: &mut Pcp, part: Part, wanted: u32, list: &mut usize) {
        // A drain empties the lists of all CPUs in turn. So the drain must not send pages to the
        // inbox of a CPU that it may have drained already.
        let may_send = self.owners.has_inboxes() && part.site() != Site::Drain;
        let mut blocks = Blocks::new();
        let mut planned = self.gauge(machine, part.site());
        let mut sorted = 0;
        while sorted < wanted && !blocks.is_full() {
            let Some(coldest) = pcp.coldest(list) else {
                break;
            };
            let order = coldest.order;
            if !planned.fits(order) {
                break;
            }
            let page = coldest.take();
            sorted += order.pages().0;
            if !self.sort_one(machine, pcp, page, order, may_send) {
                blocks.push(page, order);
                planned.plan(order);
            }
        }
        machine.spend(Work::Compare, sorted);
        self.give_planned(machine, part, &mut blocks);
    }

    /// Puts pages that were on a list into `pcp.stock`, the bitmaps of the CPU's own blocks. Sends
    /// them to the owner of their block instead if that is another CPU and `may_send` is true.
    /// Returns `false`, and does nothing, if the pages have to go to the zone.
    fn sort_one(
        &self,
        machine: &M,
        pcp: &mut Pcp,
        page: u32,
        order: Order,
        may_send: bool,
    ) -> bool {
        if order >= self.owners.order() {
            return false;
        }
        let owner = self.owners.owner(self.owners.block_of(page));
        let (group, bit) = self.owners.group_of(page);
        let bits = (u64::MAX >> (64 - order.pages().0)) << bit;
        match owner {
            Some(owner) if owner == pcp.stock.cpu => self.try_put(pcp, group, bits),
            Some(owner) if may_send => {
                // If the owner goes offline during this call, `wait_for_spills` waits for this CPU.
                self.owners.send(machine, owner, group, bits);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Returns about `wanted` pages to the zone, in one hold of the zone lock. All these pages
    /// belong to a single block, of which `pcp.stock` has many pages (see `fullest`).
    fn give_fragments(&self, machine: &M, pcp: &mut Pcp, part: Part, wanted: u32) {
        let Some(at) = pcp.stock.fullest() else {
            return;
        };
        let mut blocks = Blocks::new();
        let record = &mut pcp.stock.parts[at];
        let (block, before) = (record.block, record.pages);
        self.collect_pieces(machine, part, record, wanted, &mut blocks);
        let left = record.pages;
        pcp.count -= before - left;
        // The record of the block's free pages is removed before the zone lock is taken. As soon as
        // the zone has all pages of the block, another CPU may claim the block, and `remove` would
        // overwrite the new owner.
        if left == 0 {
            self.remove(pcp, at);
        }
        pcp.stock.note_fragment(block);
        let joins = before - left - blocks.len();
        self.give_joined(machine, part, &mut blocks, joins);
    }

    /// Takes about `wanted` pages out of `record`, the bitmap of one block's free pages, for one
    /// hold of the zone lock. The pieces are as large as possible.
    fn collect_pieces(
        &self,
        machine: &M,
        part: Part,
        record: &mut Record,
        wanted: u32,
        blocks: &mut Blocks,
    ) {
        let first = self.owners.first_page(record.block);
        let mut planned = self.gauge(machine, part.site());
        let mut most = self.owners.order();
        while !blocks.is_full()
            && let Some((offset, order)) = record.take_largest(most)
        {
            self.collect_piece(blocks, first + offset, order);
            planned.plan(order);
            let left = wanted.saturating_sub(planned.moved.pages);
            match planned.pages_left().min(left).checked_ilog2() {
                Some(fitting) => most = most.min(order_at_most(fitting)),
                None => break,
            }
        }
    }

    /// Adds a piece of a block to `blocks`. All pages of the piece except the first are tagged as
    /// tails.
    fn collect_piece(&self, blocks: &mut Blocks, page: u32, order: Order) {
        (page + 1..page + order.pages().0).for_each(|tail| self.tags.set(tail, tag::TAIL));
        blocks.push(page, order);
    }

    /// Returns `blocks` to the zone. `joins` is the number of times that two blocks were joined to
    /// make `blocks` out of single pages; the machine is told of this work.
    fn give_joined(&self, machine: &M, part: Part, blocks: &mut Blocks, joins: u32) {
        // Joining two blocks costs as much here as merging them does under the zone lock. But here
        // this CPU does not hold the zone lock, so no other CPU waits for that lock.
        machine.spend(Work::BuddyFree, joins);
        self.give_planned(machine, part, blocks);
    }

    /// Returns the free pages of one block, which `record` has, to the zone. `record` has been
    /// removed from the CPU's `Stock`.
    pub(super) fn give_record(&self, machine: &M, part: Part, mut record: Record) {
        while record.pages > 0 {
            let mut blocks = Blocks::new();
            let before = record.pages;
            self.collect_pieces(machine, part, &mut record, before, &mut blocks);
            let joins = before - record.pages - blocks.len();
            self.give_joined(machine, part, &mut blocks, joins);
        }
    }

    /// The number of pages that other CPUs have freed for `cpu` and that `cpu` has not collected
    /// from its inbox yet. Exact if no operation is in progress.
    pub(in crate::page) fn mailed(&self, machine: &M, cpu: CpuId) -> Pages {
        Pages(self.owners.mailed(machine, cpu))
    }

    /// The number of free pages that `cpu` keeps outside the zone, including those that other CPUs
    /// have freed for it.
    pub(in crate::page) fn listed(&self, machine: &M, cpu: CpuId) -> u32 {
        let slot = self.slot(cpu);
        count_in(slot.count.read(machine)) + slot.fronted() + self.mailed(machine, cpu).0
    }
}

/// Converts the number `order` to an [`Order`]. If the number is too large, returns the largest
/// order.
fn order_at_most(order: u32) -> Order {
    let order = u8::try_from(order).ok().and_then(Order::new);
    order.unwrap_or(Order::MAX)
}
