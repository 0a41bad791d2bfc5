//! The errors of allocating and freeing blocks.

use core::fmt;

use crate::units::{Order, Pages, Pfn};

/// The reason why an allocation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocError {
    /// No zone that the request may use can give a block of this order, and no more memory could be
    /// freed.
    OutOfMemory(Tried),
    /// No zone of the requested kind or lower exists on any node.
    NoSuchZone,
}

/// The steps an allocation took before it failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// The number of zones that the allocation tried, each at the low and at the min watermark.
    pub zones: u32,
    /// The number of tried zones in which a watermark or a reserve kept the request from a large
    /// enough free block.
    pub kept_back: u32,
    /// The number of pages that drains of all CPUs' lists returned to the zones.
    pub drained: Pages,
    /// The number of reclaimers ([`Reclaimer`](super::Reclaimer)) called in each round.
    pub reclaimers: u32,
    /// The number of pages that the reclaimers reported as freed, over all rounds.
    pub reclaimed: Pages,
    /// The reason why no process, or no further process, was killed for the allocation.
    pub no_kill: NoKill,
}

/// The reason why no process, or no further process, was killed for an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoKill {
    /// There is no [`LastResort`](super::LastResort), or the request must not wait for one.
    #[default]
    NotAsked,
    /// The block is too large to kill a process for (Linux: `PAGE_ALLOC_COSTLY_ORDER`).
    Costly,
    /// The request accepts only memory of a kind below the normal zone. Few processes have such
    /// memory, so killing one would hardly help (Linux: `lowmem`).
    LowZone,
    /// The allocating task is itself dying, and not even the reserves that it may use have a block
    /// for the request.
    Dying,
    /// No process is left that may be killed and whose memory would help.
    NobodyLeft,
    /// The selection of a victim failed. The [`SelectError`](crate::oom::SelectError), which says
    /// why, is in the report that [`Owner::report`](crate::oom::Owner::report) gets.
    NotSelected,
}

impl fmt::Display for NoKill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAsked => "no process is killed for it",
            Self::Costly => "it is too large to kill a process for",
            Self::LowZone => "killing a process would hardly free memory of the requested kind",
            Self::Dying => "the allocating task is dying and has used its reserve",
            Self::NobodyLeft => "no process is left that may be killed and would help",
            Self::NotSelected => "the selection of a process to kill failed",
        })
    }
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchZone => write!(f, "no zone of the requested kind or lower exists"),
            Self::OutOfMemory(tried) => {
                let Tried {
                    zones,
                    kept_back,
                    drained,
                    reclaimers,
                    reclaimed,
                    no_kill,
                } = tried;
                write!(
                    f,
                    "out of memory: asked {zones} zones ({kept_back} of them have a block but must keep it), \
                     drained {drained} pages from the CPUs' lists, \
                     reclaimed {reclaimed} pages by {reclaimers} reclaimers"
                )?;
                match no_kill {
                    NoKill::NotAsked => Ok(()),
                    why => write!(f, "; {why}"),
                }
            }
        }
    }
}

impl core::error::Error for AllocError {}

/// The reason why [`PageAllocator::alloc_pages`](super::PageAllocator::alloc_pages) allocated fewer
/// pages than the caller wanted, with the number of pages that the caller now owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkError {
    /// The number of pages that were allocated: the first entries of the caller's list.
    pub got: usize,
    /// The number of pages that the caller wanted.
    pub wanted: usize,
    /// The reason why the next page could not be allocated.
    pub why: AllocError,
}

impl fmt::Display for BulkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { got, wanted, why } = self;
        write!(f, "only {got} of {wanted} pages were allocated: {why}")
    }
}

impl core::error::Error for BulkError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.why)
    }
}

/// The reason why a block was not freed or split. Nothing changes in that case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeError {
    /// The frame is in no zone.
    OutsideZones(Pfn),
    /// The frame is not the first one of an allocated block: it is already free, or lies inside a
    /// block.
    NotAllocated(Pfn),
    /// The block was allocated with another order.
    WrongOrder {
        /// The block's first frame.
        pfn: Pfn,
        /// The order with which the block was allocated.
        allocated: Order,
        /// The order with which the caller tried to free or split the block.
        freed: Order,
    },
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutsideZones(Pfn(pfn)) => write!(f, "page {pfn:#x} is in no zone"),
            Self::NotAllocated(Pfn(pfn)) => {
                write!(f, "page {pfn:#x} is not the first of an allocated block")
            }
            Self::WrongOrder {
                pfn: Pfn(pfn),
                allocated,
                freed,
            } => write!(
                f,
                "page {pfn:#x} was allocated with order {allocated} but freed or split with order {freed}"
            ),
        }
    }
}

impl core::error::Error for FreeError {}
