//! Tests that a replay starts in the state that its recording contains, and that the replay's
//! report says so.

use std::num::{NonZeroU32, NonZeroUsize};

use plimsoll_lab::replay::{self, ReplayOptions};
use plimsoll_lab::report::Report;
use plimsoll_lab::run::jobs::Jobs;
use plimsoll_lab::run::progress::Progress;
use plimsoll_sim::profile::Card;

fn report(file: &str, scale: u32) -> Report {
    let options = ReplayOptions {
        watch: None,
        file: format!("{}/tests/data/{file}", env!("CARGO_MANIFEST_DIR")),
        machine: "phone-8".to_owned(),
        scale: NonZeroU32::new(scale).expect("not zero"),
        a: Some("linux-6.12".to_owned()),
        b: None,
        seeds: vec![1],
        jobs: Jobs::new(NonZeroUsize::MIN),
        card: Card::Mid,
        record: None,
        trace: None,
    };
    let (report, _) = replay::run(&options, &Progress::new()).expect("it can be replayed");
    report
}

/// Returns a number from the report's last table of pages that moved between page lists and zones.
/// It is in the row `site` and the column `column`.
fn moved(report: &Report, site: &str, column: &str) -> u64 {
    let table = report.tables.iter();
    let table = table
        .rev()
        .find(|table| table.title.starts_with("Pages between"));
    let table = table.expect("the table of moves");
    let at = table.columns.iter().position(|other| other == column);
    let row = table.rows.iter().find(|row| row[1] == site);
    let cell = &row.expect("the site moved something")[at.expect("the column")];
    cell.replace(',', "").parse().expect("a number")
}

#[test]
fn a_recording_with_zoneinfo_begins_with_its_lists() {
    let once = report("exact-6.12-4-cpus.plr", 1);
    let says = "It begins as the recorded machine was when /proc/zoneinfo was read: ";
    assert!(once.finding.contains(says), "{}", once.finding);
    assert!(
        once.finding
            .contains("0 allocations failed, 0 frees came before"),
        "{}",
        once.finding
    );
    let twice = report("exact-6.12-4-cpus.plr", 2);
    let listed = |report: &Report| {
        let (_, rest) = report.finding.split_once(says).expect("it is said");
        let number = rest.split(' ').next().expect("a number");
        number.replace(',', "").parse::<u64>().expect("a number")
    };
    assert!(listed(&once) > 0);
    assert_eq!(
        listed(&twice),
        2 * listed(&once),
        "each copy has lists of its own"
    );
}

#[test]
fn a_recording_without_zoneinfo_begins_with_empty_lists() {
    let report = report("cargo-build.perf-script.txt.zst", 1);
    let says = "It begins with empty lists and all memory free, because the recording has no \
                /proc/zoneinfo of before.";
    assert!(report.finding.contains(says), "{}", report.finding);
    assert!(moved(&report, "rmqueue_bulk", "holds") > 0);
}
