//! Adding and removing mappings (Linux: `do_mmap`, `do_munmap`).
//!
//! A CPU that adds a mapping holds the lock of the mappings as the writer. A CPU that unmaps takes
//! the mappings out of the tree as the writer, then lets readers in, and empties page tables as one
//! of the readers. A fault may have read the tree before the removal, but the fault checks the tree
//! again under the lock of its page table. So either the fault maps its page before the table is
//! emptied, or it finds that the mapping no longer exists. A CPU that replaces mappings remains the
//! writer until it has emptied their page tables.
//!
//! Locks: `Mmap`, then the locks that `zap` takes.

use core::ops::Range;

use super::error::MapError;
use super::gather::Gather;
use super::mapping::{Backing, Mappings};
use super::memory::Memory;
use super::page_table::{ENTRIES, first_page, table_of};
use super::vma_tree::{Cursor, Vma, VmaError};
use super::{AddressSpace, END, Flag};
use crate::machine::{Field, Machine, RwLock};
use crate::site::{Site, Work};
use crate::units::{Pfn, Vpn};

/// A request for a new mapping: its place, its length and its backing.
#[derive(Debug)]
pub struct MapRequest<M: Machine> {
    /// The place of the mapping.
    pub place: Place,
    /// The number of pages of the mapping, at least 1.
    pub pages: u64,
    /// The memory that is mapped.
    pub backing: Backing<M>,
}

impl<M: Machine> MapRequest<M> {
    /// Makes a request for `pages` pages of anonymous memory that uses no huge pages.
    #[must_use]
    pub const fn anonymous(place: Place, pages: u64) -> Self {
        let backing = Backing::Anonymous { huge: false };
        Self {
            place,
            pages,
            backing,
        }
    }
}

/// The place of a new mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The mapping goes into the lowest gap that is large enough (Linux: bottom-up).
    Lowest,
    /// The mapping goes into the highest gap that is large enough (Linux: top-down, the usual way).
    Highest,
    /// The mapping begins at this page, if nothing is mapped there (Linux: `MAP_FIXED_NOREPLACE`).
    Fixed(Vpn),
    /// The mapping begins at this page, and replaces the mappings there (Linux: `MAP_FIXED`).
    Replace(Vpn),
}

/// The number of pages of a huge page.
const HUGE: u64 = ENTRIES as u64;

/// The lowest page at which [`Place::Lowest`] and [`Place::Highest`] may put a mapping (Linux:
/// `vm.mmap_min_addr`, 64 KiB).
const LOWEST: Vpn = Vpn(16);

impl<M: Machine> AddressSpace<M> {
    /// Adds a mapping, none of whose pages is resident yet. Anonymous memory is merged with
    /// adjacent mappings of its kind.
    ///
    /// # Errors
    /// [`MapError`] if the mapping cannot be added. In that case the address space is unchanged.
    pub fn map(&self, memory: Memory<'_, M>, request: MapRequest<M>) -> Result<Vma, MapError> {
        request.check()?;
        let machine = memory.machine;
        let killed = || self.has(machine, Flag::Killed);
        self.mappings
            .write_killable(machine, Site::Mmap, killed, |mappings| {
                self.map_alone(memory, mappings, request)
            })
            .unwrap_or(Err(MapError::Killed))
    }

    /// Unmaps everything that is mapped in the `pages` pages from `start`, and frees those unmapped
    /// pages that the space owns.
    ///
    /// # Errors
    /// [`MapError`] if the pages cannot be unmapped. In that case the address space is unchanged. A
    /// range without mappings is no error.
    pub fn unmap(&self, memory: Memory<'_, M>, start: Vpn, pages: u64) -> Result<(), MapError> {
        let range = range(start, pages)?;
        let machine = memory.machine;
        let killed = || self.has(machine, Flag::Killed);
        let mut outcome = Ok(());
        let waited = self.mappings.write_then_read(
            machine,
            Site::Munmap,
            killed,
            |mappings| {
                outcome = self.take_out(memory, mappings, &range);
                outcome.is_ok().then_some(())
            },
            |_, ()| self.empty(memory, &range),
        );
        waited.map_or(Err(MapError::Killed), |_| outcome)
    }

