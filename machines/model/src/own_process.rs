//! Tests that run in processes of their own.
//!
//! Loom maps and unmaps a stack for each thread of each interleaving. If several tests do so in one
//! process, they wait for the lock of its address space, and each unmapping interrupts the CPUs of
//! the other tests: with two threads the loom tests took longer than with one.

use std::env::{current_exe, var_os};
use std::process::Command;
use std::thread;

/// Set for a process that runs a single test. The test then runs on the thread that calls it.
const ALONE: &str = "PLIMSOLL_TEST_ALONE";

/// Runs `test`, which must be the whole body of a test, in a process of its own.
///
/// The test harness names the thread of a test after the test. The new process is this test
/// program with that name as its argument, and with `PLIMSOLL_TEST_ALONE` set, so that it runs
/// `test` itself. A debugger or a tool that starts one test at a time sets the variable too.
///
/// # Panics
/// If `test` panics, if this program cannot be started again, and if it has no test of the name of
/// this thread.
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
