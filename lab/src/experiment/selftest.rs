//! Tests whether the lab reports a difference if there is one, and no difference if there is none.
//!
//! Three invented designs draw waits from known distributions. `same` draws from the distribution
//! of `baseline`, and `shorter` draws from a distribution whose waits are 20 % shorter. The report
//! should say "no difference" for `same` and "B is lower" for `shorter`. This module is also the
//! smallest example of an experiment.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::driver::{Clock, Code, Made, Number, Part, Run, Runs, Tried};
use crate::error::Error;
use crate::measure::comparison::{Sample, fold_hashes};
use crate::measure::metric::{Metric, Unit};
use crate::report::tabulate;
use crate::run::cases::Case;

/// The workload, which needs no machine.
pub(super) static SUBJECT: &dyn Runs = &CODE;

static CODE: Code<()> = Code {
    workload: "made-up-waits",
    about: "draws waits from a uniform distribution; a test of the lab",
    numbers: &[],
    of_designs: &[
        Number::one("fewest", (0, 1_000_000), "the smallest number of waits"),
        Number::one("most", (0, 1_000_000), "the largest number of waits"),
    ],
    takes_memory: false,
    clock: Clock::Virtual,
    setup: |_| Ok(()),
    metrics: |()| vec![WAITS, TOTAL_WAIT],
    measure: |(), case| (measure(case), ()),
    parts: &[Part::new("drawn", drawn)],
    cells: &[],
};

const WAITS: Metric = Metric::lower("waits", Unit::Count);
const TOTAL_WAIT: Metric = Metric::lower("total_wait_ns", Unit::Nanos);

fn drawn(run: &Run<'_, ()>) -> Result<Made, Error> {
    let table = tabulate!(
        "What was drawn",
        "Waits are uniform between these ends.",
        run.designs,
        |design| {
            "design" => design.name,
            "fewest" => design.numbers.get("fewest"),
            "most" => design.numbers.get("most"),
        }
    );
    Ok(table.into())
}

fn measure(case: &Case<Tried>) -> Sample {
    let numbers = &case.design.numbers;
    let (fewest, most) = (numbers.get("fewest"), numbers.get("most"));
    // The random stream depends on the design's name. Otherwise `same` would draw exactly the waits
    // that `baseline` draws.
    let design = fold_hashes(case.design.name.bytes().map(u64::from));
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(case.seed ^ design);
    let mut draw = || rng.next_u64() % (most.saturating_sub(fewest) + 1);
    let waits = fewest + (0..16).map(|_| draw()).sum::<u64>() / 16;
    let total_ns = waits * 150_000;
    let metrics = vec![(WAITS, waits as f64), (TOTAL_WAIT, total_ns as f64)];
    Sample {
        hash: fold_hashes([waits, total_ns]),
        metrics,
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::find;
    use crate::measure::stats::Verdict;
    use crate::run::options::Options;
    use crate::run::progress::Progress;

    #[test]
    fn the_lab_sees_the_difference_that_is_there_and_no_other() {
        let options = Options::of_seeds(12);
        let reports = find("selftest")
            .unwrap()
            .run(&options, &Progress::hidden())
            .unwrap();
        let verdict = |b: &str| {
            let rows = &reports[0].verdicts;
            rows.iter()
                .find(|row| row.b == b)
                .expect("a verdict")
                .comparison
                .verdict
        };
        assert_eq!(verdict("same"), Verdict::NoDifference);
        assert_eq!(verdict("shorter"), Verdict::Lower);
    }
}