    fn map_alone(
        &self,
        memory: Memory<'_, M>,
        mappings: &mut Mappings<M>,
        request: MapRequest<M>,
    ) -> Result<Vma, MapError> {
        let machine = memory.machine;
        if self.has(machine, Flag::Exiting) {
            return Err(MapError::Ended);
        }
        if !matches!(request.place, Place::Replace(_)) {
            self.check_room(mappings, 1)?;
        }
        machine.spend(Work::MapEdit, 1);
        let start = self.place(mappings, &request)?;
        let pages = range(start, request.pages)?;
        request.check_at(start)?;
        let id = mappings.sources.adopt(request.backing, start)?;
        let end = pages.end;
        let new = Vma { start, end, id };
        let added = match request.place {
            Place::Replace(_) => self.replace(memory, mappings, new),
            _ => self
                .join_or_insert(machine, mappings, new)
                .map_err(MapError::from),
        };
        if added.is_err() {
            mappings.sources.count_pieces(&new, -1);
        }
        added
    }

    /// Puts `new` in place of the mappings in its range, if there are any, and frees the pages of
    /// those mappings.
    fn replace(
        &self,
        memory: Memory<'_, M>,
        mappings: &mut Mappings<M>,
        new: Vma,
    ) -> Result<Vma, MapError> {
        let pages = new.start..new.end;
        let removal = self.removal(memory, &pages)?;
        self.check_room(mappings, removal.more + 1)?;
        let Mappings { editor, sources } = mappings;
        // Emptying the range unmaps every page in it. If a fault mapped a page of the new mapping
        // now, that page would be lost. So faults wait while `replacing` is set: see
        // `fault::version`.
        self.replacing.set(1);
        let stored = self.tree.store(memory.machine, editor, new, |piece| {
            sources.count_pieces(&piece, removal.change(&piece));
        });
        if stored.is_ok() {
            self.empty(memory, &pages);
        }
        self.replacing.set(0);
        stored?;
        Ok(new)
    }

    fn place(&self, mappings: &Mappings<M>, request: &MapRequest<M>) -> Result<Vpn, MapError> {
        let (tree, editor) = (&self.tree, &mappings.editor);
        let align = request.align();
        // Look for a gap in which the pages still fit if the start is moved up to an aligned page.
        let pages = request.pages + align - 1;
        let no_room = MapError::NoRoom(request.pages);
        match request.place {
            Place::Fixed(start) | Place::Replace(start) => Ok(start),
            Place::Lowest => {
                let gap = tree.lowest_gap(editor, pages, LOWEST..END).ok_or(no_room)?;
                Ok(Vpn(gap.0.next_multiple_of(align)))
            }
            Place::Highest => {
                let gap = tree
                    .highest_gap(editor, pages, LOWEST..END)
                    .ok_or(no_room)?;
                Ok(Vpn(gap.0.next_multiple_of(align)))
            }
        }
    }

