//! One event of a recording, as the kernel's tracepoints print it.
//!
//! Page frame numbers, migrate types and orders are those of the recorded kernel. The readers check
//! only that they fit their types; code that needs more has to check it.

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time of the event, in nanoseconds of the recorded computer's clock.
    pub time_ns: u64,
    /// The CPU on which it happened.
    pub cpu: u32,
    /// The thread in which it happened; 0 is the idle task.
    pub pid: u32,
    /// The kind of event, with its fields.
    pub what: What,
}

/// A function of the kernel, as an index into [`crate::header::Header::symbols`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol(pub u32);

/// The text of a [`What::Mark`] where a hold of a zone lock ends. Linux has no tracepoint there, so
/// the recorder sets a probe.
pub const HOLD_ENDS: &str = "plimsoll: zone lock released";

/// The kinds of events, with their fields.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// A block was allocated (`mm_page_alloc`).
    Alloc {
        /// Its first page frame.
        pfn: u64,
        /// log₂ of its pages.
        order: u8,
        /// The requested migrate type; `None` where the recording does not say.
        mobility: Option<u8>,
        /// The request's GFP flags as the kernel's bits; `None` where the recording does not say.
        gfp: Option<u64>,
    },
    /// An allocation got nothing (`mm_page_alloc` without a page).
    AllocFailed {
        /// log₂ of the requested pages.
        order: u8,
        /// The requested migrate type; `None` where the recording does not say.
        mobility: Option<u8>,
    },
    /// A block was freed (`mm_page_free`); the kernel has not put it on a list yet.
    Free {
        /// Its first page frame.
        pfn: u64,
        /// log₂ of its pages.
        order: u8,
    },
    /// A block that was freed in a batch was put on its per-CPU list (`mm_page_free_batched`).
    FreeBatched {
        /// Its first page frame. Linux prints order 0 for every block; the true order is that of
        /// the block's [`What::Free`].
        pfn: u64,
    },
    /// A block went from a per-CPU list back to the zone (`mm_page_pcpu_drain`).
    PcpuDrain {
        /// Its first page frame.
        pfn: u64,
        /// log₂ of its pages.
        order: u8,
        /// The migrate type of its page block, which the kernel read under the zone lock; `None`
        /// where the recording does not say.
        mobility: Option<u8>,
    },
    /// A block was taken from a free list (`mm_page_alloc_zone_locked`).
    ZoneLocked {
        /// Its first page frame.
        pfn: u64,
        /// log₂ of its pages.
        order: u8,
        /// The migrate type of the free list.
        mobility: u8,
        /// Linux sets this for orders that have a per-CPU list, whether or not the allocation is
        /// part of a refill.
        percpu_refill: bool,
    },
    /// A block was taken from the free list of another migrate type (`mm_page_alloc_extfrag`).
    ExtFrag {
        /// Its first page frame.
        pfn: u64,
        /// log₂ of the requested pages.
        order: u8,
        /// log₂ of the pages of the block that was found.
        fallback_order: u8,
        /// The requested migrate type.
        mobility: u8,
        /// The migrate type of the free list it was found on.
        fallback: u8,
        /// True if the page block changed its type.
        claimed: bool,
    },
    /// A bulk allocation returned (a probe at the end of `alloc_pages_bulk`).
    BulkAlloc {
        /// The number of single pages that it returned.
        pages: u32,
    },
    /// Work was put on a queue (`workqueue_queue_work`).
    WorkQueued {
        /// The work item's address.
        work: u64,
        /// The function it runs.
        function: Symbol,
    },
    /// Work began (`workqueue_execute_start`).
    WorkStart {
        /// The work item's address.
        work: u64,
        /// The function it runs.
        function: Symbol,
    },
    /// Work ended (`workqueue_execute_end`).
    WorkEnd {
        /// The work item's address.
        work: u64,
        /// The function it ran.
        function: Symbol,
    },
    /// A timer was armed (`timer_start`).
    TimerStart {
        /// The timer's address.
        timer: u64,
        /// The function it calls.
        function: Symbol,
        /// The requested jiffy.
        expires: u64,
        /// The jiffy of the wheel's bucket; `None` where the kernel does not print it.
        bucket: Option<u64>,
        /// The jiffy now.
        now: u64,
        /// The timer's flags; bit 19 is "deferrable".
        flags: u32,
    },
    /// A timer's function is called (`timer_expire_entry`).
    TimerExpire {
        /// The timer's address.
        timer: u64,
        /// The function that is called.
        function: Symbol,
        /// The jiffy now.
        now: u64,
    },
    /// A lock was not free (`contention_begin`).
    ContentionBegin {
        /// The lock's address.
        lock: u64,
        /// The kind of lock, as bits (1: spinning, 2: reader, 4: writer, 8: real-time, 16: per-CPU,
        /// 32: mutex).
        flags: u32,
        /// The call chain, innermost function first; empty if none was recorded.
        stack: Vec<Symbol>,
    },
    /// The wait for a lock ended (`contention_end`).
    ContentionEnd {
        /// The lock's address.
        lock: u64,
        /// 0, or the error that ended the wait.
        result: i32,
    },
    /// A process's resident pages changed (`rss_stat`).
    RssStat {
        /// A hash that identifies the address space.
        mm: u32,
        /// True if the address space is the current task's own.
        current: bool,
        /// The counter: 0 file, 1 anonymous, 2 swap entries, 3 shared memory.
        member: u32,
        /// The counter's new value in bytes; Linux prints the precise sum from 6.12 on.
        bytes: i64,
    },
    /// Something was added to a per-CPU counter (a probe on `percpu_counter_add_batch`).
    CounterAdd {
        /// The counter's address.
        counter: u64,
        /// The amount that was added.
        amount: i64,
        /// The batch: a CPU's part that reaches it is folded into the shared value.
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
    /// The OOM reaper begins to empty a victim (`start_task_reaping`).
    StartReaping {
        /// The victim's process id.
        victim: u32,
    },
    /// The OOM reaper ends emptying a victim (`finish_task_reaping`).
    FinishReaping {
        /// The victim's process id.
        victim: u32,
    },
    /// The OOM reaper skips a victim (`skip_task_reaping`).
    SkipReaping {
        /// The victim's process id.
        victim: u32,
    },
    /// An address space has been emptied at its end (`exit_mmap`).
    ExitMmap,
    /// A range of a victim's address space is emptied (a probe on the function that unmaps a
    /// range).
    Unmap {
        /// Its first address.
        start: u64,
        /// The first address after it.
        end: u64,
    },
    /// kswapd begins a round of reclaim (`mm_vmscan_kswapd_wake`).
    KswapdWake {
        /// The node that it reclaims in.
        node: u32,
        /// The highest zone that it reclaims in, counted as the kernel does: 0 is DMA.
        zone: u8,
        /// log₂ of the pages of the wanted blocks.
        order: u8,
    },
    /// kswapd's round of reclaim has ended (a probe where `balance_pgdat` returns or, if the
    /// compiler has inlined it, on a function that it calls last).
    KswapdDone,
    /// kswapd goes to sleep until it is woken (`mm_vmscan_kswapd_sleep`). Its round of reclaim
    /// ended about a tenth of a second earlier.
    KswapdSleep {
        /// The node that it reclaims in.
        node: u32,
    },
    /// An allocation wakes kswapd (`mm_vmscan_wakeup_kswapd`).
    WakeupKswapd {
        /// The node in which memory is short.
        node: u32,
        /// The highest zone that would do, counted as the kernel does.
        zone: u8,
        /// log₂ of the wanted pages.
        order: u8,
        /// The request's GFP flags as the kernel's bits; 0 if a boosted watermark, not a request,
        /// wakes kswapd.
        gfp: u64,
    },
    /// An allocation begins to reclaim by itself (`mm_vmscan_direct_reclaim_begin`).
    DirectReclaimBegin {
        /// log₂ of the wanted pages.
        order: u8,
        /// The request's GFP flags as the kernel's bits.
        gfp: u64,
    },
    /// An allocation ends reclaiming by itself (`mm_vmscan_direct_reclaim_end`).
    DirectReclaimEnd {
        /// The number of pages that it reclaimed.
        pages: u64,
    },
    /// Something was written to `trace_marker`: the recorder's own notes begin with `plimsoll: `.
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
