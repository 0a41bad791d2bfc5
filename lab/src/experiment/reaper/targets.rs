//! What meet-in-the-middle must reach with one reaper, and whether it does.

use super::scene::{Scene, Scenes};
use super::{ALONE, ASCENDING, BY_VMA, OURS};
use crate::compare::Comparison;
use crate::experiment::contestant::metrics::{LISTED, RAN, SETTLED, TABLE_WAIT, WALL};
use crate::experiment::contestant::{self, Target};
use crate::metric::Metric;
use crate::report::value::human;
use crate::stats;

/// Work, off that of a lone exit.
const WORK_PERCENT_MAX: f64 = 3.0;
/// How many times as fast as a lone exit.
const FASTER_MIN: f64 = 1.8;
/// How much less one large mapping may gain than many small ones.
const ONE_MIN: f64 = 0.97;

/// All of them, as `runs` have it.
///
/// Work and speed are held to their targets twice: without memory left, which is when somebody is killed
/// for it, and with. What differs is what lists of pages keep: a lone exit on the CPU that touched them all
/// may leave most of its pages there, and has not worked for them yet.
pub(super) fn of(runs: &Comparison, scenes: &Scenes) -> Vec<Target> {
    let equal = |metric| scenes.equal().metric(metric);
    let waits = 100.0 * ratio(runs, ASCENDING, OURS, &equal(TABLE_WAIT));
    let mut all = contestant::waits_hardly(waits, cases_above(runs, scenes)).to_vec();
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

/// How much more work it is than a lone exit, with what lists owe their zones when all is free.
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

/// How much sooner all is free, and how many pages lists keep then, with ours and after a lone exit.
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

/// How many times as fast as a lone exit.
pub(super) fn faster(runs: &Comparison, contestant: usize, wall: &Metric) -> f64 {
    1.0 / ratio(runs, ALONE, contestant, wall)
}

fn median(runs: &Comparison, contestant: usize, metric: &Metric) -> f64 {
    let samples = runs.samples(contestant);
    let values: Vec<f64> = samples.filter_map(|sample| sample.value(metric)).collect();
    stats::estimate(&values).map_or(f64::NAN, |estimate| estimate.median)
}

/// The median of B over A, by seed.
pub(super) fn ratio(runs: &Comparison, a: usize, b: usize, metric: &Metric) -> f64 {
    let values = |nth: usize| -> Vec<f64> {
        let samples = runs.samples(nth);
        samples.filter_map(|sample| sample.value(metric)).collect()
    };
    stats::compare(&values(a), &values(b)).map_or(f64::NAN, |it| it.ratio.median)
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
