//! The tables of `plimsoll bench counter`, extended by the sharded counters of other crates.
//!
//! `cargo bench -p plimsoll-lab --bench counter` prints these tables.
#![expect(clippy::print_stdout, reason = "printing is what it is for")]
#![expect(
    clippy::cast_possible_truncation,
    reason = "additions are of 512 at most"
)]

use contatori::counters::Observable;
use contatori::counters::signed::Signed;
use fast_counter::ConcurrentCounter;
use plimsoll_lab::Error;
use plimsoll_lab::bench::counter::{self, Subject};
use plimsoll_lab::report::table;
use plimsoll_lab::run::progress::Progress;

const WIDTH: usize = 120;

fn main() -> Result<(), Error> {
    let progress = Progress::new();
    let tables = counter::tables(&progress, others)?;
    progress.finish();
    println!("{}", table::render_tables(&tables, WIDTH));
    Ok(())
}

fn others() -> Vec<Box<dyn Subject>> {
    vec![
        Box::new(FastCounter(ConcurrentCounter::new(64))),
        Box::new(Contatori(Signed::new())),
    ]
}

/// The counter of `fast-counter`. It has 64 slots. Each thread adds to one slot; if there are more
/// than 64 threads, several threads share a slot.
struct FastCounter(ConcurrentCounter);

impl Subject for FastCounter {
    fn name(&self) -> String {
        "fast-counter, 64 slots".to_owned()
    }

    #[inline]
    fn add(&self, delta: i64) {
        self.0.add(delta as isize);
    }

    fn precise_sum(&self) -> i64 {
        self.0.sum() as i64
    }
}

/// The counter `Signed` of `contatori`. It has 128 slots, and each thread adds to one slot.
struct Contatori(Signed);

impl Subject for Contatori {
    fn name(&self) -> String {
        "contatori, 128 slots".to_owned()
    }

    #[inline]
    fn add(&self, delta: i64) {
        self.0.add(delta as isize);
    }

    fn precise_sum(&self) -> i64 {
        self.0.value().as_i64()
    }
}
