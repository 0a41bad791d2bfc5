//! Runs tests of this program a second time, in a process whose threads have no areas of glibc for
//! restartable sequences. There, the threads must use areas that Plimsoll registers itself.

use std::env;
use std::process::Command;

/// The variable of the environment that says that this process is the second run.
const SECOND_RUN: &str = "PLIMSOLL_TEST_OWN_AREAS";

/// Returns whether glibc registers no areas in this process, because [`run_again`] has started it.
pub(crate) fn is_second_run() -> bool {
    env::var_os(SECOND_RUN).is_some()
}

/// Runs the tests of this program whose names contain `tests`, in a process in which glibc registers
/// no areas.
///
/// # Panics
/// If one of these tests fails, or if there are none.
pub(crate) fn run_again(tests: &str) {
    let program = env::current_exe().expect("a test program has a file");
    let output = Command::new(program)
        .arg(tests)
        .env(SECOND_RUN, "1")
        .env("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
        .output()
        .expect("the test program can be started again");
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    // A filter that fits no test would succeed as well.
    let some = !text[0].contains("result: ok. 0 passed");
    assert!(
        output.status.success() && some,
        "without the areas of glibc: {}\n{}{}",
        output.status,
        text[0],
        text[1]
    );
}