    /// Adds `new`. If its pages are anonymous memory or reserved huge pages, merges `new` with each
    /// adjacent mapping of the same kind. Mappings of the same kind have the same id.
    fn join_or_insert(
        &self,
        machine: &M,
        mappings: &mut Mappings<M>,
        new: Vma,
    ) -> Result<Vma, VmaError> {
        let has_source = mappings.source(&new).is_some();
        let alike = |other: &Vma| !has_source && other.id == new.id;
        let neighbour = |page: Option<u64>| {
            let found = page.and_then(|page| self.tree.find(Vpn(page)).ok().flatten());
            found.filter(alike)
        };
        let inside = self.tree.next(new.start).ok().flatten();
        if let Some(there) = inside.filter(|there| there.start < new.end) {
            return Err(VmaError::Overlaps(there));
        }
        let before = neighbour(new.start.0.checked_sub(1));
        let after = neighbour(Some(new.end.0));
        let editor = &mut mappings.editor;
        let joined = Vma {
            start: before.map_or(new.start, |before| before.start),
            end: after.map_or(new.end, |after| after.end),
            id: new.id,
        };
        match (before, after) {
            (None, None) => self.tree.insert(machine, editor, new)?,
            (Some(before), None) => self.tree.resize(machine, editor, before.start, joined)?,
            (None, Some(after)) => self.tree.resize(machine, editor, after.start, joined)?,
            (Some(_), Some(_)) => self.tree.store(machine, editor, joined, |_| {})?,
        }
        Ok(joined)
    }

    /// Takes the mappings in `pages` out of the tree.
    fn take_out(
        &self,
        memory: Memory<'_, M>,
        mappings: &mut Mappings<M>,
        pages: &Range<Vpn>,
    ) -> Result<(), MapError> {
        if self.has(memory.machine, Flag::Exiting) {
            return Err(MapError::Ended);
        }
        let removal = self.removal(memory, pages)?;
        self.check_room(mappings, removal.more)?;
        let Mappings { editor, sources } = mappings;
        self.tree
            .clear(memory.machine, editor, pages.clone(), |piece| {
                sources.count_pieces(&piece, removal.change(&piece));
            })?;
        Ok(())
    }

    /// Checks that the address space may have `more` mappings in addition to its current ones.
    fn check_room(&self, mappings: &Mappings<M>, more: i32) -> Result<(), MapError> {
        let max = self.mappings_max;
        if mappings.editor.mappings().saturating_add_signed(more) <= max {
            return Ok(());
        }
        Err(MapError::TooMany(max as usize))
    }

    /// Returns the effect that removing `pages` will have on mappings and on their sources (files,
    /// shared memory or frames). Changes nothing.
    fn removal(&self, memory: Memory<'_, M>, pages: &Range<Vpn>) -> Result<Removal, MapError> {
        let mut removal = Removal {
            before: None,
            after: None,
            more: 0,
        };
        let mut edits = 0;
        let mut cursor = Cursor::at(&self.tree, pages.start);
        while let Ok(Some(vma)) = cursor.forward() {
            if vma.start >= pages.end {
                break;
            }
            check_pieces(&vma, pages)?;
            edits += 1;
            if vma.start < pages.start {
                removal.before = Some(pages.start);
                removal.more += 1;
            }
            if vma.end > pages.end {
                removal.after = Some(pages.end);
                removal.more += 1;
            }
            removal.more -= 1;
        }
        memory.machine.spend(Work::MapEdit, edits);
        Ok(removal)
    }

    /// Empties the page tables of `pages`, which are no longer mapped, and frees tables that no
    /// mapping needs.
    fn empty(&self, memory: Memory<'_, M>, pages: &Range<Vpn>) {
        let machine = memory.machine;
        self.table.catch_up(machine);
        self.announce(machine, pages);
        let mut gather = Gather::of_living(memory, self);
        self.unmap_range(&mut gather, pages.clone(), Site::Munmap);
        self.announce_end(machine, pages);
        self.free_spare_tables(&mut gather, pages);
        gather.finish();
    }

    /// Frees the page tables of the range `pages` in which no mapping is left (Linux:
    /// `free_pgtables`).
    fn free_spare_tables(&self, gather: &mut Gather<'_, M>, pages: &Range<Vpn>) {
        let machine = gather.memory().machine;
        let mut index = table_of(pages.start);
        while let Some(spot) = self.table.next(index) {
            if spot.start() >= pages.end {
                return;
            }
            index = spot.index + 1;
            let next = self.tree.next(spot.start());
            let is_needed = matches!(next, Ok(Some(vma)) if vma.start < first_page(index));
            if !is_needed && let Some(frame) = self.take_table(machine, spot, Site::Munmap) {
                gather.add_table_flushing(frame);
            }
        }
    }
}

