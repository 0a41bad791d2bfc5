//! Taking a block from another CPU, and taking ownership away from a CPU that is offline.
//!
//! A CPU that owns blocks and has gone idle strands their free pages. If a zone has no page for an
//! allocation, the allocation takes the free pages of one block from another CPU, together with the
//! ownership. The allocation drains the lists of all CPUs only if it finds no such block.
//!
//! Locks: the other CPU's pcp lock and, after its release, this CPU's pcp lock.

use super::stock::Record;
use crate::machine::{CpuLock, LocalWord, Machine};
use crate::page::PageAllocator;
use crate::page::hold::Part;
use crate::page::pcp::Pcp;
use crate::page::zone::{Zone, ZoneRequest};
use crate::site::{Site, Work};
use crate::units::CpuId;

/// The maximum number of CPUs among which an allocation looks for a block, its own CPU included.
const LOOKED_AT: u32 = 32;

/// The maximum number of blocks that lose their owner under one hold of the pcp lock and the zone
/// lock, when a CPU goes offline.
const AT_ONCE: u32 = 64;

impl<M: Machine> PageAllocator<M> {
    /// Takes the ownership of all blocks away from `cpu`, which has gone offline. Drains the page
    /// lists of `cpu`.
    pub(crate) fn disown(&self, machine: &M, cpu: CpuId) {
        for zone in self.zones().iter().filter(|zone| zone.owners.is_on()) {
            // The loop ends: the drain removes all records of the CPU's free pages, so the next
            // turn takes the ownership of their blocks away. `cpu` gets no further block. Only
            // pages that were sent to `cpu` before its blocks lost their owner can make new
            // records.
            loop {
                zone.disown(machine, cpu);
                // Another CPU may have sent pages to `cpu` just before the blocks lost their owner.
                zone.wait_for_spills(machine);
                zone.drain_unowned(machine, cpu);
                if !zone.owners.owns(cpu) {
                    break;
                }
            }
        }
    }

    /// Returns whether `cpu` owns a block of any zone.
    #[cfg(feature = "laws")]
    pub(crate) fn owns_blocks(&self, cpu: CpuId) -> bool {
        self.zones().iter().any(|zone| zone.owners.owns(cpu))
    }
}

impl<M: Machine> Zone<M> {
    /// Drains the lists of `cpu`, and its inbox (the pages that other CPUs have freed for `cpu`).
    /// The caller has taken the ownership of blocks away from `cpu`.
    pub(super) fn drain_unowned(&self, machine: &M, cpu: CpuId) {
        self.owners.show_loss(machine, cpu);
        self.drain(machine, cpu);
    }

    /// Waits until every spill or decay that has begun has released the pcp lock of its CPU. Such a
    /// CPU may have sent pages to the inbox of a CPU that has gone offline. It could not drain the
    /// lists of that CPU itself, because it already holds its own pcp lock. After this call, the
    /// pages are in the inbox, and later spills and decays see the owners that the caller sees.
    fn wait_for_spills(&self, machine: &M) {
        for cpu in machine.topology().ids() {
            self.slot(cpu).pcp.with(machine, Site::Control, |_| {});
        }
    }

    /// Takes the free pages of one block from another CPU, and allocates from them. Returns `None`
    /// if it finds no CPU with pages for the request.
    #[cold]
    pub(in crate::page) fn rob(&self, machine: &M, list: usize, ask: ZoneRequest) -> Option<u32> {
        if ask.order >= self.owners.order() {
            return None;
        }
        let mut left = Some(self.find_victim(machine, ask)?);
        // `find_victim` has made a CPU the owner of the block. Since then, the task may have moved
        // to another CPU, and the owner may even have gone offline. In these cases, the pages go
        // onto the lists of the CPU that runs the task now.
        let thief = machine.this_cpu();
        let slot = self.slot(thief);
        let page = slot.pcp.try_local(machine, Site::PcpAlloc, |pcp| {
            self.put_all(machine, pcp, &left.take()?);
            let page = pcp.pop(list, ask.order).or_else(|| {
                self.refill_at_home(machine, pcp, list, ask);
                pcp.pop(list, ask.order)
            });
            slot.count.set(machine, i64::from(pcp.count()));
            page
        });
        if let Some(record) = left {
            // Another CPU is draining this CPU's lists, so the pages go to the zone.
            let part = Part::first(Site::Drain, thief);
            self.give_record(machine, part, record);
        }
        page.flatten()
    }

