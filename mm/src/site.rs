//! Labels for lock classes, for the sites that take locks, and for work that takes time.
//!
//! The manager and its machines share these three enums. The manager only passes the labels on. A
//! machine keeps statistics by class and site, and a simulated machine charges time for work.

/// The class of a lock, which says what the lock guards. The lock order is in `docs/locks.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum LockClass {
    /// The free lists of a zone (Linux: `zone->lock`).
    Zone,
    /// The per-CPU page lists of a zone (Linux: `pcp->lock`).
    Pcp,
    /// The right to drain the page lists of all CPUs (Linux: `pcpu_drain_mutex`).
    DrainAll,
    /// The knobs, the watermarks and the sizes of page lists (Linux: `pcp_batch_high_lock`).
    Sizing,
    /// The shared part of a flat counter (Linux: the lock of a `percpu_counter`).
    Counter,
    /// The free places in the per-CPU memory of counters (Linux: `pcpu_lock`).
    CounterArea,
    /// The mappings of an address space (Linux: `mmap_lock`).
    Mmap,
    /// A page table of 512 entries (Linux: the split lock of a PTE page).
    PageTable,
    /// An upper table, of 512 page tables (Linux: the split lock of a PMD page).
    UpperTable,
    /// The lists by which the used pages of a node are aged (Linux: `lruvec->lru_lock`).
    Lru,
    /// The slots of a swap area (Linux: the lock of a `swap_info_struct`).
    Swap,
    /// The pages of a file or of shared memory (Linux: `i_pages`).
    Object,
    /// The queue of processes that wait for the reaper (Linux: `oom_reaper_lock`).
    ReapQueue,
    /// The list of page tables that a CPU left to the other CPUs that empty the same dying address
    /// space. The CPU had claimed these page tables but could not empty them.
    LeftOver,
    /// The right to decide which process is killed (Linux: `oom_lock`).
    OomKill,
    /// The unused batches of records of unmapped pages (Linux: the batches of an `mmu_gather`).
    /// Linux has no such lock: it allocates a page for the records of a batch.
    Batches,
    /// One CPU's batch of pages that are about to enter the lists by which pages are aged (Linux:
    /// `cpu_fbatches.lock`).
    LruBatch,
    /// One entry of the table by which reclaim finds the address space that maps a page. An address
    /// space whose pages may be reclaimed has a number, which is an index into this table (Linux:
    /// `anon_vma->rwsem`).
    Rmap,
    /// The list of free entries of the table whose entries [`LockClass::Rmap`] guards.
    RmapFree,
}

impl LockClass {
    /// All classes, in declaration order.
    pub const ALL: [Self; 19] = [
        Self::Zone,
        Self::Pcp,
        Self::DrainAll,
        Self::Sizing,
        Self::Counter,
        Self::CounterArea,
        Self::Mmap,
        Self::PageTable,
        Self::UpperTable,
        Self::Lru,
        Self::Swap,
        Self::Object,
        Self::ReapQueue,
        Self::LeftOver,
        Self::OomKill,
        Self::Batches,
        Self::LruBatch,
        Self::Rmap,
        Self::RmapFree,
    ];

