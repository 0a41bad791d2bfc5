//! `reproduce drain`: how long may one CPU hold the zone lock, and what do the others pay?
//!
//! The batching thread counted calls of `free_pcppages_bulk` above 1000 pages on two large machines
//! and showed that batching costs no throughput. It could not show waits; here these are measured
//! too: the longest one, the lock's holder when it began, and how many CPUs waited long.
//!
//! `scene`: the workload and its metrics.

mod scene;

use plimsoll_sim::profile::{Card, Profile};

use self::scene::{Measured, Scene, metrics};
use super::Experiment;
use crate::catalog::designs::{self, Named};
use crate::error::Error;
use crate::measure::comparison::Comparison;
use crate::measure::holds::{self, BUCKETS};
use crate::measure::metric::{Metric, Unit};
use crate::measure::stats::{self, Verdict};
use crate::report::value::{human, human_ratio};
use crate::report::{Report, Table};
use crate::run::options::{Effort, Options};
use crate::run::progress::Progress;

/// The experiment's entry in the catalog.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "drain",
    title: "how long may one CPU hold the zone lock, and what do the others pay?",
    run,
};

const DESIGNS: [&str; 4] = ["unbatched", "batched", "bounded-pages", "bounded"];

fn run(options: &Options, progress: &Progress) -> Result<Vec<Report>, Error> {
    let machines: &[&str] = match options.effort {
        Effort::Full => &["bergamo-176", "turin-316"],
        Effort::Quick => &["bergamo-176"],
    };
    machines
        .iter()
        .map(|machine| report(machine, options, progress))
        .collect()
}

fn report(machine: &str, options: &Options, progress: &Progress) -> Result<Report, Error> {
    let card = options.card.unwrap_or(Card::Mid);
    let profile = Profile::load(machine, card)?;
    let scene = Scene::of(&profile, options.effort);
    let designs = designs()?;
    progress.start(format!("drain on {machine}"));
    let (runs, measured) = Comparison::run_keeping(&designs, options, progress, |case| {
        scene.measure(&profile, &case.design.design, case.seed)
    })?;
    let mut report = Report::new("drain", machine, card, runs.seeds(), runs.hash());
    report.rows = runs.rows(|design, metric| published(machine, design, metric));
    report.verdicts = runs.verdicts(0);
    report.verdicts.extend(runs.verdicts_between(1, 3));
    report.tables.push(scene.table());
    report.tables.push(histogram(&designs, &measured));
    report.tables.push(by_site(&designs, &measured));
    report.tables.push(longest_waits(&designs, &measured));
    report.tables.push(throughput(&runs, &designs));
    if options.effort == Effort::Full && options.card.is_none() {
        report.tables.push(cards(machine, options, progress)?);
    }
    report.finding = finding(&report);
    Ok(report)
}

fn designs() -> Result<Vec<Named>, Error> {
    let named = |name: &str| {
        let design = designs::find(&format!("unpatched+{name}"))?.design;
        Ok(Named {
            name: name.to_owned(),
            design,
        })
    };
    DESIGNS.into_iter().map(named).collect()
}

const TWELVE_MINUTES_S: f64 = 720.0;

/// The counts that the thread took in 12 minutes on 176 CPUs, as rates. Its tables give no
/// throughput, only changes of it.
fn published(machine: &str, design: &str, metric: &Metric) -> Option<f64> {
    if machine != "bergamo-176" {
        return None;
    }
    match (&*metric.name, design) {
        ("commits_over_1000_pages_per_s", "unbatched") => Some(41_497.0 / TWELVE_MINUTES_S),
        ("decays_over_1000_pages_per_s", "unbatched") => Some(2510.0 / TWELVE_MINUTES_S),
        ("commits_over_1000_pages_per_s" | "decays_over_1000_pages_per_s", "batched") => Some(0.0),
        _ => None,
    }
}

fn histogram(designs: &[Named], measured: &[Measured]) -> Table {
    let mut columns = vec!["pages".to_owned()];
    columns.extend(designs.iter().map(|design| design.name.clone()));
    let row = |bucket: usize| {
        let range = match bucket {
            0 => "1 to 249".to_owned(),
            last if last == BUCKETS - 1 => format!("{} and more", last * 250),
            other => format!("{} to {}", other * 250, other * 250 + 249),
        };
        let mut row = vec![range];
        let counts = measured.iter().map(|it| it.holds.all().buckets[bucket]);
        row.extend(counts.map(|count| human(count as f64, Unit::Count)));
        row
    };
    Table {
        title: "Zone-lock holds by pages moved, first seed".to_owned(),
        note: "The thread's buckets; frees, refills and drains together.".to_owned(),
        columns,
        rows: (0..BUCKETS).map(row).collect(),
    }
}

