//! Mapping a page while holding the lock of the mappings as a reader. Every fault on a page of a
//! file, of shared memory or of a device does this. So does any fault that had to start over too
//! often because the mappings changed.
//!
//! Locks: `Mmap` as a reader. While a CPU holds this lock, it takes `Object`, and the locks under
//! which a table is made and filled (`UpperTable`, `PageTable`). It never holds `Object` together
//! with one of these.

use super::{Access, Attempt, Faulted};
use crate::machine::{Lock, Machine, Once, RwLock};
use crate::site::{Site, Work};
use crate::space::cached::Found;
use crate::space::error::FaultError;
use crate::space::mapping::Mappings;
use crate::space::memory::Memory;
use crate::space::page_table::{Entries, Entry, Page, PageKind, What};
use crate::space::rmap::Owner;
use crate::space::{AddressSpace, Flag, MappingKind};
use crate::units::{Order, Pfn, Vpn, narrow};

impl<M: Machine> AddressSpace<M> {
    /// Maps a page of any kind while holding the lock of the mappings as a reader, so that no CPU
    /// changes the mappings during the fault.
    pub(super) fn fault_sourced(
        &self,
        memory: Memory<'_, M>,
        page: Vpn,
        access: Access,
    ) -> Result<Attempt, FaultError> {
        let machine = memory.machine;
        let killed = || self.has(machine, Flag::Killed);
        self.mappings
            .read_killable(machine, Site::Fault, killed, |mappings| {
                self.fault_as_reader(memory, mappings, page, access)
            })
            .unwrap_or(Err(FaultError::Killed))
    }

    fn fault_as_reader(
        &self,
        memory: Memory<'_, M>,
        mappings: &Mappings<M>,
        page: Vpn,
        access: Access,
    ) -> Result<Attempt, FaultError> {
        let machine = memory.machine;
        let version = self.tree.version();
        let vma = self.tree.find(page).ok().flatten();
        let vma = vma.ok_or(FaultError::NotMapped(page))?;
        let kind = MappingKind::of(&vma);
        match kind {
            MappingKind::Anonymous => {
                return self.fault_huge_or_small(memory, vma, version, page);
            }
            MappingKind::Reserved => return self.fault_reserved(memory, version, page),
            MappingKind::PrivateFile | MappingKind::Shared | MappingKind::Frames => {}
        }
        let source = mappings.source(&vma);
        let source = source.expect("a mapping of these kinds has a source as long as it exists");
        let private = kind == MappingKind::PrivateFile;
        let copies = private && access == Access::Write;
        match self.entry_at(machine, page) {
            Some(Entry::Swap(_)) => return self.fill(memory, version, page),
            Some(Entry::Page(there)) if !copies || there.kind != PageKind::File => {
                return Ok(Attempt::Done(Faulted::Already));
            }
            Some(Entry::Page(_)) => return self.copy(memory, version, page),
            None if copies => return self.fill(memory, version, page),
            None => {}
        }
        if private && self.has(machine, Flag::Unstable) {
            return Err(FaultError::Unstable(page));
        }
        let found = match &source.object {
            Some(object) => {
                let request = self.request(machine, Order::ZERO);
                let found = memory.look_up(object, source.index(page), request);
                found.map_err(FaultError::from)?
            }
            // `map` has checked that the number of every frame of the mapping fits into a `Pfn`.
            None => Found::unpinned(Pfn(narrow(source.index(page)))),
        };
        let kind = match kind {
            MappingKind::PrivateFile => PageKind::File,
            MappingKind::Shared => PageKind::Shared,
            _ => PageKind::Raw,
        };
        let attempt = self.install_sourced(memory, page, &found, kind);
        if !matches!(attempt, Ok(Attempt::Done(Faulted::Mapped { .. }))) {
            memory.drop_found(&found);
        }
        attempt
    }

    /// Replaces a page of a file by a private copy, and notifies the holders of translations
    /// (Linux: MMU notifiers) before and after.
    fn copy(&self, memory: Memory<'_, M>, version: u64, page: Vpn) -> Result<Attempt, FaultError> {
        let alone = page..Vpn(page.0 + 1);
        self.announce(memory.machine, &alone);
        let copied = self.fill_replacing(memory, version, page);
        self.announce_end(memory.machine, &alone);
        copied
    }

    /// Returns the current entry of `page`, and marks the page as touched.
    fn entry_at(&self, machine: &M, page: Vpn) -> Option<Entry> {
        let spot = self.table.find(page).filter(|spot| spot.leaf.is_live())?;
        let index = spot.clip(&(page..Vpn(page.0 + 1))).start;
        let look = |entries: &mut Entries| {
            entries.touch(index);
            entries.get(index)
        };
        spot.leaf.entries.with(machine, Site::Fault, look)
    }

    fn install_sourced(
        &self,
        memory: Memory<'_, M>,
        at: Vpn,
        found: &Found,
        kind: PageKind,
    ) -> Result<Attempt, FaultError> {
        let machine = memory.machine;
        let page = Page {
            pfn: found.pfn,
            kind,
        };
        let spot = self.table.spot(machine, at)?;
        if !spot.leaf.is_live() {
            let spares = self.spares(memory, spot)?;
            if !self.add_table(memory, spot, spares) {
                return Ok(Attempt::Done(Faulted::Already));
            }
        }
        let index = spot.clip(&(at..Vpn(at.0 + 1))).start;
        let private = page.kind == PageKind::File;
        let attempt = spot.leaf.entries.with(machine, Site::Fault, |entries| {
            if private && self.has(machine, Flag::Unstable) {
                return Err(FaultError::Unstable(at));
            }
            if entries.what() != What::Table {
                return Ok(Attempt::Again);
            }
            if entries.get(index).is_some() {
                return Ok(Attempt::Done(Faulted::Already));
            }
            entries.set(index, Entry::Page(page));
            let mapper = self
                .number
                .get()
                .map_or(0, |&number| Owner::pack(number, at));
            memory.note_mapped(found, kind, mapper);
            machine.spend(Work::MinorFault, 1);
            Ok(Attempt::Done(Faulted::Mapped { swapped: false }))
        })?;
        let mapped = matches!(attempt, Attempt::Done(Faulted::Mapped { .. }));
        if let Some(kind) = page.kind.counted()
            && mapped
        {
            self.rss.add_growing(machine, kind, 1);
        }
        Ok(attempt)
    }
}
