//! Tests the lab itself: does it report a difference where there is one, and none where there is
//! none?
//!
//! Three invented designs draw waits from known distributions: `same` from the distribution of
//! `baseline`, and `shorter` from a distribution whose waits are 20 % shorter. The report should
//! say "no difference" for `same` and "B is lower" for `shorter`. This is also the smallest example
//! of an experiment.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::Experiment;
use super::declared::{
    Clock, Declaration, Figure, Finding, Headline, Headlines, OTHERS, Published, Reported, Run,
    effect,
};
use crate::error::Error;
use crate::measure::comparison::{Sample, fold_hashes};
use crate::measure::metric::{Metric, Unit};
use crate::report::misses::{Basis, Thread};
use crate::report::{Table, tabulate};
use crate::run::cases::Case;

/// The self-test, which runs only when the user names it.
pub(super) static EXPERIMENT: &dyn Experiment = &DECLARATION;

static DECLARATION: Declaration<(), (), &str> = Declaration {
    name: "selftest",
    question: "does the lab see a difference that is there, and none where none is?",
    answer: Headlines {
        sides: &["baseline", "same", "shorter"],
        rows: &[
            Headline::new("waits", "waits", &["baseline", "same", "shorter"]),
            Headline::new(
                "total wait",
                "total_wait_ns",
                &["baseline", "same", "shorter"],
            ),
        ],
    },
    machines: &["no machine"],
    clock: Clock::Virtual,
    designs: || Ok(DESIGNS.to_vec()),
    verdicts: &[("baseline", OTHERS)],
    published: &[Published {
        machine: "no machine",
        thread: Thread::Selftest,
        source: "the middle of the distribution of `baseline`",
        figures: &[Figure {
            what: "mean of the waits that `baseline` draws",
            metric: "waits",
            values: Reported::One("baseline", 1000.0),
            basis: Basis::Construction,
            why: "The mean of a few draws differs a little from the mean of the distribution.",
        }],
    }],
    setup: |_, _, _| Ok(()),
    metrics: |()| vec![WAITS, TOTAL_WAIT],
    shown: None,
    compared: None,
    measure: |(), case| (measure(case), ()),
    cards: None,
    conclude,
};

const DESIGNS: [&str; 3] = ["baseline", "same", "shorter"];
const WAITS: Metric = Metric::lower("waits", Unit::Count);
const TOTAL_WAIT: Metric = Metric::lower("total_wait_ns", Unit::Nanos);

fn conclude(run: &Run<'_, (), (), &str>) -> Result<(Vec<Table>, Finding), Error> {
    let drawn = tabulate!(
        "What was drawn",
        "Waits are uniform between these ends.",
        &DESIGNS,
        |design| {
            "design" => design,
            "fewest" => range(design).0,
            "most" => range(design).1,
        }
    );
    let effect = |design| effect(run.results.compare(("baseline", design), &WAITS).verdict);
    let answer = format!(
        "Compared with `baseline`, `same` {} the waits and `shorter` {} them.",
        effect("same"),
        effect("shorter"),
    );
    let finding = Finding::new(answer, []).further(
        "The designs of this experiment are made up, so its verdicts are known: no difference \
         between `baseline` and `same`, and `shorter` 20 % below. A report that says otherwise has \
         found a fault in the lab, not in a memory manager.",
    );
    Ok((vec![drawn], finding))
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
    // The random stream depends on the design's name. Otherwise `same` would repeat every draw of
    // `baseline`.
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
    use crate::run::options::Options;
    use crate::run::progress::Progress;

    #[test]
    fn the_lab_sees_the_difference_that_is_there_and_no_other() {
        let options = Options::of_seeds(12);
        let reports = EXPERIMENT.run(&options, &Progress::hidden()).unwrap();
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
