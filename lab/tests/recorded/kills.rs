//! Repeats the kills, scores, reaping and watermark checks of a real kernel. The recordings are of
//! Linux 6.12.117 on 2 and 4 CPUs. They contain only the texts and events that the comparisons read
//! (`tests/data/oom/`).

use plimsoll_lab::exact::kills::{Kills, Scores};
use plimsoll_lab::exact::reaping::Reaping;
use plimsoll_lab::exact::watermarks::Watermarks;
use plimsoll_lab::exact::{Judge, Judgement};
use plimsoll_mm::oom::Selecting;
use plimsoll_mm::space::reap::Reaping as How;
use plimsoll_recording::event::{Event, What};
use plimsoll_recording::{Header, Recording};

macro_rules! fixture {
    ($name:literal) => {
        read(include_str!(concat!("../data/oom/", $name, ".txt")))
    };
}

/// Reads a fixture, whose sections begin with `== NAME`. The section `events` has events, and
/// `release` has the kernel's release. Any other section is a text of the recording's header.
fn read(text: &str) -> Recording {
    let mut recording = Recording {
        header: Header::default(),
        events: Vec::new(),
    };
    for section in text.split("== ").filter(|section| !section.is_empty()) {
        let (name, body) = section.split_once('\n').expect("a name and a body");
        match name {
            "release" => recording.header.release = body.trim().to_owned(),
            "events" => recording.events = body.lines().map(event).collect(),
            _ => {
                let text = (name.to_owned(), body.to_owned());
                recording.header.texts.push(text);
            }
        }
    }
    recording
}

/// Parses an event such as `3.842480 0 200 mark_victim 182`. The words are seconds, CPU, thread,
/// name and arguments.
fn event(line: &str) -> Event {
    let mut words = line.splitn(5, ' ');
    let mut next = || words.next().unwrap_or_else(|| panic!("`{line}` is short"));
    let (seconds, us) = next().split_once('.').expect("seconds and microseconds");
    let ns = |text: &str, unit: u64| text.parse::<u64>().expect("a time") * unit;
    let (cpu, pid) = (
        next().parse().expect("a CPU"),
        next().parse().expect("a thread"),
    );
    let (name, rest) = (next(), next());
    let victim = || rest.parse().expect("a process");
    Event {
        time_ns: ns(seconds, 1_000_000_000) + ns(us, 1000),
        cpu,
        pid,
        what: match name {
            "mark_victim" => What::MarkVictim { victim: victim() },
            "wake_reaper" => What::WakeReaper { victim: victim() },
            "start_task_reaping" => What::StartReaping { victim: victim() },
            "finish_task_reaping" => What::FinishReaping { victim: victim() },
            "skip_task_reaping" => What::SkipReaping { victim: victim() },
            "unmap" => {
                let (start, end) = rest.split_once(' ').expect("two addresses");
                let address = |text| u64::from_str_radix(text, 16).expect("an address");
                What::Unmap {
                    start: address(start),
                    end: address(end),
                }
            }
            "tracing_mark_write" => What::Mark(rest.to_owned()),
            _ => panic!("`{line}` is not known"),
        },
    }
}

fn judged(judge: &dyn Judge, recording: &Recording) -> Judgement {
    judge
        .judge(recording)
        .expect("the recording has something of it")
}

/// Checks that Plimsoll and the recorded kernel decide the same way in all comparisons. Returns the
/// number of comparisons.
fn all_same(judge: &dyn Judge, recording: &Recording) -> u64 {
    let judgement = judged(judge, recording);
    assert_eq!(judgement.first_difference, [""; 0], "{judgement:?}");
    assert_eq!(judgement.identical, judgement.compared, "{judgement:?}");
    judgement.compared
}

