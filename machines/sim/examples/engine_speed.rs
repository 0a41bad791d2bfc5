//! Prints what the simulation of one step costs on this host, in nanoseconds of host time, for
//! several kinds of steps and numbers of CPUs: `cargo run --release --example engine_speed`.

#![expect(clippy::print_stdout, reason = "it prints figures")]

use plimsoll_sim::bench;

fn main() {
    let steps = 20_000_000;
    let only: Option<String> = std::env::args().nth(1);
    for (name, measure) in bench::ALL {
        if only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        for cpus in [72, 176, 384, 1000] {
            let cost = measure(cpus, steps);
            let (ns, millions) = (cost.ns_per_step(), cost.per_second() / 1e6);
            let contended = 100.0 * cost.contended;
            println!("{name:20} {cpus:5} CPUs {ns:7.1} ns {millions:7.1} M/s {contended:4.0} %");
        }
    }
    for cpus in [72, 1024] {
        let bytes = bench::resident_bytes(cpus);
        println!("resident per virtual CPU of {cpus}: {bytes:?} bytes");
    }
}