    /// Looks for a CPU that has at least a batch of pages, or pages that other CPUs have freed for
    /// it (its inbox). The pages of that CPU must include a block that can serve `ask`. Removes the
    /// record of this block's free pages from that CPU's `stock`, and makes the calling CPU the
    /// owner of the block.
    fn find_victim(&self, machine: &M, ask: ZoneRequest) -> Option<Record> {
        let cpus = machine.topology().cpus();
        let first = machine.this_cpu();
        let batch = i64::from(self.sizes(machine).batch.0);
        for step in 1..cpus.min(LOOKED_AT) {
            let cpu = CpuId((first.0 + step) % cpus);
            machine.spend(Work::ScanCpu, 1);
            let slot = self.slot(cpu);
            if slot.count.read(machine) < batch && !self.owners.has_mail(machine, cpu) {
                continue;
            }
            let found = slot.pcp.with(machine, Site::Drain, |pcp| {
                self.bring_home(machine, pcp);
                // The task cannot move to another CPU inside this closure. So the CPU that becomes
                // the owner of the block is online.
                let found = self.take_record(pcp, machine.this_cpu(), ask);
                slot.count.set(machine, i64::from(pcp.count()));
                found
            });
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Takes the free pages of one block from `pcp.stock`, the free pages of the CPU's own blocks.
    /// Chooses a block whose free pages can serve `ask`, and makes `thief` the owner of that block.
    fn take_record(&self, pcp: &mut Pcp, thief: CpuId, ask: ZoneRequest) -> Option<Record> {
        let kind = ask.mobility.listed();
        if let Some(at) = pcp.stock.whole.iter().position(|whole| whole.1 == kind) {
            let (block, kind) = pcp.stock.whole.swap_remove(at);
            self.owners.set_owner(block, thief, None);
            pcp.count -= self.owners.order().pages().0;
            return Some(Record::whole(block, kind, self.owners.order()));
        }
        let at = pcp.stock.fullest()?;
        let record = pcp.stock.parts[at];
        let can_serve = record.kind == kind && record.has(ask.order);
        can_serve.then(|| {
            let record = self.remove(pcp, at);
            self.owners.set_owner(record.block, thief, None);
            pcp.count -= record.pages;
            record
        })
    }

    /// Takes the ownership of all blocks away from `cpu`, except blocks of which `cpu` keeps free
    /// pages (as a record in its `stock`). When a CPU goes offline, its pages are drained first. It
    /// has such a record only if pages of the block were freed after the drain, and another CPU has
    /// emptied the inbox of `cpu`.
    fn disown(&self, machine: &M, cpu: CpuId) {
        let slot = self.slot(cpu);
        let all = self.owners.blocks();
        for from in all.clone().step_by(AT_ONCE as usize) {
            let some = from..(from + AT_ONCE).min(all.end);
            let is_owned = |block: &u32| self.owners.of_entry(*block) == (Some(cpu), None);
            if !some.clone().any(|block| is_owned(&block)) {
                continue;
            }
            slot.pcp.with(machine, Site::Control, |_| {
                // The zone lock keeps other CPUs from claiming one of these blocks between the
                // check and the change.
                self.locked(machine, Site::Control, |_| {
                    some.filter(is_owned)
                        .for_each(|block| self.owners.clear_owner(block));
                });
            });
        }
    }
}