/// Checks that `judge` finds at least one decision in which Plimsoll and the recorded kernel
/// differ.
fn differs(judge: &dyn Judge, recording: &Recording) {
    let judgement = judged(judge, recording);
    assert!(judgement.identical < judgement.compared, "{judgement:?}");
    assert!(!judgement.first_difference.is_empty());
}

/// Returns the recording with `change` applied to the text `name`.
fn with_text(mut recording: Recording, name: &str, change: impl Fn(&str) -> String) -> Recording {
    for (known, text) in &mut recording.header.texts {
        if known == name {
            *text = change(text);
        }
    }
    recording
}

const KILLS: Kills = Kills { selecting: None };

#[test]
fn the_order_of_kills_is_the_kernels() {
    let all = [
        fixture!("plain"),
        fixture!("extremes"),
        fixture!("swap"),
        fixture!("groups"),
        fixture!("nodes"),
        fixture!("allocating-task"),
        fixture!("shared"),
    ];
    let compared = all.map(|recording| all_same(&KILLS, &recording));
    assert_eq!(compared, [9, 10, 8, 7, 3, 1, 5]);
}

#[test]
fn scores_are_the_kernels() {
    let all = [
        fixture!("plain"),
        fixture!("extremes"),
        fixture!("swap"),
        fixture!("groups"),
        fixture!("nodes"),
        fixture!("shared"),
    ];
    let compared = all.map(|recording| all_same(&Scores, &recording));
    assert_eq!(compared, [19, 18, 16, 26, 14, 17]);
}

#[test]
fn a_child_that_its_parent_waits_for_is_not_chosen_but_its_parent_is() {
    let apart = with_text(fixture!("shared"), "oom population", |text| {
        text.replace(" vfork", "")
    });
    // Without the word `vfork`, the parent does not seem to wait for its child. Then parent and
    // child have the same memory and equal points, and Plimsoll chooses the process that comes
    // later in the list of processes.
    differs(&KILLS, &apart);
    differs(&Scores, &apart);
}

#[test]
fn a_policy_that_runs_out_passes_over_processes_bound_elsewhere() {
    // Bind the process that is chosen first to the other node, which is not short of memory.
    let elsewhere = with_text(fixture!("shared"), "oom population", |text| {
        let line = |line: &str| {
            if line.starts_with("process pid=174 ") {
                line.replace("policy=1", "policy=0")
            } else {
                line.to_owned()
            }
        };
        text.lines().map(line).collect::<Vec<_>>().join("\n")
    });
    differs(&KILLS, &elsewhere);
    // In this recording, the nodes of a memory policy ran out of memory. In this case, the nodes
    // that cpusets allow to a process do not matter, even if the process has no policy.
    let cpuset = with_text(fixture!("shared"), "oom population", |text| {
        text.replace("nodes=0-1", "nodes=0")
    });
    assert_eq!(all_same(&KILLS, &cpuset), 5);
}

/// Returns the recording with one column changed in every row of the table of processes. The first
/// column is column 0.
fn with_column(recording: Recording, column: usize, change: impl Fn(i64) -> i64) -> Recording {
    with_text(recording, "kernel log", |log| {
        let row = |line: &str| {
            let (before, rest) = line.rsplit_once("] ").unwrap_or(("", line));
            let mut words: Vec<String> = rest.split_whitespace().map(str::to_owned).collect();
            let is_row = words.len() == 11 && words[0].parse::<u32>().is_ok();
            if !is_row {
                return line.to_owned();
            }
            let value = words[column].parse().expect("a number");
            words[column] = change(value).to_string();
            format!("{before}] {}", words.join(" "))
        };
        log.lines().map(row).collect::<Vec<_>>().join("\n")
    })
}

const TABLE_BYTES: usize = 7;
const SWAP: usize = 8;

