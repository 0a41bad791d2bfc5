//! Tests of whole stores, the folders that keep the results of runs.

use std::process::Command;
use std::sync::Arc;
use std::{env, panic};

use super::head::{Inputs, Machine, New, Program};
use super::*;
use crate::experiment;
use crate::measure::sample::Sample;
use crate::report::{Report, json};
use crate::run::journal::{ComparisonKey, Journal};
use crate::run::options::Options;
use crate::run::progress::Progress;

fn new(seeds: u64) -> New {
    let command = ["reproduce", "selftest", "--seeds", &seeds.to_string()];
    let program = Program {
        version: "0.1.0".to_owned(),
        commit: "0123456789ab".to_owned(),
        build: "1".to_owned(),
    };
    New {
        command: command.map(str::to_owned).to_vec(),
        program,
        machines: vec![Machine::unpriced("no machine")],
        inputs: Inputs::from([("seeds".to_owned(), seeds.to_string())]),
    }
}

fn selftest(journal: Arc<dyn Journal>, seeds: u64) -> Report {
    let progress = Progress::hidden().kept_in(journal, "selftest");
    let selftest = experiment::find("selftest").unwrap();
    let options = Options::of_seeds(seeds);
    selftest.run(&options, &progress).unwrap().remove(0)
}

/// Runs the self-test to its end, and returns its report.
fn whole(run: RunFolder, seeds: u64) -> Report {
    let mut run = run;
    let report = selftest(run.journal(), seeds);
    run.print(&Printed::Report(Box::new(report.clone())))
        .unwrap();
    run.finish().unwrap();
    report
}

/// A journal that interrupts the run after it has stored `most` cases.
#[derive(Debug)]
struct Breaking {
    journal: Arc<dyn Journal>,
    left: std::sync::atomic::AtomicUsize,
}

impl Journal for Breaking {
    fn find(&self, comparison: &ComparisonKey, design: &str, seed: u64) -> Option<Sample> {
        self.journal.find(comparison, design, seed)
    }

    fn keep(&self, comparison: &ComparisonKey, design: &str, seed: u64, sample: &Sample) {
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        let took = self
            .left
            .fetch_update(relaxed, relaxed, |left| left.checked_sub(1));
        took.expect("broken off");
        self.journal.keep(comparison, design, seed, sample);
    }
}

#[test]
fn a_run_that_was_broken_off_anywhere_ends_with_the_report_of_a_whole_one() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_or_make(&folder.path().join("store")).unwrap();
    let expected = whole(RunFolder::begin(&store, new(6)).unwrap(), 6);
    let of_whole = store.find("last").unwrap().cases().unwrap();
    assert_eq!(of_whole.len(), 18);
    for most in [0, 1, 5, 17] {
        let run = RunFolder::begin(&store, new(6)).unwrap();
        let id = run.id().to_owned();
        let breaking = Breaking {
            journal: run.journal(),
            left: most.into(),
        };
        let broken = || selftest(Arc::new(breaking), 6);
        panic::catch_unwind(panic::AssertUnwindSafe(broken)).expect_err("broken off");
        drop(run);
        assert_eq!(store.find(&id).unwrap().state(), State::BrokenOff);
        let run = RunFolder::resume(&store, None, &new(6)).unwrap();
        assert_eq!((run.id(), run.known()), (&*id, most));
        let report = whole(run, 6);
        assert_eq!(json::render(&report), json::render(&expected));
        let kept = store.find(&id).unwrap();
        assert_eq!(kept.cases().unwrap(), of_whole);
        assert!(kept.end.unwrap().resumed);
        let [Printed::Report(printed)] = &kept_printed(&store, &id)[..] else {
            panic!("one report was printed");
        };
        assert_eq!(json::render(printed), json::render(&expected));
    }
}

fn kept_printed(store: &Store, id: &str) -> Vec<Printed> {
    store.find(id).unwrap().printed().unwrap()
}

