//! Measures the costs of a lock between two CPUs of this computer, and how long the lock's waiters
//! wait.
//!
//! `cargo run --release -p plimsoll-host --example two_cpus`
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::time::Duration;

use plimsoll_host::measure::{self, CannotMeasure, Load, Pair, Price};

/// The loads to measure. For each load: the mean time from a release of the lock to the next
/// request, and the time for which a CPU holds the lock, both in nanoseconds.
const LOADS: [(u32, u32); 5] = [
    (2000, 500),
    (500, 500),
    (5000, 200),
    (10_000, 2330),
    (20_000, 5000),
];

const DURATION: Duration = Duration::from_secs(1);

/// The largest factor by which the prices (the times of a lock's steps) before and after the
/// measurement may differ. A larger factor means that the virtual CPUs have moved to other cores.
const DRIFT_MAX: f64 = 1.5;

fn main() {
    if let Err(why) = report() {
        println!("cannot measure here: {why}");
    }
}

fn report() -> Result<(), CannotMeasure> {
    let pair = Pair::find()?;
    let [one, other] = pair.cpus();
    println!("CPUs {one} and {other}; ns: mean of the middle half (which is from to, timings)");
    let prices = measure::prices(pair)?;
    print_price("line transfer, one way", prices.transfer);
    print_price("hand-over to a waiter", prices.handover);
    print_price("own free lock", prices.own);
    print_price("own free lock, entry", prices.entry);
    print_price("remote free lock", prices.remote);
    if prices.look_like_one_core() {
        println!("these CPUs look like two threads of one core: nothing moves between caches");
    }
    println!();
    println!("think/hold ns  contended     mean    p50    p90    p99  p99.9 ns     kept");
    for (think_ns, hold_ns) in LOADS {
        print!("{:>13}", format!("{think_ns}/{hold_ns}"));
        match measure::lock_waits(pair, Load { think_ns, hold_ns }, DURATION) {
            Err(why) => println!("  cannot measure: {why}"),
            Ok(waits) => {
                print!("  {:>7.1} %", waits.contended_share * 100.0);
                print!("  {:>7.0}{:>7.0}", waits.mean_ns, waits.p50_ns);
                print!(
                    "{:>7.0}{:>7.0}{:>7.0}",
                    waits.p90_ns, waits.p99_ns, waits.p999_ns
                );
                println!("     {:>4.0} %, {}", waits.kept_share * 100.0, waits.kept);
            }
        }
    }
    println!();
    let drift = prices.drift(&measure::prices(pair)?);
    println!("prices taken again: up to {drift:.2} times as high or low");
    if drift > DRIFT_MAX {
        println!("the CPUs moved meanwhile: do not compare the waits with the prices");
    }
    Ok(())
}

fn print_price(what: &str, price: Price) {
    let Price {
        middle_ns,
        low_ns,
        high_ns,
        timings,
    } = price;
    println!("{what:<23}{middle_ns:>7.1}  ({low_ns:.1} to {high_ns:.1}, {timings})");
}
