//! The tests that judge mutants: the time that each test takes, and the mutants that it reaches.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::limited::{Limits, time};
use super::progress::Progress;
use crate::mutants::build::Program;
use crate::mutants::groups::Group;
use crate::mutants::rewrite::switch;

/// The limits for a test when no mutant is switched on. These limits only serve to end a test that
/// hangs.
const LONGEST: Limits = Limits {
    cpu_s: 600,
    wall: Duration::from_secs(3600),
};

/// The name of a test, which consists of a program's name and the test's path in that program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) program: String,
    pub(crate) path: String,
}

/// A test, the time that it takes when no mutant is switched on, and the mutants that it reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Measured {
    pub(crate) name: Name,
    pub(crate) cpu: Duration,
    pub(crate) wall: Duration,
    /// The numbers of the mutants whose code the test runs. Only mutants that have a switch are
    /// listed.
    pub(crate) reaches: BTreeSet<usize>,
}

/// Returns the tests that belong to the suites of `groups`, except ignored tests.
pub(crate) fn list(programs: &[Program], groups: &[&Group]) -> Result<BTreeSet<Name>, String> {
    let mut tests = BTreeSet::new();
    for program in programs {
        let ignored = names(program, &["--list", "--ignored"])?;
        for path in names(program, &["--list"])? {
            let is_in = |group: &&Group| belongs(group, &path);
            if !ignored.contains(&path) && groups.iter().any(is_in) {
                tests.insert(Name {
                    program: program.name.clone(),
                    path,
                });
            }
        }
    }
    Ok(tests)
}

/// Returns whether a test with this path belongs to a suite of the group. A suite has the name of a
/// module, and the path has the names of the test's modules.
pub(crate) fn belongs(group: &Group, path: &str) -> bool {
    let mut modules = path.rsplit("::").skip(1);
    modules.any(|module| group.suites.iter().any(|suite| suite == module))
}

fn names(program: &Program, arguments: &[&str]) -> Result<BTreeSet<String>, String> {
    let output = Command::new(&program.path).args(arguments).output();
    let output = output.map_err(|error| format!("{}: {error}", program.path.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.map(str::to_owned).collect())
}

/// Runs each test once with no mutant switched on. Returns an error if a test fails.
pub(crate) fn measure(
    programs: &[Program],
    tests: &BTreeSet<Name>,
    jobs: usize,
    folder: &Path,
) -> Result<Vec<Measured>, String> {
    let programs: BTreeMap<&str, &Program> = programs
        .iter()
        .map(|program| (program.name.as_str(), program))
        .collect();
    let progress = Progress::new("tests without a change", tests.len());
    let waiting = Mutex::new(tests.iter());
    let done = Mutex::new(Vec::new());
    let worker = |worker: usize| -> Result<(), String> {
        loop {
            let Some(name) = waiting.lock().expect("no worker panics").next() else {
                return Ok(());
            };
            let measured = measure_one(programs[name.program.as_str()], name, folder, worker)?;
            done.lock().expect("no worker panics").push(measured);
            progress.one_more("");
        }
    };
    super::on_threads(jobs, worker)?;
    let mut done = done.into_inner().expect("no worker panics");
    done.sort_by_key(|test| test.cpu);
    Ok(done)
}

fn measure_one(
    program: &Program,
    name: &Name,
    folder: &Path,
    worker: usize,
) -> Result<Measured, String> {
    let reached = folder.join(format!("reached-{worker}"));
    let log = folder.join(format!("log-{worker}"));
    // A test that reaches no mutant makes no file. So if the file of an earlier test still existed,
    // this function would take it for the file of this test.
    let _ = fs::remove_file(&reached);
    let start = Instant::now();
    let variable = (switch::REACHED, reached.clone().into_os_string());
    let cpu = time(program, &name.path, variable, LONGEST, &log)?;
    let cpu = cpu.ok_or_else(|| {
        format!(
            "{} {} fails without a change: mend it first; it prints:\n{}",
            name.program,
            name.path,
            fs::read_to_string(&log).unwrap_or_default()
        )
    })?;
    let text = fs::read_to_string(&reached).unwrap_or_default();
    Ok(Measured {
        name: name.clone(),
        cpu,
        wall: start.elapsed(),
        reaches: text.lines().filter_map(|line| line.parse().ok()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_belongs_by_the_name_of_a_module_around_it() {
        let group = Group {
            name: "page".to_owned(),
            files: Vec::new(),
            suites: vec!["page".to_owned(), "swarm".to_owned()],
        };
        assert!(belongs(&group, "page::zone::tests::it_splits"));
        assert!(belongs(&group, "swarm::promises_hold"));
        assert!(!belongs(&group, "space_swarm::promises_hold"));
        assert!(!belongs(&group, "space::page"));
    }
}