/// The effect of removing mappings, or parts of them.
struct Removal {
    /// The start of the first removed piece, if its mapping begins before the removed range.
    before: Option<Vpn>,
    /// The end of the last removed piece, if its mapping continues after the removed range.
    after: Option<Vpn>,
    /// The change of the number of mappings; negative if fewer remain.
    more: i32,
}

impl Removal {
    /// Returns by how much removing `piece` changes the number of mappings that get their pages
    /// from the same file, shared memory or frames.
    fn change(&self, piece: &Vma) -> i32 {
        let rest_before = self.before == Some(piece.start);
        let rest_after = self.after == Some(piece.end);
        i32::from(rest_before) + i32::from(rest_after) - 1
    }
}

impl<M: Machine> MapRequest<M> {
    /// Returns the alignment that the mapping needs, in pages.
    fn align(&self) -> u64 {
        match self.backing {
            Backing::Reserved => HUGE,
            _ => 1,
        }
    }

    /// Checks the parts of the request that do not depend on the address space.
    fn check(&self) -> Result<(), MapError> {
        if let Place::Fixed(start) | Place::Replace(start) = self.place {
            range(start, self.pages)?;
            self.check_at(start)?;
        } else {
            range(Vpn(0), self.pages)?;
        }
        match self.backing {
            Backing::Reserved if !self.pages.is_multiple_of(HUGE) => Err(MapError::Unaligned {
                page: Vpn(self.pages),
                align: HUGE,
            }),
            Backing::Frames { first: Pfn(first) }
                if u64::from(first) + self.pages > 1 << u32::BITS =>
            {
                Err(MapError::NoSuchFrames)
            }
            Backing::PrivateFile { offset, .. } | Backing::Shared { offset, .. }
                if offset.checked_add(self.pages).is_none() =>
            {
                Err(MapError::NoSuchFrames)
            }
            _ => Ok(()),
        }
    }

    fn check_at(&self, start: Vpn) -> Result<(), MapError> {
        let align = self.align();
        if start.0.is_multiple_of(align) {
            return Ok(());
        }
        Err(MapError::Unaligned { page: start, align })
    }
}

/// Checks that removing `pages` splits no huge page of a reserved mapping.
fn check_pieces(vma: &Vma, pages: &Range<Vpn>) -> Result<(), MapError> {
    if super::MappingKind::of(vma) != super::MappingKind::Reserved {
        return Ok(());
    }
    for page in [pages.start.max(vma.start), pages.end.min(vma.end)] {
        if !page.0.is_multiple_of(HUGE) {
            let align = HUGE;
            return Err(MapError::Unaligned { page, align });
        }
    }
    Ok(())
}

/// Returns the `pages` pages from `start`, if they end within the address space.
fn range(start: Vpn, pages: u64) -> Result<Range<Vpn>, MapError> {
    if pages == 0 {
        return Err(MapError::Empty);
    }
    match start.0.checked_add(pages) {
        Some(end) if end <= END.0 => Ok(start..Vpn(end)),
        _ => Err(MapError::TooHigh { start, pages }),
    }
}

impl From<VmaError> for MapError {
    fn from(error: VmaError) -> Self {
        match error {
            VmaError::Overlaps(vma) => Self::Overlaps(vma),
            VmaError::Empty(_) => Self::Empty,
            VmaError::Unordered(vma) | VmaError::TooLong(vma) | VmaError::TooHigh(vma) => {
                let pages = vma.end.0.saturating_sub(vma.start.0);
                Self::TooHigh {
                    start: vma.start,
                    pages,
                }
            }
            VmaError::IdTooLarge(_) | VmaError::NotMapped(_) | VmaError::NoMemory => Self::NoMemory,
        }
    }
}
