//! Tests the command as its users see it. Each file in `cmd` is a session, and the command must
//! print exactly the text in that file.

#[test]
fn every_session_prints_what_it_says() {
    let sessions = trycmd::TestCases::new();
    sessions.case("tests/cmd/*.trycmd");
    // These cases set environment variables, which a `.trycmd` session cannot do.
    sessions.case("tests/cmd/*.toml");
}
