//! Runs a test program with limits on the CPU time and the memory that it may take.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::mutants::build::Program;

/// The memory that a test program may map, in KiB. A mutant that allocates in an endless loop
/// reaches this limit before the computer is out of memory.
const MEMORY_KIB: u64 = 8 << 20;

/// A script for the shell. It sets the limits and then becomes the test program. The first two
/// arguments are the limits: seconds of CPU time, and KiB of memory. The script also switches off
/// core files, which are not needed.
const LIMITED: &str = r#"ulimit -c 0; ulimit -t "$1" && ulimit -v "$2" && shift 2 && exec "$@""#;

/// A script for the shell. It sets the limits on CPU time and memory, runs the test program, and
/// prints the CPU time that the program took.
const TIMED: &str = r#"ulimit -c 0; ulimit -t "$1" && ulimit -v "$2" && shift 2
"$@"; code=$?; times; exit $code"#;

/// The limits on the time that tests may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The CPU time, in whole seconds. Other programs that run at the same time do not use up this
    /// limit.
    pub(super) cpu_s: u64,
    /// The wall-clock time. Tests that wait for ever use no CPU time, so only this limit ends them.
    pub(super) wall: Duration,
}

/// How a run of tests ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Passed,
    /// A test failed. The text is the name of the first test that failed, as far as it is known.
    Failed(String),
    /// A test took too long. The text is the name of this test, as far as it is known.
    TimedOut(String),
}

/// Runs `tests` of a program one after the other. The output of the program goes to the file `log`.
pub(super) fn run(
    program: &Program,
    tests: &[&str],
    variable: (&str, OsString),
    limits: Limits,
    log: &Path,
) -> Result<End, String> {
    let mut command = shell(LIMITED, program, limits);
    command.args(["--exact", "--test-threads", "1"]).args(tests);
    command.env(variable.0, variable.1);
    let (status, timed_out) = wait(spawn(&mut command, log)?, limits.wall)?;
    if status.success() {
        return Ok(End::Passed);
    }
    let printed = fs::read(log).unwrap_or_default();
    let test = failed(&String::from_utf8_lossy(&printed));
    Ok(if timed_out || is_limit(status) {
        End::TimedOut(test)
    } else {
        End::Failed(test)
    })
}

/// Runs one test and returns the CPU time that it took, or `None` if it failed.
pub(super) fn time(
    program: &Program,
    test: &str,
    variable: (&str, OsString),
    limits: Limits,
    log: &Path,
) -> Result<Option<Duration>, String> {
    let mut command = shell(TIMED, program, limits);
    command.args(["--exact", "--test-threads", "1", test]);
    command.env(variable.0, variable.1);
    let (status, _) = wait(spawn(&mut command, log)?, limits.wall)?;
    if !status.success() {
        return Ok(None);
    }
    let printed = fs::read(log).map_err(|error| format!("{}: {error}", log.display()))?;
    let printed = String::from_utf8_lossy(&printed);
    let times = printed.lines().last().and_then(cpu_time);
    let times = times.ok_or("the shell does not print times of CPU as POSIX asks")?;
    Ok(Some(times))
}

fn shell(script: &str, program: &Program, limits: Limits) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]);
    command.args([limits.cpu_s.to_string(), MEMORY_KIB.to_string()]);
    command.arg(&program.path).current_dir(&program.folder);
    command.env("CARGO_MANIFEST_DIR", &program.folder);
    // The limit on CPU time applies to each process separately. Some tests would start another
    // process; with this variable, they run in the limited process instead.
    command.env("PLIMSOLL_TEST_ALONE", "1");
    // The mutant is caught as soon as one test fails. So it is useless to shrink the input with
    // which the test failed, or to store it.
    command.env("PROPTEST_MAX_SHRINK_ITERS", "0");
    command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true");
    command
}

fn spawn(command: &mut Command, log: &Path) -> Result<Child, String> {
    let file = File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let child = command.stdout(file).spawn();
    child.map_err(|error| format!("cannot run sh: {error}"))
}