    /// The name of the lock in Linux. [`LockClass::LeftOver`], [`LockClass::Batches`] and
    /// [`LockClass::RmapFree`] do not exist in Linux, so Plimsoll names them.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zone => "zone->lock",
            Self::Pcp => "pcp->lock",
            Self::DrainAll => "pcpu_drain_mutex",
            Self::Sizing => "pcp_batch_high_lock",
            Self::Counter => "percpu_counter.lock",
            Self::CounterArea => "pcpu_lock",
            Self::Mmap => "mmap_lock",
            Self::PageTable => "pte lock",
            Self::UpperTable => "pmd lock",
            Self::Lru => "lruvec->lru_lock",
            Self::Swap => "swap_info->lock",
            Self::Object => "i_pages",
            Self::ReapQueue => "oom_reaper_lock",
            Self::LeftOver => "left over",
            Self::OomKill => "oom_lock",
            Self::Batches => "batches",
            Self::LruBatch => "cpu_fbatches.lock",
            Self::Rmap => "anon_vma->rwsem",
            Self::RmapFree => "rmap numbers",
        }
    }

    /// Returns whether a task that waits for a lock of this class sleeps, so that its CPU can do
    /// other work.
    #[must_use]
    pub const fn sleeps(self) -> bool {
        matches!(
            self,
            Self::DrainAll | Self::Sizing | Self::Mmap | Self::OomKill | Self::Rmap
        )
    }

    /// Returns whether a CPU that waits for a lock of this class, or holds it, takes no interrupts.
    /// In Linux 6.18, these are the locks that are taken with `spin_lock_irqsave` or
    /// `spin_lock_irq`.
    #[must_use]
    #[inline]
    pub const fn masks_interrupts(self) -> bool {
        matches!(
            self,
            Self::Zone
                | Self::Counter
                | Self::CounterArea
                | Self::Lru
                | Self::Object
                | Self::ReapQueue
        )
    }

    /// Returns whether a simulated machine charges nothing for a lock of this class. This is true
    /// of [`LockClass::Batches`], because Linux has no such lock: it only allocates a page for each
    /// batch of unmapped pages. Plimsoll allocates such a page too, and a simulated machine charges
    /// for that.
    #[must_use]
    #[inline]
    pub const fn is_free_of_charge(self) -> bool {
        matches!(self, Self::Batches)
    }
}

/// The place in the code that takes a lock. Waits and holds of the lock are recorded under this
/// label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Site {
    /// A page list is empty, so blocks move from the zone to the list (Linux: `rmqueue_bulk`).
    Refill,
    /// A block is allocated from the zone, bypassing the lists (Linux: `rmqueue_buddy`).
    AllocDirect,
    /// The page lists have reached `high`, so pages move to the zone (Linux:
    /// `free_frozen_page_commit`).
    Spill,
    /// Vmstat work lowers `high` and returns pages to the zone (Linux: `decay_pcp_high`).
    Decay,
    /// A CPU's page lists are emptied into the zone (Linux: `drain_pages_zone`).
    Drain,
    /// Pages from the lists of a remote node's zone are returned to that zone (Linux:
    /// `drain_zone_pages`).
    DrainRemoteNode,
    /// A block is freed to the zone, bypassing the lists (Linux: `free_one_page`).
    FreeDirect,
    /// A block is allocated from this CPU's page list (Linux: `rmqueue_pcplist`).
    PcpAlloc,
    /// A block is freed to this CPU's page list (Linux: `free_unref_page`).
    PcpFree,
    /// Settings are read or changed, a state is read for a report, or a rare change of a zone is
    /// made, such as adding memory (Linux: `setup_per_zone_wmarks`, `/proc`).
    Control,
    /// A CPU's part of a flat counter is added to the shared value, because the part reached the
    /// counter's batch (Linux: `percpu_counter_add_batch`).
    CounterFold,
    /// A flat counter is summed or set (Linux: `__percpu_counter_sum`).
    CounterSum,
    /// A group of counters is created (Linux: `percpu_counter_init_many`).
    CounterInit,
    /// A group of counters is destroyed (Linux: `percpu_counter_destroy_many`).
    CounterDestroy,
    /// A mapping is added (Linux: `do_mmap`).
    Mmap,
    /// A mapping is removed, and its pages are freed (Linux: `do_munmap`).
    Munmap,
    /// A page is mapped at the address that was accessed (Linux: `handle_mm_fault`).
    Fault,
    /// A page is moved to swap (Linux: `try_to_unmap`).
    SwapOut,
    /// A swap slot is allocated (Linux: `folio_alloc_swap`).
    SwapAlloc,
    /// Swap slots are freed (Linux: `free_swap_and_cache_nr`).
    SwapFree,
    /// A CPU's batch of new pages moves to the lists by which pages are aged (Linux:
    /// `folio_batch_move_lru`).
    LruAdd,
    /// Pages are removed from the lists by which they are aged, because their last reference was
    /// dropped (Linux: `folios_put_refs`).
    LruRemove,
    /// A page of a file or of shared memory is looked up or added (Linux: `filemap_add_folio`).
    ObjectPage,
    /// All pages of a file or of shared memory are freed (Linux: `truncate_inode_pages`).
    ObjectEmpty,
    /// The last user of an address space empties it (Linux: `exit_mmap`).
    Exit,
    /// The OOM reaper empties a dying address space (Linux: `oom_reap_task_mm`).
    Reap,
    /// A process empties another process's dying address space (Linux: `process_mrelease`).
    Release,
    /// Memory has run out, and a process may have to be killed (Linux: `out_of_memory`).
    OutOfMemory,
    /// Memory for another batch of unmapped pages is taken, or given back (Linux:
    /// `tlb_next_batch`).
    Gather,
    /// Used pages are taken off their list, because reclaim is about to look at them (Linux:
    /// `isolate_lru_folios`).
    LruIsolate,
    /// Pages that reclaim has looked at go back to a list (Linux: `move_folios_to_lru`).
    LruPutBack,
    /// Reclaim checks or unmaps a page in a page table (Linux: `shrink_folio_list`).
    Reclaim,
}

