//! Compares the costs of two ways to allocate and free pages: by a thread's handle on a pool
//! (`Bound`), and by calls with the machine (`Host`) as an argument. The two ways take turns, so
//! that other load on the computer slows both.
//!
//! `cargo run --release -p plimsoll-host --example bound_cost`
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use plimsoll_host::pool::{Bound, Pool};
use plimsoll_mm::page::Request;
use plimsoll_mm::units::{CpuId, Order, Pfn};

/// The number of pairs of rounds. Each pair has one round that uses the thread's handle on the
/// pool, and one round that does not.
const ROUNDS: usize = 301;
/// The number of pages that a round allocates and frees one by one.
const PAGES: usize = 64;
/// The number of times that a round allocates and frees its [`PAGES`] pages.
const TIMES: usize = 50;

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::builder().cpus(1).build()?;
    let here = pool.enter(CpuId(0))?;
    let (mut explicit, mut bound, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // Every second pair of rounds measures the two ways in the opposite order.
        let (one, other) = if round % 2 == 0 {
            let one = time(|| by_machine(&pool));
            (one, time(|| by_handle(&here)))
        } else {
            let other = time(|| by_handle(&here));
            (time(|| by_machine(&pool)), other)
        };
        explicit.push(one);
        bound.push(other);
        ratios.push(other / one);
    }
    let pages = (PAGES * TIMES) as f64;
    println!(
        "with the machine: {:.1} ns a page",
        median(explicit) / pages
    );
    println!("with the handle:  {:.1} ns a page", median(bound) / pages);
    println!("median ratio:     {:.3}", median(ratios));
    Ok(())
}

/// Returns the time that `work` takes, in nanoseconds.
fn time(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e9
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

#[inline(never)]
fn by_machine(pool: &Pool) {
    let (host, pages) = (pool.host(), pool.pages());
    let request = Request::new(Order::ZERO);
    let mut held = [Pfn(0); PAGES];
    for _ in 0..TIMES {
        for pfn in &mut held {
            *pfn = pages.alloc(host, request).expect("the pool has more pages");
        }
        for &pfn in black_box(&held) {
            pages
                .free(host, pfn, Order::ZERO)
                .expect("it was handed out");
        }
    }
}

#[inline(never)]
fn by_handle(here: &Bound<'_>) {
    let request = Request::new(Order::ZERO);
    let mut held = [Pfn(0); PAGES];
    for _ in 0..TIMES {
        for pfn in &mut held {
            *pfn = here.alloc(request).expect("the pool has more pages");
        }
        for &pfn in black_box(&held) {
            here.free(pfn, Order::ZERO).expect("it was handed out");
        }
    }
}
