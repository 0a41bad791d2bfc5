//! Refills a page list from blocks that the CPU owns. The refill first takes pages from the bitmaps
//! of these blocks (the CPU's stock) and from the pages that other CPUs have freed for this CPU
//! (its inbox), which needs no zone lock. Then the refill takes back fragments of the CPU's blocks
//! that have gone to the zone. Finally, the CPU claims a further block.
//!
//! Locks: the pcp lock is held throughout. The zone lock is taken inside it for each claim, for
//! each recovery of fragments, and for each whole block that returns to the zone.

use core::sync::atomic::Ordering::Relaxed;

use super::stock::Record;
use crate::machine::{Machine, Tags, Word};
use crate::page::hold::Part;
use crate::page::mobility::Mobility;
use crate::page::pcp::Pcp;
use crate::page::tag;
use crate::page::zone::{Zone, ZoneRequest};
use crate::site::{Site, Work};
use crate::units::{Order, count_of};

/// The maximum number of a CPU's own blocks whose bitmaps of free pages a refill searches. The
/// search starts at the end of the list of these bitmaps.
const LOOKED_AT: usize = 16;

/// The maximum number of a CPU's own blocks whose free pages one refill takes back from the zone.
const RECOVERED: usize = 4;

impl<M: Machine> Zone<M> {
    /// Moves a batch of pages to an empty list: pages of the CPU's own blocks (`pcp.stock`), or
    /// pages that other CPUs have freed for it (its inbox). Returns whether any page was moved.
    /// Takes the zone lock only if the pages of the inbox bring the lists above `high`, so that
    /// whole blocks return to the zone.
    pub(in crate::page) fn refill_at_home(
        &self,
        machine: &M,
        pcp: &mut Pcp,
        list: usize,
        ask: ZoneRequest,
    ) -> bool {
        if ask.order >= self.owners.order() {
            return false;
        }
        let batch = self.sizes(machine).batch.0;
        let wanted = pcp.room(list, (batch >> ask.order.get()).max(1));
        if self.take_from_stock(machine, pcp, list, ask, wanted) > 0 {
            return true;
        }
        if !self.owners.has_mail(machine, pcp.stock.cpu) {
            return false;
        }
        self.bring_home(machine, pcp);
        let taken = self.take_from_stock(machine, pcp, list, ask, wanted);
        self.trim(machine, pcp);
        taken > 0
    }

    /// Refills a list from blocks that the CPU owns, and from blocks that it claims for this
    /// purpose. Returns how many of the `wanted` blocks of the request's order are still missing;
    /// the caller takes these from the zone's other pages.
    pub(in crate::page) fn refill_by_blocks(
        &self,
        machine: &M,
        pcp: &mut Pcp,
        list: usize,
        ask: ZoneRequest,
        wanted: u32,
    ) -> u32 {
        if ask.order >= self.owners.order() {
            return wanted;
        }
        let mut wanted = wanted - self.take_from_stock(machine, pcp, list, ask, wanted);
        for _ in 0..RECOVERED {
            if wanted == 0 || !self.recover(machine, pcp, ask) {
                break;
            }
            wanted -= self.take_from_stock(machine, pcp, list, ask, wanted);
        }
        while wanted > 0 && self.claim(machine, pcp, ask) {
            let taken = self.take_from_stock(machine, pcp, list, ask, wanted);
            wanted -= taken;
        }
        wanted
    }

    /// Moves up to `wanted` blocks of the request's order and mobility from `pcp.stock`, the free
    /// pages of the CPU's own blocks, to a list. Returns their number.
    fn take_from_stock(
        &self,
        machine: &M,
        pcp: &mut Pcp,
        list: usize,
        ask: ZoneRequest,
        wanted: u32,
    ) -> u32 {
        let kind = ask.mobility.listed();
        let mut taken = 0;
        let mut at = pcp.stock.parts.len();
        for _ in 0..LOOKED_AT {
            if taken == wanted || at == 0 {
                break;
            }
            at -= 1;
            if pcp.stock.parts[at].kind == kind {
                taken += self.take_from(pcp, at, list, ask.order, wanted - taken);
            }
        }
        while taken < wanted && self.open_whole(pcp, kind) {
            let at = pcp.stock.parts.len() - 1;
            taken += self.take_from(pcp, at, list, ask.order, wanted - taken);
        }
        machine.spend(Work::Compare, taken << ask.order.get());
        taken
    }

    /// Moves up to `wanted` blocks of `order` to a list from the record with the index `at`. The
    /// record is a bitmap of the free pages of one block that this CPU owns. Removes the record if
    /// no page is left in it.
    fn take_from(&self, pcp: &mut Pcp, at: usize, list: usize, order: Order, wanted: u32) -> u32 {
        let first = self.owners.first_page(pcp.stock.parts[at].block);
        let mut taken = 0;
        while taken < wanted {
            let Some(offset) = pcp.stock.parts[at].take(order) else {
                break;
            };
            let page = first + offset;
            self.tags.set(page, tag::listed(order));
            (page + 1..page + order.pages().0).for_each(|tail| self.tags.set(tail, tag::TAIL));
            pcp.count -= order.pages().0;
            pcp.push_cold(list, order, page);
            taken += 1;
        }
        if pcp.stock.parts[at].pages == 0 {
            self.remove(pcp, at);
        }
        taken
    }

