//! Tests of experiment files whose workload is Rust code. The error for a mistake must show the
//! mistake's place and the nearest name, and a copy of a built-in file must run.

use std::fs;
use std::path::Path;

use crate::experiment::{CATALOG, find, of_file};
use crate::report::misses::Agreement;
use crate::run::options::{Effort, Options};
use crate::run::progress::Progress;

/// The text of the smallest built-in file.
const SELFTEST: &str = include_str!("../../../experiments/selftest.toml");
const STALLS: &str = include_str!("../../../experiments/stalls.toml");
const DRAIN: &str = include_str!("../../../experiments/drain.toml");

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/experiments"))
}

/// The error that the reader reports after `from` has been replaced by `to` in `text`.
fn refused(text: &str, from: &str, to: &str) -> String {
    let changed = text.replacen(from, to, 1);
    assert_ne!(changed, text, "{from} is in the file");
    let subjects = &crate::experiment::SUBJECTS;
    let read = super::read::experiment(("a.toml", &changed), folder(), subjects);
    let error = read.err().unwrap_or_else(|| panic!("{to} is accepted"));
    assert!(error.is_bad_input());
    error.to_string()
}

/// Each row has a file, a text in the file, a wrong text that replaces this text, and the error
/// that the wrong text causes.
const MISTAKES: &[(&str, &str, &str, &str)] = &[
    (
        SELFTEST,
        "tables = [\"drawn\"]",
        "tables = [\"drawm\"]",
        "a.toml:7:11: tables[0]: no table of this workload is called `drawm`; did you mean `drawn`?",
    ),
    (
        SELFTEST,
        "[[\"baseline\", \"*\"]]",
        "[[\"baselin\", \"*\"]]",
        "compare.pairs[0][0]: no design is called `baselin`; did you mean `baseline`?",
    ),
    (
        SELFTEST,
        "metric = \"total_wait_ns\"",
        "metric = \"total_wait\"",
        "answer.rows[1].metric: no metric is called `total_wait`; did you mean `total_wait_ns`?",
    ),
    (
        SELFTEST,
        "what = \"waits\"",
        "what = \"waits for all of the locks\"",
        "answer.rows[0].what: this is longer than 21 characters",
    ),
    (
        SELFTEST,
        "designs = [\"baseline\", \"same\", \"shorter\"]",
        "designs = [\"baseline\", \"same\"]",
        "answer.designs: 2 designs for 3 sides",
    ),
    (
        SELFTEST,
        "{effect waits: baseline -> same}",
        "{efect waits: baseline -> same}",
        "answer.sentence: no word of a text is called `efect`; there are effect",
    ),
    (
        SELFTEST,
        "{effect waits: baseline -> same}",
        "{effect waits: baseline}",
        "write effect METRIC: A -> B",
    ),
    (
        SELFTEST,
        "{effect waits: baseline -> same}",
        "{effect waits: baseline -> sam}",
        "no design of a text is called `sam`; there are same",
    ),
    (
        SELFTEST,
        "{effect waits: baseline -> same}",
        "{worth}",
        "no fact of a text is called `worth`",
    ),
    (
        SELFTEST,
        "{effect waits: baseline -> same}",
        "{effect waits",
        "has no closing brace",
    ),
    (
        SELFTEST,
        "values = [1000]",
        "values = [1000, 2000]",
        "figure[0].values: 2 values for 1 designs",
    ),
    (
        SELFTEST,
        "machine = \"no machine\"",
        "machine = \"a machine\"",
        "published[0].machine: no machine of this experiment is called `a machine`; did you mean `no machine`?",
    ),
    (
        SELFTEST,
        "fewest = 900",
        "fewest = -1",
        "design[0].fewest: -1 is not possible here; write a whole number from 0 to 1000000",
    ),
    (
        SELFTEST,
        "fewest = 900",
        "fewer = 900",
        "design[0].fewer: unknown key; did you mean `fewest`?",
    ),
    (
        SELFTEST,
        "design = \"linux\"",
        "design = \"linus\"",
        "design[0].design: no variant is called `linus`; did you mean `linux`?",
    ),
    (
        SELFTEST,
        "name = \"same\"",
        "name = \"baseline\"",
        "two designs are called `baseline`",
    ),
    (
        SELFTEST,
        "tables = [\"drawn\"]",
        "length_ms = 5",
        "length_ms: this key has no effect with this workload; leave it out",
    ),
    (
        STALLS,
        "name = \"bounded\"",
        "name = \"ours\"",
        "the table `causes` needs a design called `bounded`",
    ),
    (
        STALLS,
        "machines = [\"turin-316\"]",
        "machines = [\"turin-31\"]",
        "machines[0]: unknown machine \"turin-31\"; did you mean turin-316?",
    ),
    (
        DRAIN,
        "[on.\"turin-316\"]",
        "[on.\"turin\"]",
        "on.turin: unknown key; did you mean `turin-316`?",
    ),
    (
        DRAIN,
        "workers = 50\n",
        "workers = 500\n",
        "machines[0]: 500 workers do not fit on 176 CPUs",
    ),
    (
        DRAIN,
        "cause = \"work\"",
        "cause = \"wirk\"",
        "no cause is called `wirk`; did you mean `work`?",
    ),
    (
        DRAIN,
        "[\"ratio\", \"ratio\"]",
        "[\"ratio\", \"rate\"]",
        "no cell of this table is called `rate`; did you mean `ratio`?",
    ),
    (
        DRAIN,
        "memory = \"aged\"\n",
        "",
        "memory: missing; memory is the state of free memory",
    ),
];

