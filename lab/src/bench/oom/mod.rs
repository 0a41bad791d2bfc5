//! The time to choose a victim on this computer, with real counters for as many CPUs as a large
//! server has.
//!
//! Threads of this computer play the server's CPUs and add to the counters of all processes. Then
//! one thread selects a victim. A *case* is a selector (an algorithm that chooses the victim)
//! together with the kind of counter that it reads. The cases take turns. Consecutive cases read
//! different counters, so no case finds its counters in the cache because the previous case has
//! read them. The time of each case is compared with the time of Linux's selection in the same
//! round. For every victim, the benchmark computes by how many pages the victim is smaller than the
//! largest process.

mod processes;

use std::time::Instant;

use plimsoll_host::Host;
use plimsoll_mm::counter::Counting;
use plimsoll_mm::oom::{Outcome, Scope, Selecting, Selection, Slot, TotalPages};
use plimsoll_mm::topology::Topology;
use plimsoll_sim::profile::Card;

use self::processes::{Population, ProcessSet};
use super::reap::waited_for_cpu_ns;
use super::{Found, Row, table};
use crate::catalog::machines;
use crate::error::Error;
use crate::measure::metric::Unit;
use crate::measure::stats::{self, Estimate};
use crate::report::Table;
use crate::report::value::{NOTHING, human_estimate, human_ratio};
use crate::run::progress::Progress;

/// The name of the machine whose CPUs the threads play.
const MACHINE: &str = "epyc-9654-2s";
/// The number of CPUs of [`MACHINE`] that the benchmark uses. Threads of this computer play (act
/// as) these CPUs.
const CPUS: u32 = 256;
const PROCESSES: usize = 10_000;
const ROUNDS: usize = 15;
/// The largest number of attempts at one selection. If the thread of a selection waited too long
/// for a CPU, the selection is attempted again.
const ATTEMPTS: u32 = 3;
/// A selection is disturbed if its thread waited for a CPU for more than this fraction of the time
/// that the selection took.
const AWAY_MAX: f64 = 0.02;

/// A case of the benchmark: a selector (an algorithm that chooses a victim), and the kind of
/// counters that it reads.
type Case = (Selecting, Counting);

/// The cases (each a selector of a victim with a kind of counters), in the order of their turns.
/// The first case is the base of all ratios. Consecutive cases read different counters.
const CASES: [Case; 6] = [
    (Selecting::Precise, Counting::Flat),
    (Selecting::Approximate, Counting::OneSided),
    (Selecting::TwoPass16, Counting::Tree),
    (Selecting::Bounded, Counting::OneSided),
    (Selecting::Approximate, Counting::Flat),
    (Selecting::Precise, Counting::OneSided),
];

/// The kinds of counters that the selections read. The benchmark makes a set of processes for each
/// of these kinds.
const COUNTINGS: [Counting; 3] = [Counting::Flat, Counting::Tree, Counting::OneSided];

/// The measurements of one selection: how long it took, and by how much its victim is smaller than
/// the largest process.
#[derive(Clone, Copy, Debug)]
struct Took {
    ns: f64,
    disturbed: bool,
    precise_sums: u64,
    /// The number of pages by which the victim is smaller than the largest process.
    short: i64,
}

/// The measurements of one population (processes of given sizes): for each case, one measurement
/// per round.
struct Measured {
    population: Population,
    cases: [Vec<Took>; CASES.len()],
}

/// Measures every case (a selector with a kind of counters) on every population (processes of given
/// sizes).
///
/// # Errors
/// If the machine cannot be loaded, or if there is not enough memory for the counters of the
/// processes.
pub(super) fn run(progress: &Progress) -> Result<Found, Error> {
    progress.start("bench oom");
    progress.expect(Population::ALL.len() * ROUNDS);
    let host = Host::with_topology(topology()?);
    let measured =
        Population::ALL.map(|population| measure(&host, population, PROCESSES, progress));
    let measured = measured.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut tables: Vec<Table> = measured.iter().map(Measured::table).collect();
    tables[0].note = format!(
        "{PROCESSES} processes, {CPUS} CPUs of {MACHINE} played by threads, four counters each; {ROUNDS} \
         rounds in turns, medians with 95 % intervals. × is to the first row, in the same round. Wrong: the victim's \
         distance from the maximum."
    );
    Ok(Found {
        tables,
        rows: measured.iter().flat_map(Measured::rows).collect(),
    })
}

/// Returns the topology of a machine that has only the first [`CPUS`] CPUs of [`MACHINE`].
fn topology() -> Result<Topology, Error> {
    let whole = machines::load(MACHINE, Card::Mid)?.topology;
    let cpus = whole.ids().take(CPUS as usize);
    Ok(Topology::new(cpus.map(|cpu| whole.place(cpu)).collect()))
}

fn measure(
    host: &Host,
    population: Population,
    processes: usize,
    progress: &Progress,
) -> Result<Measured, Error> {
    let sizes = population.sizes(processes);
    let set = |counting| ProcessSet::new(host, counting, population, &sizes);
    let sets = COUNTINGS.map(|counting| set(counting).map(|set| (counting, set)));
    let sets = sets.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut slots = vec![Slot::EMPTY; processes];
    let mut cases = [const { Vec::new() }; CASES.len()];
    for _ in 0..ROUNDS {
        for ((selecting, counting), took) in CASES.into_iter().zip(&mut cases) {
            let of = sets.iter().find(|(of, _)| *of == counting);
            let (_, set) = of.expect("each has its set");
            took.push(undisturbed(|| select(selecting, set, &sizes, &mut slots)));
        }
        progress.step();
    }
    Ok(Measured { population, cases })
}

