//! `reproduce mrelease`: how much sooner is a dead 64 GiB process gone if others help?
//!
//! Any number of threads may call `process_mrelease` on one dying process, to have its memory back
//! sooner. Linux lets all of them walk the same page tables. The experiment measures, for each way
//! to share the work and by number of helpers, the time from the kill until all is free, and which
//! lock limits it.

mod scene;

use plimsoll_mm::site::LockClass;
use plimsoll_mm::space::reap::Reaping;
use plimsoll_sim::profile::{Card, Profile};

use self::scene::{CURVE, EXIT, HEADLINE, Scene, emptiers, helpers};
use super::Experiment;
use super::emptier::metrics::{RAN, TABLE_WAIT, WALL};
use super::emptier::{self, Emptier, Target};
use crate::error::Error;
use crate::measure::comparison::Comparison;
use crate::measure::metric::{Metric, Unit};
use crate::measure::stats;
use crate::report::value::{human, human_ratio};
use crate::report::{Report, Table};
use crate::run::options::{Effort, Options};
use crate::run::progress::Progress;
use crate::workload::victim::{Contents, Raced, START_WITHIN};

/// The experiment's entry in the catalog.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "mrelease",
    title: "how much sooner is a dead 64 GiB process gone if others help?",
    run,
};

const MACHINE: &str = "epyc-9654-2s";

/// Contestants that ran, their samples, and the race of each on the first seed.
struct Ran {
    emptiers: Vec<Emptier>,
    runs: Comparison,
    raced: Vec<Raced>,
}

fn run(options: &Options, progress: &Progress) -> Result<Vec<Report>, Error> {
    let card = options.card.unwrap_or(Card::Mid);
    let profile = Profile::load(MACHINE, card)?;
    let scene = Scene::of(options.effort);
    progress.start(format!("mrelease on {MACHINE}"));
    let mut all = emptiers(&HEADLINE);
    all.push(Emptier::helped(Reaping::MeetInTheMiddle, HEADLINE[1]).bounded());
    let headline = Ran::new(all, &profile, scene, options, progress)?;
    progress.start(format!("mrelease on {MACHINE}, other numbers of helpers"));
    let curve = Ran::new(emptiers(&CURVE), &profile, scene, options, progress)?;
    progress.start(format!("mrelease on {MACHINE}, huge pages"));
    let huge = Ran::new(
        emptiers(&HEADLINE),
        &profile,
        scene.huge(),
        options,
        progress,
    )?;

    let mut report = Report::new(
        "mrelease",
        MACHINE,
        card,
        headline.runs.seeds(),
        headline.runs.hash(),
    );
    report.rows = headline.runs.rows(|_, _| None);
    report.verdicts = headline.runs.verdicts(0);
    for number in HEADLINE {
        let (a, b) = (
            headline.position(Reaping::Ascending, number),
            headline.position(Reaping::MeetInTheMiddle, number),
        );
        report.verdicts.extend(headline.runs.verdicts_between(a, b));
    }
    report.tables.push(scene_table(&profile, scene, options));
    report
        .tables
        .push(by_helpers(&[&headline, &curve], "By number of helpers"));
    report
        .tables
        .push(by_helpers(&[&huge], "The same with huge pages"));
    let targets = targets(&headline);
    report.tables.push(emptier::targets(&targets));
    let names = headline.emptiers.iter();
    let races = names.map(|it| &*it.name).zip(&headline.raced);
    report.tables.push(emptier::waits(races));
    if options.effort == Effort::Full && options.card.is_none() {
        report.tables.push(cards(options, progress)?);
    }
    report.finding = finding(&headline, &huge, &targets);
    Ok(vec![report])
}

impl Ran {
    fn new(
        emptiers: Vec<Emptier>,
        profile: &Profile,
        scene: Scene,
        options: &Options,
        progress: &Progress,
    ) -> Result<Self, Error> {
        let (runs, raced) = Comparison::run_keeping(&emptiers, options, progress, |case| {
            scene.measure(profile, case)
        })?;
        Ok(Self {
            emptiers,
            runs,
            raced,
        })
    }

    fn position(&self, reaping: Reaping, helpers: usize) -> usize {
        let wanted = |it: &Emptier| it.reaping == reaping && it.helpers == helpers && !it.bounded;
        let found = self.emptiers.iter().position(wanted);
        found.expect("every way runs with every number")
    }

    /// The position of the emptier with bounded holds.
    fn bounded(&self) -> usize {
        let found = self.emptiers.iter().position(|it| it.bounded);
        found.expect("one of the headline is bounded")
    }