impl Site {
    /// All sites, in declaration order.
    pub const ALL: [Self; 32] = [
        Self::Refill,
        Self::AllocDirect,
        Self::Spill,
        Self::Decay,
        Self::Drain,
        Self::DrainRemoteNode,
        Self::FreeDirect,
        Self::PcpAlloc,
        Self::PcpFree,
        Self::Control,
        Self::CounterFold,
        Self::CounterSum,
        Self::CounterInit,
        Self::CounterDestroy,
        Self::Mmap,
        Self::Munmap,
        Self::Fault,
        Self::SwapOut,
        Self::SwapAlloc,
        Self::SwapFree,
        Self::LruAdd,
        Self::LruRemove,
        Self::ObjectPage,
        Self::ObjectEmpty,
        Self::Exit,
        Self::Reap,
        Self::Release,
        Self::OutOfMemory,
        Self::Gather,
        Self::LruIsolate,
        Self::LruPutBack,
        Self::Reclaim,
    ];

    /// The name of the Linux function that a profile would show for this site.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refill => "rmqueue_bulk",
            Self::AllocDirect => "rmqueue_buddy",
            Self::Spill => "free_frozen_page_commit",
            Self::Decay => "decay_pcp_high",
            Self::Drain => "drain_pages_zone",
            Self::DrainRemoteNode => "drain_zone_pages",
            Self::FreeDirect => "free_one_page",
            Self::PcpAlloc => "rmqueue_pcplist",
            Self::PcpFree => "free_unref_page",
            Self::Control => "setup_per_zone_wmarks",
            Self::CounterFold => "percpu_counter_add_batch",
            Self::CounterSum => "__percpu_counter_sum",
            Self::CounterInit => "percpu_counter_init_many",
            Self::CounterDestroy => "percpu_counter_destroy_many",
            Self::Mmap => "do_mmap",
            Self::Munmap => "do_munmap",
            Self::Fault => "handle_mm_fault",
            Self::SwapOut => "try_to_unmap",
            Self::SwapAlloc => "folio_alloc_swap",
            Self::SwapFree => "free_swap_and_cache_nr",
            Self::LruAdd => "folio_batch_move_lru",
            Self::LruRemove => "folios_put_refs",
            Self::ObjectPage => "filemap_add_folio",
            Self::ObjectEmpty => "truncate_inode_pages",
            Self::Exit => "exit_mmap",
            Self::Reap => "oom_reap_task_mm",
            Self::Release => "process_mrelease",
            Self::OutOfMemory => "out_of_memory",
            Self::Gather => "tlb_next_batch",
            Self::LruIsolate => "isolate_lru_folios",
            Self::LruPutBack => "move_folios_to_lru",
            Self::Reclaim => "shrink_folio_list",
        }
    }

    /// Returns whether Linux takes the zone lock for this site inside `free_pcppages_bulk`.
    #[must_use]
    pub const fn is_bulk_free(self) -> bool {
        matches!(
            self,
            Self::Spill | Self::Decay | Self::Drain | Self::DrainRemoteNode
        )
    }
}

