//! Tests which runs the store keeps if a command ends with an error.

use std::path::Path;
use std::process::{Command, Output};

fn plimsoll(store: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let out = command.args(arguments).arg("--store").arg(store).output();
    out.expect("the command starts")
}

#[test]
fn a_run_in_which_nothing_differs_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("store");
    // Nothing in stress-vm depends on the counters of resident pages.
    let words = "compare stress-vm --machine laptop-2 --b linux+tree --seeds 1 --length-ms 20";
    let ran = plimsoll(&store, &words.split(' ').collect::<Vec<_>>());
    assert_eq!(ran.status.code(), Some(2), "{ran:?}");
    let shown = plimsoll(&store, &["results", "show", "last"]);
    assert!(shown.status.success(), "{shown:?}");
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(text.contains("ran identically on every seed"), "{text}");
    let warned = String::from_utf8_lossy(&shown.stderr);
    assert!(!warned.contains("broken off"), "{warned}");
}

#[test]
fn a_run_without_a_finished_case_is_not_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("store");
    let refused = ["compare", "stress-vm", "--machine", "grace-27"];
    assert_eq!(plimsoll(&store, &refused).status.code(), Some(2));
    let shown = plimsoll(&store, &["results", "show", "last"]);
    assert_eq!(shown.status.code(), Some(2), "{shown:?}");
}