    /// Makes a record, a bitmap of free pages, for a whole block of mobility `kind` in `pcp.stock`,
    /// so that parts of the block can be taken. Returns false if `pcp.stock` has no such block, or
    /// no room for a record.
    fn open_whole(&self, pcp: &mut Pcp, kind: Mobility) -> bool {
        let stock = &mut pcp.stock;
        let Some(at) = stock.whole.iter().rposition(|whole| whole.1 == kind) else {
            return false;
        };
        if !stock.has_room() {
            return false;
        }
        let (block, kind) = stock.whole.swap_remove(at);
        self.insert(pcp, Record::whole(block, kind, self.owners.order()));
        true
    }

    /// Takes a whole block of the request's type from the zone for this CPU, and adds it to
    /// `pcp.stock`. Returns false if the zone has no such block to spare, or `pcp.stock` has no
    /// room for the block's bitmap.
    fn claim(&self, machine: &M, pcp: &mut Pcp, ask: ZoneRequest) -> bool {
        let order = self.owners.order();
        let short = self.settings.below_high.load(machine, Relaxed) != 0;
        if short && self.owners.has_inboxes()
            || !pcp.stock.has_room()
            || !self.spares(machine, ask, order.pages())
        {
            return false;
        }
        let cpu = pcp.stock.cpu;
        let mut gauge = self.gauge(machine, Site::Refill);
        let claimed = self.locked(machine, Site::Refill, |buddy| {
            gauge.start(machine);
            let page = buddy.take(self.frames(), order, ask.mobility)?;
            self.tags.set(page, tag::listed(order));
            let block = self.owners.block_of(page);
            self.owners.provide_mail(machine, block);
            self.owners.set_owner(block, cpu, None);
            self.note_taken(machine, page, order);
            gauge.moved(machine, order);
            gauge.stop(machine);
            Some(block)
        });
        let Some(block) = claimed else {
            return false;
        };
        self.note_hold(machine, Part::first(Site::Refill, cpu), gauge.moved);
        // Splitting the block costs as much here as it does under the zone lock. But here this CPU
        // does not hold the zone lock, so no other CPU waits for that lock.
        machine.spend(Work::BuddyAlloc, order.pages().0 - 1);
        let record = Record::whole(block, ask.mobility.listed(), order);
        pcp.count += record.pages;
        self.insert(pcp, record);
        true
    }

    /// Takes back from the zone the free fragments of a block that the CPU owns, and adds them to
    /// `pcp.stock`. Does so in one hold of the zone lock, and takes no more than the limit of that
    /// hold. Returns false if the CPU remembers no block of which the zone has fragments. Returns
    /// true otherwise, even if the zone had nothing to take.
    fn recover(&self, machine: &M, pcp: &mut Pcp, ask: ZoneRequest) -> bool {
        let Some(block) = pcp.stock.take_fragmented() else {
            return false;
        };
        let order = self.owners.order();
        let cpu = pcp.stock.cpu;
        if self.owners.owner(block) != Some(cpu)
            || self.types.of(self.owners.first_page(block)) != ask.mobility
            || !self.spares(machine, ask, order.pages())
        {
            return true;
        }
        let mut found = Record::empty(block, ask.mobility.listed());
        let mut gauge = self.gauge(machine, Site::Refill);
        self.locked(machine, Site::Refill, |buddy| {
            gauge.start(machine);
            let first = self.owners.first_page(block);
            let end = (first + order.pages().0).min(count_of(self.frames_range().len()));
            let mut page = first;
            while page < end {
                match tag::free_order(self.tags.get(page)) {
                    // The whole block is free. It stays in the zone, where any CPU may claim it.
                    Some(piece) if piece >= order => break,
                    Some(piece) if gauge.admits(machine, piece) => {
                        buddy.take_at(self.frames(), page, piece);
                        self.tags.set(page, tag::listed(piece));
                        found.add_run(page - first, piece);
                        self.note_taken(machine, page, piece);
                        gauge.moved(machine, piece);
                        page += piece.pages().0;
                    }
                    Some(_) => break,
                    None => page += 1,
                }
            }
            gauge.stop(machine);
        });
        if found.pages > 0 {
            self.note_hold(machine, Part::first(Site::Refill, cpu), gauge.moved);
            machine.spend(Work::BuddyAlloc, found.pages - gauge.moved.blocks);
            self.put_all(machine, pcp, &found);
        }
        true
    }

    /// Adds all pages of `found`, the free pages of one block, to `pcp`: to the bitmap of the
    /// block, or to the page lists.
    pub(super) fn put_all(&self, machine: &M, pcp: &mut Pcp, found: &Record) {
        let (first, _) = self.owners.group_of(self.owners.first_page(found.block));
        for (index, &bits) in (0..).zip(&found.bits.0) {
            if bits != 0 {
                self.put(machine, pcp, first.after(index), bits);
            }
        }
    }

    /// Makes this CPU the owner of the block around a page that leaves the zone, if the block has
    /// no owner. The caller holds the zone lock.
    #[cold]
    pub(in crate::page) fn adopt(&self, machine: &M, page: u32, order: Order) {
        let block = self.owners.block_of(page);
        if order < self.owners.order() && self.owners.owner(block).is_none() {
            self.owners.provide_mail(machine, block);
            self.owners.set_owner(block, machine.this_cpu(), None);
        }
    }
}
