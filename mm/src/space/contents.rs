//! The contents of pages, which the embedder clears, copies, and stores while a page is in swap.
//!
//! `mm` manages frames and slots, and never touches their bytes. An address space calls a
//! [`Contents`] whenever the bytes have to change or move, or are no longer needed.

use super::swap::SwapSlot;
use crate::machine::Machine;
use crate::units::{Order, Pfn};

/// Clears, copies, writes out, reads in and forgets the contents of anonymous pages
/// ([`Spaces::with_contents`](super::Spaces::with_contents)).
///
/// Each method may be called on any CPU, for different pages at the same time. All methods except
/// [`Contents::clear`] of a huge page are called with the lock of a page table held. So a method
/// must be short, must not wait for input or output, and must not call any function of `mm`. A
/// method may copy the bytes to other memory, compressed or not, as Linux's zswap does; another
/// thread may then write this memory to a disk.
///
/// The embedder fills the pages of [objects](super::object) itself.
pub trait Contents<M: Machine>: Send + Sync {
    /// Clears the `1 << order` frames from `pfn` on, which no page table maps yet (Linux:
    /// `clear_highpage`).
    fn clear(&self, machine: &M, pfn: Pfn, order: Order);

    /// Copies the contents of `from`, a page of a file, to the frame `to`, which becomes a private
    /// copy (Linux: `copy_user_highpage`).
    fn copy(&self, machine: &M, from: Pfn, to: Pfn);

    /// Stores the contents of the frame `pfn` as those of `slot`, in place of what `slot` held
    /// before (Linux: `swap_writepage`). Every [`Notified`](super::Notified) of the address space
    /// has given up the page, so the contents do not change during the call. The frame is freed
    /// later.
    ///
    /// # Errors
    /// [`NotStored`] if there is no room for the contents. The page then remains in its frame.
    fn write_out(&self, machine: &M, pfn: Pfn, slot: SwapSlot) -> Result<(), NotStored>;

    /// Copies the contents of `slot` into the frame `pfn`, which no page table maps yet (Linux:
    /// `swap_readpage`). For each call of [`Contents::write_out`] that succeeds, this method is
    /// called at most once, and then [`Contents::forget`] is called.
    fn read_in(&self, machine: &M, slot: SwapSlot, pfn: Pfn);

    /// This method is called when the contents of `slot` are no longer needed, because they have
    /// been read in or because their page was unmapped (Linux: `zswap_invalidate`). The method is
    /// called once for each call of [`Contents::write_out`] that succeeds, just before the slot
    /// becomes free. An embedder whose store has a limited size frees the memory of these contents
    /// here. By default, the method does nothing.
    fn forget(&self, machine: &M, slot: SwapSlot) {
        let _ = (machine, slot);
    }
}

/// The error of a [`Contents`] that has no room for the contents of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotStored;

/// The source of the contents of a page that is about to be mapped.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// The page begins with zeros.
    Zeros,
    /// The page is a copy of this page of a file.
    Page(Pfn),
    /// The page was in swap.
    Slot(SwapSlot),
}
