//! The report that the user gets at the end, in five lines and notes.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use plimsoll_recording::{Event, Totals, What};

/// Counts of events, by subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of allocated blocks.
    pub allocs: u64,
    /// The number of freed blocks.
    pub frees: u64,
    /// The number of blocks returned from per-CPU lists to a zone.
    pub drains: u64,
    /// The number of other events of the page allocator: failed and bulk allocations, batched
    /// frees, blocks taken from a free list, and blocks taken from the free list of another migrate
    /// type.
    pub pages: u64,
    /// The number of events of work items and timers.
    pub upkeep: u64,
    /// The number of waits for locks.
    pub waits: u64,
    /// The number of events of reclaim, by kswapd and by allocations.
    pub reclaim: u64,
    /// The number of events of processes: OOM victims and their reaping, ends of address spaces,
    /// changes of resident pages.
    pub processes: u64,
}

impl Counts {
    pub(super) fn count(&mut self, event: &Event) {
        *match &event.what {
            What::Alloc { .. } => &mut self.allocs,
            What::Free { .. } => &mut self.frees,
            What::PcpuDrain { .. } => &mut self.drains,
            What::AllocFailed { .. }
            | What::FreeBatched { .. }
            | What::ZoneLocked { .. }
            | What::ExtFrag { .. }
            | What::BulkAlloc { .. } => &mut self.pages,
            What::WorkQueued { .. }
            | What::WorkStart { .. }
            | What::WorkEnd { .. }
            | What::TimerStart { .. }
            | What::TimerExpire { .. } => &mut self.upkeep,
            What::ContentionBegin { .. } => &mut self.waits,
            What::KswapdWake { .. }
            | What::KswapdDone
            | What::KswapdSleep { .. }
            | What::WakeupKswapd { .. }
            | What::DirectReclaimBegin { .. }
            | What::DirectReclaimEnd { .. } => &mut self.reclaim,
            What::ContentionEnd { .. } | What::Mark(_) => return,
            _ => &mut self.processes,
        } += 1;
    }
}

/// A summary of a recording.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The path of the file, as the user gave it.
    pub path: PathBuf,
    /// The number of events and the number of bytes in the file.
    pub totals: Totals,
    /// The number of CPUs that were recorded.
    pub cpus: u32,
    /// The time from switching tracing on to switching it off.
    pub duration: Duration,
    /// Counts of events, by subject.
    pub counts: Counts,
    /// The number of events that the kernel dropped, by CPU; the list leaves out CPUs without lost
    /// events.
    pub lost: Vec<(u32, u64)>,
    /// The number of sub-buffers that could not be decoded to their end, and the first error;
    /// `None` if all sub-buffers were decoded.
    pub damaged: Option<(u64, String)>,
    /// A sentence for each thing that could not be recorded, with the reason.
    pub missing: Vec<String>,
    /// The command and its exit status; `None` if there was no command, or if the command had not
    /// ended when the recording ended.
    pub command: Option<(String, ExitStatus)>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self { totals, counts, .. }, path) = (self, self.path.display());
        writeln!(
            f,
            "{path}: {} events of {} CPUs in {:.1} s, {}",
            grouped(totals.events),
            self.cpus,
            self.duration.as_secs_f64(),
            bytes(totals.bytes)
        )?;
        writeln!(
            f,
            "  pages: {} allocations, {} frees, {} drains, {} others",
            grouped(counts.allocs),
            grouped(counts.frees),
            grouped(counts.drains),
            grouped(counts.pages)
        )?;
        writeln!(
            f,
            "  work and timers: {}; waits for spinning locks: {}; processes: {}; reclaim: {}",
            grouped(counts.upkeep),
            grouped(counts.waits),
            grouped(counts.processes),
            grouped(counts.reclaim)
        )?;
        self.fmt_lost(f)?;
        if let Some((command, status)) = &self.command {
            write!(f, "  `{command}` ended: {status}")?;
        } else {
            f.write_str("  recorded until it was stopped")?;
        }
        for missing in &self.missing {
            write!(f, "\nnote: {missing}")?;
        }
        Ok(())
    }
}

impl Summary {
    fn fmt_lost(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost: u64 = self.lost.iter().map(|(_, events)| events).sum();
        match &self.lost[..] {
            [] => f.write_str("  lost: nothing"),
            by_cpu => {
                let worst = by_cpu.iter().max_by_key(|(_, events)| *events);
                let (cpu, most) = worst.copied().unwrap_or_default();
                write!(
                    f,
                    "  lost: {} events on {} CPUs, most on CPU {cpu} ({}); give a larger --buffer-mb",
                    grouped(lost),
                    by_cpu.len(),
                    grouped(most)
                )
            }
        }?;
        if let Some((pages, first)) = &self.damaged {
            write!(f, "; {pages} ring buffer pages not understood ({first})")?;
        }
        writeln!(f)
    }
}

/// Returns a count with commas between thousands.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn bytes(count: u64) -> String {
    let kib = count as f64 / 1024.0;
    if kib < 1024.0 {
        format!("{kib:.1} KiB")
    } else {
        format!("{:.2} MiB", kib / 1024.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_by_thousands() {
        let texts = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn each_event_of_reclaim_counts_as_such() {
        let mut counts = Counts::default();
        let (node, zone, order, gfp) = (0, 2, 0, 1);
        let whats = [
            What::KswapdWake { node, zone, order },
            What::KswapdDone,
            What::KswapdSleep { node },
            What::WakeupKswapd {
                node,
                zone,
                order,
                gfp,
            },
            What::DirectReclaimBegin { order, gfp },
            What::DirectReclaimEnd { pages: 3 },
        ];
        for what in whats {
            counts.count(&Event {
                time_ns: 1,
                cpu: 0,
                pid: 1,
                what,
            });
        }
        let expected = Counts {
            reclaim: 6,
            ..Counts::default()
        };
        assert_eq!(counts, expected);
    }

    #[test]
    fn sizes_have_a_unit() {
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 19), "1.50 MiB");
    }
}
