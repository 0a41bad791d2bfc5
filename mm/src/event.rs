//! The events that the manager passes to observers. They are named after Linux tracepoints where
//! such tracepoints exist.

use crate::site::Site;
use crate::units::{CpuId, NodeId, Order, Pages, Pfn, ProcessId};

/// An event that the manager emits to the observers of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A block was allocated (Linux: `kmem:mm_page_alloc`).
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
    /// An allocated block was split into single pages. The owner of the block frees these pages one
    /// by one.
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
        /// True if the block goes onto a per-CPU list, false if it goes directly to the caller.
        listed: bool,
    },
    /// A block moved from a per-CPU list to its zone's free lists, under the zone lock (Linux:
    /// `kmem:mm_page_pcpu_drain`).
    PcpuDrain {
        /// The block's first frame.
        pfn: Pfn,
        /// The block's order.
        order: Order,
    },
    /// A hold of a zone lock ended (in Linux, a hold in `free_pcppages_bulk` or `rmqueue_bulk`).
    ZoneHold {
        /// The index of the zone.
        zone: u32,
        /// The label of the code that took the lock.
        site: Site,
        /// The CPU whose page lists the hold filled or emptied. In a drain this may differ from the
        /// CPU that held the lock. If a block bypassed the lists, this is the CPU that held the
        /// lock.
        cpu: CpuId,
        /// True if the operation that took the lock, such as a drain, has already moved pages in an
        /// earlier hold.
        further: bool,
        /// The number of pages moved during the hold.
        pages: Pages,
        /// The number of blocks that were moved during the hold.
        blocks: u32,
        /// The zone's batch at the time of the hold (Linux: `pcp->batch`).
        batch: Pages,
    },
    /// A vmstat refresh ran on the CPU that emits the event (Linux: `refresh_cpu_vm_stats`).
    Refresh {
        /// The result of the refresh, which says whether the CPU's work is scheduled again.
        changed: Changed,
        /// The number of pages that the refresh returned from the CPU's page lists to zones.
        decayed: Pages,
    },
    /// The shepherd scheduled the vmstat work of a CPU that had stopped this work (Linux:
    /// `vmstat_shepherd`).
    Kick {
        /// The CPU whose vmstat work was scheduled.
        cpu: CpuId,
    },
    /// A phase of a task begins on the CPU that emits the event. The phases of a task nest. While
    /// the task waits, other tasks on the same CPU may begin phases.
    Begin(Phase),
    /// The innermost phase of the task ends: the phase that began last among those that have not
    /// ended.
    End(Phase),
    /// An allocation failed because no zone could give a block.
    OutOfMemory {
        /// The requested order.
        order: Order,
    },
    /// The OOM killer is about to send `SIGKILL` to a process (Linux counts `OOM_KILL`).
    OomKill(ProcessId),
    /// A process that was told to die may now use the memory reserves (Linux: `oom:mark_victim`).
    MarkVictim(ProcessId),
    /// The reaper's delay has passed and the process still has memory (Linux: `oom:wake_reaper`).
    WakeReaper(ProcessId),
    /// The reaper has read-locked a victim's mappings and begins to empty the address space (Linux:
    /// `oom:start_task_reaping`).
    StartTaskReaping(ProcessId),
    /// The reaper has ended an attempt in which it had begun to empty an address space (Linux:
    /// `oom:finish_task_reaping`).
    FinishTaskReaping(ProcessId),
    /// The reaper has ended an attempt without beginning to empty the address space. Either a
    /// writer held the lock of the mappings, or nothing was left to empty (Linux:
    /// `oom:skip_task_reaping`).
    SkipTaskReaping(ProcessId),
    /// The kswapd of a node was asleep and has been woken (Linux: `vmscan:mm_vmscan_kswapd_wake`).
    KswapdWake(NodeId),
    /// The kswapd of a node goes to sleep (Linux: `vmscan:mm_vmscan_kswapd_sleep`).
    KswapdSleep(NodeId),
    /// Reclaim has looked at a batch of inactive pages, and has freed some or none of them (Linux:
    /// `vmscan:mm_vmscan_lru_shrink_inactive`).
    ShrinkInactive {
        /// The node of the pages.
        node: NodeId,
        /// The CPU's reason for reclaiming.
        by: ReclaimedBy,
        /// The number of pages that were looked at.
        scanned: Pages,
        /// The number of pages that were freed.
        reclaimed: Pages,
    },
    /// A batch of active pages became inactive (Linux: `vmscan:mm_vmscan_lru_shrink_active`).
    ShrinkActive {
        /// The node of the pages.
        node: NodeId,
        /// The number of pages that became inactive.
        deactivated: Pages,
    },
}

