//! Tests the command as its users see it. Each file in `cmd` is a session, and the command must
//! print exactly the text in that file.

use std::env;

#[test]
fn every_session_prints_what_it_says() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    env::set_current_dir(root).expect("the folder of the repository exists");
    let sessions = trycmd::TestCases::new();
    sessions.case("cli/tests/cmd/*.trycmd");
    // These cases set environment variables, which a `.trycmd` session cannot do.
    sessions.case("cli/tests/cmd/*.toml");
}
