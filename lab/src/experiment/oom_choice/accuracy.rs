//! `reproduce oom-accuracy`: is the victim the largest, when no hog stands out?
//!
//! The published benchmark has one hog, which every selector finds. These populations have none:
//! here the errors of the counters decide, and how a selector deals with them.

use plimsoll_mm::counter::Counting;
use plimsoll_mm::oom::Selecting;
use plimsoll_mm::units::PAGE_SIZE;
use plimsoll_sim::profile::{Card, Profile};

use super::population::{Kind, Population};
use super::processes::{self, Chosen};
use super::{
    APPROXIMATE, MACHINE, OURS, PATCH, PRECISE, Target, WAYS, Way, most, shown, targets, texts,
    values,
};
use crate::error::Error;
use crate::experiment::Experiment;
use crate::measure::comparison::{Comparison, Sample, fold_hashes};
use crate::measure::metric::{Metric, Unit};
use crate::report::value::{NOTHING, human};
use crate::report::{Report, Table};
use crate::run::cases::Case;
use crate::run::options::{Effort, Options};
use crate::run::progress::Progress;

/// The experiment's entry in the catalog.
pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "oom-accuracy",
    title: "is the victim the largest process, when no hog stands out?",
    run,
};

/// The ways of `oom-latency`, and our selector over the patch's counters, which tells what is due
/// to the selector and what to the counters.
const ALL: [Way; 5] = [
    WAYS[PRECISE],
    WAYS[APPROXIMATE],
    WAYS[PATCH],
    WAYS[OURS],
    Way::new(Selecting::Bounded, Counting::Tree),
];
const OURS_ON_TREE: usize = 4;

/// A population, and the number of such populations that are drawn from each seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PopulationSpec {
    kind: Kind,
    count: u32,
    trials: u64,
}

/// From this number of processes on, 16 precise sums are few.
const MANY: u32 = 200;
/// The number of processes in the populations that the rows of the report show.
const HEADLINE: u32 = 1000;
/// The number of processes in one more population, in the band; other kinds would tell nothing new.
const CROWDED: u32 = 10_000;

fn specs(effort: Effort) -> Vec<PopulationSpec> {
    let sizes: &[(u32, u64)] = match effort {
        Effort::Full => &[(10, 8), (40, 8), (MANY, 4), (HEADLINE, 2)],
        Effort::Quick => &[(10, 2), (MANY, 1)],
    };
    let of = |kind| {
        sizes.iter().map(move |&(count, trials)| PopulationSpec {
            kind,
            count,
            trials,
        })
    };
    let mut specs: Vec<_> = Kind::WITHOUT_A_HOG.into_iter().flat_map(of).collect();
    if effort == Effort::Full {
        specs.push(PopulationSpec {
            kind: Kind::InTheBand,
            count: CROWDED,
            trials: 1,
        });
    }
    specs
}

impl PopulationSpec {
    fn metric(self, what: What) -> Metric {
        let (name, kind, count) = (what.name(), self.kind.name(), self.count);
        what.metric().named(format!("{kind}_{count}_{name}"))
    }
}

/// The metrics of each spec, and of all specs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Wrong,
    Regret,
    RegretMax,
    ByLot,
    Sums,
    Least,
    /// The precise sums beyond the least possible, at most.
    Excess,
    Time,
}

impl What {
    const ALL: [Self; 8] = [
        Self::Wrong,
        Self::Regret,
        Self::RegretMax,
        Self::ByLot,
        Self::Sums,
        Self::Least,
        Self::Excess,
        Self::Time,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Wrong => "wrong_percent",
            Self::Regret => "regret_bytes",
            Self::RegretMax => "regret_max_bytes",
            Self::ByLot => "by_lot_bytes",
            Self::Sums => "sums",
            Self::Least => "least_sums",
            Self::Excess => "sums_over_least_max",
            Self::Time => "select_ns",
        }
    }

    const fn metric(self) -> Metric {
        let unit = match self {
            Self::Wrong => Unit::Percent,
            Self::Regret | Self::RegretMax | Self::ByLot => Unit::Bytes,
            Self::Sums | Self::Least | Self::Excess => Unit::Count,
            Self::Time => Unit::Nanos,
        };
        match self {
            Self::ByLot | Self::Least => Metric::neither(self.name(), unit),
            _ => Metric::lower(self.name(), unit),
        }
    }

    /// The value over all choices of a spec: the mean, or the maximum.
    fn of(self, choices: &[Chosen]) -> f64 {
        let page = PAGE_SIZE as f64;
        let each = |chosen: &Chosen| match self {
            Self::Wrong if chosen.judged.regret > 0 => 100.0,
            Self::Wrong => 0.0,
            Self::Regret | Self::RegretMax => chosen.judged.regret as f64 * page,
            Self::ByLot => chosen.judged.by_lot * page,
            Self::Sums => chosen.sums as f64,
            Self::Least => chosen.judged.least_sums as f64,
            Self::Excess => chosen.sums.saturating_sub(chosen.judged.least_sums) as f64,
            Self::Time => chosen.ns as f64,
        };
        let all = choices.iter().map(each);
        if matches!(self, Self::RegretMax | Self::Excess) {
            all.fold(0.0, f64::max)
        } else {
            all.sum::<f64>() / choices.len().max(1) as f64
        }
    }
}

