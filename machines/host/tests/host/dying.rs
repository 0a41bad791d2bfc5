//! Runs, on real threads, the laws about dying address spaces. A law is a contract that holds on
//! every machine.

use plimsoll_mm::laws::{frontier, reaping, touching};

use crate::support::law::run_law;

const ROUNDS: u32 = 500;

#[test]
fn meeting_in_the_middle() {
    run_law(&frontier::meeting_in_the_middle(), 2, ROUNDS);
}

#[test]
fn handing_back() {
    run_law(&frontier::handing_back(), 2, ROUNDS);
}

#[test]
fn leaving_a_rest() {
    run_law(&frontier::leaving_a_rest(), 2, ROUNDS);
}

#[test]
fn coming_back_to_a_rest() {
    run_law(&frontier::coming_back_to_a_rest(), 2, ROUNDS);
}

#[test]
fn two_helpers() {
    run_law(&frontier::two_helpers(), 3, ROUNDS);
}

#[test]
fn helpers_come_and_go() {
    run_law(&frontier::helpers_come_and_go(), 4, ROUNDS);
}

#[test]
fn exit_against_reaper() {
    run_law(&reaping::exit_against_reaper(), 2, ROUNDS);
}

#[test]
fn exit_against_helpers() {
    run_law(&reaping::exit_against_helpers(), 4, ROUNDS);
}

#[test]
fn exit_past_helpers() {
    run_law(&reaping::exit_past_helpers(), 3, ROUNDS);
}

#[test]
fn two_exits() {
    run_law(&reaping::two_exits(), 3, ROUNDS);
}

#[test]
fn exit_against_refusal() {
    run_law(&reaping::exit_against_refusal(), 3, ROUNDS);
}

#[test]
fn touched_while_reaped() {
    run_law(&touching::touched_while_reaped(), 2, ROUNDS);
}

#[test]
fn touched_while_unmapped() {
    run_law(&touching::touched_while_unmapped(), 2, ROUNDS);
}

#[test]
fn touched_while_replaced() {
    run_law(&touching::touched_while_replaced(), 2, ROUNDS);
}

#[test]
fn many_touched_while_reaped() {
    run_law(&touching::many_touched_while_reaped(), 3, ROUNDS);
}

#[test]
fn many_touched_while_unmapped() {
    run_law(&touching::many_touched_while_unmapped(), 3, ROUNDS);
}
