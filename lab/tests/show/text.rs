//! Tests the output of `show` for people and for programs. The output for people is Markdown, or
//! tables that are 80 characters wide. Both show one recording, or two recordings side by side.

use plimsoll_lab::report::{markdown, table};
use plimsoll_lab::show::{self, ShowOptions, TABLES, json};
use plimsoll_recording::{Recording, What};

use super::{alloc, drain, ends, free, recording, stack, starts, taken};

const MS: u64 = 1_000_000;

/// Makes a recording with a few events of every kind.
fn sample(wait_ns: u64) -> Recording {
    let begin = |lock, flags, names: &[&str]| What::ContentionBegin {
        lock,
        flags,
        stack: stack(names),
    };
    let end = |lock| What::ContentionEnd { lock, result: 0 };
    let mut recording = recording([
        (
            1000,
            0,
            7,
            begin(1, 1, &["_raw_spin_lock_irqsave", "rmqueue_bulk"]),
        ),
        (1000 + wait_ns, 0, 7, end(1)),
        (MS, 0, 7, taken(10, 0)),
        (MS + 1, 0, 7, taken(11, 0)),
        (MS + 2, 0, 7, alloc(11, 0)),
        (2 * MS, 1, 8, free(20)),
        (2 * MS + 1, 1, 8, drain(20)),
        (
            3 * MS,
            2,
            9,
            begin(2, 2, &["rwsem_down_read_slowpath", "lock_mm_and_find_vma"]),
        ),
        (9 * MS, 2, 9, end(2)),
        (10 * MS, 0, 3, starts("vmstat_update", 1)),
        (10 * MS + 1, 0, 3, drain(30)),
        (10 * MS + 2, 0, 3, drain(31)),
        (10 * MS + 3, 0, 3, ends("vmstat_update", 1)),
        (1010 * MS, 0, 3, starts("vmstat_update", 1)),
        (1010 * MS + 3, 0, 3, ends("vmstat_update", 1)),
        (1020 * MS, 3, 50, What::MarkVictim { victim: 812 }),
        (1021 * MS, 3, 812, What::ExitMmap),
        (1030 * MS, 3, 51, What::MarkVictim { victim: 813 }),
        (3030 * MS, 0, 0, What::WakeReaper { victim: 813 }),
        (3031 * MS, 2, 40, What::StartReaping { victim: 813 }),
        (3040 * MS, 2, 40, What::FinishReaping { victim: 813 }),
    ]);
    let header = &mut recording.header;
    header.machine = "x86_64".to_owned();
    header.command = "make -j4 all".to_owned();
    header.lost = vec![(0, 0), (2, 1234)];
    header.missing = vec![
        "alloc_pages_bulk: this kernel allows no probes; boot one with CONFIG_KPROBES.".to_owned(),
        "rss_stat: not asked for.".to_owned(),
    ];
    recording
}

fn shown(recordings: &[(&str, Recording)], table: Option<&str>) -> show::Shown {
    let recordings: Vec<(String, Recording)> = recordings
        .iter()
        .map(|(name, of)| ((*name).to_owned(), of.clone()))
        .collect();
    let options = ShowOptions {
        table: table.map(str::to_owned),
        callers: Vec::new(),
    };
    show::show(&recordings, &options).expect("a table that exists")
}

#[test]
fn everything_fits_a_narrow_terminal() {
    let text = table::render_tables(&shown(&[("make.plr", sample(500))], None).tables(), 80);
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    insta::assert_snapshot!(text);
}

#[test]
fn two_recordings_lie_side_by_side() {
    let recordings = [("linux.plr", sample(500)), ("ours.plr", sample(100))];
    let text = table::render_tables(&shown(&recordings, None).tables(), 80);
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    insta::assert_snapshot!(text);
}

#[test]
fn markdown_has_the_same_tables() {
    let text =
        markdown::render_tables(&shown(&[("make.plr", sample(500))], Some("reaping")).tables());
    insta::assert_snapshot!(text);
}

#[test]
fn programs_get_numbers() {
    let text = json::render(&shown(&[("make.plr", sample(500))], Some("contentions")));
    insta::assert_snapshot!(text);
}

#[test]
fn the_summary_has_at_most_twelve_lines() {
    let text = table::render_tables(
        &shown(&[("make.plr", sample(500))], Some("events")).tables(),
        80,
    );
    let summary = text.lines().take_while(|line| !line.is_empty());
    assert!(summary.count() <= 12, "{text}");
}

#[test]
fn a_table_that_does_not_exist_or_is_empty_is_an_error_that_helps() {
    let only_a_mark = recording([(1, 0, 1, What::Mark("hello".to_owned()))]);
    let recordings = [("marks.plr".to_owned(), only_a_mark)];
    for name in TABLES
        .into_iter()
        .filter(|name| *name != "events")
        .chain(["contention"])
    {
        let options = ShowOptions {
            table: Some(name.to_owned()),
            callers: Vec::new(),
        };
        let error = show::show(&recordings, &options).expect_err("nothing to show");
        assert!(error.is_bad_input());
        let text = error.to_string();
        let helps = text.contains("marks.plr has no table") && text.contains("it has no");
        assert!(
            helps || text.contains("did you mean `contentions`"),
            "{text}"
        );
    }
}
