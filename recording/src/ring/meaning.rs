//! Translates the kernel's events to events of a recording, by their names and fields.

use super::fields::Record;
use crate::event::{HOLD_ENDS, Symbol, What};

/// What an event of the kernel becomes in a recording.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meaning {
    /// An event that a recording can contain. The function in this variant makes the event from the
    /// fields of the kernel's event. The decoder fills in the symbols of kernel functions
    /// afterwards.
    What(fn(&Record<'_>) -> Option<What>),
    /// The call chain of the preceding event.
    Stack,
    /// An event of another kind, which the recorder skips.
    Unknown,
}

/// A placeholder until the decoder fills in the symbol of the kernel function.
const LATER: Symbol = Symbol(0);

pub(super) fn meaning(name: &str) -> Meaning {
    Meaning::What(match name {
        "mm_page_alloc" => alloc,
        "mm_page_free" => |event| {
            let (pfn, order) = (event.number("pfn")?, event.small("order")?);
            Some(What::Free { pfn, order })
        },
        "mm_page_free_batched" => |event| {
            Some(What::FreeBatched {
                pfn: event.number("pfn")?,
            })
        },
        "mm_page_pcpu_drain" => |event| {
            Some(What::PcpuDrain {
                pfn: event.number("pfn")?,
                order: event.small("order")?,
                mobility: event.small("migratetype"),
            })
        },
        "mm_page_alloc_zone_locked" => |event| {
            Some(What::ZoneLocked {
                pfn: event.number("pfn")?,
                order: event.small("order")?,
                mobility: event.small("migratetype")?,
                percpu_refill: event.number("percpu_refill").is_some_and(|flag| flag != 0),
            })
        },
        "mm_page_alloc_extfrag" => |event| {
            Some(What::ExtFrag {
                pfn: event.number("pfn")?,
                order: event.small("alloc_order")?,
                fallback_order: event.small("fallback_order")?,
                mobility: event.small("alloc_migratetype")?,
                fallback: event.small("fallback_migratetype")?,
                claimed: event.number("change_ownership")? != 0,
            })
        },
        "holdend" => |_| Some(What::Mark(HOLD_ENDS.to_owned())),
        "bulkret" => |event| {
            Some(What::BulkAlloc {
                pages: event.small("ret")?,
            })
        },
        "workqueue_queue_work" => |event| {
            let (work, function) = (event.number("work")?, LATER);
            Some(What::WorkQueued { work, function })
        },
        "workqueue_execute_start" => |event| {
            let (work, function) = (event.number("work")?, LATER);
            Some(What::WorkStart { work, function })
        },
        "workqueue_execute_end" => |event| {
            let (work, function) = (event.number("work")?, LATER);
            Some(What::WorkEnd { work, function })
        },
        _ => return rarer(name),
    })
}

fn rarer(name: &str) -> Meaning {
    Meaning::What(match name {
        "kernel_stack" => return Meaning::Stack,
        "timer_start" => |event| {
            Some(What::TimerStart {
                timer: event.number("timer")?,
                function: LATER,
                expires: event.number("expires")?,
                bucket: event.number("bucket_expiry"),
                now: event.number("now")?,
                flags: event.small("flags")?,
            })
        },
        "timer_expire_entry" => |event| {
            Some(What::TimerExpire {
                timer: event.number("timer")?,
                function: LATER,
                now: event.number("now")?,
            })
        },
        "contention_begin" => |event| {
            Some(What::ContentionBegin {
                lock: event.number("lock_addr")?,
                flags: event.small("flags")?,
                stack: Vec::new(),
            })
        },
        "contention_end" => |event| {
            Some(What::ContentionEnd {
                lock: event.number("lock_addr")?,
                result: i32::try_from(event.signed("ret")?).ok()?,
            })
        },
        "rss_stat" => |event| {
            Some(What::RssStat {
                mm: event.small("mm_id")?,
                current: event.number("curr")? != 0,
                member: event.small("member")?,
                bytes: event.signed("size")?,
            })
        },
        "counter_add" => |event| {
            Some(What::CounterAdd {
                counter: event.number("counter")?,
                amount: event.signed("amount")?,
                batch: i32::try_from(event.signed("batch")?).ok()?,
            })
        },
        _ => return of_processes(name),
    })
}

fn of_processes(name: &str) -> Meaning {
    Meaning::What(match name {
        "mark_victim" => |event| {
            Some(What::MarkVictim {
                victim: event.small("pid")?,
            })
        },
        "wake_reaper" => |event| {
            Some(What::WakeReaper {
                victim: event.small("pid")?,
            })
        },
        "start_task_reaping" => |event| {
            Some(What::StartReaping {
                victim: event.small("pid")?,
            })
        },
        "finish_task_reaping" => |event| {
            Some(What::FinishReaping {
                victim: event.small("pid")?,
            })
        },
        "skip_task_reaping" => |event| {
            Some(What::SkipReaping {
                victim: event.small("pid")?,
            })
        },
        "exit_mmap" => |_| Some(What::ExitMmap),
        "unmap" => |event| {
            let (start, end) = (event.number("start")?, event.number("end")?);
            Some(What::Unmap { start, end })
        },
        "print" => |event| event.text("buf").map(What::Mark),
        _ => return of_reclaim(name),
    })
}

fn of_reclaim(name: &str) -> Meaning {
    Meaning::What(match name {
        "mm_vmscan_kswapd_wake" => |event| {
            Some(What::KswapdWake {
                node: event.small("nid")?,
                zone: event.small("zid")?,
                order: event.small("order")?,
            })
        },
        "kswapddone" => |_| Some(What::KswapdDone),
        "mm_vmscan_kswapd_sleep" => |event| {
            Some(What::KswapdSleep {
                node: event.small("nid")?,
            })
        },
        "mm_vmscan_wakeup_kswapd" => |event| {
            Some(What::WakeupKswapd {
                node: event.small("nid")?,
                zone: event.small("zid")?,
                order: event.small("order")?,
                gfp: event.number("gfp_flags")?,
            })
        },
        "mm_vmscan_direct_reclaim_begin" => |event| {
            let (order, gfp) = (event.small("order")?, event.number("gfp_flags")?);
            Some(What::DirectReclaimBegin { order, gfp })
        },
        "mm_vmscan_direct_reclaim_end" => |event| {
            let pages = event.number("nr_reclaimed")?;
            Some(What::DirectReclaimEnd { pages })
        },
        _ => return Meaning::Unknown,
    })
}

fn alloc(event: &Record<'_>) -> Option<What> {
    /// The page frame numbers that Linux prints if the allocation got no page.
    const NO_PAGE: [u64; 3] = [0, u64::MAX, u32::MAX as u64];
    let (pfn, order) = (event.number("pfn")?, event.small("order")?);
    // Linux prints -1 if the allocation has no migrate type. This number does not fit a `u8` and
    // becomes `None`.
    let mobility = event.small("migratetype");
    Some(if NO_PAGE.contains(&pfn) {
        What::AllocFailed { order, mobility }
    } else {
        let gfp = event.number("gfp_flags");
        What::Alloc {
            pfn,
            order,
            mobility,
            gfp,
        }
    })
}
