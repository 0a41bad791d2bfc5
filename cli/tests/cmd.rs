//! The command as its users see it: each file in `cmd` is a session that must print exactly that.

#[test]
fn every_session_prints_what_it_says() {
    let sessions = trycmd::TestCases::new();
    sessions.case("tests/cmd/*.trycmd");
    // With variables of the environment, which a session cannot set.
    sessions.case("tests/cmd/*.toml");
}
