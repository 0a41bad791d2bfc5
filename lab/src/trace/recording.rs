//! Reads a whole recording as a list of allocations, frees and drains, in order of time.

use std::collections::HashMap;

use plimsoll_mm::units::Order;
use plimsoll_recording::{Contents, ReadError, Warning};

use super::summary::Summary;
use super::{Event, Record};

/// The events of a recording that a replay can perform, with their counts, and warnings about the
/// file.
#[derive(Clone, Debug)]
pub struct Recording {
    /// All events, in order of time. Each free is recorded once, and there is no
    /// [`Event::FreeBatched`].
    pub records: Vec<Record>,
    /// The counts of the recording's events.
    pub summary: Summary,
    /// Warnings about irregularities in the file.
    pub warnings: Vec<Warning>,
}

impl Recording {
    /// Reads `file` to its end, or standard input for `-`.
    ///
    /// # Errors
    /// If the file cannot be read, a block is larger than Plimsoll supports, or no event is usable.
    pub fn read(file: &str) -> Result<Self, ReadError> {
        Self::of(plimsoll_recording::Recording::read(file)?)
    }

    /// Extracts from `contents` the events that a replay can use.
    ///
    /// # Errors
    /// If a block is larger than Plimsoll supports, or no event is usable.
    pub fn of(contents: Contents) -> Result<Self, ReadError> {
        let mut ignored = contents.ignored;
        let mut records = Vec::with_capacity(contents.recording.events.len());
        for from in &contents.recording.events {
            let event = Event::of(&from.what).map_err(|order| ReadError::Order {
                file: contents.file.clone(),
                event: from.what.tracepoint(),
                order,
                most: Order::MAX.get(),
            })?;
            let Some(event) = event else {
                let name = from.what.tracepoint();
                *ignored.entry(name.to_owned()).or_default() += 1;
                continue;
            };
            records.push(Record {
                time_ns: from.time_ns,
                cpu: from.cpu,
                pid: from.pid,
                event,
            });
        }
        let happened = |record: &Record| !matches!(record.event, Event::PcpuDrain { .. });
        if !records.iter().any(happened) {
            let Contents { file, lines, .. } = contents;
            return Err(ReadError::Empty { file, lines });
        }
        if !records
            .iter()
            .any(|record| matches!(record.event, Event::Free { .. }))
        {
            batched_are_the_frees(&mut records);
        }
        let mut summary = Summary::of(&records);
        summary.lines = contents.lines;
        summary.ignored = ignored;
        records.retain(|record| !matches!(record.event, Event::FreeBatched { .. }));
        Ok(Self {
            records,
            summary,
            warnings: contents.warnings,
        })
    }
}

/// Converts every `mm_page_free_batched` event to a plain free. Such a free gets the order with
/// which its page was allocated, or 0 if the recording does not show the allocation.
fn batched_are_the_frees(records: &mut [Record]) {
    let mut live = HashMap::new();
    for record in records {
        match record.event {
            Event::Alloc { pfn, order } => drop(live.insert(pfn, order)),
            Event::FreeBatched { pfn } => {
                let order = live.remove(&pfn).unwrap_or(Order::ZERO);
                record.event = Event::Free { pfn, order };
            }
            Event::AllocFailed { .. } | Event::Free { .. } | Event::PcpuDrain { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn recording(lines: &[&str]) -> Result<Recording, ReadError> {
        let line = |line: &&str| format!("perf 500 [001] {line}\n");
        let text: String = lines.iter().map(line).collect();
        let input = Box::new(Cursor::new(text));
        let contents = plimsoll_recording::Recording::read_from("f.txt", input)?;
        Recording::of(contents)
    }

    #[test]
    fn a_batched_free_confirms_and_does_not_free_again() {
        let recording = recording(&[
            "1.000001: kmem:mm_page_alloc: pfn=0x8 order=0",
            "1.000002: kmem:mm_page_free: pfn=0x8 order=0",
            "1.000003: kmem:mm_page_free_batched: pfn=0x8 order=0",
        ])
        .unwrap();
        assert_eq!(recording.records.len(), 2);
        let Summary {
            frees,
            unmatched_frees,
            batched_confirmed,
            ..
        } = recording.summary;
        assert_eq!((frees, unmatched_frees, batched_confirmed), (1, 0, 1));
    }

    #[test]
    fn without_other_frees_the_batched_ones_are_the_frees() {
        let recording = recording(&[
            "1.000001: kmem:mm_page_alloc: pfn=0x8 order=2",
            "1.000003: kmem:mm_page_free_batched: pfn=0x8 order=0",
            "1.000004: kmem:mm_page_free_batched: pfn=0x9 order=0",
        ])
        .unwrap();
        let freed = recording.records[1].event;
        assert_eq!(
            freed,
            Event::Free {
                pfn: 8,
                order: Order::new(2).expect("legal")
            }
        );
        let Summary {
            frees,
            unmatched_frees,
            never_freed,
            ..
        } = recording.summary;
        assert_eq!((frees, unmatched_frees, never_freed), (2, 1, 0));
    }

    #[test]
    fn late_events_are_put_where_they_belong_and_equal_times_keep_their_order() {
        let recording = recording(&[
            "1.000002: kmem:mm_page_free: pfn=0x8 order=0",
            "1.000001: kmem:mm_page_alloc: pfn=0x8 order=0",
            "1.000002: kmem:mm_page_alloc: pfn=0x9 order=0",
        ])
        .unwrap();
        let pfn = |record: &Record| match record.event {
            Event::Alloc { pfn, .. } => ("alloc", pfn),
            Event::Free { pfn, .. } => ("free", pfn),
            _ => ("other", 0),
        };
        let order: Vec<_> = recording.records.iter().map(pfn).collect();
        assert_eq!(order, [("alloc", 8), ("free", 8), ("alloc", 9)]);
        assert_eq!(recording.summary.unmatched_frees, 0);
    }

    #[test]
    fn a_recording_without_any_use_is_an_error_that_says_how_to_make_one() {
        let error = recording(&["1.000001: kmem:kmalloc: ptr=0x1"]).expect_err("nothing of use");
        assert!(
            error
                .to_string()
                .contains("found none in 1 lines; record with"),
            "{error}"
        );
        recording(&[]).expect_err("nothing at all");
    }
}
