//! Kills the command at many moments of a run, resumes the run, and compares its report with the
//! report of an undisturbed run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The number of times that the tests kill a sweep, and the number of times that one test kills and
/// resumes the same run.
const KILLS: u64 = 20;

/// The number of times that a test kills a run with a report. Such a run writes its cases by the
/// same code as a sweep. So it only has to be killed often enough to be resumed from each of its
/// states.
const KILLS_OF_A_REPORT: u64 = 8;

/// The arguments of a command with 16 cases, which runs for a few tenths of a second.
const COMPARE: &[&str] = &[
    "compare",
    "stress-vm",
    "--machine",
    "laptop-2",
    "--seeds",
    "8",
    "--length-ms",
    "15",
    "--jobs",
    "2",
    "--format",
    "json",
    "--store",
];

/// A sweep of a few tenths of a second with 24 cases at 6 points, with a report.
const RUN: &[&str] = &[
    "run",
    "tests/experiments/sweep.toml",
    "--jobs",
    "2",
    "--format",
    "json",
    "--store",
];

/// A sweep of a few tenths of a second with 24 cases at 6 points. Only its samples are kept.
const SWEEP: &[&str] = &[
    "sweep",
    "tests/experiments/sweep.toml",
    "--jobs",
    "2",
    "--store",
];

/// Returns a new store for a test.
fn store(name: &str) -> PathBuf {
    let store = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("resume-{name}"));
    // Removes the store of an earlier test run. Fails, without effect, if there is no such store.
    let _ = fs::remove_dir_all(&store);
    store
}

fn plimsoll(run: &[&str], store: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(run).arg(store);
    command
}

/// Runs the command to its end, and returns its output.
fn finished(command: &mut Command) -> Output {
    let out = command.output().expect("the command starts");
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{errors}");
    out
}

/// Starts the command, and kills it as soon as `is_time` returns true.
fn killed(command: &mut Command, mut is_time: impl FnMut() -> bool) {
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child: Child = quiet.spawn().expect("the command starts");
    while !is_time() && child.try_wait().expect("the child is ours").is_none() {
        thread::sleep(Duration::from_micros(500));
    }
    // Killing fails if the command has ended already, which is no error here.
    let _ = child.kill();
    child.wait().expect("the command was started");
}

/// The number of bytes that the run in the store has written about its finished cases.
fn written(store: &Path) -> u64 {
    let runs = fs::read_dir(store.join("runs")).into_iter().flatten();
    let files = runs.flatten().map(|run| run.path().join("cases.jsonl"));
    files
        .filter_map(|file| Some(file.metadata().ok()?.len()))
        .sum()
}

/// The state of the run in the store, which has one run at most; `None` if there is no run.
fn state(store: &Path) -> Option<String> {
    let list = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["results", "list", "--format", "json", "--store"])
        .arg(store)
        .output();
    let list = String::from_utf8(list.expect("the command starts").stdout).expect("JSON is text");
    assert!(list.lines().count() <= 1, "{list}");
    let (_, rest) = list.split_once("\"state\":\"")?;
    Some(rest.split('"').next().unwrap_or_default().to_owned())
}

/// Resumes the run if it was broken off. If the run was killed before its folder was complete, runs
/// the command from the start.
fn go_on(run: &[&str], store: &Path) -> Command {
    let mut command = plimsoll(run, store);
    if state(store).as_deref() == Some("broken-off") {
        command.arg("--resume");
    }
    command
}

/// The samples of the run in the store as lines of CSV, without the columns about the run itself.
/// The last of these columns is the object `inputs`.
fn samples(store: &Path) -> Vec<String> {
    let mut export = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    export.args(["results", "export", "last", "--format", "csv", "--store"]);
    let text = String::from_utf8(finished(export.arg(store)).stdout).expect("CSV is text");
    let of_case = |line: &str| line.split_once("}\",").expect("inputs").1.to_owned();
    text.lines().skip(1).map(of_case).collect()
}

/// Kills `run` at `kills` moments. Each time, resumes the run and checks that it has the same
/// report and samples as an undisturbed run. A moment is a number of bytes that the run has
/// written. It is not a time, because a busy computer may run the command at any speed.
fn survives(name: &str, run: &[&str], kills: u64) {
    let undisturbed = store(name);
    let whole = finished(&mut plimsoll(run, &undisturbed)).stdout;
    let bytes = written(&undisturbed);
    let all = samples(&undisturbed);
    assert!(!all.is_empty());
    let mut resumed = 0;
    for nth in 0..kills {
        let store = store(&format!("{name}-{nth}"));
        let moment = bytes * nth / kills;
        killed(&mut plimsoll(run, &store), || written(&store) >= moment);
        match state(&store).as_deref() {
            Some("finished") => continue,
            Some("broken-off") => resumed += 1,
            other => assert_eq!(other, None),
        }
        let out = finished(&mut go_on(run, &store));
        assert_eq!(
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&whole)
        );
        assert_eq!(state(&store).as_deref(), Some("finished"));
        assert_eq!(samples(&store), all);
    }
    assert!(
        resumed > kills / 4,
        "only {resumed} of {kills} runs were killed while they ran"
    );
}

#[test]
fn a_run_that_is_killed_at_any_moment_ends_with_the_report_of_a_whole_run() {
    survives("compare", COMPARE, KILLS_OF_A_REPORT);
}

#[test]
fn a_run_of_a_sweep_that_is_killed_at_any_moment_ends_with_the_report_of_a_whole_run() {
    survives("run", RUN, KILLS_OF_A_REPORT);
}

#[test]
fn a_sweep_that_is_killed_at_any_moment_loses_and_doubles_no_sample() {
    survives("sweep", SWEEP, KILLS);
}

#[test]
fn the_parts_of_a_sweep_are_together_the_whole_sweep() {
    let undivided = store("undivided");
    finished(&mut plimsoll(SWEEP, &undivided));
    let mut of_parts: Vec<String> = Vec::new();
    for part in ["1/4", "2/4", "3/4", "4/4"] {
        let store = store(&format!("part-{}", &part[..1]));
        finished(plimsoll(SWEEP, &store).args(["--part", part]));
        of_parts.extend(samples(&store));
    }
    let mut whole = samples(&undivided);
    whole.sort();
    of_parts.sort();
    assert_eq!(of_parts, whole);
}

#[test]
fn a_run_that_is_killed_again_and_again_gets_on_each_time() {
    let began = Instant::now();
    let whole = finished(&mut plimsoll(COMPARE, &store("steady"))).stdout;
    let took = began.elapsed();
    let store = store("again");
    for _ in 0..KILLS {
        if state(&store).as_deref() == Some("finished") {
            break;
        }
        let began = Instant::now();
        killed(&mut go_on(COMPARE, &store), || began.elapsed() >= took / 3);
    }
    if state(&store).as_deref() != Some("finished") {
        finished(&mut go_on(COMPARE, &store));
    }
    let mut show = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let show = show.args(["results", "show", "last", "--format", "json", "--store"]);
    let shown = finished(show.arg(&store)).stdout;
    assert_eq!(
        String::from_utf8_lossy(&shown),
        String::from_utf8_lossy(&whole)
    );
}
