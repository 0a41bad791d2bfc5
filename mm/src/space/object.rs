//! Pages that several address spaces may map: those of a file, or shared memory (Linux:
//! `address_space`).
//!
//! A page has an index in its object, and exists from its first touch until the object is emptied.
//! The object owns the page. No record says which mappings use the page. The pages of a file can
//! also be reclaimed; see `cached`.
//!
//! Invariant: every page of an object was allocated for it as a single page, and has one index.
//!
//! Lock: each object has one lock, which guards its index. Pages and index nodes are allocated and
//! freed while no lock is held.

use core::fmt;

use super::index::{Index, Missing, Spares};
#[cfg(doc)]
use super::memory::Memory;
use crate::machine::{Lock, Machine, Once};
use crate::page::{AllocError, FREE_BATCH, PageAllocator, Request};
use crate::site::{LockClass, Site};
use crate::units::{Order, Pfn};

/// The kind of an object's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// Pages of a file (Linux: the page cache).
    File,
    /// Memory that address spaces share and that belongs to no file (Linux: `shmem`).
    Shared,
}

/// The pages of a file or of shared memory, by index.
pub struct Object<M: Machine> {
    kind: ObjectKind,
    pub(super) pages: M::Lock<Index>,
    /// The number under which reclaim finds the file, once it is [enlisted](Memory::enlist_file).
    pub(super) number: M::Once<u32>,
}

impl<M: Machine> Object<M> {
    /// Makes an object without pages.
    #[must_use]
    pub fn new(machine: &M, kind: ObjectKind) -> Self {
        let home = machine.this_cpu();
        Self {
            kind,
            pages: machine.lock(LockClass::Object, home, Index::default()),
            number: machine.once(),
        }
    }

    /// Returns the kind of the object's pages.
    #[must_use]
    pub fn kind(&self) -> ObjectKind {
        self.kind
    }

    /// Returns the page at `index`. If it does not exist yet, allocates it as `request` says
    /// (Linux: `filemap_fault`, `shmem_fault`). The order of `request` is ignored: objects consist
    /// of single pages.
    ///
    /// # Errors
    /// [`PageError`] if no page can be allocated, or if the global allocator has no memory to
    /// record the page. In both cases the object is unchanged.
    ///
    /// # Panics
    /// If the object is an enlisted file, whose pages may be reclaimed at any time: use
    /// [`Memory::read_file`].
    pub fn page(
        &self,
        machine: &M,
        pages: &PageAllocator<M>,
        index: u64,
        request: Request,
    ) -> Result<Pfn, PageError> {
        assert!(self.number.get().is_none(), "an enlisted file is read");
        let look = |map: &mut Index| map.get(index).ok_or_else(|| map.missing(index));
        match self.pages.with(machine, Site::ObjectPage, look) {
            Ok(pfn) => Ok(pfn),
            Err(missing) => self.page_slow(machine, pages, index, missing, request),
        }
    }

    /// Allocates a page while no lock is held. If another CPU has put a page at the same index in
    /// the meantime, frees the page that was allocated here and uses the other one.
    #[cold]
    fn page_slow(
        &self,
        machine: &M,
        pages: &PageAllocator<M>,
        index: u64,
        mut missing: Missing,
        mut request: Request,
    ) -> Result<Pfn, PageError> {
        request.order = Order::ZERO;
        let ours = pages
            .alloc(machine, request)
            .map_err(PageError::OutOfMemory)?;
        // The loop ends: nodes of the index can be missing again only if, since the last attempt,
        // another CPU has emptied the object or added a level to the index's tree of nodes.
        let there = loop {
            let Ok(mut spares) = Spares::new(missing) else {
                break Err(PageError::NoMemory);
            };
            let insert = |map: &mut Index| map.insert(index, ours, &mut spares);
            match self.pages.with(machine, Site::ObjectPage, insert) {
                Ok(there) => break Ok(there),
                Err(more) => missing = more,
            }
        };
        if there != Ok(ours) {
            pages
                .free(machine, ours, Order::ZERO)
                .expect("it was handed out a moment ago, and no other CPU knows it");
        }
        there
    }

    /// Returns the number of pages that the object has.
    pub fn present(&self, machine: &M) -> u64 {
        self.pages.with(machine, Site::Control, |map| map.len())
    }

    /// Frees all pages of the object (Linux: `truncate_inode_pages`). The caller must make sure
    /// that no address space maps them any more. The object can be used again afterwards. Dropping
    /// an object that still has pages leaks them.
    ///
    /// # Panics
    /// If a page of the object was freed in another way, or if the object is an enlisted file: use
    /// [`Memory::release_file`].
    pub fn empty(&self, machine: &M, pages: &PageAllocator<M>) {
        assert!(self.number.get().is_none(), "an enlisted file is released");
        let all = self.pages.with(machine, Site::ObjectEmpty, Index::take);
        let mut batch = [Pfn(0); FREE_BATCH];
        let mut len = 0;
        let free = |batch: &[Pfn]| {
            pages
                .free_pages(machine, batch)
                .expect("an object's pages are its own");
        };
        all.for_each(|pfn| {
            batch[len] = pfn;
            len += 1;
            if len == FREE_BATCH {
                free(&batch);
                len = 0;
            }
        });
        if len > 0 {
            free(&batch[..len]);
        }
    }
}

/// The reason why an object has no page for an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageError {
    /// The machine has no free page for the request.
    OutOfMemory(AllocError),
    /// The global allocator has no memory to record the page.
    NoMemory,
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory(error) => error.fmt(f),
            Self::NoMemory => f.write_str("out of memory for the index of an object's pages"),
        }
    }
}

impl core::error::Error for PageError {}

impl<M: Machine> fmt::Debug for Object<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}
