//! Runs the tests on mutants, and reports for each mutant whether a test noticed it.

mod limited;
mod progress;
mod suites;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use self::limited::{End, Limits};
use self::progress::Progress;
use self::suites::{Measured, belongs};
use super::build::Program;
use super::groups::Group;
use super::rewrite::switch;

/// The result of running the tests on one mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// A test failed. The text names the test's program and the test's path.
    Caught(String),
    /// A test took far more time than it takes without a mutant. The text names the test's program
    /// and the test's path.
    TimedOut(String),
    /// All tests passed, or no test reaches the changed code.
    Survived {
        /// The number of tests that ran.
        tests: usize,
    },
    /// The mutant does not compile.
    Unviable,
}

/// The most CPU time that the tests of one batch take together when no mutant is switched on. Tests
/// run in batches, because starting a program for each test would take longer.
const BATCH: Duration = Duration::from_millis(500);

/// The minimum of a batch's limit on CPU time, in seconds. If a batch exceeds its limit, one of its
/// tests counts as endless.
const LEAST_CPU_S: u64 = 10;

/// The minimum of a batch's limit on clock time. If a batch exceeds its limit, one of its tests
/// counts as waiting for ever.
const LEAST_WALL: Duration = Duration::from_secs(60);

/// The test programs of one build, with everything that is known about their tests.
#[derive(Debug)]
pub(crate) struct Judge {
    programs: BTreeMap<String, Program>,
    /// The tests in the order of their CPU time, the cheapest test first.
    tests: Vec<Measured>,
    jobs: usize,
    /// The folder for the logs of tests and the lists of reached mutants.
    folder: PathBuf,
}

impl Judge {
    /// Runs all tests of the suites of `groups` with no mutant switched on, and notes the duration
    /// of each test and the mutants that it reaches.
    pub(crate) fn new(
        programs: Vec<Program>,
        groups: &[&Group],
        jobs: usize,
        folder: &Path,
    ) -> Result<Self, String> {
        let tests = suites::list(&programs, groups)?;
        let tests = suites::measure(&programs, &tests, jobs, folder)?;
        Ok(Self {
            programs: by_name(programs),
            tests,
            jobs,
            folder: folder.to_owned(),
        })
    }

    /// Returns the number of tests, and the CPU time that all of them take when no mutant is
    /// switched on.
    pub(crate) fn cost(&self) -> (usize, Duration) {
        (
            self.tests.len(),
            self.tests.iter().map(|test| test.cpu).sum(),
        )
    }

    /// Judges mutants that a switch can turn on, several mutants at the same time.
    pub(crate) fn switched(
        &self,
        mutants: &[(usize, &Group)],
    ) -> Result<BTreeMap<usize, Fate>, String> {
        let progress = Progress::new("tried", mutants.len());
        let waiting = Mutex::new(mutants.iter());
        let fates = Mutex::new(BTreeMap::new());
        let worker = |worker: usize| -> Result<(), String> {
            loop {
                let Some((number, group)) = waiting.lock().expect("no worker panics").next() else {
                    return Ok(());
                };
                let reaches = |test: &&Measured| {
                    test.reaches.contains(number) && belongs(group, &test.name.path)
                };
                let tests: Vec<&Measured> = self.tests.iter().filter(reaches).collect();
                let fate = self.fate(&self.programs, &tests, *number, worker)?;
                let mut fates = fates.lock().expect("no worker panics");
                fates.insert(*number, fate);
                let survived = |fate: &&Fate| matches!(fate, Fate::Survived { .. });
                let survived = fates.values().filter(survived).count();
                progress.one_more(&format!("{survived} survived"));
            }
        };
        on_threads(self.jobs, worker)?;
        Ok(fates.into_inner().expect("no worker panics"))
    }

    /// Judges a mutant that was built alone: runs all tests of the mutant's group with `programs`,
    /// the programs of that build. It is not known which of these tests reach the mutant.
    pub(crate) fn alone(
        &self,
        programs: Vec<Program>,
        group: &Group,
        number: usize,
    ) -> Result<Fate, String> {
        let programs = by_name(programs);
        let can_run = |test: &&Measured| {
            programs.contains_key(&test.name.program) && belongs(group, &test.name.path)
        };
        let tests: Vec<&Measured> = self.tests.iter().filter(can_run).collect();
        self.fate(&programs, &tests, number, 0)
    }

