//! Tests of the comparison between the kernel's counter readings and Plimsoll's. The logs are
//! written by hand.

use plimsoll_mm::counter::Accuracy;

use super::log::{LoggedOp, Pages};
use super::replay::pieces;
use super::*;

fn recording(log: &str) -> Recording {
    let mut recording = Recording::default();
    recording.header.texts = vec![("counter log".to_owned(), log.to_owned())];
    recording
}

/// The start of a log of 16 CPUs. On 16 CPUs, the batch is 32, so a CPU adds its count to the
/// shared value when the count reaches 32. CPU 0 has counted 10 anonymous pages, and none of them
/// is in the shared value. The reading shows 5 pages of files.
const START: &str = "# next 16 31 1\nI 0 10 5 5\n";

fn judge(lines: &str) -> Judgement {
    let judgement = Readings.judge(&recording(&format!("{START}{lines}")));
    judgement.expect("a run")
}

/// Plimsoll adds a CPU's count to the shared value as soon as the count reaches the batch. Linux
/// does so at the same addition, so every reading is identical.
#[test]
fn a_fold_is_where_linux_has_it() {
    // CPU 1 keeps 31 pages in its own count. At the 32nd page, CPU 1 adds all 32 pages to the
    // shared value.
    let judgement = judge("1 +31 0 5\n1 +1 31 37\n2 -31 0 37\nP 11 5 37 16 11 16\n");
    assert_eq!((judgement.compared, judgement.identical), (4, 4));
    assert_eq!(judgement.first_difference, [""; 0]);
    assert!(judgement.notes[1].starts_with("Of 1 precise readings, 1 are"));
}

#[test]
fn a_reading_that_differs_is_shown_with_both_sides() {
    let judgement = judge("1 +31 0 36\n1 +1 31 37\n");
    assert_eq!((judgement.compared, judgement.identical), (2, 1));
    assert_eq!(
        judgement.first_difference[1],
        "Linux shows 36 pages, Plimsoll 5"
    );
}

/// Linux can count the pages of one unmapping in two additions. The replay then finds the sizes of
/// two additions that give the recorded reading. A note says how many such unmappings there are.
#[test]
fn an_unmapping_that_was_counted_in_two_parts_is_found_and_counted() {
    let whole = judge("1 +31 0 5\n1 -40 0 5\n3 +32 0 37\n");
    assert_eq!((whole.compared, whole.identical), (3, 3));
    assert!(whole.notes[0].starts_with("Of 1 unmappings, 0 match"));
    // CPU 2 has counted −20 pages that are not yet in the shared value, so a single addition of −40
    // would move all −60 there. If this addition is cut into −12 and −28, the first part moves −32,
    // and the second part leaves −28 in the CPU's count.
    let parts = judge("1 +64 0 69\n2 -20 0 69\n2 -40 20 37\n2 -4 60 5\n");
    assert_eq!((parts.compared, parts.identical), (4, 4));
    assert!(
        parts.notes[0].starts_with("Of 3 unmappings, 1 match"),
        "{:?}",
        parts.notes
    );
    // However the replay divides the 40 unmapped pages into two additions, it cannot get the
    // recorded reading of 50 pages. So this reading counts as different. The divisions that the
    // replay has tried do not change later readings.
    let neither = judge("1 +64 0 69\n2 -20 0 69\n2 -40 20 50\n2 -4 60 9\n");
    assert_eq!((neither.compared, neither.identical), (4, 3));
    assert!(neither.notes[0].starts_with("Of 3 unmappings, 0 match"));
}

#[test]
fn pieces_end_at_page_tables_where_the_gather_is_full_and_at_a_cut() {
    assert_eq!(pieces(500, 30, None), [12, 18]);
    assert_eq!(pieces(500, 30, Some(12)), [12, 18]);
    assert_eq!(pieces(500, 30, Some(20)), [12, 8, 10]);
    let full = pieces(0, 10_000, None);
    assert_eq!(full[17..], [512, 462, 50, 272]);
    assert_eq!(full.iter().sum::<u64>(), 10_000);
}

/// If a line of the log is unreadable, the state of the counters is unknown after this line. So the
/// replay compares neither this line nor any later line of the same run.
#[test]
fn what_makes_no_sense_is_set_aside_with_all_behind_it() {
    for bad in [
        "# next 0 31 1",
        "1 +x 0 5",
        "16 +1 0 5",
        "1 *1 0 5",
        "1 +1 512 5",
        "1 +1",
        "P 1 2",
        "I 0 99 5 5",
    ] {
        let judgement = judge(&format!("1 +31 0 5\n{bad}\n1 +1 31 37\n"));
        assert_eq!(
            (judgement.compared, judgement.identical, judgement.set_aside),
            (1, 1, 2),
            "{bad}"
        );
        assert!(judgement.notes[2].starts_with("Line 4 of the log cannot be read"));
    }
    // A log that does not state how many pages were resident at its start cannot be judged.
    let judgement = Readings
        .judge(&recording("# next 16 31 1\n1 +31 0 5\n"))
        .expect("a run");
    assert_eq!((judgement.compared, judgement.set_aside), (0, 1));
}

/// The beginning of the log says where the pages that were resident at the start had been counted.
/// One CPU's own count can have only a limited number of them. The shared value (`I all`) can have
/// any number.
#[test]
fn a_log_may_begin_with_any_number_of_pages_if_no_cpu_keeps_a_part() {
    // All of the 500 pages are in the shared value, because no CPU's own count can have 500 pages.
    // The pages of CPU 1 appear in the reading only after CPU 1 has added 32 pages, which is the
    // batch.
    let log = "# next 16 31 1\nI all 500 5 505\n1 +31 0 505\n1 +1 31 537\n0 -7 0 537\n";
    let judgement = Readings.judge(&recording(log)).expect("a run");
    assert_eq!((judgement.compared, judgement.identical), (3, 3));
    let begun_on_cpu_0 = log.replace("I all", "I 0");
    let judgement = Readings.judge(&recording(&begun_on_cpu_0)).expect("a run");
    assert_eq!((judgement.compared, judgement.set_aside), (0, 4));
}

#[test]
fn a_recording_without_a_log_has_nothing_to_judge() {
    assert!(Readings.judge(&Recording::default()).is_none());
    assert!(Readings.judge(&recording("")).is_none());
    assert!(
        Readings
            .judge(&recording("# next 0 31 1\nI 0 10 5 5\n"))
            .is_none()
    );
    assert!(Additions.judge(&recording(START)).is_none());
}

#[test]
fn a_step_reads_as_it_was_written() {
    let runs = runs(&recording(&format!("{START}3 -7 9 11\n")).header).expect("a run");
    let pages = Pages {
        cpu: 3,
        pages: 7,
        offset: 9,
        shown: 11,
    };
    assert_eq!(runs[0].steps, [LoggedOp::Unmap(pages)]);
    assert_eq!(runs[0].name(), "next 31, 16 CPUs");
}

/// Plimsoll's one-sided counter is exact until it has grown into a tree. If the replay never grew
/// the counter, the table of errors would show no error and no bound.
#[test]
fn our_counter_grows_and_then_has_an_error_and_a_bound() {
    let additions: String = (1..16).map(|cpu| format!("{cpu} +31 0 5\n")).collect();
    let recording = recording(&format!("{START}{additions}"));
    let runs = runs(&recording.header).expect("a run");
    let seen = replay_on(&runs[0], Counting::OneSided, Cuts::AsRead);
    assert_ne!(seen.bound, Accuracy::default());
    assert_ne!(seen.worst, 0);
}
