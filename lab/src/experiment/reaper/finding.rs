//! One paragraph, every word of it following from a run's medians.

use super::scene::{Scenes, metrics};
use super::targets::{faster, ratio};
use super::{ALONE, ASCENDING, BY_VMA, OURS};
use crate::experiment::emptier::Target;
use crate::experiment::emptier::metrics::{
    LRU_WAIT, PCP_WAIT, RAN, SETTLED, TABLE_WAIT, WALL, ZONE_WAIT,
};
use crate::measure::comparison::Comparison;
use crate::measure::metric::Metric;
use crate::report::Report;
use crate::report::value::human;

/// The paragraph on the runs of `report`.
pub(super) fn of(
    report: &Report,
    runs: &Comparison,
    scenes: &Scenes,
    targets: &[Target],
) -> String {
    [
        patch(report, runs),
        ours(report, runs, scenes),
        moved(report),
        verdict(targets),
    ]
    .join(" ")
}

fn patch(report: &Report, runs: &Comparison) -> String {
    let change = |metric: &Metric| 100.0 * (ratio(runs, ASCENDING, BY_VMA, metric) - 1.0);
    let share = |design: &str| {
        let part = median(report, design, &metrics::LOCK);
        100.0 * part / median(report, design, &RAN).max(1.0)
    };
    format!(
        "In the same direction, exit and reaper spend {:.1} % of the time they run on getting \
         page-table locks (published: 19.8 %); from opposite ends, mapping by mapping, {:.1} % \
         (published: 0.8 %). Running time changes by {:+.1} % (published: -20.6 %), time until all \
         memory is free, which was not published, by {:+.1} %.",
        share("ascending"),
        share("descending-by-vma"),
        change(&RAN),
        change(&WALL),
    )
}

fn ours(report: &Report, runs: &Comparison, scenes: &Scenes) -> String {
    let equal = scenes.equal();
    let wall = equal.metric(WALL);
    let one = scenes.one().metric(WALL);
    let short = scenes.short().metric(WALL);
    format!(
        "Meeting in the middle, they wait {} for page tables. On equal cores all is free {:.2} times as \
         fast as without help (ascending {:.2}, descending-by-vma {:.2}), for {:+.1} % of work; one \
         large mapping {:.2} times (ascending {:.2}, descending-by-vma {:.2}); on a machine without memory, \
         where freed pages soon go back to their zone, {:.2} times (ascending {:.2}, descending-by-vma \
         {:.2}), for {:+.1} % of work.",
        shown(report, "meet-in-the-middle", &TABLE_WAIT),
        faster(runs, OURS, &wall),
        faster(runs, ASCENDING, &wall),
        faster(runs, BY_VMA, &wall),
        100.0 * (ratio(runs, ALONE, OURS, &equal.metric(SETTLED)) - 1.0),
        faster(runs, OURS, &one),
        faster(runs, ASCENDING, &one),
        faster(runs, BY_VMA, &one),
        faster(runs, OURS, &short),
        faster(runs, ASCENDING, &short),
        faster(runs, BY_VMA, &short),
        100.0 * (ratio(runs, ALONE, OURS, &scenes.short().metric(SETTLED)) - 1.0),
    )
}

/// The sentence on waits for other locks.
fn moved(report: &Report) -> String {
    let waits = |design: &str| {
        let classes = [
            ("zone", ZONE_WAIT),
            ("page-list", PCP_WAIT),
            ("lruvec", LRU_WAIT),
        ];
        let said =
            classes.map(|(lock, metric)| format!("{} {lock}", shown(report, design, &metric)));
        said.join(", ")
    };
    format!(
        "Waits for other locks: {} ascending; {} descending-by-vma; {} in the middle.",
        waits("ascending"),
        waits("descending-by-vma"),
        waits("meet-in-the-middle"),
    )
}

fn verdict(targets: &[Target]) -> String {
    let missed = targets.iter().filter(|target| !target.is_met);
    let missed: Vec<String> = missed
        .map(|target| {
            let Target {
                what,
                wanted,
                measured,
                ..
            } = target;
            format!("{what}: {measured} (wanted: {wanted})")
        })
        .collect();
    if missed.is_empty() {
        "Every target is met.".to_owned()
    } else {
        format!("Missed: {}.", missed.join("; "))
    }
}

fn median(report: &Report, design: &str, metric: &Metric) -> f64 {
    let mut rows = report.rows.iter();
    let found = rows.find(|row| row.design == design && row.metric.name == metric.name);
    found.map_or(f64::NAN, |row| row.estimate.median)
}

fn shown(report: &Report, design: &str, metric: &Metric) -> String {
    human(median(report, design, metric), metric.unit)
}
