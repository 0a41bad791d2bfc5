//! Translates the kernel's events to those of a recording, by their names and fields.

use super::fields::Record;
use crate::event::{HOLD_ENDS, Symbol, What};

/// What an event of the kernel becomes in a recording.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meaning {
    /// An event that recordings have. The function in this variant makes it from the fields of the
    /// kernel's event; the decoder fills in symbols of kernel functions afterwards.
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
        "mm_page_free" => |it| {
            let (pfn, order) = (it.number("pfn")?, it.small("order")?);
            Some(What::Free { pfn, order })
        },
        "mm_page_free_batched" => |it| {
            Some(What::FreeBatched {
                pfn: it.number("pfn")?,
            })
        },
        "mm_page_pcpu_drain" => |it| {
            Some(What::PcpuDrain {
                pfn: it.number("pfn")?,
                order: it.small("order")?,
                mobility: it.small("migratetype"),
            })
        },
        "mm_page_alloc_zone_locked" => |it| {
            Some(What::ZoneLocked {
                pfn: it.number("pfn")?,
                order: it.small("order")?,
                mobility: it.small("migratetype")?,
                percpu_refill: it.number("percpu_refill").is_some_and(|it| it != 0),
            })
        },
        "mm_page_alloc_extfrag" => |it| {
            Some(What::ExtFrag {
                pfn: it.number("pfn")?,
                order: it.small("alloc_order")?,
                fallback_order: it.small("fallback_order")?,
                mobility: it.small("alloc_migratetype")?,
                fallback: it.small("fallback_migratetype")?,
                claimed: it.number("change_ownership")? != 0,
            })
        },
        "holdend" => |_| Some(What::Mark(HOLD_ENDS.to_owned())),
        "bulkret" => |it| {
            Some(What::BulkAlloc {
                pages: it.small("ret")?,
            })
        },
        "workqueue_queue_work" => |it| {
            let (work, function) = (it.number("work")?, LATER);
            Some(What::WorkQueued { work, function })
        },
        "workqueue_execute_start" => |it| {
            let (work, function) = (it.number("work")?, LATER);
            Some(What::WorkStart { work, function })
        },
        "workqueue_execute_end" => |it| {
            let (work, function) = (it.number("work")?, LATER);
            Some(What::WorkEnd { work, function })
        },
        _ => return rarer(name),
    })
}

fn rarer(name: &str) -> Meaning {
    Meaning::What(match name {
        "kernel_stack" => return Meaning::Stack,
        "timer_start" => |it| {
            Some(What::TimerStart {
                timer: it.number("timer")?,
                function: LATER,
                expires: it.number("expires")?,
                bucket: it.number("bucket_expiry"),
                now: it.number("now")?,
                flags: it.small("flags")?,
            })
        },
        "timer_expire_entry" => |it| {
            Some(What::TimerExpire {
                timer: it.number("timer")?,
                function: LATER,
                now: it.number("now")?,
            })
        },
        "contention_begin" => |it| {
            Some(What::ContentionBegin {
                lock: it.number("lock_addr")?,
                flags: it.small("flags")?,
                stack: Vec::new(),
            })
        },
        "contention_end" => |it| {
            Some(What::ContentionEnd {
                lock: it.number("lock_addr")?,
                result: i32::try_from(it.signed("ret")?).ok()?,
            })
        },
        "rss_stat" => |it| {
            Some(What::RssStat {
                mm: it.small("mm_id")?,
                current: it.number("curr")? != 0,
                member: it.small("member")?,
                bytes: it.signed("size")?,
            })
        },
        "counter_add" => |it| {
            Some(What::CounterAdd {
                counter: it.number("counter")?,
                amount: it.signed("amount")?,
                batch: i32::try_from(it.signed("batch")?).ok()?,
            })
        },
        _ => return of_processes(name),
    })
}

fn of_processes(name: &str) -> Meaning {
    Meaning::What(match name {
        "mark_victim" => |it| {
            Some(What::MarkVictim {
                victim: it.small("pid")?,
            })
        },
        "wake_reaper" => |it| {
            Some(What::WakeReaper {
                victim: it.small("pid")?,
            })
        },
        "start_task_reaping" => |it| {
            Some(What::StartReaping {
                victim: it.small("pid")?,
            })
        },
        "finish_task_reaping" => |it| {
            Some(What::FinishReaping {
                victim: it.small("pid")?,
            })
        },
        "skip_task_reaping" => |it| {
            Some(What::SkipReaping {
                victim: it.small("pid")?,
            })
        },
        "exit_mmap" => |_| Some(What::ExitMmap),
        "unmap" => |it| {
            let (start, end) = (it.number("start")?, it.number("end")?);
            Some(What::Unmap { start, end })
        },
        "print" => |it| it.text("buf").map(What::Mark),
        _ => return of_reclaim(name),
    })
}

fn of_reclaim(name: &str) -> Meaning {
    Meaning::What(match name {
        "mm_vmscan_kswapd_wake" => |it| {
            Some(What::KswapdWake {
                node: it.small("nid")?,
                zone: it.small("zid")?,
                order: it.small("order")?,
            })
        },
        "kswapddone" => |_| Some(What::KswapdDone),
        "mm_vmscan_kswapd_sleep" => |it| {
            Some(What::KswapdSleep {
                node: it.small("nid")?,
            })
        },
        "mm_vmscan_wakeup_kswapd" => |it| {
            Some(What::WakeupKswapd {
                node: it.small("nid")?,
                zone: it.small("zid")?,
                order: it.small("order")?,
                gfp: it.number("gfp_flags")?,
            })
        },
        "mm_vmscan_direct_reclaim_begin" => |it| {
            let (order, gfp) = (it.small("order")?, it.number("gfp_flags")?);
            Some(What::DirectReclaimBegin { order, gfp })
        },
        "mm_vmscan_direct_reclaim_end" => |it| {
            let pages = it.number("nr_reclaimed")?;
            Some(What::DirectReclaimEnd { pages })
        },
        _ => return Meaning::Unknown,
    })
}

fn alloc(it: &Record<'_>) -> Option<What> {
    /// The page frame numbers that Linux prints if the allocation got no page.
    const NO_PAGE: [u64; 3] = [0, u64::MAX, u32::MAX as u64];
    let (pfn, order) = (it.number("pfn")?, it.small("order")?);
    // Linux prints -1 if no migrate type was given; -1 does not fit and becomes `None`.
    let mobility = it.small("migratetype");
    Some(if NO_PAGE.contains(&pfn) {
        What::AllocFailed { order, mobility }
    } else {
        let gfp = it.number("gfp_flags");
        What::Alloc {
            pfn,
            order,
            mobility,
            gfp,
        }
    })
}
