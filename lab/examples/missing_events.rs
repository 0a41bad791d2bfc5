//! Measures how much missing events in a recording impair exact replay.
//!
//! Some kernels allocate and free a few pages without an event. This program takes a recording that
//! Plimsoll replays almost without differences. It chooses page uses at random and removes all
//! events of each chosen use: the allocation, the free, and the page's event in a batch of frees.
//! It then replays the remaining events. For each share of removed uses, the table shows how many
//! moves are still identical to the kernel's.
//!
//! ```text
//! cargo run --release -p plimsoll-lab --example missing_events -- \
//!     lab/tests/data/exact-6.12-4-cpus.plr
//! ```

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::collections::HashMap;
use std::env;
use std::process::ExitCode;

use plimsoll_lab::exact::Judge;
use plimsoll_lab::exact::pages::PageLists;
use plimsoll_recording::Recording;
use plimsoll_recording::event::What;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The shares of page uses to remove; a page use is an allocation of a page with its free. The
/// table has at least one row for each share.
const SHARES: [f64; 6] = [0.0, 0.000_1, 0.000_3, 0.001, 0.003, 0.01];

/// The number of runs for each of [`SHARES`]. Each run removes other uses of pages, chosen at
/// random with a separate seed.
const SEEDS: u64 = 3;

fn main() -> ExitCode {
    let Some(file) = env::args().nth(1) else {
        eprintln!("usage: missing_events FILE, a recording with page events");
        return ExitCode::from(2);
    };
    let recording = match Recording::read(&file) {
        Ok(contents) => contents.recording,
        Err(error) => {
            eprintln!("{file}: {error}");
            return ExitCode::from(2);
        }
    };
    println!("share removed  pages removed  compared  identical  set aside  identical, %");
    for share in SHARES {
        for seed in 1..=if share > 0.0 { SEEDS } else { 1 } {
            let (thinned, pages) = without(&recording, share, seed);
            let Some(judged) = (PageLists { design: None }).judge(&thinned) else {
                eprintln!(
                    "{file}: no page lists to judge; use a recording that has /proc/zoneinfo"
                );
                return ExitCode::from(2);
            };
            let percent = 100.0 * judged.identical as f64 / judged.compared.max(1) as f64;
            println!(
                "{:>11.2} %  {pages:>13}  {:>8}  {:>9}  {:>9}  {percent:>12.1}",
                100.0 * share,
                judged.compared,
                judged.identical,
                judged.set_aside,
            );
        }
    }
    ExitCode::SUCCESS
}

/// Removes the events of randomly chosen page uses from a copy of `recording`. A page use consists
/// of an allocation and of the free that ends it. `share` is the probability that a page use is
/// chosen. Returns the copy, and the number of pages in the removed uses.
fn without(recording: &Recording, share: f64, seed: u64) -> (Recording, u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut thinned = recording.clone();
    let mut is_removed = vec![false; recording.events.len()];
    let mut allocated: HashMap<u64, usize> = HashMap::new();
    let mut waits_for_batch: HashMap<u64, bool> = HashMap::new();
    let mut pages = 0;
    for (index, event) in recording.events.iter().enumerate() {
        match event.what {
            What::Alloc { pfn, .. } => {
                allocated.insert(pfn, index);
            }
            What::Free { pfn, order } => {
                let began = allocated.remove(&pfn);
                let removes = began.is_some() && rng.random_bool(share);
                waits_for_batch.insert(pfn, removes);
                if let Some(began) = began
                    && removes
                {
                    is_removed[began] = true;
                    is_removed[index] = true;
                    pages += 1 << order;
                }
            }
            What::FreeBatched { pfn } => {
                is_removed[index] = waits_for_batch.remove(&pfn).unwrap_or(false);
            }
            _ => {}
        }
    }
    let mut index = 0;
    thinned.events.retain(|_| {
        index += 1;
        !is_removed[index - 1]
    });
    (thinned, pages)
}
