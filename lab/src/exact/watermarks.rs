//! Watermark checks: repeats the kernel's decisions about whether a zone is allowed to serve a
//! request, with the numbers that the kernel compared.
//!
//! A load fills memory and logs every call of `__zone_watermark_ok` that a probe recorded. The
//! kernel's fast path calls this function only if it is not clear that the zone has enough free
//! pages. So in the logged calls, the number of free pages is near or below the watermark.
//!
//! ```text
//! check zone=1:Normal free=503 order=0 mark=503 reserve=0 flags=0x901 ok=0
//! ```
//!
//! `reserve` is the number of pages that the zone withholds from requests that a higher zone could
//! serve (`protection` in `/proc/zoneinfo`). `flags` are the kernel's `ALLOC_*` bits.

use plimsoll_mm::page::watermark::{Urgency, allows};
use plimsoll_mm::units::{Order, Pages};
use plimsoll_recording::Recording;

use super::{Judge, Judgement};

/// The name of the recording's text that holds the kernel's watermark checks.
pub(crate) const TEXT: &str = "watermark checks";

/// The flag of a request by a victim of the OOM killer (Linux: `ALLOC_OOM`).
const OOM: u32 = 0x08;
/// The flag of a request that cannot wait (Linux: `ALLOC_NON_BLOCK`).
const NON_BLOCK: u32 = 0x10;
/// The flag of a request that is allowed to use a part of the pages below the min watermark (Linux:
/// `ALLOC_MIN_RESERVE`).
const MIN_RESERVE: u32 = 0x20;
const NON_BLOCK_AND_RESERVE: u32 = NON_BLOCK | MIN_RESERVE;
const RESERVES: u32 = OOM | NON_BLOCK | MIN_RESERVE;

/// Checks that Plimsoll makes the same decision as the kernel in each recorded watermark check: is
/// a zone allowed to serve a request?
#[derive(Clone, Copy, Debug, Default)]
pub struct Watermarks;

impl Judge for Watermarks {
    fn name(&self) -> &'static str {
        "watermarks"
    }

    fn judge(&self, recording: &Recording) -> Option<Judgement> {
        let text = recording.header.text(TEXT)?;
        let mut judgement = Judgement {
            subject: "watermarks".to_owned(),
            unit: "checks",
            ..Judgement::default()
        };
        let mut unreadable = 0;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            match Check::read(line) {
                Some(check) => check.judge(line, &mut judgement),
                None => unreadable += 1,
            }
        }
        if unreadable > 0 {
            let note = format!("{unreadable} lines of `{TEXT}` could not be read.");
            judgement.notes.push(note);
        }
        if judgement.set_aside > 0 {
            judgement.notes.push(format!(
                "{} checks are set aside: either the kernel refused a larger block that the numbers \
             allow, because it also checks that such a block is free, or the request had rights \
             that requests in Plimsoll do not have.",
                judgement.set_aside
            ));
        }
        Some(judgement)
    }
}

struct Check {
    free: u64,
    order: Order,
    mark: Pages,
    reserve: Pages,
    flags: u32,
    ok: bool,
}

impl Check {
    fn read(line: &str) -> Option<Self> {
        let words = || line.split(' ').filter_map(|word| word.split_once('='));
        let word = |name| words().find_map(|(known, value)| (known == name).then_some(value));
        let pages = |name| word(name)?.parse().ok().map(Pages);
        Some(Self {
            // The kernel's approximate count of free pages can briefly be negative. Treat a
            // negative count as zero.
            free: word("free")?.parse::<i64>().ok()?.max(0).unsigned_abs(),
            order: Order::new(word("order")?.parse().ok()?)?,
            mark: pages("mark")?,
            reserve: pages("reserve")?,
            flags: u32::from_str_radix(word("flags")?.strip_prefix("0x")?, 16).ok()?,
            ok: word("ok")? == "1",
        })
    }

    fn judge(&self, line: &str, judgement: &mut Judgement) {
        let ours = self.urgency().map(|urgency| {
            let block = self.order.pages();
            allows(self.free, block, self.mark, self.reserve, urgency)
        });
        match ours {
            Some(ours) if ours == self.ok => {
                judgement.compared += 1;
                judgement.identical += 1;
            }
            // The kernel also refuses a request if no free block is large enough. The recording
            // does not show the free blocks. So if Plimsoll allows a request for several pages and
            // the kernel does not, the judge sets this check aside.
            Some(true) if self.order.pages().0 > 1 => judgement.set_aside += 1,
            None => judgement.set_aside += 1,
            Some(ours) => {
                judgement.compared += 1;
                if judgement.first_difference.is_empty() {
                    judgement.first_difference = vec![
                        line.to_owned(),
                        format!("Plimsoll: {}", if ours { "ok=1" } else { "ok=0" }),
                    ];
                }
            }
        }
    }

    /// The request's urgency: how far below the watermark the request is allowed to go. `None` for
    /// a combination of flags that Plimsoll does not have.
    const fn urgency(&self) -> Option<Urgency> {
        match self.flags & RESERVES {
            0 => Some(Urgency::Normal),
            NON_BLOCK => Some(Urgency::NoWait),
            MIN_RESERVE => Some(Urgency::High),
            NON_BLOCK_AND_RESERVE => Some(Urgency::Atomic),
            OOM => Some(Urgency::Victim),
            _ => None,
        }
    }
}
