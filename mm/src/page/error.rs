//! Why pages could not be had, or not be taken back.

use core::fmt;

use crate::units::{Order, Pages, Pfn};

/// Why no block could be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocError {
    /// No allowed zone may give a block of this order, and nothing more could be got back.
    OutOfMemory(Tried),
    /// No zone of the requested kind or lower exists on any node.
    NoSuchZone,
}

/// What was done before giving up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// Zones that were asked, each at the low and the min watermark.
    pub zones: u32,
    /// Of those, how many still have a large enough block, kept back by a watermark or a reserve.
    pub kept_back: u32,
    /// Pages that draining every CPU's lists gave back.
    pub drained: Pages,
    /// Reclaimers that were asked.
    pub reclaimers: u32,
    /// Pages they said they gave back.
    pub reclaimed: Pages,
    /// Why nobody was killed for it.
    pub no_kill: NoKill,
}

/// Why nobody was killed for an allocation, or not for it again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoKill {
    /// There is no [`LastResort`](super::LastResort), or who asks does not wait for one.
    #[default]
    NotAsked,
    /// It is larger than is worth a process (Linux: `PAGE_ALLOC_COSTLY_ORDER`).
    Costly,
    /// It wants memory of a kind that few processes have (Linux: `lowmem`).
    LowZone,
    /// Who asks is dying, and has used the reserves.
    Dying,
    /// Nobody may be killed, or nobody whose memory would help.
    NobodyLeft,
    /// Whoever is to be killed cannot be found: a caller's counters contradict themselves.
    NotSelected,
}

impl fmt::Display for NoKill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAsked => "nobody is killed for it",
            Self::Costly => "it is too large to kill a process for",
            Self::LowZone => "killing would hardly free memory of this kind",
            Self::Dying => "who asks is dying and has used its reserve",
            Self::NobodyLeft => "no process is left that may be killed and would help",
            Self::NotSelected => "counters of processes contradict themselves",
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
                    "out of memory: asked {zones} zones ({kept_back} keep a block in reserve), \
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

/// Why a block was not taken back or split. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeError {
    /// The frame is in no zone.
    OutsideZones(Pfn),
    /// The frame heads no allocated block: it was freed already, or lies inside a block.
    NotAllocated(Pfn),
    /// The block was handed out with another order.
    WrongOrder {
        /// Its first frame.
        pfn: Pfn,
        /// What it was handed out with.
        allocated: Order,
        /// What it was freed or split with.
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
                "page {pfn:#x} was allocated with order {allocated} but freed with order {freed}"
            ),
        }
    }
}

impl core::error::Error for FreeError {}