/// A kind of local work, which takes time on a real machine and is charged as time on a simulated
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Work {
    /// Allocating one page from a page list, all costs included.
    PcpAlloc,
    /// Freeing one page to a page list, all costs included.
    PcpFree,
    /// Taking one block from the free lists, under the zone lock. If a larger block is taken and
    /// then split after the lock is released, each further part of the block is charged like one
    /// more block.
    BuddyAlloc,
    /// Putting one block on the free lists and merging it, under the zone lock. If buddies are
    /// joined before the lock is taken, each join is charged like one more block.
    BuddyFree,
    /// A fault that maps a new anonymous page: kernel entry, zeroing and mapping, but not the work
    /// of the page allocator.
    Fault,
    /// A fault that maps an existing page: kernel entry and mapping, without zeroing.
    MinorFault,
    /// Reading one page from swap, in addition to the fault.
    SwapIn,
    /// Clearing one entry of a page table, under its lock.
    Zap,
    /// Removing one reverse mapping, under the page table's lock (Linux: `folio_remove_rmap_ptes`).
    Rmap,
    /// Removing one page from the lists by which it is aged, under the lock of those lists.
    LruRemove,
    /// Dropping the last reference to one page: batching and uncharging, but not the work of the
    /// page allocator.
    Release,
    /// Scanning the entries of one page table.
    WalkTable,
    /// Flushing an address space's translations once, on all CPUs (Linux: `flush_tlb_mm_range`).
    TlbFlush,
    /// Freeing one swap slot.
    SwapFree,
    /// Adding, changing or removing one mapping, but not the work for its pages.
    MapEdit,
    /// Freeing one mapping when its address space ends: its record, and its links to a file or to
    /// anonymous memory.
    ForgetMapping,
    /// Visiting one zone in a vmstat refresh.
    RefreshZone,
    /// Reading one CPU's data from its cache lines: differentials, page counts or counters. The
    /// reader goes through many CPUs, so it waits for several lines at the same time.
    ScanCpu,
    /// Going on to the next CPU in a mask of CPUs, and reading data of that CPU that is in the
    /// reader's cache already (Linux: `for_each_cpu_or`). If the reader has to fetch the data, only
    /// [`Work::ScanCpu`] is charged, which includes going on to the next CPU.
    NextCpu,
    /// Reading one CPU's part of one group of counters (such as those of one process), when the
    /// parts of many groups are read in memory order.
    StreamCpu,
    /// Adding to this CPU's own part of a counter.
    Count,
    /// Switching to another task.
    ContextSwitch,
    /// Taking an interrupt, including a timer interrupt.
    Interrupt,
    /// Sending an interrupt to another CPU (Linux: IPI). This is only the work of the CPU that
    /// sends.
    Ipi,
    /// Creating and ending a process, but not the work for its pages.
    Process,
    /// Examining one process while the OOM killer chooses a victim: going on to this process in the
    /// list, and reading its task, signals and address space, but not its counters.
    Candidate,
    /// One comparison while blocks, or processes that the OOM killer may choose, are sorted;
    /// [`sort_comparisons`] counts them.
    Compare,
    /// Reading the clock (Linux: `ktime_get`).
    Clock,
    /// Moving one page onto, off or between the lists by which pages are aged, under the lock of
    /// those lists. Charged only if pages may be reclaimed.
    LruMove,
    /// Checking whether one page was touched: finding its mapping, and reading its page-table entry
    /// (Linux: `folio_referenced`).
    Reference,
    /// Writing one page to swap: taking a slot and writing the contents. Unmapping the page is not
    /// included.
    SwapOut,
    /// One nanosecond of work that a program does itself, outside the manager. It takes 1 ns on
    /// every simulated machine.
    Think,
}

