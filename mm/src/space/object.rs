//! Pages that several address spaces may map: those of a file, or shared memory (Linux:
//! `address_space`).
//!
//! A page has an index in its object, and exists from its first touch on until the object is
//! emptied. Who maps it is not known here: the object owns the page, mappings do not.
//!
//! Invariant: every page of an object was handed out to it as a single page, and has one index.
//!
//! Lock: one, around the index. Pages are allocated and freed outside.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use core::fmt;
use core::mem;

use crate::machine::{Lock, Machine};
use crate::page::{AllocError, FREE_BATCH, PageAllocator, Request};
use crate::site::{LockClass, Site};
use crate::units::{Order, Pfn};

/// What the pages are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// Those of a file (Linux: the page cache).
    File,
    /// Memory without a file that address spaces share (Linux: `shmem`).
    Shared,
}

/// Pages by index.
pub struct Object<M: Machine> {
    kind: ObjectKind,
    pages: M::Lock<BTreeMap<u64, Pfn>>,
}

impl<M: Machine> Object<M> {
    /// One without pages.
    #[must_use]
    pub fn new(machine: &M, kind: ObjectKind) -> Self {
        let home = machine.this_cpu();
        Self {
            kind,
            pages: machine.lock(LockClass::Object, home, BTreeMap::new()),
        }
    }

    /// What its pages are.
    #[must_use]
    pub fn kind(&self) -> ObjectKind {
        self.kind
    }

    /// The page at `index`, allocated as `request` says if nobody has touched it before (Linux:
    /// `filemap_fault`, `shmem_fault`). The order of `request` is not looked at: these are single
    /// pages.
    ///
    /// The index itself takes memory from the global allocator, as maps do.
    ///
    /// # Errors
    /// When there is no page to be had. Nothing is changed then.
    pub fn page(
        &self,
        machine: &M,
        pages: &PageAllocator<M>,
        index: u64,
        request: Request,
    ) -> Result<Pfn, AllocError> {
        let there = |map: &mut BTreeMap<u64, Pfn>| map.get(&index).copied();
        match self.pages.with(machine, Site::ObjectPage, there) {
            Some(pfn) => Ok(pfn),
            None => self.page_slow(machine, pages, index, request),
        }
    }

    /// Allocates with no lock held, so somebody else may be first: then theirs is the page.
    #[cold]
    fn page_slow(
        &self,
        machine: &M,
        pages: &PageAllocator<M>,
        index: u64,
        mut request: Request,
    ) -> Result<Pfn, AllocError> {
        request.order = Order::ZERO;
        let ours = pages.alloc(machine, request)?;
        let pfn = self
            .pages
            .with(machine, Site::ObjectPage, |map| match map.entry(index) {
                Entry::Occupied(theirs) => *theirs.get(),
                Entry::Vacant(place) => *place.insert(ours),
            });
        if pfn != ours {
            pages
                .free(machine, ours, Order::ZERO)
                .expect("it was handed out a moment ago, and nobody else knows it");
        }
        Ok(pfn)
    }

    /// Pages that exist.
    pub fn present(&self, machine: &M) -> u64 {
        self.pages
            .with(machine, Site::Control, |map| map.len() as u64)
    }

    /// Gives all pages back (Linux: `truncate_inode_pages`). The owner sees to it that nobody maps
    /// them any more; the object can be used again. An object that is dropped without this keeps its
    /// pages from everybody.
    ///
    /// # Panics
    /// If somebody else gave one of its pages back.
    pub fn empty(&self, machine: &M, pages: &PageAllocator<M>) {
        let all = self
            .pages
            .with(machine, Site::ObjectEmpty, mem::take)
            .into_values();
        let mut batch = [Pfn(0); FREE_BATCH];
        let mut all = all.peekable();
        // Ends: every turn takes at least one page of what was there.
        while all.peek().is_some() {
            let mut len = 0;
            for (place, pfn) in batch.iter_mut().zip(all.by_ref()) {
                *place = pfn;
                len += 1;
            }
            pages
                .free_pages(machine, &batch[..len])
                .expect("an object's pages are its own");
        }
    }
}

impl<M: Machine> fmt::Debug for Object<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}
