//! The *shares* of pages of files. A share records how many mappings and CPUs use a page at the
//! moment, and where the page is mapped (Linux: `page->_refcount`, `page->_mapcount`).
//!
//! A CPU that looks up a page of an enlisted file adds a use under the lock of the file. The CPU
//! drops the use when it has read the page. If the CPU maps the page, the use passes to the entry
//! of the page table instead. When the entry is emptied, its use is dropped as soon as translations
//! have been flushed. A page leaves memory only if it has no use, which is checked under the lock
//! of the file.
//!
//! The shares of 1024 pages form a chunk. A chunk is made when one of its pages is first used for
//! an enlisted file.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::lists::CHUNK;
use crate::machine::{Field, Machine, Once, Word};
use crate::space::error::NoMemory;

/// The uses of one page of a file (Linux: its references), and where it is mapped.
pub(crate) struct Share<M: Machine> {
    /// The lower half of the word is the number of uses. The upper half is the number of reads
    /// since reclaim last looked at the page.
    uses: M::Word,
    /// The place where the page was last mapped, as a packed `Owner`. The field is 0 if reclaim
    /// knows of no such place.
    mapper: M::Field,
}

/// The shares of a chunk, which is 1024 consecutive pages of a node.
type Chunk<M> = Box<[Share<M>]>;

/// The shares of a node's pages, in chunks of 1024 pages. A share records the uses of one page.
pub(super) struct Shares<M: Machine>(Box<[M::Once<Chunk<M>>]>);

const READ: i64 = 1 << 32;
const USES: i64 = READ - 1;

impl<M: Machine> Share<M> {
    /// Adds a use of the page (Linux: takes a page reference). The caller holds the lock of the
    /// page's file.
    pub(crate) fn pin(&self, machine: &M) {
        // Relaxed, because the lock of the file orders this addition and the check in
        // `drop_cached`.
        self.uses.add(machine, 1, Relaxed);
    }

    /// Drops a use.
    pub(crate) fn unpin(&self, machine: &M) {
        // The Release in AcqRel pairs with the Acquire in `uses`. So all accesses by users of the
        // page come before another CPU frees the page.
        let left = self.uses.add(machine, -1, AcqRel);
        debug_assert!(left & USES != USES, "a use is dropped once");
    }

    /// Returns the number of uses that the page has now.
    pub(crate) fn uses(&self, machine: &M) -> u64 {
        (self.uses.load(machine, Acquire) & USES).unsigned_abs()
    }

    /// Records that a CPU has read the page without mapping it (Linux: `folio_mark_accessed`).
    pub(crate) fn note_read(&self, machine: &M) {
        // Relaxed, as in `take_reads`: the number of reads is only a hint.
        self.uses.add(machine, READ, Relaxed);
    }

    /// Returns the number of reads since the last call.
    pub(crate) fn take_reads(&self, machine: &M) -> u64 {
        let reads = self.uses.load(machine, Relaxed) & !USES;
        if reads != 0 {
            self.uses.add(machine, -reads, Relaxed);
        }
        reads.unsigned_abs() >> 32
    }

    /// Forgets the uses that a page had before it became a page of its present file, and adds one
    /// use. No other CPU knows the page.
    pub(crate) fn begin(&self, machine: &M) {
        self.uses.store(machine, 1, Relaxed);
        self.mapper.set(0);
    }

    pub(crate) fn mapper(&self) -> u64 {
        self.mapper.get()
    }

    /// Records where the page is mapped. The caller holds the lock of the page table.
    pub(crate) fn set_mapper(&self, mapper: u64) {
        self.mapper.set(mapper);
    }
}

impl<M: Machine> Shares<M> {
    pub(super) fn new(machine: &M, pages: u32) -> Result<Self, NoMemory> {
        let chunks = pages.div_ceil(CHUNK);
        let mut shares = Vec::new();
        shares
            .try_reserve_exact(chunks as usize)
            .map_err(|_| NoMemory)?;
        shares.extend((0..chunks).map(|_| machine.once()));
        Ok(Self(shares.into()))
    }

    pub(super) fn get(&self, page: u32) -> Option<&Share<M>> {
        let chunk = self.0.get((page / CHUNK) as usize)?.get()?;
        chunk.get((page % CHUNK) as usize)
    }

    /// Makes the share (the record of the uses) of `page`, if there is none yet. The node has
    /// `pages` pages.
    pub(super) fn prepare(&self, machine: &M, page: u32, pages: u32) -> Result<(), NoMemory> {
        let Some(once) = self.0.get((page / CHUNK) as usize) else {
            return Ok(());
        };
        if once.get().is_some() {
            return Ok(());
        }
        let len = (pages - page / CHUNK * CHUNK).min(CHUNK);
        let mut chunk = Vec::new();
        chunk
            .try_reserve_exact(len as usize)
            .map_err(|_| NoMemory)?;
        chunk.extend((0..len).map(|_| Share {
            uses: machine.word(0),
            mapper: machine.field(0),
        }));
        // If another CPU has set this chunk of shares (records of uses) first, drop the chunk that
        // was made here.
        drop(once.set(chunk.into()));
        Ok(())
    }
}