/// Waits until `child` ends, and kills it if it takes longer than `limit`. Returns the exit status,
/// and true if `child` was killed.
fn wait(mut child: Child, limit: Duration) -> Result<(ExitStatus, bool), String> {
    let cannot = |error: std::io::Error| format!("cannot wait for a test: {error}");
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait().map_err(cannot)? {
            return Ok((status, false));
        }
        if start.elapsed() > limit {
            child.kill().map_err(cannot)?;
            return Ok((child.wait().map_err(cannot)?, true));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Returns whether the kernel ended a program because the program had used up its CPU time.
#[cfg(unix)]
fn is_limit(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;

    /// The numbers of SIGKILL and SIGXCPU on Linux.
    const ENDED: [i32; 2] = [9, 24];
    status
        .signal()
        .is_some_and(|signal| ENDED.contains(&signal))
}

#[cfg(not(unix))]
fn is_limit(_: ExitStatus) -> bool {
    false
}

/// Returns the name of the first test that failed or did not end, according to libtest's output.
fn failed(printed: &str) -> String {
    let tests = printed.lines().filter_map(|line| {
        let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
        (!result.starts_with("ok") && !result.starts_with("ignored")).then_some(name)
    });
    // The name of a test with `should_panic` is followed by a remark.
    let name = tests
        .map(|name| name.split(' ').next().unwrap_or(name))
        .next();
    name.unwrap_or("a test").to_owned()
}

/// Reads a line that `times` prints for the children of the shell, such as `0m1.250s 0m0.010s`.
/// Returns the sum of the user time and the system time.
fn cpu_time(line: &str) -> Option<Duration> {
    let mut sum = Duration::ZERO;
    for word in line.split_whitespace() {
        let (minutes, seconds) = word.strip_suffix('s')?.split_once('m')?;
        let minutes: u64 = minutes.parse().ok()?;
        let seconds: f64 = seconds.parse().ok()?;
        sum += Duration::from_secs(60 * minutes) + Duration::try_from_secs_f64(seconds).ok()?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stand-in for a test program: a script that gets libtest's options as arguments.
    fn program(folder: &Path, script: &str) -> Program {
        let path = folder.join("program.sh");
        fs::write(&path, script).expect("a script");
        Command::new("chmod")
            .arg("+x")
            .arg(&path)
            .status()
            .expect("chmod");
        Program {
            name: "program".to_owned(),
            folder: folder.to_owned(),
            path,
        }
    }

    fn ended(script: &str, limits: Limits) -> End {
        let folder = tempfile::tempdir().expect("a folder");
        let program = program(folder.path(), script);
        let log = folder.path().join("log");
        let variable = ("MUTANT_OF_A_TEST", OsString::from("7"));
        run(&program, &["a::b"], variable, limits, &log).expect("a run")
    }

    const GENEROUS: Limits = Limits {
        cpu_s: 10,
        wall: Duration::from_secs(60),
    };

    #[test]
    fn a_run_passes_or_fails_by_its_exit_code() {
        let checks = "#!/bin/sh\n[ \"$*\" = '--exact --test-threads 1 a::b' ] && \
                      [ \"$MUTANT_OF_A_TEST\" = 7 ]\n";
        assert_eq!(ended(checks, GENEROUS), End::Passed);
        let fails = "#!/bin/sh\necho 'test a::a ... ok'\necho 'test a::b - should panic ... \
                     FAILED'\nexit 101\n";
        assert_eq!(ended(fails, GENEROUS), End::Failed("a::b".to_owned()));
        assert_eq!(
            ended("#!/bin/sh\nexit 1\n", GENEROUS),
            End::Failed("a test".to_owned())
        );
    }

    #[test]
    fn a_loop_ends_by_its_cpu_time_and_a_sleep_by_the_clock() {
        let limits = Limits {
            cpu_s: 1,
            ..GENEROUS
        };
        let loops = "#!/bin/sh\nprintf 'test a::a ... '\nwhile :; do :; done\n";
        assert_eq!(ended(loops, limits), End::TimedOut("a::a".to_owned()));
        let limits = Limits {
            wall: Duration::from_millis(50),
            ..GENEROUS
        };
        let sleeps = ended("#!/bin/sh\nexec sleep 60\n", limits);
        assert_eq!(sleeps, End::TimedOut("a test".to_owned()));
    }

    #[test]
    fn the_cpu_time_is_that_of_the_program() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let time = |script: &str| {
            let program = program(folder.path(), script);
            time(&program, "a::b", ("A", "1".into()), GENEROUS, &log).expect("a run")
        };
        let busy = "#!/bin/sh\nn=0; while [ $n -lt 100000 ]; do n=$((n + 1)); done\n";
        assert!(time(busy).expect("it passes") > Duration::from_millis(5));
        assert_eq!(time("#!/bin/sh\nexit 1\n"), None);
    }

    #[test]
    fn times_are_read_as_minutes_and_seconds() {
        let read = |line| cpu_time(line).map(|time| time.as_millis());
        assert_eq!(read("1m2.250000s 0m0.010s"), Some(62_260));
        assert_eq!(read("1.5 seconds"), None);
    }
}