fn run(options: &Options, progress: &Progress) -> Result<Vec<Report>, Error> {
    let card = options.card.unwrap_or(Card::Mid);
    let profile = Profile::load(MACHINE, card)?;
    let specs = specs(options.effort);
    progress.start(format!("oom-accuracy on {MACHINE}"));
    let runs = Comparison::run(&ALL, options, progress, |case| {
        measure(&profile, &specs, case)
    })?;
    let mut report = Report::new("oom-accuracy", MACHINE, card, runs.seeds(), runs.hash());
    let headline = headline(options.effort);
    report.rows = runs.rows(|_, _| None);
    report.rows.retain(|row| headline.contains(&row.metric));
    let compared = [What::Wrong, What::RegretMax].map(What::metric);
    report.verdicts = [(APPROXIMATE, PATCH), (PATCH, OURS), (OURS_ON_TREE, OURS)]
        .into_iter()
        .flat_map(|(a, b)| runs.verdicts_between(a, b))
        .filter(|row| compared.contains(&row.metric))
        .collect();
    report.tables = vec![
        wrong(&runs, &specs),
        regret(&runs, &specs),
        sums(&runs, &specs),
        times(&runs, &specs),
    ];
    if options.effort == Effort::Full && options.card.is_none() {
        report.tables.push(cards(options, progress)?);
    }
    report.tables.push(goals(&runs));
    report.finding = finding(&runs, &specs);
    Ok(vec![report])
}

/// The metrics in the rows of the report: those of all populations together, then those of each
/// kind at its headline size.
fn headline(effort: Effort) -> Vec<Metric> {
    let count = if effort == Effort::Full {
        HEADLINE
    } else {
        MANY
    };
    let each = Kind::WITHOUT_A_HOG.into_iter().flat_map(|kind| {
        let spec = PopulationSpec {
            kind,
            count,
            trials: 1,
        };
        [What::Wrong, What::Regret].map(|what| spec.metric(what))
    });
    let all = [What::Wrong, What::RegretMax].map(What::metric);
    all.into_iter().chain(each).collect()
}

/// Selects in every spec of one seed.
fn measure(profile: &Profile, specs: &[PopulationSpec], case: &Case<Way>) -> Sample {
    let cpus = profile.topology.cpus();
    let mut metrics = Vec::new();
    let mut all = Vec::new();
    for spec in specs {
        let choose = |trial: u64| {
            let seed = case.seed * 1000 + trial;
            let population = Population::new(spec.kind, spec.count, cpus, seed);
            processes::select(profile, case.design, population, seed)
        };
        let choices: Vec<Chosen> = (0..spec.trials).map(choose).collect();
        metrics.extend(What::ALL.map(|what| (spec.metric(what), what.of(&choices))));
        all.extend(choices);
    }
    let together = [What::Wrong, What::RegretMax, What::Excess];
    metrics.extend(together.map(|what| (what.metric(), what.of(&all))));
    let hash = fold_hashes(all.iter().map(|chosen| chosen.hash));
    Sample { hash, metrics }
}

fn mean(runs: &Comparison, way: usize, metric: &Metric) -> Option<f64> {
    let values = values(runs, way, metric);
    let sum: f64 = values.iter().sum();
    (!values.is_empty()).then(|| sum / values.len() as f64)
}

/// A table with a row for each spec and a cell for each way.
fn by_population(
    [title, note]: [&str; 2],
    specs: &[PopulationSpec],
    last: Option<&str>,
    cells: impl Fn(PopulationSpec) -> Vec<String>,
) -> Table {
    let row = |spec: &PopulationSpec| {
        let mut row = vec![spec.kind.name().to_owned(), spec.count.to_string()];
        row.extend(cells(*spec));
        row
    };
    let mut columns = texts(["population", "processes"]);
    columns.extend(ALL.map(Way::short));
    columns.extend(last.map(str::to_owned));
    Table {
        title: title.to_owned(),
        note: note.to_owned(),
        columns,
        rows: specs.iter().map(row).collect(),
    }
}

