//! Tests the command as its users see it. Each file in `cmd` is a session, and the command must
//! print exactly the text in that file. The same holds for the `console` blocks of the pages that
//! answer the questions of mailing-list threads, `docs/threads`, and of `docs/experiments.md`.

use std::env;

/// Makes the folder of the repository the working directory, as it is for a reader of the pages.
/// Both tests run in one process and set the same folder, so they may run in any order.
fn in_the_repository() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    env::set_current_dir(root).expect("the folder of the repository exists");
}

#[test]
fn every_session_prints_what_it_says() {
    in_the_repository();
    let sessions = trycmd::TestCases::new();
    sessions.case("cli/tests/cmd/*.trycmd");
    // These cases set environment variables, which a `.trycmd` session cannot do.
    sessions.case("cli/tests/cmd/*.toml");
}

#[test]
fn the_answers_to_the_threads_are_what_the_command_prints() {
    in_the_repository();
    let answers = trycmd::TestCases::new();
    answers.case("docs/threads/*.md");
}

#[test]
fn the_page_about_experiment_files_shows_what_the_command_prints() {
    in_the_repository();
    let page = trycmd::TestCases::new();
    page.case("docs/experiments.md");
}