fn by_site(designs: &[Named], measured: &[Measured]) -> Table {
    let both = designs.iter().zip(measured);
    let rows = both.flat_map(|(design, it)| it.holds.rows(&design.name));
    Table {
        title: "Zone-lock holds by call site, first seed".to_owned(),
        note: String::new(),
        columns: holds::COLUMNS.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}

fn longest_waits(designs: &[Named], measured: &[Measured]) -> Table {
    let row = |(design, it): (&Named, &Measured)| {
        let longest = it.longest?;
        Some(vec![
            design.name.clone(),
            human(longest.wait.0 as f64, Unit::Nanos),
            longest.cpu.to_string(),
            longest.blocker.to_string(),
            longest.blocker_site.name().to_owned(),
        ])
    };
    Table {
        title: "The longest waits for the zone lock, and the holder, first seed".to_owned(),
        note: "The CPU that held the lock when the wait began; CPUs queued in between held it too."
            .to_owned(),
        columns: ["design", "wait", "CPU", "holder", "held for"]
            .map(str::to_owned)
            .to_vec(),
        rows: designs.iter().zip(measured).filter_map(row).collect(),
    }
}

/// The thread's columns: how much runs of one design vary, and how far a design is from unbatched
/// Linux.
fn throughput(runs: &Comparison, designs: &[Named]) -> Table {
    let rates = |nth: usize| -> Vec<f64> {
        let samples = runs.samples(nth);
        samples
            .filter_map(|sample| sample.value(&metrics::RATE))
            .collect()
    };
    let baseline = stats::Spread::of(&rates(0));
    let row = |(nth, design): (usize, &Named)| {
        let spread = stats::Spread::of(&rates(nth))?;
        let delta = stats::delta_percent(baseline?.mean, spread.mean);
        Some(vec![
            design.name.clone(),
            human(spread.mean, Unit::PagesPerSecond),
            format!("{:.3} %", spread.variation_percent().unwrap_or(0.0)),
            delta.map_or_else(String::new, |delta| format!("{delta:+.3} %")),
        ])
    };
    Table {
        title: "Throughput".to_owned(),
        note:
            "Means over the seeds; rows above are medians. Published for the patch: delta within \
               ±0.02 % at a variation of 0.01 to 0.56 %."
                .to_owned(),
        columns: ["design", "pages/s", "variation %", "delta %"]
            .map(str::to_owned)
            .to_vec(),
        rows: designs.iter().enumerate().filter_map(row).collect(),
    }
}

/// The headline metrics at the low and at the high end of the costs' ranges.
fn cards(machine: &str, options: &Options, progress: &Progress) -> Result<Table, Error> {
    let [unbatched, .., bounded] = <[Named; 4]>::try_from(designs()?).expect("four designs");
    let designs = [unbatched, bounded];
    let mut rows = Vec::new();
    for card in [Card::Low, Card::High] {
        let profile = Profile::load(machine, card)?;
        let scene = Scene::of(&profile, Effort::Quick);
        let runs = Comparison::run(&designs, options, progress, |case| {
            scene.measure(&profile, &case.design.design, case.seed).0
        })?;
        for verdict in runs.verdicts(0) {
            if [metrics::HOLD_MAX, metrics::WAIT_MAX, metrics::RATE].contains(&verdict.metric) {
                rows.push(vec![
                    card.name().to_owned(),
                    verdict.metric.name.to_string(),
                    human_ratio(&verdict.comparison.ratio),
                    verdict.comparison.verdict.to_string(),
                ]);
            }
        }
    }
    Ok(Table {
        title: "Bounded (B) against unbatched, at each cost card".to_owned(),
        note: "Shorter runs than above. A verdict that changes between cards is fragile."
            .to_owned(),
        columns: ["card", "metric", "ratio", "verdict"]
            .map(str::to_owned)
            .to_vec(),
        rows,
    })
}

/// One paragraph, every word of it following from this run's medians and intervals.
fn finding(report: &Report) -> String {
    let value = |design: &str, metric: &Metric| {
        let is_it =
            |row: &&crate::report::Row| row.design == design && row.metric.name == metric.name;
        report
            .rows
            .iter()
            .find(is_it)
            .map_or(0.0, |row| row.estimate.median)
    };
    let shown = |design: &str, metric: &Metric| human(value(design, metric), metric.unit);
    let rate = |design: &str| {
        let is_it = |row: &&crate::report::VerdictRow| {
            row.a == "unbatched" && row.b == design && row.metric.name == metrics::RATE.name
        };
        let comparison = report.verdicts.iter().find(is_it).map(|row| row.comparison);
        comparison.map_or_else(String::new, |comparison| {
            let change = match comparison.verdict {
                Verdict::Lower => "lower",
                Verdict::Higher => "higher",
                Verdict::NoDifference => "not measurably different",
                _ => "unclear from so few seeds",
            };
            format!("{change} ({})", human_ratio(&comparison.ratio))
        })
    };
    let times =
        |metric: &Metric, than: &str| value(than, metric) / value("bounded", metric).max(1.0);
    format!(
        "One hold moves up to {} pages unbatched, {} as merged and {} bounded. The longest hold \
         falls from {} to {} and {} ({:.0} times shorter than unbatched), the longest wait of any CPU from {} to {} and {} ({:.0} times). \
         Throughput against unbatched is {} as merged and {} bounded.",
        shown("unbatched", &metrics::PAGES_MAX),
        shown("batched", &metrics::PAGES_MAX),
        shown("bounded", &metrics::PAGES_MAX),
        shown("unbatched", &metrics::HOLD_MAX),
        shown("batched", &metrics::HOLD_MAX),
        shown("bounded", &metrics::HOLD_MAX),
        times(&metrics::HOLD_MAX, "unbatched"),
        shown("unbatched", &metrics::WAIT_MAX),
        shown("batched", &metrics::WAIT_MAX),
        shown("bounded", &metrics::WAIT_MAX),
        times(&metrics::WAIT_MAX, "unbatched"),
        rate("batched"),
        rate("bounded"),
    )
}
