//! Measures the cost of counters on this computer: the time of an addition by one thread, of an
//! addition by each of two threads, of an approximate sum (which does not read every CPU's part of
//! the counter), and of a precise sum (which does).
//!
//! A *subject* is a counter that is measured. In each round of a measurement, every subject runs
//! once. The *floor* is an atomic addition to a word that no other thread uses. To judge the time
//! of an addition, compare it with the time of the floor. `cargo bench -p plimsoll-lab --bench
//! counter` adds counters of other crates to the tables.

mod floors;
mod rows;
mod subject;
mod timing;

use plimsoll_host::affinity::CpuMask;
use plimsoll_host::measure::Pair;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

pub use self::subject::Subject;
use super::table;
use crate::error::Error;
use crate::report::Table;
use crate::report::value::NOTHING;
use crate::run::progress::Progress;

/// How many deltas (amounts to add) are drawn for a load. A thread that has added all deltas starts
/// again with the first delta.
const DELTAS: usize = 2048;

/// A load of the benchmark: how many threads add to a counter, and how large their deltas (the
/// amounts that they add) are.
struct Load {
    threads: usize,
    /// The largest delta (amount to add). If it is 1, every delta is 1. Otherwise each delta is a
    /// random number from 0 to `delta_max`.
    delta_max: i64,
}

const LOADS: [Load; 4] = [
    Load {
        threads: 1,
        delta_max: 1,
    },
    Load {
        threads: 1,
        delta_max: 512,
    },
    Load {
        threads: 2,
        delta_max: 1,
    },
    Load {
        threads: 2,
        delta_max: 512,
    },
];

impl Load {
    fn deltas(&self) -> Vec<i64> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let draw = |_| match self.delta_max {
            1 => 1,
            max => rng.random_range(0..=max),
        };
        (0..DELTAS).map(draw).collect()
    }
}

/// Measures Plimsoll's counters and the counters that `others` makes. Each call of `others` must
/// make fresh counters.
///
/// # Errors
/// If Plimsoll's counters cannot be made.
pub fn tables(
    progress: &Progress,
    others: impl Fn() -> Vec<Box<dyn Subject>>,
) -> Result<Vec<Table>, Error> {
    progress.start("bench counter");
    progress.expect(LOADS.len() * timing::STEPS);
    let all = || -> Result<Vec<Box<dyn Subject>>, Error> {
        let mut all = rows::ours()?;
        all.extend(others());
        Ok(all)
    };
    let pair = Pair::find();
    let cpus = match &pair {
        Ok(pair) => pair.cpus().to_vec(),
        Err(_) => vec![CpuMask::of_this_thread().real(0).unwrap_or(0)],
    };
    let mut columns = Vec::new();
    let mut last = all()?;
    for load in &LOADS {
        // Each load gets fresh counters. A one-sided counter begins as one shared cache line, and
        // becomes a tree once several threads have added to it often enough. It stays a tree, so
        // its additions would take a different time in the next load.
        last = all()?;
        columns.push(if load.threads <= cpus.len() {
            timing::adds(&last, &cpus[..load.threads], &load.deltas(), progress)
        } else {
            vec![None; last.len()]
        });
    }
    let note = match pair {
        Ok(_) => "",
        Err(why) => &format!("not with two threads: {why}"),
    };
    Ok(vec![additions(&last, &columns, note), sums(&last)])
}

fn additions(subjects: &[Box<dyn Subject>], columns: &[Vec<Option<f64>>], note: &str) -> Table {
    let row = |nth: usize| {
        let subject = &*subjects[nth];
        let mut row = vec![subject.name()];
        for column in columns {
            let (ns, floor) = (column[nth], column[0]);
            row.push(ns.map_or(NOTHING.to_owned(), |ns| format!("{ns:.1}")));
            let ratio = ns.zip(floor).map(|(ns, floor)| ns / floor);
            row.push(ratio.map_or(NOTHING.to_owned(), |ratio| format!("{ratio:.2}")));
        }
        row
    };
    let mut table = table(
        "ns per addition, all threads to the same counter; × floor",
        &[
            "counter",
            "1 thread",
            "×",
            "0–512",
            "×",
            "2 threads",
            "×",
            "0–512",
            "×",
        ],
        (0..subjects.len()).map(row).collect(),
    );
    table.note = note.to_owned();
    table
}

/// Measures the time of the approximate sum and of the precise sum of every subject (a measured
/// counter). Two threads have already added to each subject.
fn sums(subjects: &[Box<dyn Subject>]) -> Table {
    let approximate = timing::reads(subjects, 4096, |subject, times| {
        subject.approximate_sums(times);
    });
    let precise = timing::reads(subjects, 128, |subject, times| subject.precise_sums(times));
    let row = |nth: usize| {
        let subject = &*subjects[nth];
        let cheap = subject.approximate_sum();
        let cheap = cheap.map_or(NOTHING.to_owned(), |_| format!("{:.1}", approximate[nth]));
        vec![subject.name(), cheap, format!("{:.1}", precise[nth])]
    };
    table(
        "ns per sum, two CPUs having added, in the reader's cache",
        &["counter", "approximate", "precise"],
        (0..subjects.len()).map(row).collect(),
    )
}
