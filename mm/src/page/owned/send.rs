//! Frees pages of blocks that have an owner: under the lock of the owner's page lists, or through
//! the owner's inbox.
//!
//! Locks: a CPU that sends pages to an inbox takes no lock, unless the inbox becomes too full. Then
//! the CPU takes the owner's pcp lock and empties the inbox for the owner. In the variant proposed
//! for Linux, a CPU that frees pages takes the owner's pcp lock for each run of pages. This CPU
//! never holds its own pcp lock at the same time.

use super::inbox::Group;
use super::stock::Record;
use crate::machine::{CpuLock, LocalWord, Machine, Tags};
use crate::page::free::Excess;
use crate::page::hold::Part;
use crate::page::mobility::Mobility;
use crate::page::pcp::{Pcp, list_of};
use crate::page::tag;
use crate::page::zone::Zone;
use crate::site::{Site, Work};
use crate::units::{CpuId, Order, count_in, count_of};

/// If an owner's inbox has this many groups of 64 pages, the CPU that sends pages empties the inbox
/// for the owner. If `high_max` is small, the CPU does so earlier.
const WAITING_MAX: u32 = 64;

impl<M: Machine> Zone<M> {
    /// Frees blocks of one order, given by their first `pages`. Each block goes to the CPU that
    /// owns the larger block around it or, if there is no such CPU, to this CPU's lists. If the
    /// type `forced` is given, all blocks go to this CPU's list of that type.
    #[inline]
    pub(in crate::page) fn free_listed(
        &self,
        machine: &M,
        pages: &[u32],
        order: Order,
        forced: Option<Mobility>,
    ) {
        if self.owners.is_on() && forced.is_none() && order < self.owners.order() {
            self.free_by_owner(machine, pages, order);
        } else {
            self.free_here(machine, pages, order, forced);
        }
    }

    #[inline(never)]
    fn free_by_owner(&self, machine: &M, pages: &[u32], order: Order) {
        let here = machine.this_cpu();
        let elsewhere = |page: u32| {
            let owner = self.owners.owner(self.owners.block_of(page));
            owner.filter(|owner| *owner != here)
        };
        let mut rest = pages;
        while let Some(&first) = rest.first() {
            let owner = elsewhere(first);
            let run = rest.iter().take_while(|page| elsewhere(**page) == owner);
            // `run` has the pages at the start of `rest` whose blocks have the same owner. The
            // owner of the first page's block may have changed since this CPU read it above, so
            // `run` may be empty. In that case, the first page alone is freed.
            let (run, others) = rest.split_at(run.count().max(1));
            match owner {
                None => self.free_here(machine, run, order, None),
                Some(owner) if self.owners.has_inboxes() => {
                    self.send(machine, owner, run, order);
                }
                Some(owner) => self.free_at(machine, owner, run, order),
            }
            rest = others;
        }
    }

    /// Frees blocks by putting them into the inbox of `owner`, the CPU that owns the larger block
    /// around them.
    fn send(&self, machine: &M, owner: CpuId, pages: &[u32], order: Order) {
        machine.spend(Work::PcpFree, count_of(pages.len()));
        let sizes = self.sizes(machine);
        let full = u64::from((sizes.high_max.0 / 64).clamp(2, WAITING_MAX));
        let each = u64::MAX >> (64 - order.pages().0);
        let mut rest = pages;
        while let Some(&first) = rest.first() {
            let (group, _) = self.owners.group_of(first);
            let mut bits = 0;
            let mut sent = 0;
            for &page in rest {
                let (other, bit) = self.owners.group_of(page);
                if other != group {
                    break;
                }
                bits |= each << bit;
                sent += 1;
            }
            rest = &rest[sent..];
            let waiting = self.owners.send(machine, owner, group, bits);
            if waiting.is_some() && self.owners.owner(group.block()) != Some(owner) {
                // The owner may have gone offline in the meantime, and its lists may have been
                // drained before the pages arrived. So the lists are drained again.
                self.drain_unowned(machine, owner);
            }
            // Several CPUs may push groups of pages into the inbox at once, but only one of them
            // finds exactly `full` groups in the inbox. This CPU empties the inbox.
            if waiting == Some(full) {
                self.empty_inbox(machine, owner);
            }
        }
    }

    /// Moves the pages that other CPUs have freed for `cpu` (its inbox) to the bitmaps of its
    /// blocks (its stock). Then returns whole blocks to the zone while `cpu` has more than `high`
    /// free pages. Any CPU may call this.
    #[cold]
    pub(super) fn empty_inbox(&self, machine: &M, cpu: CpuId) {
        let slot = self.slot(cpu);
        slot.pcp.with(machine, Site::PcpFree, |pcp| {
            self.bring_home(machine, pcp);
            self.trim(machine, pcp);
            slot.count.set(machine, i64::from(pcp.count()));
        });
    }

