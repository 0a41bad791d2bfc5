//! Tests of the comparison between the kernel's timers and Plimsoll's. The recordings are written
//! by hand.

use plimsoll_recording::event::{Event, Symbol, What};

use super::*;

const WORK: u64 = 0xffff_8880_0001_0000;
const TIMER: u64 = WORK + 32;

fn recording(events: Vec<(u64, u32, u32, What)>) -> Recording {
    let event = |(time_ns, cpu, pid, what)| Event {
        time_ns,
        cpu,
        pid,
        what,
    };
    let symbols = ["delayed_work_timer_fn", "vmstat_shepherd", "vmstat_update"];
    Recording {
        header: Header {
            hz: 1000,
            cpus: 8,
            symbols: symbols.map(str::to_owned).to_vec(),
            ..Header::default()
        },
        events: events.into_iter().map(event).collect(),
    }
}

fn started() -> What {
    What::WorkStart {
        work: WORK,
        function: Symbol(2),
    }
}

fn armed(timer: u64, now: u64, expires: u64, bucket: Option<u64>) -> What {
    What::TimerStart {
        timer,
        function: Symbol(0),
        expires,
        bucket,
        now,
        flags: 1 << 19,
    }
}

fn expired(now: u64) -> What {
    What::TimerExpire {
        timer: TIMER,
        function: Symbol(0),
        now,
    }
}

fn judge(events: Vec<(u64, u32, u32, What)>) -> Option<Judgement> {
    Timers::OURS.firings(&recording(events))
}

/// The test uses the jiffies of the worked example in `docs/vmstat.md`.
#[test]
fn the_worked_example_of_cpu_5_is_identical() {
    let right = armed(TIMER, 12_345, 13_985, Some(14_016));
    let judgement = judge(vec![(10, 5, 7, started()), (20, 5, 7, right)]).expect("one firing");
    assert_eq!((judgement.compared, judgement.identical), (1, 1));
    assert_eq!(judgement.first_difference, [""; 0]);
}

#[test]
fn a_firing_that_differs_is_shown_with_both_sides() {
    let late = armed(TIMER, 12_345, 13_985, Some(14_080));
    let judgement = judge(vec![(10, 5, 7, started()), (20_000, 5, 7, late)]).expect("one firing");
    assert_eq!((judgement.compared, judgement.identical), (1, 0));
    insta::assert_snapshot!(judgement.first_difference.join("\n"), @r"
    0.000020 s, CPU 5: vmstat_update is armed at jiffy 12345
    asked for: Linux 13985, Plimsoll 13985
    on the wheel: Linux 14080, Plimsoll 14016
    ");
}

/// If the kernel does not print the jiffy that its timer wheel chose, the replay compares only the
/// jiffy for which the timer was armed.
#[test]
fn only_what_is_asked_for_counts_if_the_wheel_is_not_printed() {
    let unprinted = armed(TIMER, 12_345, 13_985, None);
    let judgement = judge(vec![(10, 5, 7, started()), (20, 5, 7, unprinted)]).expect("one firing");
    assert_eq!((judgement.compared, judgement.identical), (1, 1));
    assert!(
        judgement.notes[1].contains("does not print"),
        "{:?}",
        judgement.notes
    );
}

/// A timer counts only if three conditions hold. The timer belongs to the vmstat work. The thread
/// that runs the work arms the timer on the work's CPU. The thread arms the timer before the work
/// ends.
#[test]
fn timers_of_others_are_left_out() {
    let timer = |address| armed(address, 12_345, 13_985, Some(14_016));
    let other_thread = vec![(10, 5, 7, started()), (20, 5, 8, timer(TIMER))];
    let other_cpu = vec![(10, 5, 7, started()), (20, 4, 7, timer(TIMER))];
    let other_work = vec![(10, 5, 7, started()), (20, 5, 7, timer(TIMER + 4096))];
    let ended = What::WorkEnd {
        work: WORK,
        function: Symbol(2),
    };
    let after_its_end = vec![
        (10, 5, 7, started()),
        (15, 5, 7, ended),
        (20, 5, 7, timer(TIMER)),
    ];
    for events in [other_thread, other_cpu, other_work, after_its_end] {
        assert_eq!(judge(events), None);
    }
}

/// A start of the vmstat work counts as caused by its timer only if the timer fired after the
/// work's previous start and before this start.
#[test]
fn a_start_is_by_timer_if_the_timer_fired_before() {
    let right = armed(TIMER, 12_345, 13_985, Some(14_016));
    let chain = Chain::of(&recording(vec![
        (10, 5, 7, started()),
        (20, 5, 7, right),
        (30, 5, 0, expired(14_017)),
        (40, 5, 7, started()),
        (50, 5, 7, started()),
    ]));
    assert_eq!(chain.starts, [Nanos(40)]);
    assert_eq!(chain.armed[0].late_jiffies(), Some(1));
    assert_eq!(chain.late_percent(), 100);
    assert_eq!(lateness(&chain).rows[0][1..], ["1", "1", "0", "1", "0"]);
}

#[test]
fn absurd_jiffies_differ_and_do_not_panic() {
    let absurd = armed(TIMER, u64::MAX, 3, Some(7));
    let judgement = judge(vec![(10, 5, 7, started()), (20, 5, 7, absurd)]).expect("one firing");
    assert_eq!((judgement.compared, judgement.identical), (1, 0));
}

#[test]
fn a_recording_without_ticks_or_timers_has_nothing_to_judge() {
    assert_eq!(judge(vec![(10, 5, 7, started())]), None);
    let mut without = recording(vec![]);
    without.header.hz = 0;
    assert!(Timers::OURS.judge(&without).is_none());
}
