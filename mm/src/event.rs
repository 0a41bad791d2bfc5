//! What the manager tells observers. Names follow Linux tracepoints where there is one.

use crate::site::Site;
use crate::units::{CpuId, Order, Pages, Pfn};

/// Something an observer of a run may want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A block was handed out (Linux: `kmem:mm_page_alloc`).
    PageAlloc {
        /// Its first frame.
        pfn: Pfn,
        /// Its size.
        order: Order,
    },
    /// A block came back (Linux: `kmem:mm_page_free`).
    PageFree {
        /// Its first frame.
        pfn: Pfn,
        /// Its size.
        order: Order,
    },
    /// A block that was handed out became single pages, each handed out by itself.
    PageSplit {
        /// Its first frame.
        pfn: Pfn,
        /// Its size.
        order: Order,
    },
    /// One hold of a zone lock ended (Linux counts these in `free_pcppages_bulk` and
    /// `rmqueue_bulk`).
    ZoneHold {
        /// The zone's index.
        zone: u32,
        /// Who held it.
        site: Site,
        /// Pages moved during the hold.
        pages: Pages,
        /// How many blocks they were.
        blocks: u32,
        /// The zone's batch at that time.
        batch: Pages,
    },
    /// A vmstat refresh ran on this CPU (Linux: `refresh_cpu_vm_stats`).
    Refresh {
        /// Whether anything changed, so that the work is queued again.
        changed: Changed,
        /// Pages given back to zones by decay and remote-node drains.
        decayed: Pages,
    },
    /// The shepherd queued the work of a dormant CPU (Linux: `vmstat_shepherd`).
    Kick {
        /// The dormant CPU.
        cpu: CpuId,
    },
    /// No zone could serve an allocation (Linux: `oom_kill` decides what follows).
    OutOfMemory {
        /// What was asked for.
        order: Order,
    },
}

/// Whether a refresh found work, so that more may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Changed {
    /// Nothing was folded or given back; the CPU's work goes dormant.
    No,
    /// Something was; the work is queued again.
    Yes,
}