fn wrong(runs: &Comparison, specs: &[PopulationSpec]) -> Table {
    let text = [
        "Wrong victims, of all that were chosen",
        "A victim is wrong if another process has more points. With equal points neither is wrong.",
    ];
    by_population(text, specs, None, |spec| {
        let metric = spec.metric(What::Wrong);
        let cell = |way| shown(mean(runs, way, &metric), Unit::Percent);
        (0..ALL.len()).map(cell).collect()
    })
}

fn regret(runs: &Comparison, specs: &[PopulationSpec]) -> Table {
    let text = [
        "How much more another process has: mean, and at most",
        "By lot: the mean if the victim were drawn by lot.",
    ];
    by_population(text, specs, Some("by lot"), |spec| {
        let [each, worst, lot] =
            [What::Regret, What::RegretMax, What::ByLot].map(|what| spec.metric(what));
        let cell = |way| {
            let mean = shown(mean(runs, way, &each), Unit::Bytes);
            format!("{mean}, {}", shown(most(runs, way, &worst), Unit::Bytes))
        };
        let mut cells: Vec<String> = (0..ALL.len()).map(cell).collect();
        cells.push(shown(mean(runs, PRECISE, &lot), Unit::Bytes));
        cells
    })
}

fn sums(runs: &Comparison, specs: &[PopulationSpec]) -> Table {
    let text = [
        "Precise sums: mean of those taken, mean of those that no selector can do without, and the most in excess",
        "The number of sums needed depends on how wide the ranges of the counters are. If many processes are in \
         the band, ours sums all that are left together, needed or not, because that is cheaper.",
    ];
    by_population(text, specs, None, |spec| {
        let [taken, least, excess] =
            [What::Sums, What::Least, What::Excess].map(|what| spec.metric(what));
        let count = |value| shown(value, Unit::Count);
        let cell = |way| {
            let taken = count(mean(runs, way, &taken));
            if way == OURS || way == OURS_ON_TREE {
                let least = count(mean(runs, way, &least));
                format!("{taken}, {least}, +{}", count(most(runs, way, &excess)))
            } else {
                taken
            }
        };
        (0..ALL.len()).map(cell).collect()
    })
}

fn times(runs: &Comparison, specs: &[PopulationSpec]) -> Table {
    by_population(["Mean time of a selection", ""], specs, None, |spec| {
        let metric = spec.metric(What::Time);
        let cell = |way| shown(mean(runs, way, &metric), Unit::Nanos);
        (0..ALL.len()).map(cell).collect()
    })
}

/// The errors at each card. Costs do not change what is counted on which CPU, but they change which
/// CPU comes first.
fn cards(options: &Options, progress: &Progress) -> Result<Table, Error> {
    let specs = specs(Effort::Quick);
    let mut rows = Vec::new();
    for card in Card::ALL {
        let profile = Profile::load(MACHINE, card)?;
        let runs = Comparison::run(&ALL, options, progress, |case| {
            measure(&profile, &specs, case)
        })?;
        let mut row = vec![card.name().to_owned()];
        row.extend((0..ALL.len()).map(|way| {
            let wrong = shown(mean(&runs, way, &What::Wrong.metric()), Unit::Percent);
            let worst = shown(most(&runs, way, &What::RegretMax.metric()), Unit::Bytes);
            format!("{wrong}, {worst}")
        }));
        rows.push(row);
    }
    let mut columns = texts(["card"]);
    columns.extend(ALL.map(Way::short));
    Ok(Table {
        title: "Wrong victims and the largest loss at each cost card, smaller populations"
            .to_owned(),
        note: "Costs decide when a page is counted, not which pages are.".to_owned(),
        columns,
        rows,
    })
}

fn goals(runs: &Comparison) -> Table {
    let wrong = most(runs, OURS, &What::Wrong.metric());
    let excess = most(runs, OURS, &What::Excess.metric());
    targets([
        Target {
            what: "ours: no wrong victim in any population",
            is: shown(wrong, Unit::Percent),
            met: wrong.map(|wrong| wrong == 0.0),
        },
        Target {
            what: "ours: at most one precise sum more than needed",
            is: excess.map_or_else(
                || NOTHING.to_owned(),
                |it| format!("+{}", human(it, Unit::Count)),
            ),
            met: excess.map(|excess| excess <= 1.0),
        },
    ])
}

