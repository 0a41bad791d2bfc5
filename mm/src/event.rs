//! The events that the manager passes to observers. Names follow Linux tracepoints where there are
//! any.

use crate::site::Site;
use crate::units::{CpuId, Order, Pages, Pfn, ProcessId};

/// An event for observers of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A block was handed out (Linux: `kmem:mm_page_alloc`).
    PageAlloc {
        /// The block's first frame.
        pfn: Pfn,
        /// The block's order.
        order: Order,
    },
    /// A block was freed (Linux: `kmem:mm_page_free`).
    PageFree {
        /// The block's first frame.
        pfn: Pfn,
        /// The block's order.
        order: Order,
    },
    /// A block that was handed out was split into single pages, which its owner frees one by one.
    PageSplit {
        /// The block's first frame.
        pfn: Pfn,
        /// The block's order.
        order: Order,
    },
    /// A block was taken from a zone's free lists, under the zone lock (Linux:
    /// `kmem:mm_page_alloc_zone_locked`).
    ZoneLocked {
        /// The block's first frame.
        pfn: Pfn,
        /// The block's order.
        order: Order,
        /// True if the block goes to a per-CPU list, false if it goes straight to the caller.
        listed: bool,
    },
    /// A block went from a per-CPU list to its zone's free lists, under the zone lock (Linux:
    /// `kmem:mm_page_pcpu_drain`).
    PcpuDrain {
        /// The block's first frame.
        pfn: Pfn,
        /// The block's order.
        order: Order,
    },
    /// One hold of a zone lock ended (Linux counts these in `free_pcppages_bulk` and
    /// `rmqueue_bulk`).
    ZoneHold {
        /// The index of the zone.
        zone: u32,
        /// The site that held the lock.
        site: Site,
        /// The CPU whose page lists the hold filled or emptied, which in a drain may be another CPU
        /// than the holder. The holder's own CPU for a block that bypassed the lists.
        cpu: CpuId,
        /// True if the hold continues the refill, spill, decay or drain of an earlier hold on these
        /// lists.
        further: bool,
        /// The number of pages moved during the hold.
        pages: Pages,
        /// The number of blocks that these pages formed.
        blocks: u32,
        /// The zone's batch at that time.
        batch: Pages,
    },
    /// A vmstat refresh ran on this CPU (Linux: `refresh_cpu_vm_stats`).
    Refresh {
        /// The result of the refresh, which decides whether the CPU's work is deferred again.
        changed: Changed,
        /// The number of pages that decay and remote-node drains gave back to zones.
        decayed: Pages,
    },
    /// The shepherd deferred the work of a dormant CPU (Linux: `vmstat_shepherd`).
    Kick {
        /// The dormant CPU.
        cpu: CpuId,
    },
    /// A phase begins on this CPU. The phases of one task nest. While a task waits, another task of
    /// the same CPU may begin phases in between.
    Begin(Phase),
    /// The phase that the task began last ends.
    End(Phase),
    /// An allocation failed because no zone could give a block.
    OutOfMemory {
        /// The requested order.
        order: Order,
    },
    /// The OOM killer is about to send `SIGKILL` to a process (Linux counts `OOM_KILL`).
    OomKill(ProcessId),
    /// A process that was told to die may use the memory reserves (Linux: `oom:mark_victim`).
    MarkVictim(ProcessId),
    /// The reaper's delay has passed, and the process still has memory (Linux: `oom:wake_reaper`).
    WakeReaper(ProcessId),
    /// The reaper has the lock of a victim's mappings as a reader and begins to empty its address
    /// space (Linux: `oom:start_task_reaping`).
    StartTaskReaping(ProcessId),
    /// An attempt of the reaper that had begun to empty the address space has ended (Linux:
    /// `oom:finish_task_reaping`).
    FinishTaskReaping(ProcessId),
    /// An attempt of the reaper has ended before it began to empty the address space, because a
    /// writer held the lock of the mappings or nothing was left to empty (Linux:
    /// `oom:skip_task_reaping`).
    SkipTaskReaping(ProcessId),
}

/// A phase of the work that a CPU does while memory is out or an address space is emptied, as a
/// profile would show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Phase {
    /// The last user of an address space ends it (Linux: `exit_mmap`).
    Exit,
    /// The OOM reaper helps to empty it (Linux: `__oom_reap_task_mm`).
    Reap,
    /// Another process helps to empty it (Linux: `process_mrelease`).
    Release,
    /// Emptying a range of page tables (Linux: `unmap_page_range`).
    Unmap,
    /// Getting the lock of a page table (Linux: `__pte_offset_map_lock`).
    TableLock,
    /// Removing reverse mappings (Linux: `folio_remove_rmap_ptes`).
    Rmap,
    /// Flushing translations (Linux: `tlb_flush_mmu_tlbonly`).
    Flush,
    /// Freeing the pages that were unmapped (Linux: `free_pages_and_swap_cache`).
    FreePages,
    /// Freeing page tables (Linux: `free_pgtables`).
    FreeTables,
    /// Dropping the records of mappings (Linux: `remove_vma`).
    ForgetMappings,
    /// An allocation that may wait found no block in any zone. The phase lasts until it has a block
    /// or fails (Linux: `__alloc_pages_slowpath`).
    Stall,
    /// Selecting a victim (Linux: `select_bad_process`).
    Select,
}

impl Phase {
    /// Every phase, in declaration order.
    pub const ALL: [Self; 12] = [
        Self::Exit,
        Self::Reap,
        Self::Release,
        Self::Unmap,
        Self::TableLock,
        Self::Rmap,
        Self::Flush,
        Self::FreePages,
        Self::FreeTables,
        Self::ForgetMappings,
        Self::Stall,
        Self::Select,
    ];

    /// The name of the Linux function that a profile would show.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exit => "exit_mmap",
            Self::Reap => "__oom_reap_task_mm",
            Self::Release => "process_mrelease",
            Self::Unmap => "unmap_page_range",
            Self::TableLock => "__pte_offset_map_lock",
            Self::Rmap => "folio_remove_rmap_ptes",
            Self::Flush => "tlb_flush_mmu_tlbonly",
            Self::FreePages => "free_pages_and_swap_cache",
            Self::FreeTables => "free_pgtables",
            Self::ForgetMappings => "remove_vma",
            Self::Stall => "__alloc_pages_slowpath",
            Self::Select => "select_bad_process",
        }
    }
}

/// The result of a refresh: whether it found work, so that the CPU's work is deferred again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Changed {
    /// The refresh folded and gave back nothing, so the CPU's work goes dormant.
    No,
    /// The refresh folded or gave back something, or the next one may. The work is deferred again.
    Yes,
}