/// If Plimsoll ignores page tables or swap, or does not kill the members of a group together, it
/// chooses the victims in another order than the kernel.
#[test]
fn without_page_tables_swap_or_groups_the_order_is_another() {
    differs(&KILLS, &with_column(fixture!("swap"), TABLE_BYTES, |_| 0));
    differs(&KILLS, &with_column(fixture!("swap"), SWAP, |_| 0));
    let apart = with_text(fixture!("groups"), "oom population", |text| {
        text.replace(" together", "")
    });
    differs(&KILLS, &apart);
}

#[test]
fn without_page_tables_or_a_page_of_the_total_scores_are_others() {
    let without_tables = with_text(fixture!("plain"), "oom population", |text| {
        let word = |word: &str| match word.split_once('=') {
            Some(("pte_kib", _)) => "pte_kib=0".to_owned(),
            _ => word.to_owned(),
        };
        let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
        text.lines().map(line).collect::<Vec<_>>().join("\n")
    });
    differs(&Scores, &without_tables);
}

#[test]
fn a_process_that_was_chosen_before_is_not_chosen_again() {
    // Insert the rows of the first shortage at the top of the second shortage's table, so that the
    // first victim is also in the second table.
    let again = with_text(fixture!("plain"), "kernel log", |log| {
        let rows = |line: &&str| line.contains("] [");
        let first: Vec<&str> = log.lines().filter(rows).take(15).collect();
        let mut seen = 0;
        let line = |line: &str| {
            seen += usize::from(line.contains("Total swap"));
            if line.contains("Total swap") && seen == 2 {
                format!("{line}\n{}", first.join("\n"))
            } else {
                line.to_owned()
            }
        };
        log.lines().map(line).collect::<Vec<_>>().join("\n")
    });
    assert_eq!(all_same(&KILLS, &again), 9);
}

#[test]
fn a_log_without_tables_is_set_aside_and_said_so() {
    let bare = with_text(fixture!("plain"), "kernel log", |log| {
        let kept = log.lines().filter(|line| !line.contains("] ["));
        kept.collect::<Vec<_>>().join("\n")
    });
    let judgement = judged(&KILLS, &bare);
    assert_eq!((judgement.compared, judgement.set_aside), (0, 9));
    assert!(judgement.notes.iter().any(|note| note.contains("no table")));
    assert!(Kills::default().judge(&Recording::default()).is_none());
}

/// A dying thread that asks for memory marks itself as a victim. The comparison notes this event,
/// but does not compare it with Plimsoll's victims.
#[test]
fn a_victim_that_asks_for_memory_while_it_dies_is_no_kill_of_its_own() {
    let judgement = judged(&KILLS, &fixture!("plain"));
    let noted = |words: &str| judgement.notes.iter().any(|note| note.contains(words));
    assert!(noted("asked for memory: 1."), "{judgement:?}");
    assert!(!noted("not all the same"), "{judgement:?}");
}

#[test]
fn a_design_can_be_asked_for() {
    // Every number in the kernel's table of processes is exact, so all ways to select a victim
    // choose the same victims.
    for selecting in Selecting::ALL {
        let kills = Kills {
            selecting: Some(selecting),
        };
        assert_eq!(all_same(&kills, &fixture!("swap")), 8);
    }
}

#[test]
fn the_reapers_steps_and_ranges_are_the_kernels() {
    let all = [
        fixture!("frozen"),
        fixture!("busy"),
        fixture!("given-up"),
        fixture!("released"),
    ];
    let compared = all.map(|recording| all_same(&Reaping::default(), &recording));
    assert_eq!(compared, [16, 21, 12, 21]);
}

#[test]
fn another_order_of_ranges_is_a_difference() {
    let downwards = Reaping {
        reaping: Some(How::DescendingByVma),
    };
    differs(&downwards, &fixture!("frozen"));
    differs(&downwards, &fixture!("released"));
    // Make the shared mappings private. Plimsoll then also empties these mappings, but the kernel
    // did not.
    let private = with_text(fixture!("frozen"), "oom mappings", |text| {
        text.replace(",sh,", ",")
    });
    differs(&Reaping::default(), &private);
    // Remove the last event, so that the kernel's reaper seems to give up one attempt earlier.
    let mut sooner = fixture!("given-up");
    sooner.events.pop();
    differs(&Reaping::default(), &sooner);
}

