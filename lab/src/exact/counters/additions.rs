//! Checks whether the kernel added to a counter what the log of the recorded program implies.
//!
//! A probe on `percpu_counter_add_batch` records each addition to a counter. If the recording lacks
//! this probe, the additions are the differences between successive precise sums in `rss_stat`
//! events.
//!
//! The recording begins before the log does. So [`Additions`] searches the recording for the place
//! where the log's additions occur one after the other. If the kernel made an addition of the log
//! in two parts, the addition still counts as equal. A note says how many additions the kernel
//! split.

use std::collections::BTreeMap;

use plimsoll_recording::Recording;
use plimsoll_recording::event::{Event, What};

use super::log::{LoggedOp, Run};
use super::replay::pieces;
use super::{Judge, Judgement};

/// The index of the counter of anonymous pages in `rss_stat` events (Linux: `MM_ANONPAGES`).
const ANON: u32 = 1;

/// The largest number of recorded additions that can follow the log's last addition. The kernel
/// makes such additions when it frees the program's memory after the program's exit.
const BEHIND_LOG_MAX: usize = 1 << 20;

/// Checks that the recorded program's log and the kernel agree on each addition to a counter of
/// resident pages: the CPU, and the number of pages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Additions;

/// An addition to a counter: the CPU that added, and the number of pages that it added. The number
/// is negative if the CPU subtracted.
type Addition = (u32, i64);

impl Judge for Additions {
    fn name(&self) -> &'static str {
        "additions"
    }

    fn judge(&self, recording: &Recording) -> Option<Judgement> {
        let recorded = recorded(recording)?;
        let wanted: Vec<Addition> = super::runs(&recording.header)?
            .iter()
            .flat_map(logged)
            .collect();
        if wanted.is_empty() {
            return None;
        }
        let found = best(&recorded, &wanted);
        let mut judgement = Judgement {
            subject: "resident pages".to_owned(),
            unit: "additions",
            compared: wanted.len() as u64,
            identical: found.equal as u64,
            ..Judgement::default()
        };
        judgement.notes.push(format!(
            "The recording has {} additions to the counter of anonymous pages, and the log begins \
             at number {}; the kernel made {} of the log's additions in two parts.",
            recorded.len(),
            found.begin + 1,
            found.cut
        ));
        if let (Some(wanted), at) = (wanted.get(found.equal), found.end) {
            judgement.first_difference = vec![
                format!(
                    "addition {} of the log: {wanted:?} (CPU, pages)",
                    found.equal + 1
                ),
                format!("Linux: {:?}", &recorded[at..recorded.len().min(at + 3)]),
            ];
        }
        Some(judgement)
    }
}

/// Returns the recorded additions that are compared with the log. If a probe recorded additions to
/// counters, returns those to the counter with the most additions. Otherwise, returns the changes
/// in the number of anonymous pages of one address space: the one with the most changes.
fn recorded(recording: &Recording) -> Option<Vec<Addition>> {
    let probed = probed(&recording.events);
    let told = || told(&recording.events, recording.header.page_bytes);
    let longest = |by: BTreeMap<u64, Vec<Addition>>| by.into_values().max_by_key(Vec::len);
    longest(probed).or_else(|| longest(told()))
}

/// The additions to each counter that the probe on `percpu_counter_add_batch` recorded, keyed by
/// the counter's address.
fn probed(events: &[Event]) -> BTreeMap<u64, Vec<Addition>> {
    let mut by_counter: BTreeMap<u64, Vec<Addition>> = BTreeMap::new();
    for event in events {
        if let What::CounterAdd {
            counter, amount, ..
        } = event.what
        {
            by_counter
                .entry(counter)
                .or_default()
                .push((event.cpu, amount));
        }
    }
    by_counter
}

