//! One event of a recording, with the values that the kernel's tracepoint prints.
//!
//! Page frame numbers, migrate types and orders have the values of the recorded kernel. The readers
//! check only that these numbers fit their types; code that uses the events must make all other
//! checks.

/// One event of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time of the event, in nanoseconds of the recorded computer's clock.
    pub time_ns: u64,
    /// The CPU on which the event happened.
    pub cpu: u32,
    /// The thread ID of the task that was running; 0 is the idle task.
    pub pid: u32,
    /// The kind of event, with its fields.
    pub what: What,
}

/// A function of the kernel, as an index into [`crate::header::Header::symbols`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol(pub u32);

/// The text of a [`What::Mark`] that marks the moment at which a CPU releases the zone lock. Linux
/// has no tracepoint there, so the recorder sets a probe.
pub const HOLD_ENDS: &str = "plimsoll: zone lock released";

/// The kinds of events, with their fields.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// A block was allocated (`mm_page_alloc`).
    Alloc {
        /// The number of the block's first page frame.
        pfn: u64,
        /// The order of the block: log₂ of the number of its pages.
        order: u8,
        /// The requested migrate type; `None` if the recording does not say.
        mobility: Option<u8>,
        /// The request's GFP flags as the kernel's bits; `None` if the recording does not say.
        gfp: Option<u64>,
    },
    /// An allocation failed (`mm_page_alloc` without a page).
    AllocFailed {
        /// The requested order: log₂ of the number of pages.
        order: u8,
        /// The requested migrate type; `None` if the recording does not say.
        mobility: Option<u8>,
    },
    /// A block was freed (`mm_page_free`); the kernel has not put it on a list yet.
    Free {
        /// The number of the block's first page frame.
        pfn: u64,
        /// The order of the block: log₂ of the number of its pages.
        order: u8,
    },
    /// A block that was freed in a batch was put on its per-CPU list (`mm_page_free_batched`).
    FreeBatched {
        /// The number of the block's first page frame. Linux prints order 0 for every block; the
        /// block's [`What::Free`] has the true order.
        pfn: u64,
    },
    /// A block was returned from a per-CPU list to the zone (`mm_page_pcpu_drain`).
    PcpuDrain {
        /// The number of the block's first page frame.
        pfn: u64,
        /// The order of the block: log₂ of the number of its pages.
        order: u8,
        /// The migrate type of the page block that contains the block, as the kernel read it under
        /// the zone lock; `None` if the recording does not say.
        mobility: Option<u8>,
    },
    /// A block was removed from a free list to be allocated (`mm_page_alloc_zone_locked`).
    ZoneLocked {
        /// The number of the block's first page frame.
        pfn: u64,
        /// The order of the block: log₂ of the number of its pages.
        order: u8,
        /// The migrate type of the free list.
        mobility: u8,
        /// True if blocks of this order may be on per-CPU lists. Linux sets this field even if the
        /// allocation is not part of a refill.
        percpu_refill: bool,
    },
    /// An allocation used a block from the free list of another migrate type
    /// (`mm_page_alloc_extfrag`).
    ExtFrag {
        /// The number of the block's first page frame.
        pfn: u64,
        /// The requested order: log₂ of the number of pages.
        order: u8,
        /// The order of the block that was found: log₂ of the number of its pages.
        fallback_order: u8,
        /// The requested migrate type.
        mobility: u8,
        /// The migrate type of the free list on which the block was found.
        fallback: u8,
        /// True if the page block changed its type.
        claimed: bool,
    },
    /// A bulk allocation returned (a probe at the end of `alloc_pages_bulk`).
    BulkAlloc {
        /// The number of single pages that the bulk allocation returned.
        pages: u32,
    },
    /// Work was put on a queue (`workqueue_queue_work`).
    WorkQueued {
        /// The work item's address.
        work: u64,
        /// The function that the work item runs.
        function: Symbol,
    },
    /// Work began (`workqueue_execute_start`).
    WorkStart {
        /// The work item's address.
        work: u64,
        /// The function that the work item runs.
        function: Symbol,
    },
    /// Work ended (`workqueue_execute_end`).
    WorkEnd {
        /// The work item's address.
        work: u64,
        /// The function that the work item ran.
        function: Symbol,
    },
    /// A timer was armed (`timer_start`).
    TimerStart {
        /// The timer's address.
        timer: u64,
        /// The function that the timer calls.
        function: Symbol,
        /// The jiffy for which the timer was requested.
        expires: u64,
        /// The jiffy at which the timer's bucket in the timer wheel fires; `None` if the kernel
        /// does not print it.
        bucket: Option<u64>,
        /// The jiffy at which the event happened.
        now: u64,
        /// The timer's flags; bit 19 means deferrable.
        flags: u32,
    },
    /// A timer's function is called (`timer_expire_entry`).
    TimerExpire {
        /// The timer's address.
        timer: u64,
        /// The function that is called.
        function: Symbol,
        /// The jiffy at which the event happened.
        now: u64,
    },
    /// A wait for a lock began (`contention_begin`).
    ContentionBegin {
        /// The lock's address.
        lock: u64,
        /// The kind of lock, as bits (1: spinning, 2: reader, 4: writer, 8: real-time, 16: per-CPU,
        /// 32: mutex).
        flags: u32,
        /// The call chain, innermost function first; empty if none was recorded.
        stack: Vec<Symbol>,
    },
    /// A wait for a lock ended (`contention_end`).
    ContentionEnd {
        /// The lock's address.
        lock: u64,
        /// 0 if the lock was acquired, or the error that ended the wait.
        result: i32,
    },
    /// A process's resident pages changed (`rss_stat`).
    RssStat {
        /// A hash that identifies the address space.
        mm: u32,
        /// True if the address space is the current task's own.
        current: bool,
        /// The index of the changed counter: 0 for pages of files, 1 for anonymous pages, 2 for
        /// swap entries, 3 for shared memory.
        member: u32,
        /// The counter's new value, in bytes. Linux prints the precise sum since 6.12.
        bytes: i64,
    },
    /// An amount was added to a per-CPU counter (a probe on `percpu_counter_add_batch`).
    CounterAdd {
        /// The counter's address.
        counter: u64,
        /// The amount that was added.
        amount: i64,
        /// The counter's batch. When the amount that a CPU has counted and not yet added to the
        /// shared value reaches this number, the CPU adds the amount.
        batch: i32,
    },
    /// The OOM killer marked a process as a victim (`mark_victim`).
    MarkVictim {
        /// The victim's process id.
        victim: u32,
    },
    /// The OOM reaper is woken for a victim (`wake_reaper`).
    WakeReaper {
        /// The victim's process id.
        victim: u32,
    },
    /// The OOM reaper begins to empty a victim's address space (`start_task_reaping`).
    StartReaping {
        /// The victim's process id.
        victim: u32,
    },
    /// The OOM reaper has ended its attempt to empty a victim's address space
    /// (`finish_task_reaping`).
    FinishReaping {
        /// The victim's process id.
        victim: u32,
    },
    /// The OOM reaper skips a victim (`skip_task_reaping`).
    SkipReaping {
        /// The victim's process id.
        victim: u32,
    },
    /// The last user has emptied an address space (`exit_mmap`).
    ExitMmap,
    /// A range of a victim's address space is emptied (a probe on the function that unmaps a
    /// range).
    Unmap {
        /// The first address of the range.
        start: u64,
        /// The first address after the range.
        end: u64,
    },
    /// kswapd begins a round of reclaim (`mm_vmscan_kswapd_wake`).
    KswapdWake {
        /// The node in which kswapd reclaims.
        node: u32,
        /// The highest zone in which kswapd reclaims, by the kernel's number: 0 is DMA.
        zone: u8,
        /// The order of the wanted blocks: log₂ of the number of their pages.
        order: u8,
    },
    /// kswapd's round of reclaim has ended. The event comes from a probe on the return of
    /// `balance_pgdat`. If the compiler has inlined that function, the probe is on the function
    /// that `balance_pgdat` calls last.
    KswapdDone,
    /// kswapd goes to sleep until another task wakes it (`mm_vmscan_kswapd_sleep`). The last round
    /// of reclaim of this kswapd ended about a tenth of a second earlier.
    KswapdSleep {
        /// The node in which kswapd reclaims.
        node: u32,
    },
    /// An allocation wakes kswapd (`mm_vmscan_wakeup_kswapd`).
    WakeupKswapd {
        /// The node in which memory is short.
        node: u32,
        /// The highest zone that can serve the request, by the kernel's number: 0 is DMA.
        zone: u8,
        /// The wanted order: log₂ of the number of pages.
        order: u8,
        /// The request's GFP flags as the kernel's bits; 0 if a boosted watermark, not a request,
        /// wakes kswapd.
        gfp: u64,
    },
    /// An allocation begins direct reclaim (`mm_vmscan_direct_reclaim_begin`).
    DirectReclaimBegin {
        /// The wanted order: log₂ of the number of pages.
        order: u8,
        /// The request's GFP flags as the kernel's bits.
        gfp: u64,
    },
    /// An allocation ends direct reclaim (`mm_vmscan_direct_reclaim_end`).
    DirectReclaimEnd {
        /// The number of pages that the allocation reclaimed.
        pages: u64,
    },
    /// A text was written to `trace_marker`; the recorder's own notes begin with `plimsoll: `.
    Mark(String),
}