#[test]
fn only_the_same_run_is_resumed_and_the_refusal_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_or_make(folder.path()).unwrap();
    let refused = |id: Option<&str>, new: &New| {
        let error = RunFolder::resume(&store, id, new).expect_err("it differs");
        assert!(error.is_bad_input());
        error.to_string()
    };
    assert!(refused(None, &new(6)).contains("no run that was broken off"));
    let run = RunFolder::begin(&store, new(6)).unwrap();
    let id = run.id().to_owned();
    assert!(refused(Some(&id), &new(6)).ends_with("it is still running"));
    store.remove(&id).expect_err("it is still running");
    drop(run);
    let text = refused(None, &new(12));
    let why =
        "its seeds is `6` and not `12`; it was begun as `plimsoll reproduce selftest --seeds 6`";
    assert!(text.ends_with(why), "{text}");
    let mut other = new(6);
    other.program.commit = "ba9876543210".to_owned();
    assert!(refused(None, &other).contains("commit 0123456789ab, and this is version 0.1.0 of"));
    let mut other = new(6);
    other.program.build = "2".to_owned();
    assert!(refused(None, &other).contains("another build"));
    let mut other = new(6);
    other.machines[0].profile = "3".to_owned();
    assert!(refused(None, &other).contains("the profile of no machine has changed"));
    // Resuming skips the newer interrupted run, because its inputs differ, and finds the older run,
    // which has the right inputs.
    drop(RunFolder::begin(&store, new(12)).unwrap());
    let run = RunFolder::resume(&store, None, &new(6)).unwrap();
    assert_eq!(run.id(), id);
    whole(run, 6);
    assert!(refused(Some(&id), &new(6)).contains("it has finished"));
    assert_eq!(store.remove(&id).unwrap(), id);
    assert_eq!(store.runs().unwrap().len(), 1);
}

#[test]
fn an_id_is_found_by_its_beginning_and_a_wrong_one_offers_the_nearest() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_or_make(folder.path()).unwrap();
    store.find("last").expect_err("the store has no run");
    let ids: Vec<String> = [1, 1]
        .map(|seeds| {
            let run = RunFolder::begin(&store, new(seeds)).unwrap();
            run.id().to_owned()
        })
        .to_vec();
    let newest = store.runs().unwrap().pop().unwrap().head.id;
    assert_eq!(store.find("last").unwrap().head.id, newest);
    assert_eq!(store.find(&ids[0]).unwrap().head.id, ids[0]);
    let several = store.find("20").unwrap_err().to_string();
    assert!(several.starts_with("2 runs begin with `20`"), "{several}");
    let slip = format!("{}x", &ids[1][..ids[1].len() - 1]);
    let near = store.find(&slip).unwrap_err();
    assert!(
        near.is_bad_input() && near.to_string().contains("did you mean"),
        "{near}"
    );
    let far = store.find("zz").unwrap_err().to_string();
    assert!(far.contains("the newest is"), "{far}");
}

#[test]
fn a_store_of_a_newer_version_and_no_store_are_errors_that_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let none = Store::open(folder.path()).unwrap_err().to_string();
    assert!(none.contains("is no store of results"), "{none}");
    Store::open_or_make(folder.path()).unwrap();
    fs::write(folder.path().join(FORMAT), r#"{"schema": 2}"#).unwrap();
    for opened in [
        Store::open(folder.path()),
        Store::open_or_make(folder.path()),
    ] {
        let newer = opened.unwrap_err();
        assert!(newer.is_bad_input());
        assert!(
            newer.to_string().contains("made by a newer version"),
            "{newer}"
        );
    }
}

