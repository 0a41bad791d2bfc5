//! The events of a recording that a replay uses: allocations, frees and drains of pages. Only
//! blocks whose orders Plimsoll supports are allowed.
//!
//! Linux emits `mm_page_free` for every free. For pages freed in a batch, Linux also emits
//! `mm_page_free_batched` a little later. This second event confirms the free and does not mean a
//! second free. If a recording has no `mm_page_free` at all, the batched events count as the frees.
//! The order of the freed blocks is then unknown, because Linux prints order 0 in every batched
//! event.

mod recording;
mod summary;

use plimsoll_mm::units::Order;
use plimsoll_recording::What;

pub use recording::Recording;
pub use summary::{CpuCount, OrderCount, Summary};

/// One event of a recording, with its time, CPU and thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The time on the recorded machine's clock, in nanoseconds.
    pub time_ns: u64,
    /// The CPU on which the event happened.
    pub cpu: u32,
    /// The id of the thread that was running. The idle task has the id 0.
    pub pid: u32,
    /// The event, with the block that it concerns.
    pub event: Event,
}

/// An event about a block of pages. In each variant, `pfn` is the frame number of the block's first
/// page on the recorded machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A block was allocated (`mm_page_alloc`).
    Alloc {
        /// The number of the block's first page.
        pfn: u64,
        /// The order of the block.
        order: Order,
    },
    /// An allocation failed (`mm_page_alloc` without a page).
    AllocFailed {
        /// The order of the requested block.
        order: Order,
    },
    /// A block was freed (`mm_page_free`).
    Free {
        /// The number of the block's first page.
        pfn: u64,
        /// The order of the block.
        order: Order,
    },
    /// A free was part of a batch (`mm_page_free_batched`).
    FreeBatched {
        /// The number of the block's first page.
        pfn: u64,
    },
    /// A block was returned from a per-CPU list to the zone (`mm_page_pcpu_drain`).
    PcpuDrain {
        /// The number of the block's first page.
        pfn: u64,
        /// The order of the block.
        order: Order,
    },
}

impl Event {
    /// Converts an event. Returns `None` if the event is not about pages. If Plimsoll does not
    /// support the order of the event, the error is this order.
    fn of(what: &What) -> Result<Option<Self>, u8> {
        let legal = |order: u8| Order::new(order).ok_or(order);
        Ok(Some(match *what {
            What::Alloc { pfn, order, .. } => Self::Alloc {
                pfn,
                order: legal(order)?,
            },
            What::AllocFailed { order, .. } => Self::AllocFailed {
                order: legal(order)?,
            },
            What::Free { pfn, order } => Self::Free {
                pfn,
                order: legal(order)?,
            },
            What::FreeBatched { pfn } => Self::FreeBatched { pfn },
            What::PcpuDrain { pfn, order, .. } => Self::PcpuDrain {
                pfn,
                order: legal(order)?,
            },
            _ => return Ok(None),
        }))
    }
}