impl What {
    /// Returns the event's name as perf prints it: its subsystem, a colon, the tracepoint.
    #[must_use]
    pub const fn tracepoint(&self) -> &'static str {
        match self {
            Self::Alloc { .. } | Self::AllocFailed { .. } => "kmem:mm_page_alloc",
            Self::Free { .. } => "kmem:mm_page_free",
            Self::FreeBatched { .. } => "kmem:mm_page_free_batched",
            Self::PcpuDrain { .. } => "kmem:mm_page_pcpu_drain",
            Self::ZoneLocked { .. } => "kmem:mm_page_alloc_zone_locked",
            Self::ExtFrag { .. } => "kmem:mm_page_alloc_extfrag",
            Self::BulkAlloc { .. } => "plimsoll:bulkret",
            Self::WorkQueued { .. } => "workqueue:workqueue_queue_work",
            Self::WorkStart { .. } => "workqueue:workqueue_execute_start",
            Self::WorkEnd { .. } => "workqueue:workqueue_execute_end",
            Self::TimerStart { .. } => "timer:timer_start",
            Self::TimerExpire { .. } => "timer:timer_expire_entry",
            Self::ContentionBegin { .. } => "lock:contention_begin",
            Self::ContentionEnd { .. } => "lock:contention_end",
            Self::RssStat { .. } => "kmem:rss_stat",
            Self::CounterAdd { .. } => "plimsoll:counter_add",
            Self::MarkVictim { .. } => "oom:mark_victim",
            Self::WakeReaper { .. } => "oom:wake_reaper",
            Self::StartReaping { .. } => "oom:start_task_reaping",
            Self::FinishReaping { .. } => "oom:finish_task_reaping",
            Self::SkipReaping { .. } => "oom:skip_task_reaping",
            Self::ExitMmap => "mmap:exit_mmap",
            Self::Unmap { .. } => "plimsoll:unmap",
            Self::KswapdWake { .. } => "vmscan:mm_vmscan_kswapd_wake",
            Self::KswapdDone => "plimsoll:kswapddone",
            Self::KswapdSleep { .. } => "vmscan:mm_vmscan_kswapd_sleep",
            Self::WakeupKswapd { .. } => "vmscan:mm_vmscan_wakeup_kswapd",
            Self::DirectReclaimBegin { .. } => "vmscan:mm_vmscan_direct_reclaim_begin",
            Self::DirectReclaimEnd { .. } => "vmscan:mm_vmscan_direct_reclaim_end",
            Self::Mark(_) => "ftrace:print",
        }
    }
}
