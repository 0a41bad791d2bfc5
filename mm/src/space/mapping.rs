//! What a mapping maps, and how the tree of mappings knows it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::error::NoMemory;
use super::object::Object;
use super::vma_tree::{Editor, Vma};
use crate::machine::Machine;
use crate::units::{Pfn, Vpn};

/// What a mapping maps.
#[derive(Debug)]
pub enum Backing<M: Machine> {
    /// Fresh memory of its own (Linux: `MAP_ANONYMOUS | MAP_PRIVATE`).
    Anonymous {
        /// Whether huge pages may be used (Linux: `MADV_HUGEPAGE`).
        huge: bool,
    },
    /// A file, seen until it is written to; then a copy of its own (Linux: `MAP_PRIVATE`).
    PrivateFile {
        /// The file.
        file: Arc<Object<M>>,
        /// Its page that the mapping begins with.
        offset: u64,
    },
    /// Memory or a file that others share (Linux: `MAP_SHARED`).
    Shared {
        /// The pages that are shared.
        object: Arc<Object<M>>,
        /// The page that the mapping begins with.
        offset: u64,
    },
    /// Huge pages that are not swapped, aged or counted as resident (Linux: `MAP_HUGETLB`).
    Reserved,
    /// Frames that nobody manages: a device (Linux: `VM_PFNMAP`).
    Frames {
        /// The frame that the mapping begins with.
        first: Pfn,
    },
}

/// What the pages of a mapping are, without what they come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MappingKind {
    /// Fresh memory of its own.
    Anonymous,
    /// A file, or copies of its pages.
    PrivateFile,
    /// Shared with others.
    Shared,
    /// Huge pages of their own kind.
    Reserved,
    /// Frames that nobody manages.
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

    /// What `vma`, of an address space's tree, is.
    #[must_use]
    pub const fn of(vma: &Vma) -> Self {
        let kind = (vma.id & KIND_MASK) as usize;
        if kind < Self::ALL.len() {
            Self::ALL[kind]
        } else {
            Self::Frames
        }
    }

    /// Whether it may be emptied while its owner still runs: nobody but a process that is to die
    /// can miss it (Linux: the rule of `__oom_reap_task_mm`).
    #[must_use]
    pub const fn is_reapable(self) -> bool {
        matches!(self, Self::Anonymous | Self::PrivateFile)
    }
}

// An id of the tree: what kind, whether huge pages may be used, and where it comes from, if anywhere.
const KIND_MASK: u32 = 7;
const HUGE: u32 = 8;
const SOURCE_SHIFT: u32 = 4;
/// Sources at most.
const SOURCES_MAX: usize = (Vma::ID_MAX >> SOURCE_SHIFT) as usize;

/// Whether huge pages may be used in `vma`.
pub(super) const fn allows_huge(vma: &Vma) -> bool {
    vma.id & HUGE != 0
}

/// The number of the source of `vma`, if it has one.
fn source_of(vma: &Vma) -> Option<usize> {
    (vma.id >> SOURCE_SHIFT)
        .checked_sub(1)
        .map(|number| number as usize)
}

/// What the lock of an address space's mappings guards.
pub(super) struct Mappings<M: Machine> {
    pub(super) editor: Editor,
    sources: Vec<Option<Source<M>>>,
    free: Vec<u32>,
}

/// Where the pages of a mapping, or of its pieces, come from.
pub(super) struct Source<M: Machine> {
    /// Pages of this, or else frames.
    pub(super) object: Option<Arc<Object<M>>>,
    /// What to add to a virtual page to get the page of the object, or the frame. Wraps.
    base: u64,
    /// Mappings it has become.
    pieces: u32,
}

impl<M: Machine> Source<M> {
    /// The page of the object, or the frame, for a virtual page.
    pub(super) const fn index(&self, page: Vpn) -> u64 {
        page.0.wrapping_add(self.base)
    }
}

impl<M: Machine> Mappings<M> {
    pub(super) const fn new(editor: Editor) -> Self {
        Self {
            editor,
            sources: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Where the pages of `vma` come from, if from anywhere.
    pub(super) fn source(&self, vma: &Vma) -> Option<&Source<M>> {
        self.sources.get(source_of(vma)?)?.as_ref()
    }

    /// The id of a mapping of `backing` from `start` on; its source is kept.
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
            self.sources[number as usize] = Some(source);
            return Ok(number);
        }
        let number = self.sources.len();
        if number + 1 >= SOURCES_MAX {
            return Err(NoMemory);
        }
        self.sources.try_reserve(1).map_err(|_| NoMemory)?;
        // So that forgetting needs no memory.
        self.free.try_reserve(number + 1).map_err(|_| NoMemory)?;
        self.sources.push(Some(source));
        u32::try_from(number).map_err(|_| NoMemory)
    }

    /// A mapping with the source of `vma` has become `pieces` more, or fewer.
    pub(super) fn count_pieces(&mut self, vma: &Vma, pieces: i32) {
        let Some(number) = source_of(vma) else { return };
        let Some(source) = &mut self.sources[number] else {
            return;
        };
        source.pieces = source.pieces.saturating_add_signed(pieces);
        if source.pieces == 0 {
            self.sources[number] = None;
            self.free.push(u32::try_from(number).unwrap_or(u32::MAX));
        }
    }

    /// Forgets all sources.
    pub(super) fn clear(&mut self) {
        self.sources = Vec::new();
        self.free = Vec::new();
    }
}
