//! Tests the command as its users see it. Each file in `cmd` is a session, and the command must
//! print exactly the text in this file. The `console` blocks of some pages are sessions too. These
//! pages are the answers to mailing-list threads in `docs/threads`, and the pages about results,
//! about traces and about experiment files.

use std::path::Path;
use std::{env, fs};

/// Returns test sessions with a new store. The sessions run in the root folder of the repository,
/// where a reader of the pages would run them. All tests set the same working directory of their
/// common process, so they may run in any order.
fn in_the_repository(store: &str) -> trycmd::TestCases {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    env::set_current_dir(root).expect("the folder of the repository exists");
    let store = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("store-{store}"));
    // Removes the store of an earlier test run. Fails, without effect, if there is no such store.
    let _ = fs::remove_dir_all(&store);
    let sessions = trycmd::TestCases::new();
    sessions.env("PLIMSOLL_STORE", store.to_string_lossy());
    sessions
}

#[test]
fn every_session_prints_what_it_says() {
    let sessions = in_the_repository("sessions");
    sessions.case("cli/tests/cmd/*.trycmd");
    // These cases set environment variables, which a `.trycmd` session cannot do.
    sessions.case("cli/tests/cmd/*.toml");
}

/// The page calls the run `last`, so no other session may use the same store.
#[test]
fn the_page_about_results_shows_what_the_command_prints() {
    let sessions = in_the_repository("results");
    sessions.case("docs/results.md");
}

#[test]
fn the_answers_to_the_threads_are_what_the_command_prints() {
    let answers = in_the_repository("answers");
    answers.case("docs/threads/*.md");
}

/// The page names the run `last`, so no other session may use the page's store.
#[test]
fn the_page_about_traces_shows_what_the_command_prints() {
    let page = in_the_repository("traces");
    page.case("docs/traces.md");
}

#[test]
fn the_page_about_experiment_files_shows_what_the_command_prints() {
    let page = in_the_repository("files");
    page.case("docs/experiments.md");
}