    fn ratio(&self, a: usize, b: usize, metric: &Metric) -> f64 {
        let compared = stats::compare(&self.values(a, metric), &self.values(b, metric));
        compared.map_or(f64::NAN, |it| it.ratio.median)
    }

    /// The speed of an emptier, as a multiple of that of exit alone.
    fn faster(&self, emptier: usize) -> f64 {
        1.0 / self.ratio(0, emptier, &WALL)
    }

    fn median(&self, emptier: usize, metric: &Metric) -> f64 {
        let estimate = stats::estimate(&self.values(emptier, metric));
        estimate.map_or(f64::NAN, |estimate| estimate.median)
    }

    fn values(&self, emptier: usize, metric: &Metric) -> Vec<f64> {
        let samples = self.runs.samples(emptier);
        samples.filter_map(|sample| sample.value(metric)).collect()
    }

    /// The limit of an emptier's race, in words.
    fn limit(&self, emptier: usize) -> String {
        emptier::limiter(&self.raced[emptier])
    }
}

fn scene_table(profile: &Profile, scene: Scene, options: &Options) -> Table {
    let seed = options.seeds.first().copied().unwrap_or(1);
    let contents = Contents::of(&scene.victim.layout(seed));
    let most = CURVE.into_iter().chain(HEADLINE).max().unwrap_or(0);
    let cpus = helpers(&profile.topology, most);
    let cpus: Vec<String> = cpus.iter().map(ToString::to_string).collect();
    let bytes = human((contents.resident() << 12) as f64, Unit::Bytes);
    let rows = [
        (
            "victim",
            format!("{bytes} in {} mappings", contents.mappings),
        ),
        (
            "memory",
            "half on each node, as threads of both touched it".to_owned(),
        ),
        ("exit on CPU", EXIT.to_string()),
        ("helpers on CPUs, in this order", cpus.join(" ")),
    ];
    Table {
        title: "Processes and CPUs".to_owned(),
        note: format!(
            "Each helper is at a last-level cache of its own, by turns on both sockets, and calls \
             process_mrelease once, within {} of the kill.",
            human(START_WITHIN.0 as f64, Unit::Nanos)
        ),
        columns: ["what", "is"].map(str::to_owned).to_vec(),
        rows: rows.map(|(what, is)| vec![what.to_owned(), is]).to_vec(),
    }
}