#[test]
fn a_mistake_is_shown_with_its_line_key_and_the_nearest_name() {
    for &(text, from, to, wanted) in MISTAKES {
        let shown = refused(text, from, to);
        assert!(shown.contains(wanted), "{wanted} is not in:\n{shown}");
    }
}

#[test]
fn a_part_that_gives_a_fact_must_be_among_the_tables() {
    let shown = refused(
        STALLS,
        "tables = [\"workload\", \"causes\"]",
        "tables = [\"workload\"]",
    );
    let wanted = "answer.sentence: no fact of a text is called `unbatched_stalls`";
    assert!(shown.contains(wanted), "{shown}");
}

/// Each file of `lab/experiments/` is built in, and gives the same experiment as the built-in file.
#[test]
fn the_files_of_the_folder_are_the_built_in_experiments() {
    let mut count = 0;
    for entry in fs::read_dir(folder()).expect("the folder exists") {
        let path = entry.expect("it can be read").path();
        let from_file = of_file(&path).expect("it is whole").expect("it has code");
        let built_in = find(from_file.name()).expect("it is built in");
        assert_eq!(
            Some(from_file.name()),
            path.file_stem().and_then(|stem| stem.to_str())
        );
        assert_eq!(from_file.outline(), built_in.outline());
        count += 1;
    }
    assert_eq!(count, crate::experiment::all().count());
    assert!(count > CATALOG.len());
}

#[test]
fn a_changed_copy_of_a_file_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mine.toml");
    let mine = SELFTEST
        .replace("name = \"selftest\"", "name = \"mine\"")
        .replace("fewest = 720\nmost = 880", "fewest = 90\nmost = 110");
    fs::write(&path, mine).expect("it can be written");
    let run = |experiment: &dyn crate::experiment::Experiment| {
        let options = Options {
            effort: Effort::Quick,
            ..Options::of_seeds(6)
        };
        let reports = experiment.run(&options, &Progress::hidden());
        reports.expect("it runs").remove(0)
    };
    let mine = run(&*of_file(&path).expect("it is whole").expect("it has code"));
    let built_in = run(find("selftest").expect("it is built in"));
    assert_eq!(
        (&*mine.experiment, &*built_in.experiment),
        ("mine", "selftest")
    );
    assert_ne!(mine.hash, built_in.hash);
    let waits = |report: &crate::report::Report| {
        let row = report.rows.iter().find(|row| row.design == "shorter");
        row.expect("it ran").estimate.median
    };
    assert!(waits(&mine) < 120.0 && waits(&built_in) > 700.0);
    assert_eq!(built_in.figures[0].agreement(), Agreement::Match);
    assert!(
        built_in
            .finding
            .contains("`same` does not measurably change the waits and `shorter` lowers"),
        "{}",
        built_in.finding
    );
}