/// The additions to the anonymous pages of each address space. The key is the number that
/// identifies the address space in `rss_stat` events. An addition is the difference between two
/// successive sums.
fn told(events: &[Event], page_bytes: u32) -> BTreeMap<u64, Vec<Addition>> {
    let page = i64::from(page_bytes.max(1));
    let mut by_space: BTreeMap<u64, (i64, Vec<Addition>)> = BTreeMap::new();
    for event in events {
        if let What::RssStat {
            mm,
            member: ANON,
            bytes,
            ..
        } = event.what
        {
            let (last, additions) = by_space.entry(u64::from(mm)).or_default();
            additions.push((event.cpu, bytes / page - *last));
            *last = bytes / page;
        }
    }
    by_space
        .into_iter()
        .map(|(mm, (_, additions))| (mm, additions))
        .collect()
}

fn logged(run: &Run) -> Vec<Addition> {
    let additions = |step: &LoggedOp| match step {
        LoggedOp::Touch(pages) => (0..pages.pages).map(|_| (pages.cpu, 1)).collect(),
        LoggedOp::Unmap(unmapping) => pieces(unmapping.offset, unmapping.pages, None)
            .into_iter()
            .map(|piece| (unmapping.cpu, -piece.cast_signed()))
            .collect(),
        LoggedOp::Precise { .. } => Vec::new(),
    };
    run.steps.iter().flat_map(additions).collect()
}

/// The part of the recorded additions to counters that best matches the additions in the log of the
/// recorded program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Found {
    /// The part of the recording that matches the log begins with the addition at this index.
    begin: usize,
    /// The index just past the last recorded addition that equals an addition of the log.
    end: usize,
    /// The number of additions that the log implies and that were found in the recording. The match
    /// begins with the log's first addition, and ends before the first addition that the recording
    /// lacks.
    equal: usize,
    /// The number of additions that the log implies and that were found in the recording, although
    /// the kernel had split each of them in two.
    cut: usize,
}

/// Tries to match `wanted`, the additions of the log, with `recorded` from each position on.
/// Returns the match that has the most additions of the log.
fn best(recorded: &[Addition], wanted: &[Addition]) -> Found {
    let latest = recorded.len().saturating_sub(wanted.len());
    let begins = latest.saturating_sub(BEHIND_LOG_MAX)..recorded.len();
    let mut best = Found::default();
    for begin in begins {
        let found = follow(recorded, wanted, begin);
        if found.equal > best.equal {
            best = found;
        }
        if found.equal == wanted.len() {
            break;
        }
    }
    best
}

fn follow(recorded: &[Addition], wanted: &[Addition], begin: usize) -> Found {
    let mut found = Found {
        begin,
        end: begin,
        ..Found::default()
    };
    for &(cpu, amount) in wanted {
        match recorded[found.end..] {
            [(on, all), ..] if (on, all) == (cpu, amount) => found.end += 1,
            [(on, one), (next, other), ..]
                if on == cpu
                    && next == cpu
                    && one.signum() == other.signum()
                    && one + other == amount =>
            {
                found.end += 2;
                found.cut += 1;
            }
            _ => return found,
        }
        found.equal += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The additions that a program's log implies are found in the recording, even if other
    /// additions come before them.
    #[test]
    fn a_log_is_found_behind_what_came_before_it() {
        let recorded = [(0, 1), (0, 1), (0, 1), (3, -2), (0, -1)];
        let found = best(&recorded, &[(0, 1), (3, -2)]);
        assert_eq!(
            (found.begin, found.end, found.equal, found.cut),
            (2, 4, 2, 0)
        );
    }

    #[test]
    fn an_addition_in_two_parts_counts_as_one() {
        let recorded = [(0, 1), (3, -200), (3, -312), (4, 1)];
        let found = best(&recorded, &[(0, 1), (3, -512), (4, 1)]);
        assert_eq!((found.equal, found.cut), (3, 1));
        // Two recorded additions on different CPUs do not count as the two parts of one addition.
        let found = best(&[(0, 1), (3, -200), (2, -312)], &[(0, 1), (3, -512)]);
        assert_eq!(found.equal, 1);
    }
}
