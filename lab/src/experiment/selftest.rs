//! Tests the lab itself: does it see a difference that is there, and none where none is?
//!
//! Three made-up designs draw waits from known distributions: `same` from that of `baseline`,
//! `shorter` from one 20 % lower. The report should say "no difference" and "B is lower". This is
//! also the smallest example of an experiment.

use plimsoll_sim::profile::Card;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::error::Error;
use crate::experiment::Experiment;
use crate::measure::comparison::{Comparison, Sample, fold_hashes};
use crate::measure::metric::{Metric, Unit};
use crate::report::{Report, Table};
use crate::run::cases::Case;
use crate::run::options::Options;
use crate::run::progress::Progress;

/// The self-test, which runs only when it is named.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "selftest",
    title: "does the lab see a difference that is there, and none where none is?",
    run,
};

const DESIGNS: [&str; 3] = ["baseline", "same", "shorter"];
const WAITS: Metric = Metric::lower("waits", Unit::Count);
const TOTAL_WAIT: Metric = Metric::lower("total_wait_ns", Unit::Nanos);

fn run(options: &Options, progress: &Progress) -> Result<Vec<Report>, Error> {
    progress.start("selftest");
    let runs = Comparison::run(&DESIGNS, options, progress, measure)?;
    let card = options.card.unwrap_or(Card::Mid);
    let mut report = Report::new("selftest", "no machine", card, runs.seeds(), runs.hash());
    report.rows = runs
        .rows(|design, metric| (design == "baseline" && metric.name == "waits").then_some(1000.0));
    report.verdicts = runs.verdicts(0);
    report.tables.push(Table {
        title: "What was drawn".to_owned(),
        note: "Waits are uniform between these ends.".to_owned(),
        columns: ["design", "fewest", "most"].map(str::to_owned).to_vec(),
        rows: DESIGNS
            .iter()
            .map(|design| {
                let (fewest, most) = range(design);
                vec![(*design).to_owned(), fewest.to_string(), most.to_string()]
            })
            .collect(),
    });
    report.finding = "The designs of this experiment are made up, so its verdicts are known: no \
        difference between `baseline` and `same`, and `shorter` 20 % below. A report that says \
        otherwise has found a fault in the lab, not in a memory manager."
        .to_owned();
    Ok(vec![report])
}

fn range(design: &str) -> (u64, u64) {
    if design == "shorter" {
        (720, 880)
    } else {
        (900, 1100)
    }
}

fn measure(case: &Case<&str>) -> Sample {
    let (fewest, most) = range(case.design);
    // The design is part of the stream, or `same` would repeat `baseline` draw by draw.
    let design = fold_hashes(case.design.bytes().map(u64::from));
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(case.seed ^ design);
    let mut draw = || rng.next_u64() % (most - fewest + 1);
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
    use super::*;
    use crate::measure::stats::Verdict;

    #[test]
    fn the_lab_sees_the_difference_that_is_there_and_no_other() {
        let reports = run(&Options::of_seeds(12), &Progress::hidden()).unwrap();
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
