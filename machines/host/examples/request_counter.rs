//! Many threads count requests, without a cache line that all of them write.
//!
//! A metrics page reads the number from time to time and must do so cheaply. A small error is
//! acceptable if its bound is known. The bill at the end must be exact.
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

/// The indexes of the counters in their group: served requests and failed requests.
const SERVED: usize = 0;
const FAILED: usize = 1;

fn main() -> Result<(), Box<dyn Error>> {
    // `host` is this computer. `plan` creates any number of groups of two counters on it.
    let host = Host::new();
    let plan = Plan::new(&host, Counting::OneSided, 2, Batch::RSS)?;
    let requests = plan.init_many(&host)?;

    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for request in 0..REQUESTS_EACH {
                    // The thread may run on any CPU. The addition nearly always touches only memory
                    // of that CPU.
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

    // All additions have returned, so the sum is exact and the range contains it.
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

/// Prints the number of served requests. Reads only a few words, however many CPUs there are.
fn metrics_page(host: &Host, requests: &impl Counters<Host>) {
    let about = requests.approximate_sum_positive(host, SERVED);
    // While no addition is in progress, the range contains the exact count. The range is a single
    // value as long as only one CPU has added, and widens with each further CPU. An addition in
    // progress on another thread may be included or not. Such an addition may move an amount from
    // its CPU's part to the shared total. While it does so, the range may lack this amount.
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