/// A table of the time until all is free, the speed as a multiple of exit alone, and the limit.
fn by_helpers(all: &[&Ran], title: &str) -> Table {
    let mut rows = Vec::new();
    for ran in all {
        for (nth, emptier) in ran.emptiers.iter().enumerate() {
            // Exit alone runs again with every set of emptiers, but one row is enough.
            if emptier.helpers == 0 && !std::ptr::eq(*ran, all[0]) {
                continue;
            }
            rows.push((
                emptier.helpers,
                vec![
                    emptier.helpers.to_string(),
                    emptier.way(),
                    human(ran.median(nth, &WALL), Unit::Nanos),
                    format!("{:.2}", ran.faster(nth)),
                    human(ran.median(nth, &RAN), Unit::Nanos),
                    ran.limit(nth),
                ],
            ));
        }
    }
    rows.sort_by_key(|(helpers, _)| *helpers);
    Table {
        title: title.to_owned(),
        note: "Running: exit and helpers together, waits for spinlocks included. Limited by: what takes at \
               least 5 % of running besides work, either the lock waited for longest, or locks that \
               are free and lines that move; first seed."
            .to_owned(),
        columns: [
            "helpers",
            "way",
            "kill to free",
            "times as fast",
            "running",
            "limited by",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: rows.into_iter().map(|(_, row)| row).collect(),
    }
}

/// The least speed with one helper and with eight, as a multiple of that of exit alone.
const FASTER_MIN: [f64; HEADLINE.len()] = [1.8, 5.0];
/// The most work with one helper beyond that of exit alone, in percent.
const WORK_PERCENT_MAX: f64 = 3.0;

fn targets(ran: &Ran) -> Vec<Target> {
    let ours = HEADLINE.map(|helpers| ran.position(Reaping::MeetInTheMiddle, helpers));
    let [by_one, by_eight] = ours.map(|nth| ran.faster(nth));
    let linux = HEADLINE.map(|helpers| ran.position(Reaping::Ascending, helpers));
    let patch = HEADLINE.map(|helpers| ran.position(Reaping::DescendingByVma, helpers));
    let pairs = linux.into_iter().zip(ours);
    let waits = pairs.map(|(linux, ours)| 100.0 * ran.ratio(linux, ours, &TABLE_WAIT));
    let waits = waits.fold(0.0, f64::max);
    let (mut above, mut cases) = (0, 0);
    for (patch, ours) in patch.into_iter().zip(ours) {
        let pairs = ran.values(patch, &TABLE_WAIT).into_iter();
        for (patch, ours) in pairs.zip(ran.values(ours, &TABLE_WAIT)) {
            cases += 1;
            above += usize::from(ours > patch);
        }
    }
    let work = 100.0 * (ran.ratio(0, ours[0], &RAN) - 1.0);
    let limit = |nth: usize| ran.limit(ours[nth]);
    let bounded = ran.bounded();
    let by_bounded = ran.faster(bounded);
    let mut all = emptier::waits_hardly(waits, (above, cases)).to_vec();
    all.extend([
        Target {
            what: "work beyond that of exit alone, one helper",
            wanted: "3 % at most",
            measured: format!("{work:+.2} %"),
            is_met: work <= WORK_PERCENT_MAX,
        },
        Target {
            what: "from kill to free with one helper, against exit alone",
            wanted: "1.8 times as fast",
            measured: format!("{by_one:.2} times; limited by {}", limit(0)),
            is_met: by_one >= FASTER_MIN[0],
        },
        Target {
            what: "the same with 8 helpers",
            wanted: "5 times as fast, unless the zone lock limits",
            measured: format!("{by_eight:.2} times; limited by {}", limit(1)),
            is_met: by_eight >= FASTER_MIN[1] || limit(1).starts_with(LockClass::Zone.name()),
        },
        Target {
            what: "the same if zone locks are held for a batch at most",
            wanted: "5 times as fast",
            measured: format!("{by_bounded:.2} times; limited by {}", ran.limit(bounded)),
            is_met: by_bounded >= FASTER_MIN[1],
        },
    ]);
    all
}

/// Time until all is free at the low and at the high end of the costs' ranges.
fn cards(options: &Options, progress: &Progress) -> Result<Table, Error> {
    let scene = Scene::of(Effort::Quick);
    let mut rows = Vec::new();
    for card in [Card::Low, Card::High] {
        let profile = Profile::load(MACHINE, card)?;
        let ran = Ran::new(emptiers(&HEADLINE), &profile, scene, options, progress)?;
        for row in ran.runs.verdicts(0) {
            if row.metric == WALL {
                let nth = ran.emptiers.iter().position(|it| it.name == row.b);
                rows.push(vec![
                    card.name().to_owned(),
                    row.b.clone(),
                    human_ratio(&row.comparison.ratio),
                    row.comparison.verdict.to_string(),
                    nth.map_or_else(String::new, |nth| ran.limit(nth)),
                ]);
            }
        }
    }
    Ok(Table {
        title: "From kill to free (B) against exit alone, at each cost card".to_owned(),
        note: "A victim of 4 GiB. A verdict that changes between cards is fragile.".to_owned(),
        columns: ["card", "B", "B / A", "verdict", "limited by"]
            .map(str::to_owned)
            .to_vec(),
        rows,
    })
}

/// One paragraph, every word of it following from this run's medians.
fn finding(ran: &Ran, huge: &Ran, targets: &[Target]) -> String {
    let [.., most] = HEADLINE;
    let times = |ran: &Ran| {
        let of = |reaping: Reaping| {
            let times = ran.faster(ran.position(reaping, most));
            format!("{times:.2} {}", reaping.name())
        };
        Reaping::ALL.map(of).join(", ")
    };
    let ours = ran.position(Reaping::MeetInTheMiddle, most);
    let missed: Vec<&str> = targets
        .iter()
        .filter(|target| !target.is_met)
        .map(|target| target.what)
        .collect();
    let missed = if missed.is_empty() {
        "Every target is met.".to_owned()
    } else {
        format!("Missed: {}.", missed.join("; "))
    };
    format!(
        "Exit alone takes {} until all memory is free. With {most} helpers it is free this many times as \
         fast: {}; with huge pages: {}. The limit of {most} helpers besides work: in the middle {} (huge \
         pages: {}), ascending {}. With zone locks held for a batch at most, ours is {:.2} times as fast. {missed}",
        human(ran.median(0, &WALL), Unit::Nanos),
        times(ran),
        times(huge),
        ran.limit(ours),
        huge.limit(huge.position(Reaping::MeetInTheMiddle, most)),
        ran.limit(ran.position(Reaping::Ascending, most)),
        ran.faster(ran.bounded()),
    )
}
