//! Requests counted on many threads, without a cache line that all of them write.
//!
//! A metrics page wants the number now and then, and cheaply; it does not mind being off by a
//! little if it knows by how much. The bill at the end has to be exact.
//!
//! `cargo run --release -p plimsoll-host --example request_counter`
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::error::Error;
use std::thread;
use std::time::Duration;

use plimsoll_host::Host;
use plimsoll_mm::counter::{Batch, Counters, Counting, Plan};

const THREADS: i64 = 8;
const REQUESTS_EACH: i64 = 250_000;

/// What is counted: the counters of a group have numbers.
const SERVED: usize = 0;
const FAILED: usize = 1;

fn main() -> Result<(), Box<dyn Error>> {
    // This computer, and a plan for as many groups of two counters on it as you like.
    let host = Host::new();
    let plan = Plan::new(&host, Counting::OneSided, 2, Batch::RSS)?;
    let requests = plan.init_many(&host)?;

    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for request in 0..REQUESTS_EACH {
                    // Wherever the thread runs: nearly always this touches memory of its CPU only.
                    requests.add_growing(&host, SERVED, 1);
                    if request % 1000 == 999 {
                        requests.add_growing(&host, FAILED, 1);
                    }
                }
            });
        }
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(2));
            metrics_page(&host, &requests);
        }
    });

    // Shutdown: all additions have returned, so both answers keep their promises.
    let exact = requests.precise_sum(&host, SERVED);
    let range = requests.min_max(&host, SERVED);
    println!("served {exact}; a cheap look says {range:?}");
    assert_eq!(exact, THREADS * REQUESTS_EACH, "nothing is lost");
    assert!(range.contains(exact), "the interval was guaranteed");
    let failed = requests.precise_sum(&host, FAILED);
    assert_eq!(failed, THREADS * REQUESTS_EACH / 1000);
    requests.destroy_many(&host);
    Ok(())
}

/// Reads a handful of words, however many CPUs there are.
fn metrics_page(host: &Host, requests: &impl Counters<Host>) {
    let about = requests.approximate_sum_positive(host, SERVED);
    // Additions that have returned are in this interval; it is a point as long as only one CPU at a
    // time has added, and widens with each CPU that joins. One that is under way on another thread
    // may be in or not, and may hide a batch or two that it is just moving up the tree.
    let sure = requests.min_max(host, SERVED);
    println!(
        "about {about} served, for sure {} to {}",
        sure.min, sure.max
    );
}

#[test]
fn it_runs() -> Result<(), Box<dyn Error>> {
    main()
}
