//! The backing of a mapping, which is the source of its pages, and its encoding in the mapping's
//! id.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::error::NoMemory;
use super::object::Object;
use super::vma_tree::{Editor, Vma};
use crate::machine::Machine;
use crate::units::{Pfn, Vpn, count_of};

/// The source of the pages of a mapping.
#[derive(Debug)]
pub enum Backing<M: Machine> {
    /// Fresh memory that belongs to the address space (Linux: `MAP_ANONYMOUS | MAP_PRIVATE`).
    Anonymous {
        /// True if huge pages may be used (Linux: `MADV_HUGEPAGE`).
        huge: bool,
    },
    /// A file. A page that is written to is replaced by a private copy (Linux: `MAP_PRIVATE`).
    PrivateFile {
        /// The file.
        file: Arc<Object<M>>,
        /// The index, in the file, of the page with which the mapping begins.
        offset: u64,
    },
    /// Memory or a file that other address spaces may share (Linux: `MAP_SHARED`).
    Shared {
        /// The object that owns the shared pages.
        object: Arc<Object<M>>,
        /// The index, in the object, of the page with which the mapping begins.
        offset: u64,
    },
    /// Huge pages that are not swapped, aged or counted as resident (Linux: `MAP_HUGETLB`).
    Reserved,
    /// Frames that no zone manages, such as those of a device (Linux: `VM_PFNMAP`).
    Frames {
        /// The first frame of the mapping.
        first: Pfn,
    },
}

/// The kind of a mapping's pages. Unlike [`Backing`], it does not say which file, object or frames
/// they come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MappingKind {
    /// Fresh memory that belongs to the address space.
    Anonymous,
    /// Pages of a file, or private copies of them.
    PrivateFile,
    /// Pages that other address spaces may share.
    Shared,
    /// Reserved huge pages; see [`Backing::Reserved`].
    Reserved,
    /// Frames that no zone manages.
    Frames,
}

impl MappingKind {
    const ALL: [Self; 5] = [
        Self::Anonymous,
        Self::PrivateFile,
        Self::Shared,
        Self::Reserved,
        Self::Frames,
    ];

    /// Returns the kind of `vma`, a mapping of an address space's tree.
    #[must_use]
    pub const fn of(vma: &Vma) -> Self {
        let kind = (vma.id & KIND_MASK) as usize;
        if kind < Self::ALL.len() {
            Self::ALL[kind]
        } else {
            Self::Frames
        }
    }

    /// Returns whether helpers, such as the OOM reaper, may empty the mapping while the dying
    /// process still runs. They may do so if no other process uses the mapping's pages (Linux: the
    /// rule of `__oom_reap_task_mm`).
    #[must_use]
    pub const fn is_reapable(self) -> bool {
        matches!(self, Self::Anonymous | Self::PrivateFile)
    }
}

// The id of a mapping consists of three fields: the kind of the mapping, a bit that says whether
// huge pages may be used, and the number of the mapping's source plus one. The last field is 0 if
// the mapping has no source.
const KIND_MASK: u32 = 7;
const HUGE: u32 = 8;
const SOURCE_SHIFT: u32 = 4;
/// The largest number of sources (files, shared memory or frames) of an address space. A mapping's
/// id has no room for the index of a further source.
const SOURCES_MAX: usize = (Vma::ID_MAX >> SOURCE_SHIFT) as usize;

/// Returns whether huge pages may be used in `vma`.
pub(super) const fn allows_huge(vma: &Vma) -> bool {
    vma.id & HUGE != 0
}

/// Returns the index of the source of `vma`, if `vma` has a source.
fn source_of(vma: &Vma) -> Option<usize> {
    (vma.id >> SOURCE_SHIFT)
        .checked_sub(1)
        .map(|number| number as usize)
}

/// The data that the lock of an address space's mappings guards.
pub(super) struct Mappings<M: Machine> {
    pub(super) editor: Editor,
    pub(super) sources: Sources<M>,
}