    /// Runs `tests` in batches, beginning with the cheapest, until a test fails.
    fn fate(
        &self,
        programs: &BTreeMap<String, Program>,
        tests: &[&Measured],
        number: usize,
        worker: usize,
    ) -> Result<Fate, String> {
        let log = self.folder.join(format!("log-{worker}"));
        for batch in batches(tests) {
            let program = &batch[0].name.program;
            let paths: Vec<&str> = batch.iter().map(|test| test.name.path.as_str()).collect();
            let variable = (switch::MUTANT, number.to_string().into());
            let built = programs.get(program);
            let built = built.ok_or_else(|| format!("{program} was not built"))?;
            match limited::run(built, &paths, variable, limits(&batch), &log)? {
                End::Passed => {}
                End::Failed(test) => return Ok(Fate::Caught(format!("{program} {test}"))),
                End::TimedOut(test) => return Ok(Fate::TimedOut(format!("{program} {test}"))),
            }
        }
        Ok(Fate::Survived { tests: tests.len() })
    }
}

fn by_name(programs: Vec<Program>) -> BTreeMap<String, Program> {
    let named = programs
        .into_iter()
        .map(|program| (program.name.clone(), program));
    named.collect()
}

/// Cuts a list of tests into batches. The list begins with the cheapest test. Each batch has tests
/// of one program.
fn batches<'t>(tests: &[&'t Measured]) -> Vec<Vec<&'t Measured>> {
    let mut batches: Vec<(Duration, Vec<&Measured>)> = Vec::new();
    for test in tests {
        let open = batches.iter_mut().rev().find(|(cpu, batch)| {
            batch[0].name.program == test.name.program && *cpu + test.cpu <= BATCH
        });
        match open {
            Some((cpu, batch)) => {
                *cpu += test.cpu;
                batch.push(test);
            }
            None => batches.push((test.cpu, vec![test])),
        }
    }
    batches.into_iter().map(|(_, batch)| batch).collect()
}

/// Returns the limits for a batch. The limits are far above the times that the batch takes when no
/// mutant is switched on.
fn limits(batch: &[&Measured]) -> Limits {
    let cpu: Duration = batch.iter().map(|test| test.cpu).sum();
    let wall: Duration = batch.iter().map(|test| test.wall).sum();
    Limits {
        cpu_s: LEAST_CPU_S.max((4 * cpu).as_secs() + 1),
        wall: LEAST_WALL + 10 * wall,
    }
}

/// Calls `work` on each of several threads, and passes the index of the thread. Returns the first
/// error.
fn on_threads(
    threads: usize,
    work: impl Fn(usize) -> Result<(), String> + Sync,
) -> Result<(), String> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        let mut results = threads.into_iter().map(|thread| thread.join());
        results
            .try_for_each(|result| result.map_err(|_| "a thread of xtask panicked".to_owned())?)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::suites::Name;
    use super::*;

    fn measured(program: &str, path: &str, ms: u64) -> Measured {
        Measured {
            name: Name {
                program: program.to_owned(),
                path: path.to_owned(),
            },
            cpu: Duration::from_millis(ms),
            wall: Duration::from_millis(2 * ms),
            reaches: BTreeSet::new(),
        }
    }

    #[test]
    fn cheap_tests_of_a_program_run_together_and_before_dear_ones() {
        let tests = [
            measured("mm", "a", 100),
            measured("sim", "b", 200),
            measured("mm", "c", 300),
            measured("sim", "d", 400),
            measured("sim", "e", 9000),
        ];
        let tests: Vec<&Measured> = tests.iter().collect();
        let batches = batches(&tests);
        let paths = |batch: &Vec<&Measured>| -> Vec<String> {
            batch.iter().map(|test| test.name.path.clone()).collect()
        };
        let paths: Vec<Vec<String>> = batches.iter().map(paths).collect();
        assert_eq!(paths, [vec!["a", "c"], vec!["b"], vec!["d"], vec!["e"]]);
        assert_eq!(limits(&batches[0]).cpu_s, 10);
        assert_eq!(limits(&batches[3]).cpu_s, 37);
        assert_eq!(limits(&batches[3]).wall, Duration::from_secs(60 + 180));
    }
}
