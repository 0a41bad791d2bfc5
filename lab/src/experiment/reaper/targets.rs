//! The targets of meet-in-the-middle with one reaper, and whether it reaches them.

use super::scene::{Scene, Scenes};
use super::{ALONE, ASCENDING, BY_VMA, OURS};
use crate::experiment::emptier::metrics::{LISTED, RAN, SETTLED, TABLE_WAIT, WALL};
use crate::experiment::emptier::{self, Target};
use crate::measure::comparison::Comparison;
use crate::measure::metric::Metric;
use crate::measure::stats;
use crate::report::value::human;

/// The most work beyond that of exit alone, in percent.
const WORK_PERCENT_MAX: f64 = 3.0;
/// The least speed, as a multiple of that of exit alone.
const FASTER_MIN: f64 = 1.8;
/// The least speed with one large mapping, as a multiple of that with many small ones.
const ONE_MIN: f64 = 0.97;

/// All targets, judged on `runs`.
///
/// Work and speed have two targets each: one for a machine without memory left, which is when a
/// process is killed for it, and one for a machine with memory left. The two cases differ in what
/// page lists keep: exit alone, on the CPU that touched all pages, may leave most of them on its
/// lists, and has not yet done the work of returning them to the zone.
pub(super) fn of(runs: &Comparison, scenes: &Scenes) -> Vec<Target> {
    let equal = |metric| scenes.equal().metric(metric);
    let waits = 100.0 * ratio(runs, ASCENDING, OURS, &equal(TABLE_WAIT));
    let mut all = emptier::waits_hardly(waits, cases_above(runs, scenes)).to_vec();
    let many = faster(runs, OURS, &equal(WALL));
    let one = faster(runs, OURS, &scenes.one().metric(WALL));
    all.extend([
        work(
            runs,
            scenes.short(),
            "work beyond that of exit alone, no memory left",
        ),
        work(
            runs,
            scenes.equal(),
            "work beyond that of exit alone, memory left",
        ),
        speed(
            runs,
            scenes.short(),
            "from kill to free, against exit alone, no memory left",
        ),
        speed(
            runs,
            scenes.equal(),
            "from kill to free, against exit alone, memory left",
        ),
        Target {
            what: "the same with one large mapping",
            wanted: "as much as with many small ones",
            measured: format!("{one:.2} times"),
            is_met: one >= ONE_MIN * many,
        },
    ]);
    all
}

/// The work beyond that of exit alone, including what lists owe their zones when all is free.
fn work(runs: &Comparison, scene: &Scene, what: &'static str) -> Target {
    let percent = |metric| 100.0 * (ratio(runs, ALONE, OURS, &scene.metric(metric)) - 1.0);
    let (work, ran) = (percent(SETTLED), percent(RAN));
    Target {
        what,
        wanted: "3 % at most",
        measured: format!("{work:+.2} %; until all is free {ran:+.2} %"),
        is_met: work <= WORK_PERCENT_MAX,
    }
}

/// The speed of ours, and the pages that lists keep when all is free, with ours and after exit
/// alone.
fn speed(runs: &Comparison, scene: &Scene, what: &'static str) -> Target {
    let times = faster(runs, OURS, &scene.metric(WALL));
    let listed = |nth| human(median(runs, nth, &scene.metric(LISTED)), LISTED.unit);
    Target {
        what,
        wanted: "1.8 times as fast",
        measured: format!(
            "{times:.2} times; {} pages still on lists, {} of exit alone",
            listed(OURS),
            listed(ALONE)
        ),
        is_met: times >= FASTER_MIN,
    }
}

/// The speed of an emptier, as a multiple of that of exit alone.
pub(super) fn faster(runs: &Comparison, emptier: usize, wall: &Metric) -> f64 {
    1.0 / ratio(runs, ALONE, emptier, wall)
}

fn median(runs: &Comparison, emptier: usize, metric: &Metric) -> f64 {
    let samples = runs.samples(emptier);
    let values: Vec<f64> = samples.filter_map(|sample| sample.value(metric)).collect();
    stats::estimate(&values).map_or(f64::NAN, |estimate| estimate.median)
}

/// The median ratio of B to A, paired by seed.
pub(super) fn ratio(runs: &Comparison, a: usize, b: usize, metric: &Metric) -> f64 {
    let values = |nth: usize| -> Vec<f64> {
        let samples = runs.samples(nth);
        samples.filter_map(|sample| sample.value(metric)).collect()
    };
    stats::compare(&values(a), &values(b)).map_or(f64::NAN, |it| it.ratio.median)
}

/// The number of cases, which are seeds and scenes, in which ours waits longer for page tables than
/// the patch; and the number of all cases.
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
