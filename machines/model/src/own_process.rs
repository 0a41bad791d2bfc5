//! Tests that run in separate processes.
//!
//! Loom maps and unmaps a stack for each thread of each interleaving. If several tests run in one
//! process, they wait for the lock of the process's address space, and each unmapping interrupts
//! the CPUs of the other tests. So the loom tests took longer when the test harness ran two tests
//! at a time than when it ran one.

use std::env::{current_exe, var_os};
use std::process::Command;
use std::thread;

/// The environment variable that is set in a process that runs only one test. In such a process,
/// [`in_own_process`] runs the test on the calling thread.
const ALONE: &str = "PLIMSOLL_TEST_ALONE";

/// Runs `test`, which must be the whole body of a test, in a separate process.
///
/// The test harness gives the calling thread the name of the test. This function starts the same
/// program again, with that name as its argument and with `PLIMSOLL_TEST_ALONE` set. The new
/// process then runs `test` itself. A debugger or a tool that starts one test at a time sets the
/// variable too.
///
/// # Panics
/// If `test` panics, if this program cannot be started again, or if this program has no test with
/// the name of the calling thread.
pub fn in_own_process(test: impl FnOnce()) {
    if var_os(ALONE).is_some() {
        return test();
    }
    let thread = thread::current();
    let name = thread.name().expect("the test harness names its threads");
    let program = current_exe().expect("a running program has a path");
    let ended = Command::new(program)
        .args(["--exact", name, "--include-ignored"])
        .env(ALONE, "1")
        .output()
        .expect("a program that runs can be started again");
    let printed = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{printed}");
    assert!(
        printed.contains("test result: ok. 1 passed"),
        "no test has the name of this thread, {name:?}: {printed}"
    );
}
