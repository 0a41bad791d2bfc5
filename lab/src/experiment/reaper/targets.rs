//! What meet-in-the-middle must reach with one reaper, and whether it does.

use super::scene::Scenes;
use super::{ALONE, ASCENDING, BY_VMA, OURS};
use crate::compare::Comparison;
use crate::experiment::contestant::metrics::{FORGET, RAN, TABLE_WAIT, WALL};
use crate::experiment::contestant::{self, Target};
use crate::metric::Metric;
use crate::stats;
use crate::workload::victim::Raced;

/// Waits for page tables, of those of ascending.
const WAIT_PERCENT_MAX: f64 = 1.0;
/// Work, off that of a lone exit.
const WORK_PERCENT_MAX: f64 = 3.0;
/// How many times as fast as a lone exit.
const FASTER_MIN: f64 = 1.8;
/// How much less one large mapping may gain than many small ones.
const ONE_MIN: f64 = 0.97;

/// All of them, as `runs` have it; `ours` is a race of meet-in-the-middle.
pub(super) fn of(runs: &Comparison, scenes: &Scenes, ours: &Raced) -> Vec<Target> {
    let equal = |metric| scenes.equal().metric(metric);
    let waits = 100.0 * ratio(runs, ASCENDING, OURS, &equal(TABLE_WAIT));
    let (above, cases) = cases_above(runs, scenes);
    let work = 100.0 * (ratio(runs, ALONE, OURS, &equal(RAN)) - 1.0);
    let many = faster(runs, OURS, &equal(WALL));
    let alone = 100.0 * share(runs, OURS, &equal(FORGET), &equal(WALL));
    let one = faster(runs, OURS, &scenes.one().metric(WALL));
    vec![
        Target {
            what: "waits for page tables, against ascending",
            wanted: "1 % at most",
            measured: format!("{waits:.2} %"),
            is_met: waits <= WAIT_PERCENT_MAX,
        },
        Target {
            what: "cases in which it waits longer than descending-by-vma",
            wanted: "none",
            measured: format!("{above} of {cases}"),
            is_met: above == 0,
        },
        Target {
            what: "work beyond that of exit alone, equal cores",
            wanted: "3 % at most",
            measured: format!("{work:+.2} %; limited by {}", contestant::limiter(ours)),
            is_met: work <= WORK_PERCENT_MAX,
        },
        Target {
            what: "from kill to free, against exit alone, equal cores",
            wanted: "1.8 times as fast",
            measured: format!("{many:.2} times; {alone:.0} % of it one CPU forgets mappings"),
            is_met: many >= FASTER_MIN,
        },
        Target {
            what: "the same with one large mapping",
            wanted: "as much as with many small ones",
            measured: format!("{one:.2} times"),
            is_met: one >= ONE_MIN * many,
        },
    ]
}

/// How many times as fast as a lone exit.
pub(super) fn faster(runs: &Comparison, contestant: usize, wall: &Metric) -> f64 {
    1.0 / ratio(runs, ALONE, contestant, wall)
}

/// The median of B over A, by seed.
pub(super) fn ratio(runs: &Comparison, a: usize, b: usize, metric: &Metric) -> f64 {
    let values = |nth: usize| -> Vec<f64> {
        let samples = runs.samples(nth);
        samples.filter_map(|sample| sample.value(metric)).collect()
    };
    stats::compare(&values(a), &values(b)).map_or(f64::NAN, |it| it.ratio.median)
}

/// The median share of `part` in `whole`.
fn share(runs: &Comparison, contestant: usize, part: &Metric, whole: &Metric) -> f64 {
    let samples = runs.samples(contestant);
    let shares = samples.filter_map(|sample| Some(sample.value(part)? / sample.value(whole)?));
    let shares: Vec<f64> = shares.collect();
    stats::estimate(&shares).map_or(f64::NAN, |share| share.median)
}

/// In how many seeds and scenes ours waits longer for page tables than the patch; and of how many.
fn cases_above(runs: &Comparison, scenes: &Scenes) -> (usize, usize) {
    let (mut above, mut cases) = (0, 0);
    for scene in &scenes.all {
        let metric = scene.metric(TABLE_WAIT);
        for (patch, ours) in runs.samples(BY_VMA).zip(runs.samples(OURS)) {
            cases += 1;
            above += usize::from(ours.value(&metric) > patch.value(&metric));
        }
    }
    (above, cases)
}
