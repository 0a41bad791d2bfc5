//! Finds the data that a recording lacks, and notes them for the reader of the report. Sets aside
//! the moves of pages that cannot be judged without these data.

use std::collections::BTreeSet;

use plimsoll_recording::{Header, Recording};

use super::pair::Pair;
use crate::measure::metric::Unit;
use crate::report::value::human;

/// The names of two events of reclaim, as they appear in the list of recorded events in a
/// recording's header.
const KSWAPD: &str = "vmscan:mm_vmscan_kswapd_wake";
const DIRECT: &str = "vmscan:mm_vmscan_direct_reclaim_begin";

/// Returns notes about data that the recording lacks, although the moves of pages in the replay
/// depend on these data.
pub(super) fn notes(header: &Header) -> Vec<String> {
    let mut notes = Vec::new();
    if header.text("cache slice").is_none() {
        notes.push(
            "The recording does not say how much of the last-level cache a CPU has; 1 MiB is taken, \
             which decides when frees of small blocks empty the lists."
                .to_owned(),
        );
    }
    notes.extend(unrecorded_reclaim(header));
    notes
}

/// Warns if the kernel reclaimed memory although the recorder did not record the events of reclaim.
fn unrecorded_reclaim(header: &Header) -> Option<String> {
    let unseen = |event: &str, counter: &str, what: &str| {
        let seen = header.recorded.iter().any(|known| known == event);
        let times = rise(header, counter).filter(|times| !seen && *times > 0)?;
        Some(format!("{} {what}", human(times as f64, Unit::Count)))
    };
    let kswapd = unseen(KSWAPD, "pageoutrun", "rounds of kswapd");
    let direct = unseen(DIRECT, "allocstall_", "passes of reclaim by allocations");
    let times: Vec<String> = kswapd.into_iter().chain(direct).collect();
    (!times.is_empty()).then(|| {
        format!(
            "/proc/vmstat counts {} while this was recorded, but the recording has no events of them. \
             So moves that depend on reclaim may differ. Record again with this version of Plimsoll.",
            times.join(" and ")
        )
    })
}

/// The sum of the increases, during the recording, of all counters of `/proc/vmstat` whose names
/// begin with `prefix`. `None` unless the recording has the values both at its beginning and at its
/// end.
fn rise(header: &Header, prefix: &str) -> Option<u64> {
    let total = |text: &str| {
        let counters = text.lines().filter(|line| line.starts_with(prefix));
        let values = counters.filter_map(|line| line.split_once(' ')?.1.trim().parse::<u64>().ok());
        values.reduce(|total, value| total.saturating_add(value))
    };
    let before = total(header.text("vmstat before")?)?;
    let after = total(header.text("vmstat after")?)?;
    Some(after.saturating_sub(before))
}

/// Sets aside the moves of CPUs with lost events, because the contents of these CPUs' lists are
/// unknown. Returns a note about the lost events, or `None` if no event was lost.
pub(super) fn set_lossy_aside(recording: &Recording, pairs: &mut [Pair]) -> Option<String> {
    let lost = recording
        .header
        .lost
        .iter()
        .filter(|(_, events)| *events > 0);
    let cpus: BTreeSet<u32> = lost.map(|(cpu, _)| *cpu).collect();
    let mut aside = 0;
    for pair in pairs.iter_mut().filter(|pair| cpus.contains(&pair.cpu)) {
        aside += u32::from(!pair.unknown);
        pair.unknown = true;
    }
    (!cpus.is_empty()).then(|| {
        format!(
            "{} CPUs lost events, so it is not known what was on their lists: their {aside} moves \
             are set aside.",
            cpus.len()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with the counters of `/proc/vmstat` before and after the recording, and with the
    /// names of the events that were recorded.
    fn header(before: &str, after: &str, recorded: &[&str]) -> Header {
        let text = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        Header {
            texts: vec![
                text("cache slice", "1048576"),
                text("vmstat before", before),
                text("vmstat after", after),
            ],
            recorded: recorded.iter().map(|name| (*name).to_owned()).collect(),
            ..Header::default()
        }
    }

    const BEFORE: &str = "allocstall_dma 1\nallocstall_normal 2\npageoutrun 3\npgrotated 0\n";
    const AFTER: &str = "allocstall_dma 5\nallocstall_normal 1098\npageoutrun 19\npgrotated 7\n";

    #[test]
    fn reclaim_without_events_is_told() {
        let notes = notes(&header(BEFORE, AFTER, &["kmem:mm_page_alloc"]));
        let said = "/proc/vmstat counts 16 rounds of kswapd and 1,100 passes of reclaim by \
                    allocations while this was recorded, but ";
        assert!(notes.len() == 1 && notes[0].starts_with(said), "{notes:?}");
    }

    /// In this recording, both kswapd and allocations reclaimed. If the recorder recorded the
    /// events of only one of these two kinds of reclaim, the notes warn only of the other kind.
    #[test]
    fn each_event_of_reclaim_is_missed_by_itself() {
        let notes = notes(&header(BEFORE, AFTER, &[KSWAPD]));
        assert!(notes[0].contains("counts 1,100 passes of reclaim by allocations while"));
        assert!(super::notes(&header(BEFORE, AFTER, &[KSWAPD, DIRECT])).is_empty());
    }

    #[test]
    fn nothing_is_missed_if_nothing_was_reclaimed_or_no_counter_tells() {
        assert!(notes(&header(BEFORE, BEFORE, &[])).is_empty());
        assert!(notes(&header("", AFTER, &[])).is_empty());
        assert!(notes(&header(BEFORE, "", &[])).is_empty());
    }
}