/// Calls `attempt` until an attempt is undisturbed, but at most [`ATTEMPTS`] times. Returns the
/// last attempt.
fn undisturbed(mut attempt: impl FnMut() -> Took) -> Took {
    let mut took = attempt();
    for _ in 1..ATTEMPTS {
        if !took.disturbed {
            break;
        }
        took = attempt();
    }
    took
}

fn select(selecting: Selecting, set: &ProcessSet<'_>, sizes: &[i64], slots: &mut [Slot]) -> Took {
    // The total can be any number of pages above the memory of all processes together. Without
    // adjustments, the points of a process are its number of pages, whatever the total is.
    let scope = Scope::machine(TotalPages::new(1 << 40).expect("some"));
    let (away, begin) = (waited_for_cpu_ns(), Instant::now());
    let selection = selecting.select(set, &scope, slots);
    let ns = begin.elapsed().as_nanos() as f64;
    let away = waited_for_cpu_ns() - away;
    let Ok(Selection {
        outcome: Outcome::Victim(victim),
        precise_sums,
        ..
    }) = selection
    else {
        unreachable!("processes may be killed, and ranges are in order: {selection:?}");
    };
    let most = sizes.iter().max().copied().unwrap_or(0);
    Took {
        ns,
        disturbed: away > AWAY_MAX * ns,
        precise_sums,
        short: most - sizes[victim.candidate as usize],
    }
}

impl Measured {
    fn table(&self) -> Table {
        let rows = (0..CASES.len()).map(|case| self.table_row(case)).collect();
        let columns = ["victim", "counters", "time", "×", "precise sums", "wrong"];
        table(self.population.name(), &columns, rows)
    }

    fn table_row(&self, case: usize) -> Vec<String> {
        let (selecting, counting) = CASES[case];
        let time = self.estimate(case, |took| took.ns);
        let ratio = (case > 0).then(|| self.ratio(case)).flatten();
        let most = |what: fn(&Took) -> i64| self.cases[case].iter().map(what).max().unwrap_or(0);
        vec![
            selecting.name().to_owned(),
            counting.name().to_owned(),
            time.map_or_else(
                || NOTHING.to_owned(),
                |time| human_estimate(&time, Unit::Nanos),
            ),
            ratio.map_or_else(|| NOTHING.to_owned(), |ratio| human_ratio(&ratio)),
            most(|took| took.precise_sums.cast_signed()).to_string(),
            format!("{} pages", most(|took| took.short)),
        ]
    }

    fn rows(&self) -> Vec<Row> {
        let cases = 0..CASES.len();
        cases.flat_map(|case| self.case_rows(case)).collect()
    }

    fn case_rows(&self, case: usize) -> Vec<Row> {
        type Metric = (&'static str, fn(&Took) -> f64);
        let metrics: [Metric; 3] = [
            ("select_ns", |took| took.ns),
            ("precise_sums_count", |took| took.precise_sums as f64),
            ("short_pages", |took| took.short as f64),
        ];
        let (selecting, counting) = CASES[case];
        let row = |(metric, what): Metric| {
            let Estimate { median, low, high } = self.estimate(case, what)?;
            let ratio = (metric == "select_ns").then(|| self.ratio(case)).flatten();
            let took = &self.cases[case];
            Some(Row {
                machine: "host".to_owned(),
                load: self.population.name().to_owned(),
                case: format!("{}+{}", selecting.name(), counting.name()),
                metric,
                median,
                low,
                high,
                ratio: ratio.map(|ratio| ratio.median),
                ratio_low: ratio.map(|ratio| ratio.low),
                ratio_high: ratio.map(|ratio| ratio.high),
                rounds: took.len(),
                disturbed: took.iter().filter(|took| took.disturbed).count(),
            })
        };
        metrics.into_iter().filter_map(row).collect()
    }

    fn estimate(&self, case: usize, what: fn(&Took) -> f64) -> Option<Estimate> {
        let values: Vec<f64> = self.cases[case].iter().map(what).collect();
        stats::estimate(&values)
    }

    /// The median, over the rounds, of the time of the case with the index `case`, divided by the
    /// time of the first case in the same round.
    fn ratio(&self, case: usize) -> Option<Estimate> {
        let ns =
            |case: usize| -> Vec<f64> { self.cases[case].iter().map(|chosen| chosen.ns).collect() };
        Some(stats::compare(&ns(0), &ns(case))?.ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precise_and_bounded_are_right_and_bounded_sums_few() {
        let host = Host::with_topology(Topology::flat(32));
        for population in Population::ALL {
            let measured = measure(&host, population, 300, &Progress::hidden()).expect("few");
            for ((selecting, _), took) in CASES.iter().zip(&measured.cases) {
                let is_exact = matches!(selecting, Selecting::Precise | Selecting::Bounded);
                let short = took.iter().map(|took| took.short).max();
                assert!(
                    !is_exact || short == Some(0),
                    "{selecting:?}, {population:?}"
                );
                let sums = took.iter().map(|took| took.precise_sums).max();
                let expected = match (selecting, population) {
                    (Selecting::Precise, _) => 300..=300,
                    (Selecting::Bounded, Population::Hog) => 0..=0,
                    (
                        Selecting::Bounded,
                        Population::AllInTheBand | Population::AllInTheBandMixed,
                    ) => 300..=300,
                    (Selecting::TwoPass16, _) => 0..=16,
                    _ => 0..=299,
                };
                assert!(
                    sums.is_some_and(|sums| expected.contains(&sums)),
                    "{sums:?}: {selecting:?}"
                );
            }
        }
    }
}