/// The mean loss of a way, as a multiple of what a choice by lot would lose.
fn as_by_lot(runs: &Comparison, way: usize, spec: PopulationSpec) -> Option<f64> {
    let lost = mean(runs, way, &spec.metric(What::Regret))?;
    let by_lot = mean(runs, way, &spec.metric(What::ByLot))?;
    (by_lot > 0.0).then(|| lost / by_lot)
}

/// One paragraph, every word of it following from this run's numbers.
fn finding(runs: &Comparison, specs: &[PopulationSpec]) -> String {
    let percent = |way| shown(mean(runs, way, &What::Wrong.metric()), Unit::Percent);
    let worst = |way| shown(most(runs, way, &What::RegretMax.metric()), Unit::Bytes);
    let wrong = |way| format!("{} by up to {}", percent(way), worst(way));
    format!(
        "Of all victims, select-approximate over flat counters chooses {} wrong, two passes over the \
         published tree {}, ours {}, and our selector over the published tree {}. {} {}",
        wrong(APPROXIMATE),
        wrong(PATCH),
        wrong(OURS),
        wrong(OURS_ON_TREE),
        drift(runs, specs),
        excess(runs),
    )
}

/// A way that loses this share of what a choice by lot loses, or more, is as good as drawing lots.
const NEAR_LOT: f64 = 0.75;

/// Says whether the patch chooses as if by lot among many processes that are alike.
fn drift(runs: &Comparison, specs: &[PopulationSpec]) -> String {
    let many = specs.iter().filter(|spec| spec.count >= MANY);
    let alike =
        many.filter(|spec| matches!(spec.kind, Kind::Alike | Kind::Random | Kind::InTheBand));
    let of = |way| {
        let shares = alike.clone().filter_map(|spec| as_by_lot(runs, way, *spec));
        let range = shares.fold((f64::INFINITY, 0.0_f64), |(low, high), share| {
            (low.min(share), high.max(share))
        });
        (range, format!("{:.2} to {:.2}", range.0, range.1))
    };
    let ((low, high), patch) = of(PATCH);
    let (_, estimates) = of(APPROXIMATE);
    let verdict = if low >= NEAR_LOT {
        "That is as good as drawing lots: the expected drift is there"
    } else if high >= NEAR_LOT {
        "In some of these that is as good as drawing lots: the expected drift is there, but not \
         everywhere"
    } else {
        "The expected drift to a choice by lot is not there"
    };
    format!(
        "Among {MANY} and more that are alike, random or in the band, two passes lose {patch} of the \
         loss of a choice by lot, estimates alone {estimates}. {verdict}."
    )
}

fn excess(runs: &Comparison) -> String {
    let excess = most(runs, OURS, &What::Excess.metric()).unwrap_or(0.0);
    let tree = most(runs, OURS_ON_TREE, &What::Excess.metric()).unwrap_or(0.0);
    format!(
        "Precise sums beyond those needed: ours at most {}, over the published tree {}.",
        human(excess, Unit::Count),
        human(tree, Unit::Count)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong_of(way: usize, kind: Kind, count: u32) -> Vec<Chosen> {
        let profile = Profile::load(MACHINE, Card::Mid).expect("built in");
        let choose = |seed| {
            let population = Population::new(kind, count, profile.topology.cpus(), seed);
            processes::select(&profile, ALL[way], population, seed)
        };
        (0..4).map(choose).collect()
    }

    #[test]
    fn ours_and_the_precise_one_are_right_in_every_population() {
        for kind in Kind::WITHOUT_A_HOG {
            for way in [PRECISE, OURS, OURS_ON_TREE] {
                let choices = wrong_of(way, kind, 30);
                assert!(What::Wrong.of(&choices) == 0.0, "{kind:?}, {}", ALL[way]);
            }
        }
    }

    #[test]
    fn the_patch_is_right_with_few_and_wrong_with_many_that_are_alike() {
        for kind in Kind::WITHOUT_A_HOG {
            assert!(
                What::Wrong.of(&wrong_of(PATCH, kind, 10)) == 0.0,
                "{kind:?}"
            );
        }
        assert!(What::Wrong.of(&wrong_of(PATCH, Kind::InTheBand, 200)) > 0.0);
    }

    #[test]
    fn loss_is_measured_against_a_choice_by_lot() {
        let choices = wrong_of(PATCH, Kind::InTheBand, 100);
        let [regret, worst, lot] =
            [What::Regret, What::RegretMax, What::ByLot].map(|what| what.of(&choices));
        assert!(regret <= worst && lot > 0.0);
        assert!(What::Least.of(&choices) >= 1.0);
    }
}
