//! An entry of a page table, and its encoding in 64 bits.

use crate::space::rss::RssKind;
use crate::space::swap::SwapSlot;
use crate::units::Pfn;

/// An entry of a page table that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::space) enum Entry {
    /// A page in memory.
    Page(Page),
    /// A page in swap.
    Swap(SwapSlot),
}

/// A page in memory, as a page table records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::space) struct Page {
    /// The frame of the page.
    pub(in crate::space) pfn: Pfn,
    /// The kind of the page.
    pub(in crate::space) kind: PageKind,
}

/// The kind of a mapped page. It decides which counter includes the page, and whether unmapping the
/// page frees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::space) enum PageKind {
    /// An anonymous page or a private copy, owned by the address space.
    Anon,
    /// A page of a file, owned by the file.
    File,
    /// A page of shared memory, owned by the object.
    Shared,
    /// A frame that no zone manages and no counter includes (Linux: `VM_PFNMAP`).
    Raw,
    /// A reserved huge page, which the address space owns and no counter includes (Linux: hugetlb).
    Reserved,
}

impl PageKind {
    /// Every kind, in declaration order.
    pub(in crate::space) const ALL: [Self; 5] = [
        Self::Anon,
        Self::File,
        Self::Shared,
        Self::Raw,
        Self::Reserved,
    ];

    /// Returns the counter that includes the page, if any.
    pub(in crate::space) const fn counted(self) -> Option<RssKind> {
        match self {
            Self::Anon => Some(RssKind::Anon),
            Self::File => Some(RssKind::File),
            Self::Shared => Some(RssKind::Shmem),
            Self::Raw | Self::Reserved => None,
        }
    }

    /// Returns whether the page is freed to its zone when it is unmapped.
    pub(in crate::space) const fn is_owned(self) -> bool {
        matches!(self, Self::Anon | Self::Reserved)
    }
}

/// An empty entry.
pub(super) const NONE: u64 = 0;

const PAGE: u64 = 1;
const SWAP: u64 = 2;
const STATE_MASK: u64 = 3;
const KIND_SHIFT: u32 = 2;
const KIND_MASK: u64 = 7;
const VALUE_SHIFT: u32 = 32;

/// The bit that is set in an entry if its page was touched since reclaim last looked at the page.
/// The bit has this meaning only in the entry of a page in memory.
pub(super) const YOUNG: u64 = 1 << 5;

/// Returns whether these bits are the entry of a page in memory.
pub(super) const fn is_page(bits: u64) -> bool {
    bits & STATE_MASK == PAGE
}

impl Entry {
    pub(super) fn encode(self) -> u64 {
        match self {
            Self::Page(page) => page.encode(),
            Self::Swap(slot) => SWAP | u64::from(slot.0) << VALUE_SHIFT,
        }
    }

    pub(super) fn decode(bits: u64) -> Option<Self> {
        match bits & STATE_MASK {
            PAGE => Some(Self::Page(Page::decode(bits))),
            SWAP => Some(Self::Swap(SwapSlot((bits >> VALUE_SHIFT) as u32))),
            _ => None,
        }
    }
}

impl Page {
    /// Returns the page in 64 bits. The upper half holds the frame; the bits from 5 to 31 are 0.
    pub(in crate::space) fn encode(self) -> u64 {
        PAGE | (self.kind as u64) << KIND_SHIFT | u64::from(self.pfn.0) << VALUE_SHIFT
    }

    /// Returns the page that [`Page::encode`] turned into `bits`. The bits from 5 to 31 may have
    /// any value.
    pub(in crate::space) fn decode(bits: u64) -> Self {
        let kind = (bits >> KIND_SHIFT & KIND_MASK) as usize;
        Self {
            pfn: Pfn((bits >> VALUE_SHIFT) as u32),
            kind: PageKind::ALL[kind],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_survives_its_bits() {
        for kind in PageKind::ALL {
            for pfn in [0, 1, u32::MAX].map(Pfn) {
                let entry = Entry::Page(Page { pfn, kind });
                assert_eq!(Entry::decode(entry.encode()), Some(entry));
            }
        }
        let swapped = Entry::Swap(SwapSlot(u32::MAX));
        assert_eq!(Entry::decode(swapped.encode()), Some(swapped));
        assert_eq!(Entry::decode(NONE), None);
    }
}
