//! Parses the events in the text of `perf script`, by their names and fields.

use super::Expected;
use super::number::{decimal, number};
use crate::event::{Symbol, What};
use crate::symbols::Symbols;

/// The order of Linux's largest blocks by default; a line with a larger order is treated as an
/// error.
const ORDER_MAX: u8 = 10;

/// Parses an event; returns `None` for an event that recordings do not have.
///
/// A page event that makes no sense is an error, because a replay would go wrong from this event
/// on. Any other event that makes no sense counts as unknown, because some kernels print only some
/// of the fields of such an event.
pub(super) fn event(
    name: &[u8],
    fields: &[u8],
    symbols: &mut Symbols,
) -> Result<Option<What>, Expected> {
    let name = name.strip_prefix(b"kmem:").unwrap_or(name);
    let order = || order(fields, b"order=");
    let page = || pfn(fields)?.ok_or("the `pfn` of a page");
    let mobility = || small(fields, b"migratetype=");
    Ok(Some(match name {
        b"mm_page_alloc" => match (pfn(fields)?, order()?, mobility()) {
            (Some(pfn), order, mobility) => What::Alloc {
                pfn,
                order,
                mobility,
                // `perf` may print flags by name, and the bits of a name differ between kernels, so
                // the parser reads only a number.
                gfp: field(fields, b"gfp_flags=").and_then(number),
            },
            (None, order, mobility) => What::AllocFailed { order, mobility },
        },
        b"mm_page_free" => What::Free {
            pfn: page()?,
            order: order()?,
        },
        b"mm_page_free_batched" => What::FreeBatched { pfn: page()? },
        b"mm_page_pcpu_drain" => What::PcpuDrain {
            pfn: page()?,
            order: order()?,
            mobility: mobility(),
        },
        b"mm_page_alloc_zone_locked" => match (pfn(fields)?, order()?, mobility()) {
            (Some(pfn), order, Some(mobility)) => What::ZoneLocked {
                pfn,
                order,
                mobility,
                percpu_refill: field(fields, b"percpu_refill=") == Some(b"1"),
            },
            _ => return Ok(None),
        },
        b"mm_page_alloc_extfrag" => return ext_frag(fields),
        _ => return Ok(other(name, fields, symbols)),
    }))
}

fn ext_frag(fields: &[u8]) -> Result<Option<What>, Expected> {
    let types = (
        small(fields, b"alloc_migratetype="),
        small(fields, b"fallback_migratetype="),
        field(fields, b"change_ownership="),
    );
    let (Some(pfn), (Some(mobility), Some(fallback), Some(claimed))) = (pfn(fields)?, types) else {
        return Ok(None);
    };
    Ok(Some(What::ExtFrag {
        pfn,
        order: order(fields, b"alloc_order=")?,
        fallback_order: order(fields, b"fallback_order=")?,
        mobility,
        fallback,
        claimed: claimed == b"1",
    }))
}

/// Parses events of work items, timers, locks and processes.
fn other(name: &[u8], fields: &[u8], symbols: &mut Symbols) -> Option<What> {
    let name = name.rsplit(|byte| *byte == b':').next()?;
    let value = |key: &[u8]| field(fields, key).and_then(number);
    let mut function = |key: &[u8]| -> Option<Symbol> {
        let name = field(fields, key)?;
        Some(symbols.symbol(&String::from_utf8_lossy(name)))
    };
    Some(match name {
        b"workqueue_queue_work" => What::WorkQueued {
            work: value(b"struct=")?,
            function: function(b"function=")?,
        },
        b"workqueue_execute_start" => What::WorkStart {
            work: after(fields, b"struct").and_then(number)?,
            function: symbols.symbol(&String::from_utf8_lossy(after(fields, b"function")?)),
        },
        b"workqueue_execute_end" => What::WorkEnd {
            work: after(fields, b"struct").and_then(number)?,
            function: symbols.symbol(&String::from_utf8_lossy(after(fields, b"function")?)),
        },
        b"timer_expire_entry" => What::TimerExpire {
            timer: value(b"timer=")?,
            function: function(b"function=")?,
            now: value(b"now=")?,
        },
        // The return probe of `alloc_pages_bulk` prints the number of pages that the function
        // returned.
        b"bulkret" => What::BulkAlloc {
            pages: u32::try_from(value(b"ret=")?).ok()?,
        },
        b"rss_stat" => What::RssStat {
            mm: u32::try_from(value(b"mm_id=")?).ok()?,
            current: field(fields, b"curr=")? != b"0",
            member: rss_member(field(fields, b"type=")?)?,
            bytes: signed(field(fields, b"size=")?.strip_suffix(b"B")?)?,
        },
        b"mark_victim" => What::MarkVictim {
            victim: victim(fields)?,
        },
        b"wake_reaper" => What::WakeReaper {
            victim: victim(fields)?,
        },
        b"start_task_reaping" => What::StartReaping {
            victim: victim(fields)?,
        },
        b"finish_task_reaping" => What::FinishReaping {
            victim: victim(fields)?,
        },
        b"skip_task_reaping" => What::SkipReaping {
            victim: victim(fields)?,
        },
        b"exit_mmap" => What::ExitMmap,
        _ => return None,
    })
}

fn victim(fields: &[u8]) -> Option<u32> {
    let pid = field(fields, b"pid=").and_then(decimal)?;
    u32::try_from(pid).ok()
}

fn rss_member(name: &[u8]) -> Option<u32> {
    Some(match name {
        b"MM_FILEPAGES" => 0,
        b"MM_ANONPAGES" => 1,
        b"MM_SWAPENTS" => 2,
        b"MM_SHMEMPAGES" => 3,
        _ => return None,
    })
}

fn signed(text: &[u8]) -> Option<i64> {
    match text.strip_prefix(b"-") {
        Some(digits) => Some(-i64::try_from(decimal(digits)?).ok()?),
        None => i64::try_from(decimal(text)?).ok(),
    }
}

fn order(fields: &[u8], key: &[u8]) -> Result<u8, Expected> {
    let order = field(fields, key).and_then(number);
    let order = order.ok_or("`order=` and a number")?;
    let order = u8::try_from(order).ok();
    let order = order.filter(|order| *order <= ORDER_MAX);
    order.ok_or("an order from 0 to 10")
}

fn small(fields: &[u8], key: &[u8]) -> Option<u8> {
    u8::try_from(field(fields, key).and_then(number)?).ok()
}

/// Parses the page frame number; `None` if the event has no page.
fn pfn(fields: &[u8]) -> Result<Option<u64>, Expected> {
    // perf computes `page` from `pfn` with the wrong base, but the result still identifies the
    // page.
    let value = field(fields, b"pfn=").or_else(|| field(fields, b"page="));
    let value = value.ok_or("`pfn=` and a number")?;
    if value == b"(nil)" {
        return Ok(None);
    }
    let pfn = number(value).ok_or("`pfn=` and a number")?;
    // For a failed allocation, the kernel prints the page frame number 0 or, in some versions, -1.
    // The kernel never allocates a page with one of these numbers.
    Ok((pfn != 0 && pfn != u64::MAX).then_some(pfn))
}

/// Returns the value of the first field with this `key`, which ends in `=`.
fn field<'a>(fields: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    fields
        .split(|byte| *byte == b' ')
        .find_map(|word| word.strip_prefix(key))
}

/// Returns the word after the first word that equals `key`, without a colon at its end.
fn after<'a>(fields: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let mut words = fields.split(|byte| *byte == b' ');
    words.find(|word| *word == key)?;
    let word = words.next()?;
    Some(word.strip_suffix(b":").unwrap_or(word))
}
