//! Runs, on real threads, the laws about kills, exits and the reaper. A law is a contract that
//! holds on every machine.

use plimsoll_mm::laws::oom;

use crate::support::law::run_law;

const ROUNDS: u32 = 2000;

#[test]
fn two_kills_at_once() {
    run_law(&oom::two_kills_at_once(), 2, ROUNDS);
}

#[test]
fn two_shortages_at_once() {
    run_law(&oom::two_shortages_at_once(), 2, ROUNDS);
}

#[test]
fn kill_against_exit() {
    run_law(&oom::kill_against_exit(), 2, ROUNDS);
}

#[test]
fn exit_against_look() {
    run_law(&oom::exit_against_look(), 2, ROUNDS);
}

#[test]
fn reaper_against_exit() {
    run_law(&oom::reaper_against_exit(), 3, ROUNDS);
}
