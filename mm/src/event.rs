//! What the manager tells observers. Names follow Linux tracepoints where there is one.

use crate::site::Site;
use crate::units::{CpuId, Order, Pages, Pfn, ProcessId};

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
    /// A block was taken from a zone's free lists, under the zone lock (Linux:
    /// `kmem:mm_page_alloc_zone_locked`).
    ZoneLocked {
        /// Its first frame.
        pfn: Pfn,
        /// Its size.
        order: Order,
        /// Whether it goes to a per-CPU list; else to whoever asked.
        listed: bool,
    },
    /// A block went from a per-CPU list to its zone's free lists, under the zone lock (Linux:
    /// `kmem:mm_page_pcpu_drain`).
    PcpuDrain {
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
        /// The CPU between whose page lists and the zone pages were moved: another than the holder's
        /// in a drain. The holder's own for a block that went past the lists.
        cpu: CpuId,
        /// The hold goes on with the refill, spill, decay or drain of the one before on these lists.
        further: bool,
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
    /// A phase begins on this CPU. Those of one task nest; one that waits may let another task of its
    /// CPU begin some in between.
    Begin(Phase),
    /// The phase that the task began last ends.
    End(Phase),
    /// No zone could serve an allocation (Linux: `oom_kill` decides what follows).
    OutOfMemory {
        /// What was asked for.
        order: Order,
    },
    /// The OOM killer is about to send `SIGKILL` to a process (Linux counts `OOM_KILL`).
    OomKill(ProcessId),
    /// A process that was told to die may use the memory reserves (Linux: `oom:mark_victim`).
    MarkVictim(ProcessId),
    /// The reaper's delay has passed, and the process still has memory (Linux: `oom:wake_reaper`).
    WakeReaper(ProcessId),
    /// The reaper begins to empty a victim, with the lock of its mappings (Linux:
    /// `oom:start_task_reaping`).
    StartTaskReaping(ProcessId),
    /// An attempt has ended in which something was emptied (Linux: `oom:finish_task_reaping`).
    FinishTaskReaping(ProcessId),
    /// An attempt has ended because mappings were being changed, or nothing was to be had (Linux:
    /// `oom:skip_task_reaping`).
    SkipTaskReaping(ProcessId),
}

/// What a CPU does while memory is out or an address space is emptied, as a profile would show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Phase {
    /// The last user leaves (Linux: `exit_mmap`).
    Exit,
    /// The OOM reaper helps (Linux: `__oom_reap_task_mm`).
    Reap,
    /// Somebody helps who asked to (Linux: `process_mrelease`).
    Release,
    /// Emptying a range (Linux: `unmap_page_range`).
    Unmap,
    /// Getting the lock of a page table (Linux: `__pte_offset_map_lock`).
    TableLock,
    /// Taking reverse mappings away (Linux: `folio_remove_rmap_ptes`).
    Rmap,
    /// Flushing translations (Linux: `tlb_flush_mmu_tlbonly`).
    Flush,
    /// Pages go back (Linux: `free_pages_and_swap_cache`).
    FreePages,
    /// Page tables go back (Linux: `free_pgtables`).
    FreeTables,
    /// Mappings are forgotten (Linux: `remove_vma`).
    ForgetMappings,
    /// No zone has anything for an allocation that may wait, until it has a block or fails (Linux:
    /// `__alloc_pages_slowpath`).
    Stall,
    /// A victim is looked for (Linux: `select_bad_process`).
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

    /// The Linux function a profile would show.
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

/// Whether a refresh found work, so that more may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Changed {
    /// Nothing was folded or given back; the CPU's work goes dormant.
    No,
    /// Something was; the work is queued again.
    Yes,
}
