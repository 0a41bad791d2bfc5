//! Reads the recording in `tests/data` as a user would, and checks how many events of each kind it
//! has.

use plimsoll_lab::trace::{Recording, Summary};
use plimsoll_recording::What;
use plimsoll_recording::text::Reader;

const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/data/cargo-build.perf-script.txt.zst"
);

#[test]
fn the_counts_of_a_real_recording_are_those_that_awk_finds() {
    let recording = Recording::read(FILE).unwrap();
    let summary = &recording.summary;
    assert_eq!(summary.lines, 40_000);
    assert_eq!(
        (summary.allocs, summary.frees, summary.drains),
        (12_926, 12_045, 3_616)
    );
    assert_eq!(
        (summary.unmatched_frees, summary.never_freed),
        (6_955, 7_836)
    );
    assert_eq!(
        (summary.batched_confirmed, summary.batched_alone),
        (11_244, 31)
    );
    assert_eq!((summary.failed_allocs, summary.lost_frees), (0, 0));
    assert_eq!(summary.ignored["kmem:mm_page_alloc_zone_locked"], 138);
    assert!(summary.by_cpu.keys().copied().eq([0, 1]));
    assert_eq!(recording.warnings, []);
    assert_eq!(recording.records.len(), 12_926 + 12_045 + 3_616);
}

#[test]
fn counts_by_order_and_by_cpu_add_up() {
    let Summary {
        allocs,
        frees,
        by_order,
        by_cpu,
        ..
    } = Recording::read(FILE).unwrap().summary;
    let by_order = by_order
        .iter()
        .fold((0, 0), |sum, of| (sum.0 + of.allocs, sum.1 + of.frees));
    let by_cpu = by_cpu
        .values()
        .fold((0, 0), |sum, of| (sum.0 + of.allocs, sum.1 + of.frees));
    assert_eq!(by_order, (allocs, frees));
    assert_eq!(by_cpu, (allocs, frees));
}

#[test]
fn a_recording_streams_in_the_order_of_the_file() {
    let mut reader = Reader::open(FILE).unwrap();
    let events: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    assert!(events.is_sorted_by_key(|event| event.time_ns));
    let batched = events
        .iter()
        .filter(|event| matches!(event.what, What::FreeBatched { .. }));
    assert_eq!(batched.count(), 11_275);
    assert_eq!(reader.lines(), 40_000);
}