/// If this test fails, the files have changed. In this case, describe the change in
/// `docs/results.md`. Raise [`SCHEMA`] if older versions would misread the files; they ignore keys
/// that they do not know.
#[test]
fn the_files_have_the_keys_of_this_schema() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_or_make(folder.path()).unwrap();
    let run = RunFolder::begin(&store, new(1)).unwrap();
    let own = store.runs_folder().join(run.id());
    whole(run, 1);
    let keys = |file: &str| {
        let text = fs::read_to_string(own.join(file)).unwrap();
        let line = file.ends_with('l').then(|| text.lines().next().unwrap());
        format!("{file}: {}", keys_of(line.unwrap_or(&text)))
    };
    let all = ["run.json", "cases.jsonl", "report.jsonl", "end.json"].map(keys);
    let format = fs::read_to_string(folder.path().join(FORMAT)).unwrap();
    assert_eq!(format, "{\n  \"schema\": 1\n}\n");
    insta::assert_snapshot!(all.join("\n"), @r"
    run.json: {command[] id inputs{seeds} machines[{name profile}] program{build commit
    version} schema started}
    cases.jsonl: {about design experiment hash machine metrics[{better metric unit value}] nth
    seed what}
    report.jsonl: {report{answer{question rows[{cells[{compared design estimate{high low median}
    is_zero pairs seeds}] metric{better name unit} published_ratio what}] sentence
    sides[]} card decided experiment figures[{basis ours{ratio values[]}
    place{designs[] experiment machine metric} published{levels[]} source thread unit
    what why}] finding hash is_simulated machine rows[{design estimate{high low
    median} is_zero metric{better name unit} published seeds}] seeds[]
    tables[{columns[] note rows[[]] title}] verdicts[{a b comparison{ratio{high low
    median} verdict} metric{better name unit} pairs}] warnings[]}}
    end.json: {duration_ms resumed schema verdict}
    ");
}

/// The keys of a JSON value, as lines of text. An object is written as its keys in braces, a list
/// as the keys of its first element, and any other value as nothing.
pub(super) fn keys_of(json: &str) -> String {
    let mut lines = vec![String::new()];
    for word in shape(&serde_json::from_str(json).unwrap()).split(' ') {
        let last = lines.last_mut().unwrap();
        if last.len() + word.len() > 80 {
            lines.push(word.to_owned());
        } else {
            *last += if last.is_empty() { "" } else { " " };
            *last += word;
        }
    }
    lines.join("\n")
}

fn shape(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Object(of) => {
            let keys = of
                .iter()
                .map(|(key, value)| format!("{key}{}", shape(value)));
            format!("{{{}}}", keys.collect::<Vec<_>>().join(" "))
        }
        Value::Array(of) => format!("[{}]", of.first().map_or(String::new(), shape)),
        _ => String::new(),
    }
}

/// If this environment variable is set, the test below only runs the self-test in the store that
/// the variable names. The test starts two such processes.
const IN_STORE: &str = "PLIMSOLL_TEST_STORE";

#[test]
fn two_processes_share_a_store() {
    if let Some(folder) = env::var_os(IN_STORE) {
        let store = Store::open_or_make(Path::new(&folder)).unwrap();
        for seeds in 1..=10 {
            whole(RunFolder::begin(&store, new(seeds)).unwrap(), seeds);
            store.runs().unwrap();
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("new");
    let name = "store::tests::two_processes_share_a_store";
    let start = || {
        let mut process = Command::new(env::current_exe().unwrap());
        process.args(["--exact", name]).env(IN_STORE, &store);
        process.spawn().unwrap()
    };
    let processes = [start(), start()];
    for mut process in processes {
        assert!(process.wait().unwrap().success());
    }
    let runs = Store::open(&store).unwrap().runs().unwrap();
    assert_eq!(runs.len(), 20);
    for run in &runs {
        assert_eq!(run.state(), State::Finished);
        let seeds: usize = run.head.inputs["seeds"].parse().unwrap();
        assert_eq!(run.cases().unwrap().len(), 3 * seeds);
    }
    let times: Vec<&String> = runs.iter().map(|run| &run.head.started).collect();
    assert!(times.is_sorted(), "the newest is last");
}
