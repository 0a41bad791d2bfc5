//! Mapping a huge page where no page table is in use.
//!
//! Locks: `UpperTable`, then `PageTable`. Pages are allocated before these locks are taken, and
//! freed after the locks are released.

use super::table::Spares;
use super::{Attempt, Faulted};
use crate::machine::{Lock, Machine};
use crate::page::watermark::Urgency;
use crate::site::{Site, Work};
use crate::space::error::FaultError;
use crate::space::memory::Memory;
use crate::space::page_table::{ENTRIES, Page, PageKind, Spot, What};
use crate::space::rss::RssKind;
use crate::space::{AddressSpace, Flag};
use crate::units::{Order, Pages, Vpn};
use crate::vmstat::counters::{NodeItem, ZoneItem};

impl<M: Machine> AddressSpace<M> {
    /// Maps the huge page that contains `page`. Returns `None` if a page table is in use where the
    /// huge page would be mapped.
    pub(super) fn fault_whole(
        &self,
        memory: Memory<'_, M>,
        page: Vpn,
        version: u64,
        kind: PageKind,
    ) -> Result<Option<Attempt>, FaultError> {
        let machine = memory.machine;
        let spot = self.table.spot(machine, page)?;
        if spot.leaf.is_huge() {
            return Ok(Some(Attempt::Done(Faulted::Already)));
        }
        if kind == PageKind::Anon && self.has(machine, Flag::Unstable) {
            return Err(FaultError::Unstable(page));
        }
        let Pages(pages) = Order::HUGE.pages();
        let charged = if kind == PageKind::Anon {
            u64::from(pages)
        } else {
            0
        };
        if let Some(budget) = &self.budget {
            budget.charge(machine, charged)?;
        }
        let outcome = self.install_whole(memory, spot, page, version, kind);
        if !matches!(outcome, Ok(Some(Attempt::Done(Faulted::Huge)))) {
            self.uncharge(machine, charged);
        }
        outcome
    }

    fn install_whole(
        &self,
        memory: Memory<'_, M>,
        spot: Spot<'_, M>,
        page: Vpn,
        version: u64,
        kind: PageKind,
    ) -> Result<Option<Attempt>, FaultError> {
        let machine = memory.machine;
        // Splitting the huge page will need a page table, so a page for this table is allocated and
        // kept, too.
        let mut spares = self.spares(memory, spot)?;
        let request = self.request(machine, Order::HUGE).urgent(Urgency::NoWait);
        let block = memory.manager.pages().alloc(machine, request);
        let outcome = block.map_err(FaultError::OutOfMemory).and_then(|pfn| {
            // Report the work of 512 faults: clearing a page is most of the work of a fault, and
            // this fault clears 512 pages.
            machine.spend(Work::Fault, ENTRIES);
            memory.spaces.clear_huge(machine, pfn);
            let whole = Page { pfn, kind };
            let outcome = self.put_whole(memory, spot, whole, version, &mut spares);
            if let Ok(Some(Attempt::Done(Faulted::Huge))) = outcome {
                self.count_whole(memory, whole);
            } else {
                memory.give_back_block(pfn, Order::HUGE);
            }
            outcome.map_err(|_unstable| FaultError::Unstable(page))
        });
        spares.give_back(memory);
        outcome
    }

    fn put_whole(
        &self,
        memory: Memory<'_, M>,
        spot: Spot<'_, M>,
        whole: Page,
        version: u64,
        spares: &mut Spares,
    ) -> Result<Option<Attempt>, Unstable> {
        let machine = memory.machine;
        let private = whole.kind == PageKind::Anon;
        spot.upper.frame.with(machine, Site::Fault, |upper| {
            spot.leaf.entries.with(machine, Site::Fault, |entries| {
                let made = match entries.what() {
                    What::Huge(_) => return Ok(Some(Attempt::Done(Faulted::Already))),
                    What::Nothing => {
                        let Some(blank) = spares.table.take() else {
                            return Ok(None);
                        };
                        entries.provide(blank);
                        1
                    }
                    // An earlier mapping has left this empty table. Keep it for a later split of
                    // the huge page, just as a new table would be kept.
                    What::Table if entries.used() == 0 => 0,
                    What::Table => return Ok(None),
                };
                spot.leaf.set_huge(entries, whole);
                self.own_no_part(memory, whole);
                self.table.count(machine, made);
                // A CPU that unmaps removes the mapping first, and a CPU that reaps raises
                // `Unstable` first. Only then does such a CPU look for huge pages, without a lock.
                // Here the huge page is already in its place. So either the checks below see the
                // CPU's change, or that CPU sees the huge page.
                let refused = if private && self.has(machine, Flag::Unstable) {
                    Err(Unstable)
                } else if self.tree.version() != version {
                    Ok(Some(Attempt::Again))
                } else {
                    self.put_upper(machine, spot, upper, spares);
                    return Ok(Some(Attempt::Done(Faulted::Huge)));
                };
                if made == 0 {
                    spot.leaf.go_live(entries);
                } else {
                    spares.table = spot.leaf.take_blank(entries);
                    self.table.count(machine, -made);
                }
                refused
            })
        })
    }

    fn count_whole(&self, memory: Memory<'_, M>, whole: Page) {
        let Memory {
            machine,
            manager,
            spaces,
        } = memory;
        if whole.kind != PageKind::Anon {
            return;
        }
        let Pages(pages) = Order::HUGE.pages();
        let pages = i64::from(pages);
        self.rss.add_growing(machine, RssKind::Anon, pages);
        manager.count_each_on_nodes(machine, &[whole.pfn], NodeItem::AnonMapped, pages);
        manager
            .pages()
            .count(machine, whole.pfn, ZoneItem::Anon, pages);
        spaces.lru.add(machine, manager.pages(), whole.pfn);
    }
}

/// The error of a fault in an address space that is being reaped (Linux: `MMF_UNSTABLE`).
struct Unstable;
