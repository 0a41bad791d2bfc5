//! The command as its users see it: each file in `cmd` is a session that must print exactly that.

#[test]
fn every_session_prints_what_it_says() {
    trycmd::TestCases::new().case("tests/cmd/*.trycmd");
}