/// The reason for which a CPU reclaims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReclaimedBy {
    /// The CPU runs the kswapd of a node.
    Kswapd,
    /// The CPU is allocating, and no zone could give it a block.
    Direct,
}

/// A phase of the work that a CPU does when memory has run out or an address space is emptied. A
/// profile of Linux would show each phase as one function, which [`Phase::name`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Phase {
    /// The last user of an address space destroys it (Linux: `exit_mmap`).
    Exit,
    /// The OOM reaper helps to empty a dying address space (Linux: `__oom_reap_task_mm`).
    Reap,
    /// Another process helps to empty a dying address space (Linux: `process_mrelease`).
    Release,
    /// Emptying a range of page tables (Linux: `unmap_page_range`).
    Unmap,
    /// Taking the lock of a page table (Linux: `__pte_offset_map_lock`).
    TableLock,
    /// Removing reverse mappings (Linux: `folio_remove_rmap_ptes`).
    Rmap,
    /// Flushing translations (Linux: `tlb_flush_mmu_tlbonly`).
    Flush,
    /// Freeing unmapped pages (Linux: `free_pages_and_swap_cache`).
    FreePages,
    /// Ending the batched unmapping of pages: flushing translations for the last time, and freeing
    /// the last pages and the memory of the batches (Linux: `tlb_finish_mmu`).
    FinishGather,
    /// Freeing slots of swap (Linux: `free_swap_and_cache_nr`).
    FreeSwap,
    /// Freeing page tables (Linux: `free_pgtables`).
    FreeTables,
    /// Freeing the records of mappings (Linux: `remove_vma`).
    ForgetMappings,
    /// An allocation that may wait has found no block in any zone. The phase lasts until the
    /// allocation gets a block or fails (Linux: `__alloc_pages_slowpath`).
    Stall,
    /// Selecting a victim (Linux: `select_bad_process`).
    Select,
    /// An allocation reclaims pages itself (Linux: `try_to_free_pages`).
    DirectReclaim,
    /// An allocation has to wait before it reclaims, because other CPUs are reclaiming (Linux:
    /// `reclaim_throttle`, `throttle_direct_reclaim`).
    Throttle,
}

impl Phase {
    /// All phases, in declaration order.
    pub const ALL: [Self; 16] = [
        Self::Exit,
        Self::Reap,
        Self::Release,
        Self::Unmap,
        Self::TableLock,
        Self::Rmap,
        Self::Flush,
        Self::FreePages,
        Self::FinishGather,
        Self::FreeSwap,
        Self::FreeTables,
        Self::ForgetMappings,
        Self::Stall,
        Self::Select,
        Self::DirectReclaim,
        Self::Throttle,
    ];

    /// The name of the Linux function that a profile would show for this phase.
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
            Self::FinishGather => "tlb_finish_mmu",
            Self::FreeSwap => "free_swap_and_cache_nr",
            Self::FreeTables => "free_pgtables",
            Self::ForgetMappings => "remove_vma",
            Self::Stall => "__alloc_pages_slowpath",
            Self::Select => "select_bad_process",
            Self::DirectReclaim => "try_to_free_pages",
            Self::Throttle => "reclaim_throttle",
        }
    }
}

/// The result of a vmstat refresh: whether it found any work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Changed {
    /// The refresh found no work, or only pages whose return to the zone had been interrupted
    /// before. So no further refresh of the CPU is scheduled.
    No,
    /// The refresh added the CPU's differentials to shared counters, or returned pages to a zone,
    /// or the next refresh may find something to do. So the CPU's work is scheduled again.
    Yes,
}
