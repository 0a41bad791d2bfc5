//! The error messages for invalid tables `[clock]` and `[bandwidth]` of a profile.

use plimsoll_mm::site::Work;
use plimsoll_sim::profile::{Card, Load, ProfileText, Variant};

use crate::bad_profiles::told;

const GOOD: &str = r#"[clock]
all_core = { low = 1, mid = 0.9, high = 0.65, source = "s" }
[bandwidth]
node = { low = 390, mid = 358, high = 325, source = "t" }
fault = { low = 4096, mid = 8192, high = 8192, source = "u" }
swap_in = { low = 0, mid = 9830, high = 16384, source = "v" }
swap_out = { low = 0, mid = 6826, high = 12288, source = "v" }
lru_move = { low = 0, mid = 128, high = 384, source = "v" }
[transfer]"#;

/// Replaces `from` with `to` in the valid tables `GOOD`, and checks that the result is refused with
/// the error message `expected`.
#[track_caller]
fn refused(from: &str, to: &str, expected: &str) {
    assert!(GOOD.contains(from), "nothing to replace: {from}");
    told(&[("[transfer]", &GOOD.replacen(from, to, 1), expected)]);
}

#[test]
fn tables_of_load_come_out_as_they_were_written() {
    let mine = include_str!("mine.toml");
    let none = ProfileText::parse("mine.toml", mine).expect("is a good profile");
    assert_eq!(
        none.at(Card::Mid).load,
        Load::default(),
        "both are optional"
    );
    let toml = mine.replacen("[transfer]", GOOD, 1);
    let text = ProfileText::parse("mine.toml", &toml).expect("is a good profile");
    let at = |card| {
        let load = text.at(card).load;
        let (clock, bandwidth) = (load.clock.expect("given"), load.bandwidth.expect("given"));
        let moved = [Work::Fault, Work::SwapIn, Work::Zap].map(|work| work as usize);
        let moved = moved.map(|work| bandwidth.moved_bytes[work]);
        let speeds = [clock.all_core_percent, clock.sibling_percent];
        (speeds, bandwidth.node_gb_per_s, moved)
    };
    assert_eq!(at(Card::Low), ([100, 100], 390, [4096, 0, 0]));
    assert_eq!(at(Card::Mid), ([90, 100], 358, [8192, 9830, 0]));
    assert_eq!(at(Card::High), ([65, 100], 325, [8192, 16384, 0]));
    assert_eq!(
        text.bandwidth
            .as_ref()
            .map(|bandwidth| &*bandwidth.node.source),
        Some("t")
    );
    let variant: &Variant = &text.variants[0];
    let slowed = text.variant(&variant.name).expect("has it").at(Card::Mid);
    assert_eq!(
        slowed.load,
        text.at(Card::Mid).load,
        "the hardware is the same"
    );
}

#[test]
fn mistakes_in_tables_of_load_name_line_and_key() {
    refused(
        "mid = 0.9",
        "mid = 1.1",
        "mine.toml:46: clock.all_core.mid: is out of range; such a speed is 0.05 to 1",
    );
    refused(
        "high = 0.65",
        "high = 0.95",
        "mine.toml:46: clock.all_core.mid: is below high; the low card is the cheapest, so its \
         machine is the fastest",
    );
    refused(
        "all_core",
        "all_cores",
        "mine.toml:46: clock.all_cores: unknown key; did you mean all_core?",
    );
    refused(
        "[bandwidth]",
        "sibling = { low = 1, mid = 1, high = 1, source = \"s\" }\n[bandwidth]",
        "mine.toml:47: clock.sibling: no core has two CPUs, so leave it out",
    );
    refused(
        "node = { low = 390",
        "node = { low = 0",
        "mine.toml:48: bandwidth.node.low: is out of range; write 1 to 100000 GB/s",
    );
    refused(
        "mid = 8192",
        "mid = 9000",
        "mine.toml:49: bandwidth.fault.mid: is above high; the low card is the cheapest, so its \
         machine is the fastest",
    );
    refused(
        "low = 4096",
        "low = 4000000",
        "mine.toml:49: bandwidth.fault.low: is more than 1 MiB for one page; write bytes",
    );
    refused(
        "swap_in = { low = 0, mid = 9830, high = 16384, source = \"v\" }",
        "",
        "mine.toml:47: bandwidth.swap_in: missing; write { low = …, mid = …, high = …, source = \
         \"…\" }",
    );
    refused(
        ", source = \"t\"",
        "",
        "mine.toml:48: bandwidth.node.source: missing; write where the numbers come from, or \
         \"estimate: …\" and why",
    );
}

/// If a core has two CPUs, `[clock]` must say how much they slow each other down. Otherwise the
/// profile is refused.
#[test]
fn a_machine_with_siblings_needs_their_speed() {
    let mine = include_str!("mine.toml");
    let smt = mine.replacen("cores_per_llc = 2", "cores_per_llc = 2\nsmt = 2", 1);
    let core = "core = { low = 10, mid = 15, high = 20, source = \"s\" }";
    let toml = smt.replacen("[transfer]", &format!("{GOOD}\n{core}"), 1);
    let told = ProfileText::parse("mine.toml", &toml).expect_err("it lacks a speed");
    let told = told.to_string();
    assert!(told.contains("clock.sibling: missing"), "{told}");
}
