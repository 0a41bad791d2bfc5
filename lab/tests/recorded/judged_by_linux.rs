//! Checks Plimsoll's vmstat timers and counters of resident pages against recordings of Linux 6.12
//! on 64 virtual CPUs. Also checks that the comparison notices a wrong rule, such as a counter that
//! adds a CPU's part to the shared value one page later.

use std::cell::Cell;

use plimsoll_host::Host;
use plimsoll_lab::exact::counters::{Readings, judge_with};
use plimsoll_lab::exact::timers::Timers;
use plimsoll_lab::exact::{Judge, Judgement};
use plimsoll_mm::counter::{Accuracy, Counters};
use plimsoll_mm::machine::{Due, Machine};
use plimsoll_mm::units::Jiffies;
use plimsoll_mm::vmstat::schedule::{Moment, RoundJiffies, Schedule};
use plimsoll_mm::wheel::Wheel;
use plimsoll_recording::Recording;

fn recording(name: &str) -> Recording {
    let file = format!("{}/tests/data/{name}.plr", env!("CARGO_MANIFEST_DIR"));
    let contents = Recording::read(&file).expect("a recording of the repository");
    assert_eq!(contents.warnings, []);
    contents.recording
}

/// Compares the timer firings in the recording `name` with the firings that `timers` predicts.
/// Returns the number of compared firings, and the number of identical ones.
fn firings(name: &str, timers: &Timers<'_>) -> (u64, u64) {
    let judgement = timers.firings(&recording(name)).expect("firings");
    (judgement.compared, judgement.identical)
}

/// Plimsoll predicts when each recorded timer fires. With HZ 250, 917 of the 932 firings are of the
/// vmstat work, and 15 are of the shepherd. With HZ 1000, 1337 are of the vmstat work, and 20 are
/// of the shepherd.
#[test]
fn every_firing_is_asked_for_and_placed_as_the_kernel_does() {
    assert_eq!(firings("vmstat-64-hz250", &Timers::OURS), (932, 932));
    assert_eq!(firings("vmstat-64-hz1000", &Timers::OURS), (1357, 1357));
}

/// Linux's timer wheel rounds an expiry up even if it is already a multiple of the wheel's
/// granularity. A timer wheel that leaves such an expiry as it is differs from the kernel for some
/// recorded timers.
#[test]
fn a_wheel_that_leaves_a_timer_on_its_step_differs_where_the_kernel_has_one_there() {
    let early = Timers {
        fires_at: |wheel: Wheel, clock, Jiffies(expires)| {
            wheel.fires_at(clock, Jiffies(expires - 1))
        },
        ..Timers::OURS
    };
    assert_eq!(firings("vmstat-64-hz250", &early), (932, 815));
    assert_eq!(firings("vmstat-64-hz1000", &early), (1357, 1334));
}

/// A wrong schedule of the vmstat work: it arms timers for one jiffy later than Linux does. The
/// comparison must notice this.
#[derive(Debug)]
struct OneMore;

impl Schedule for OneMore {
    fn name(&self) -> &'static str {
        "one-more"
    }

    fn next(&self, moment: &Moment) -> Due {
        match RoundJiffies.next(moment) {
            Due::Wheel(Jiffies(ahead)) => Due::Wheel(Jiffies(ahead + 1)),
            due => due,
        }
    }
}

#[test]
fn a_schedule_that_is_off_by_a_jiffy_agrees_nowhere() {
    let timers = Timers {
        schedule: &OneMore,
        ..Timers::OURS
    };
    let judgement = timers
        .firings(&recording("vmstat-64-hz250"))
        .expect("firings");
    assert_eq!((judgement.compared, judgement.identical), (932, 0));
    assert!(judgement.first_difference[1].starts_with("asked for: Linux 4294"));
}

/// Returns three rows of six numbers. The rows are the recording, the simulation, and the
/// simulation with the recorded share of late ticks. A number is the largest number of CPUs whose
/// vmstat work starts within one tick, or within 1, 4, 31, 32 or 64 ms.
fn crowds(name: &str) -> Vec<Vec<usize>> {
    let judgement = Timers::OURS.judge(&recording(name)).expect("firings");
    let crowding = judgement.tables.last().expect("the table of crowds");
    let most = |row: &Vec<String>| {
        let cells = row[2..].iter();
        cells.map(|cell| cell.parse().expect("a number")).collect()
    };
    crowding.rows.iter().map(most).collect()
}

#[test]
fn simulated_crowds_are_the_recorded_ones_once_ticks_come_late() {
    let [recorded, simulated, late] = &crowds("vmstat-64-hz250")[..] else {
        panic!("three rows")
    };
    assert_eq!(recorded, &[3, 3, 3, 6, 6, 8]);
    assert_eq!(simulated[..5], [3; 5]);
    // In the simulation with late ticks, chance decides which groups of CPUs fire late. If a group
    // fires late, CPUs of this group and CPUs of the next group can fire within one interval of 31
    // ms.
    assert_eq!(late[..3], [3; 3]);
    assert!(late[3] > 3, "{late:?}");
}