#[test]
fn watermark_checks_are_the_kernels() {
    let all = fixture!("watermarks");
    let judgement = judged(&Watermarks, &all);
    assert_eq!(judgement.first_difference, [""; 0], "{judgement:?}");
    assert_eq!((judgement.compared, judgement.identical), (82, 82));
    // Without the reserve (`lowmem_reserve`), Plimsoll allows requests that a higher zone could
    // serve.
    let without = with_text(all, "watermark checks", |text| {
        text.replace("reserve=1", "reserve=0")
    });
    differs(&Watermarks, &without);
}

#[test]
fn a_victim_that_only_one_side_has_is_a_difference() {
    let one_less = with_text(fixture!("groups"), "kernel log", |log| {
        let lines: Vec<&str> = log.lines().collect();
        let is_kill = |line: &&str| line.contains(": Killed process ");
        let last = lines.iter().rposition(is_kill).expect("a kill");
        [&lines[..last], &lines[last + 1..]].concat().join("\n")
    });
    let judgement = judged(&KILLS, &one_less);
    assert_eq!((judgement.compared, judgement.identical), (7, 6));
    assert!(!judgement.first_difference.is_empty());
}

#[test]
fn kernels_before_6_18_select_and_reap_in_the_older_way() {
    let as_of = |mut recording: Recording, release: &str| {
        recording.header.release = release.to_owned();
        recording
    };
    for (release, selecting, is_same) in [
        ("6.12.117", Selecting::Approximate, true),
        ("6.17.13-amd64", Selecting::Approximate, true),
        ("6.18.0-rc1", Selecting::Precise, false),
        ("7.0", Selecting::Precise, false),
    ] {
        let judgement = judged(&KILLS, &as_of(fixture!("swap"), release));
        let said = format!("Victims are selected by {}.", selecting.name());
        assert!(judgement.notes.contains(&said), "{release}: {judgement:?}");
        let reaped = judged(&Reaping::default(), &as_of(fixture!("frozen"), release));
        assert_eq!(reaped.identical == reaped.compared, is_same, "{release}");
    }
}

/// If a check depends on something that the recording does not show, the check is set aside. If a
/// line is unreadable, a note says so. In neither case does the check count as identical.
#[test]
fn a_watermark_check_that_cannot_be_decided_is_no_identical_one() {
    let check =
        |what: &str, ok: u8| format!("check zone=1:Normal mark=400 reserve=0 {what} ok={ok}\n");
    let text = [
        // A victim is allowed to allocate down to half of the watermark.
        check("free=300 order=0 flags=0x8", 1),
        check("free=300 order=0 flags=0x0", 1),
        check("free=500 order=0 flags=0x0", 0),
        check("free=300 order=3 flags=0x0", 1),
        // The replay cannot judge the next two watermark checks, and sets them aside. The first
        // check may have failed because no block of order 3 was free. The second has a combination
        // of flags that Plimsoll does not have.
        check("free=500 order=3 flags=0x0", 0),
        check("free=300 order=0 flags=0x28", 1),
        "check zone=1:Normal free=many\n".to_owned(),
    ]
    .concat();
    let mut recording = Recording::default();
    let text = ("watermark checks".to_owned(), text);
    recording.header.texts.push(text);
    let judgement = judged(&Watermarks, &recording);
    let counts = [judgement.compared, judgement.identical, judgement.set_aside];
    assert_eq!(counts, [4, 1, 2], "{judgement:?}");
    assert!(judgement.first_difference[0].contains("free=300 order=0 flags=0x0"));
    assert!(
        judgement.notes[0].starts_with("1 lines of"),
        "{judgement:?}"
    );
}
