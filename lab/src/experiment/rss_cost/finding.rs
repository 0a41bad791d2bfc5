//! One paragraph, every word of it following from a run's medians and intervals.

use super::counting::metrics;
use super::scene::{MODES, Measured, PARTS, rate};
use crate::measure::metric::{Metric, Unit};
use crate::report::value::{human, human_ratio};
use crate::report::{Report, Row, VerdictRow};
use crate::workload::page_fault::Mode;

/// The paragraph on the runs of `report`.
pub(super) fn of(report: &Report, measured: &[Measured]) -> String {
    [
        one_task(report),
        many_tasks(report),
        threads(report, measured, most_tasks(measured)),
        lines(report),
    ]
    .join(" ")
}

fn one_task(report: &Report) -> String {
    let one = rate(Mode::Processes, 1);
    let published = |design: &str| {
        let row = row(report, design, &one);
        row.and_then(|row| row.published).unwrap_or(f64::NAN)
    };
    format!(
        "One process faults in {} pages a second with flat counters (published: {}). Against that, \
         the tree makes {} (published: {}) and the one-sided tree {}.",
        shown(report, "flat", &one),
        human(published("flat"), Unit::PerSecond),
        change(report, "tree", &one),
        percent(published("tree") / published("flat")),
        change(report, "one-sided", &one),
    )
}

/// The sentence on how far each variant gets from flat, with any number of tasks.
fn many_tasks(report: &Report) -> String {
    let said = |design: &str| {
        let rates = report
            .verdicts
            .iter()
            .filter(|row| row.b == design && MODES.iter().any(|mode| is_rate(&row.metric, *mode)));
        let distance = |row: &VerdictRow| (row.comparison.ratio.median - 1.0).abs();
        let furthest = rates.max_by(|one, other| distance(one).total_cmp(&distance(other)));
        furthest.map_or_else(String::new, |row| {
            let tasks = row.metric.name.trim_start_matches("faults_per_s_");
            let change = percent(row.comparison.ratio.median);
            format!("{design} {change} ({})", tasks.replace('_', " "))
        })
    };
    format!(
        "Furthest from flat with any number of tasks: {}, {}, {}; published for the tree with many \
         tasks: noise.",
        said("tree"),
        said("one-sided"),
        said("shared"),
    )
}

fn is_rate(metric: &Metric, mode: Mode) -> bool {
    let one = rate(mode, 1).name;
    metric.name.starts_with(one.trim_end_matches('1'))
}

fn threads(report: &Report, measured: &[Measured], tasks: u32) -> String {
    let waiting = |nth: usize| {
        let mut times = measured[nth].times.iter();
        let found = times.find(|it| (it.0, it.1) == (Mode::Threads, tasks));
        let percents = found.map_or([0.0; PARTS.len()], |it| it.2.percents());
        let parts = PARTS.iter().zip(percents);
        let mut of_lock = parts.filter(|(part, _)| **part == "mmap_lock");
        of_lock.next().map_or(0.0, |(_, percent)| percent)
    };
    format!(
        "{tasks} threads of one process make {} faults a second where as many processes make {}: \
         flat, they spend {:.1} % of their time waiting for the mmap_lock.",
        shown(report, "flat", &rate(Mode::Threads, tasks)),
        shown(report, "flat", &rate(Mode::Processes, tasks)),
        waiting(0),
    )
}

fn lines(report: &Report) -> String {
    let three = |metric: &Metric| {
        let of = |design| shown(report, design, metric);
        let (flat, tree, ours) = (of("flat"), of("tree"), of("one-sided"));
        format!("{flat} flat, {tree} tree, {ours} one-sided")
    };
    format!(
        "When all CPUs do nothing but add to one counter, 1000 additions move this many lines from \
         socket to socket: {} (in all: {}); at the pace of faults: {} (in all: {}). At full speed \
         the tree adds {} times as fast as flat, one-sided {}.",
        three(&metrics::REMOTE),
        three(&metrics::LINES),
        three(&metrics::PACED_REMOTE),
        three(&metrics::PACED_LINES),
        ratio(report, "tree", &metrics::RATE),
        ratio(report, "one-sided", &metrics::RATE),
    )
}

/// The largest number of tasks that ran.
fn most_tasks(measured: &[Measured]) -> u32 {
    let times = measured.iter().flat_map(|it| &it.times);
    times.map(|(_, tasks, _)| *tasks).max().unwrap_or(1)
}

fn row<'a>(report: &'a Report, design: &str, metric: &Metric) -> Option<&'a Row> {
    let mut rows = report.rows.iter();
    rows.find(|row| row.design == design && row.metric.name == metric.name)
}

fn shown(report: &Report, design: &str, metric: &Metric) -> String {
    let row = row(report, design, metric);
    row.map_or_else(String::new, |row| human(row.estimate.median, metric.unit))
}

/// The comparison of `b` with flat on one metric.
fn compared<'a>(report: &'a Report, b: &str, metric: &Metric) -> Option<&'a VerdictRow> {
    let mut rows = report.verdicts.iter();
    rows.find(|row| row.b == b && row.metric.name == metric.name)
}

fn ratio(report: &Report, b: &str, metric: &Metric) -> String {
    let row = compared(report, b, metric);
    row.map_or_else(String::new, |row| human_ratio(&row.comparison.ratio))
}

fn change(report: &Report, b: &str, metric: &Metric) -> String {
    let row = compared(report, b, metric);
    row.map_or_else(String::new, |row| percent(row.comparison.ratio.median))
}

fn percent(ratio: f64) -> String {
    format!("{:+.2} %", 100.0 * (ratio - 1.0))
}