#[test]
fn simulated_groups_at_hz_1000_are_as_large_as_recorded_ones() {
    let [recorded, simulated, late] = &crowds("vmstat-64-hz1000")[..] else {
        panic!("three rows")
    };
    assert_eq!(recorded, &[22, 22, 22, 22, 22, 43]);
    assert_eq!(simulated[..5], [22; 5]);
    // The timers of the CPUs fire in groups that are 64 ms apart. If a group fires late, timers of
    // this group and timers of the next group can fire within one interval of 64 ms.
    assert_eq!(late[..5], [22; 5]);
    assert!(late[5] > 22, "{late:?}");
}

#[test]
fn every_reading_of_resident_pages_is_equal() {
    for (name, readings, precise) in [
        ("counters-64-hz1000", 21_906, 244),
        ("counters-64-hz250", 3_115, 115),
    ] {
        let judgement = Readings.judge(&recording(name)).expect("readings");
        assert_eq!(
            (judgement.compared, judgement.identical, judgement.set_aside),
            (readings, readings, 0)
        );
        assert!(
            judgement.notes[0].contains(" 0 match only if"),
            "{}",
            judgement.notes[0]
        );
        let right = format!("Of {precise} precise readings, {precise} are equal");
        assert!(
            judgement.notes[1].starts_with(&right),
            "{}",
            judgement.notes[1]
        );
    }
}

/// A wrong per-CPU counter: it adds (folds) a CPU's part to the shared value only when the part
/// *exceeds* the batch. The comparison must notice this.
struct LateFold {
    batch: i64,
    parts: Vec<Cell<i64>>,
    shared: Cell<i64>,
}

impl LateFold {
    fn new(host: &Host, batch: i64) -> Self {
        let parts = host.topology().ids().map(|_| Cell::new(0)).collect();
        Self {
            batch,
            parts,
            shared: Cell::new(0),
        }
    }
}

impl Counters<Host> for LateFold {
    fn width(&self) -> usize {
        1
    }

    fn add(&self, host: &Host, _counter: usize, delta: i64) {
        let part = &self.parts[host.this_cpu().index()];
        part.set(part.get() + delta);
        if part.get().abs() > self.batch {
            self.shared.set(self.shared.get() + part.replace(0));
        }
    }

    fn approximate_sum(&self, _host: &Host, _counter: usize) -> i64 {
        self.shared.get()
    }

    fn precise_sum(&self, _host: &Host, _counter: usize) -> i64 {
        self.shared.get() + self.parts.iter().map(Cell::get).sum::<i64>()
    }

    fn precise_total(&self, host: &Host) -> i64 {
        self.precise_sum(host, 0)
    }

    fn accuracy(&self, _host: &Host, _counter: usize) -> Accuracy {
        Accuracy::EXACT
    }

    fn set(&self, _host: &Host, _counter: usize, value: i64) {
        self.parts.iter().for_each(|part| part.set(0));
        self.shared.set(value);
    }

    fn bytes(&self) -> usize {
        0
    }
}

#[test]
fn a_fold_one_page_later_is_seen() {
    let recording = recording("counters-64-hz250");
    let judge = |batch| -> Judgement {
        judge_with(&recording, |host| LateFold::new(host, batch)).expect("readings")
    };
    // Linux adds (folds) a CPU's part of a counter to the shared value when the part reaches 128.
    // The rule "fold if the part exceeds 127" is the same, but "fold if it exceeds 128" is another
    // rule.
    let same = judge(127);
    assert_eq!((same.compared, same.identical), (3_115, 3_115));
    let late = judge(128);
    assert!(late.identical < late.compared, "{late:?}");
    assert!(!late.first_difference.is_empty());
}

/// Adds 1 to a number in the first precise reading in the log. A reading is a line
/// `P anon file shown smaps own statm`. `word` is the index of the word to change. `P` has the
/// index 0.
fn with_precise(mut recording: Recording, word: usize) -> Recording {
    for (_, text) in &mut recording.header.texts {
        let Some(at) = text.find("\nP ") else {
            continue;
        };
        let (before, rest) = text.split_at(at + 1);
        let (line, after) = rest.split_once('\n').expect("more lines");
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let value: i64 = words[word].parse().expect("a number");
        words[word] = (value + 1).to_string();
        *text = format!("{before}{}\n{after}", words.join(" "));
    }
    recording
}

#[test]
fn a_precise_reading_is_equal_only_if_every_count_says_so() {
    // Three words of the line count anonymous pages: word 1 is the kernel's precise sum, word 4 the
    // count from the page tables, and word 5 the program's own count.
    for word in [1, 4, 5] {
        let recording = with_precise(recording("counters-64-hz250"), word);
        let judgement = Readings.judge(&recording).expect("readings");
        let one_less = "Of 115 precise readings, 114 are equal";
        let note = &judgement.notes[1];
        assert!(note.starts_with(one_less), "{word}: {note}");
        assert!(judgement.first_difference[1].starts_with("the precise sum"));
    }
}