    /// Locks the page lists of the CPU `owner` and puts freed blocks on them. If the lists become
    /// too long, returns pages to the zone.
    fn free_at(&self, machine: &M, owner: CpuId, pages: &[u32], order: Order) {
        let slot = self.slot(owner);
        let part = Part::first(Site::Spill, owner);
        let mut rest = pages;
        let mut left = Excess::default();
        while !rest.is_empty() || left.pages > 0 {
            let mut pushed = 0;
            let mut has_room = true;
            let mut is_owner = true;
            left = slot.pcp.with(machine, Site::PcpFree, |pcp| {
                let first = rest.first().copied();
                is_owner = first.is_none_or(|page| {
                    self.owners.owner(self.owners.block_of(page)) == Some(owner)
                });
                let excess = if left.pages > 0 || !is_owner {
                    left
                } else {
                    let input = self.tuning_input(machine);
                    let excess = self.push_run(pcp, rest, order, None, &input, &mut pushed);
                    // This work is done under the owner's pcp lock, so the owner waits for it. The
                    // patches that proposed owners of blocks for Linux do the same.
                    machine.spend(Work::PcpFree, pushed);
                    has_room = pushed > 0;
                    let (pages, list) = excess.unwrap_or_default();
                    let owed = if pages > 0 {
                        slot.owed.take(machine)
                    } else {
                        0
                    };
                    Excess {
                        pages: pages + count_in(owed),
                        list,
                        given: 0,
                    }
                };
                let left = self.spill_hold(machine, pcp, part, excess);
                slot.count.set(machine, i64::from(pcp.count()));
                left
            });
            rest = &rest[pushed as usize..];
            if !is_owner {
                // The CPU to which the pages were to be sent no longer owns the block, so the pages
                // go to this CPU's lists.
                self.free_here(machine, rest, order, None);
                rest = &[];
            }
            if let Some(&first) = rest.first().filter(|_| !has_room) {
                self.free_direct(machine, first, order);
                rest = &rest[1..];
            }
        }
        self.notice_plenty(machine);
    }

    /// Empties the inbox of the CPU of `pcp`: moves the pages that other CPUs have freed for this
    /// CPU to the bitmaps of its blocks (`pcp.stock`). Before the caller releases the pcp lock, it
    /// stores the number of pages of `pcp` for CPUs that read this number without the lock.
    pub(in crate::page) fn bring_home(&self, machine: &M, pcp: &mut Pcp) {
        let cpu = pcp.stock.cpu;
        // If a drain finds the inbox empty and the stored number of pages zero, it does not wait
        // for the pcp lock. So the stored number must not be zero while pages move from the inbox
        // to the lists.
        let count = pcp.count().max(1);
        self.slot(cpu).count.set(machine, i64::from(count));
        let mut pages = 0;
        self.owners.collect(machine, cpu, |group, bits| {
            self.put(machine, pcp, group, bits);
            pages += bits.count_ones();
        });
        machine.spend(Work::Compare, pages);
    }

    /// Adds free pages to `pcp.stock` (the bitmaps of the CPU's own blocks), or else to the page
    /// lists of `pcp`. The free pages are on no list yet. All are of the same group of 64 pages.
    pub(super) fn put(&self, machine: &M, pcp: &mut Pcp, group: Group, bits: u64) {
        if !self.try_put(pcp, group, bits) {
            self.list(machine, pcp, group, bits);
        }
    }

    /// Adds free pages to `pcp.stock` (the bitmaps of the CPU's own blocks). The free pages are on
    /// no list yet. All are of the same group of 64 pages. Returns `false`, and does nothing, if
    /// the CPU does not own the block of these pages, or has no room for this block's bitmap.
    pub(super) fn try_put(&self, pcp: &mut Pcp, group: Group, bits: u64) -> bool {
        let Some(at) = self.record_of(pcp, group.block()) else {
            return false;
        };
        let record = &mut pcp.stock.parts[at];
        record.add(group.index(), bits);
        let is_whole = record.pages == self.owners.order().pages().0;
        pcp.count += bits.count_ones();
        if is_whole && pcp.stock.has_room_for_whole() {
            let record = self.remove(pcp, at);
            pcp.stock.whole.push((record.block, record.kind));
        }
        true
    }

    /// The index, in `pcp.stock`, of the record of `block`: the bitmap of the block's free pages.
    /// Makes a record if there is none. Returns `None` if the CPU of `pcp` does not own the block,
    /// or has no room for a record.
    fn record_of(&self, pcp: &mut Pcp, block: u32) -> Option<usize> {
        let (owner, record) = self.owners.of_entry(block);
        if owner != Some(pcp.stock.cpu) {
            return None;
        }
        record.or_else(|| {
            let kind = self.kind_of(block);
            pcp.stock
                .has_room()
                .then(|| self.insert(pcp, Record::empty(block, kind)))
        })
    }

    /// The mobility of the page lists that the pages of a block go to.
    pub(super) fn kind_of(&self, block: u32) -> Mobility {
        self.types.of(self.owners.first_page(block)).listed()
    }

    /// Adds the record of a block's free pages to `pcp.stock`, which must have room for it. Returns
    /// the record's index.
    pub(super) fn insert(&self, pcp: &mut Pcp, record: Record) -> usize {
        let stock = &mut pcp.stock;
        let at = stock.parts.len();
        self.owners.set_owner(record.block, stock.cpu, Some(at));
        stock.parts.push(record);
        at
    }

    /// Removes the record of a block's free pages from `pcp.stock`. The CPU remains the owner of
    /// the block.
    pub(super) fn remove(&self, pcp: &mut Pcp, at: usize) -> Record {
        let stock = &mut pcp.stock;
        let record = stock.parts.swap_remove(at);
        self.owners.set_owner(record.block, stock.cpu, None);
        if let Some(moved) = stock.parts.get(at) {
            self.owners.set_owner(moved.block, stock.cpu, Some(at));
        }
        record
    }

    /// Puts pages of one group of 64 pages on the page lists one by one. If a list has no room, the
    /// page goes to the zone.
    #[cold]
    fn list(&self, machine: &M, pcp: &mut Pcp, group: Group, bits: u64) {
        let first = self.owners.page_of(group);
        for page in (0..64).filter(|bit| bits >> bit & 1 == 1) {
            let page = first + page;
            self.tags.set(page, tag::listed(Order::ZERO));
            let list = list_of(Order::ZERO, self.types.of(page));
            let listed = list.is_some_and(|list| pcp.push(list, Order::ZERO, page));
            if !listed {
                self.free_direct(machine, page, Order::ZERO);
            }
        }
    }
}