impl Work {
    /// All kinds of work, in declaration order.
    pub const ALL: [Self; 32] = [
        Self::PcpAlloc,
        Self::PcpFree,
        Self::BuddyAlloc,
        Self::BuddyFree,
        Self::Fault,
        Self::MinorFault,
        Self::SwapIn,
        Self::Zap,
        Self::Rmap,
        Self::LruRemove,
        Self::Release,
        Self::WalkTable,
        Self::TlbFlush,
        Self::SwapFree,
        Self::MapEdit,
        Self::ForgetMapping,
        Self::RefreshZone,
        Self::ScanCpu,
        Self::NextCpu,
        Self::StreamCpu,
        Self::Count,
        Self::ContextSwitch,
        Self::Interrupt,
        Self::Ipi,
        Self::Process,
        Self::Candidate,
        Self::Compare,
        Self::Clock,
        Self::LruMove,
        Self::Reference,
        Self::SwapOut,
        Self::Think,
    ];

    /// The name of this kind of work in a profile, the file that describes a simulated machine.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PcpAlloc => "pcp_alloc",
            Self::PcpFree => "pcp_free",
            Self::BuddyAlloc => "buddy_alloc",
            Self::BuddyFree => "buddy_free",
            Self::Fault => "fault",
            Self::MinorFault => "minor_fault",
            Self::SwapIn => "swap_in",
            Self::Zap => "zap",
            Self::Rmap => "rmap",
            Self::LruRemove => "lru_remove",
            Self::Release => "release",
            Self::WalkTable => "walk_table",
            Self::TlbFlush => "tlb_flush",
            Self::SwapFree => "swap_free",
            Self::MapEdit => "map_edit",
            Self::ForgetMapping => "forget_mapping",
            Self::RefreshZone => "refresh_zone",
            Self::ScanCpu => "scan_cpu",
            Self::NextCpu => "next_cpu",
            Self::StreamCpu => "stream_cpu",
            Self::Count => "count",
            Self::ContextSwitch => "context_switch",
            Self::Interrupt => "interrupt",
            Self::Ipi => "ipi",
            Self::Process => "process",
            Self::Candidate => "candidate",
            Self::Compare => "compare",
            Self::Clock => "clock",
            Self::LruMove => "lru_move",
            Self::Reference => "reference",
            Self::SwapOut => "swap_out",
            Self::Think => "think",
        }
    }
}

/// Returns the number of comparisons ([`Work::Compare`]) for which sorting `n` items is charged:
/// `n` if the items are in order already, otherwise `n` × ⌊log₂ `n`⌋.
#[must_use]
pub fn sort_comparisons(n: u32, in_order: bool) -> u32 {
    let passes = if in_order {
        1
    } else {
        n.checked_ilog2().unwrap_or(0)
    };
    n.saturating_mul(passes)
}

#[cfg(test)]
mod tests {
    use super::sort_comparisons;

    #[test]
    fn a_sort_compares_each_item_as_often_as_the_items_can_be_halved() {
        let unsorted = [0, 1, 2, 3, 8, 63, 64, u32::MAX].map(|n| sort_comparisons(n, false));
        assert_eq!(unsorted, [0, 0, 2, 3, 24, 315, 384, u32::MAX]);
        assert_eq!([0, 1, 63].map(|n| sort_comparisons(n, true)), [0, 1, 63]);
    }
}