/// The sources of mappings: files, shared memory and frames. The index of a source in `by_number`
/// is its number.
pub(super) struct Sources<M: Machine> {
    by_number: Vec<Option<Source<M>>>,
    /// The numbers (indexes in `by_number`) that no source has now.
    free: Vec<u32>,
}

/// The source of the pages of one mapping, or of the pieces into which the mapping was cut.
pub(super) struct Source<M: Machine> {
    /// The object that owns the pages, or `None` if the source is a range of frames.
    pub(super) object: Option<Arc<Object<M>>>,
    /// The number that is added to the number of a virtual page, to get the page's index in the
    /// object or the page's frame. The addition wraps.
    base: u64,
    /// The number of mappings that have this source.
    pieces: u32,
}

impl<M: Machine> Source<M> {
    /// Returns the index in the object, or the frame, of a virtual page.
    pub(super) const fn index(&self, page: Vpn) -> u64 {
        page.0.wrapping_add(self.base)
    }
}

impl<M: Machine> Mappings<M> {
    pub(super) const fn new(editor: Editor) -> Self {
        let sources = Sources {
            by_number: Vec::new(),
            free: Vec::new(),
        };
        Self { editor, sources }
    }

    /// Returns the source of the pages of `vma`, if it has one.
    pub(super) fn source(&self, vma: &Vma) -> Option<&Source<M>> {
        self.sources.by_number.get(source_of(vma)?)?.as_ref()
    }

    /// Drops all sources.
    pub(super) fn clear(&mut self) {
        self.sources.by_number = Vec::new();
        self.sources.free = Vec::new();
    }
}

impl<M: Machine> Sources<M> {
    /// Returns the id for a mapping of `backing` that begins at `start`, and stores the mapping's
    /// source.
    pub(super) fn adopt(&mut self, backing: Backing<M>, start: Vpn) -> Result<u32, NoMemory> {
        let (kind, object, first) = match backing {
            Backing::Anonymous { huge } => {
                return Ok(MappingKind::Anonymous as u32 | if huge { HUGE } else { 0 });
            }
            Backing::Reserved => return Ok(MappingKind::Reserved as u32 | HUGE),
            Backing::PrivateFile { file, offset } => (MappingKind::PrivateFile, Some(file), offset),
            Backing::Shared { object, offset } => (MappingKind::Shared, Some(object), offset),
            Backing::Frames { first } => (MappingKind::Frames, None, u64::from(first.0)),
        };
        let source = Source {
            object,
            base: first.wrapping_sub(start.0),
            pieces: 1,
        };
        let number = self.store(source)?;
        Ok(kind as u32 | (number + 1) << SOURCE_SHIFT)
    }

    fn store(&mut self, source: Source<M>) -> Result<u32, NoMemory> {
        if let Some(number) = self.free.pop() {
            self.by_number[number as usize] = Some(source);
            return Ok(number);
        }
        let number = self.by_number.len();
        if number + 1 >= SOURCES_MAX {
            return Err(NoMemory);
        }
        self.by_number.try_reserve(1).map_err(|_| NoMemory)?;
        // Now reserve room for all numbers in the list of free numbers, so that dropping a source
        // later allocates nothing.
        self.free.try_reserve(number + 1).map_err(|_| NoMemory)?;
        self.by_number.push(Some(source));
        Ok(count_of(number))
    }

    /// Records that the number of mappings with the source of `vma` has grown by `pieces`, or has
    /// shrunk if `pieces` is negative. Drops the source when no mapping has it any more.
    pub(super) fn count_pieces(&mut self, vma: &Vma, pieces: i32) {
        let Some(number) = source_of(vma) else { return };
        let Some(source) = &mut self.by_number[number] else {
            return;
        };
        source.pieces = source.pieces.saturating_add_signed(pieces);
        if source.pieces == 0 {
            self.by_number[number] = None;
            self.free.push(count_of(number));
        }
    }
}
