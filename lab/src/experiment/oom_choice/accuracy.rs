//! `reproduce oom-accuracy`: does a selector choose the largest process if no hog stands out?
//!
//! The published benchmark has one hog (a process that has almost all memory), which every selector
//! finds. The populations in this experiment have no hog. So the result depends on the errors of
//! the counters, and on how a selector handles these errors.

use plimsoll_mm::units::PAGE_SIZE;
use plimsoll_sim::profile::{Card, Profile};

use super::population::{Kind, Population};
use super::processes::{self, Chosen};
use super::{APPROXIMATE, OURS, PATCH, PRECISE, heads};
use crate::error::Error;
use crate::experiment::driver::{
    Clock, Code, Made, Number, Numbers, Part, Reading, Results, Run, Runs, Setting, Target, Tried,
    metrics_of, read, readings, targets,
};
use crate::measure::comparison::{Sample, fold_hashes};
use crate::measure::metric::{Metric, Unit};
use crate::report::value::human;
use crate::report::{Table, tabulate};
use crate::run::cases::Case;
use crate::run::options::Effort;

/// The workload of this experiment. Experiment files can name this workload.
pub(in super::super) static SUBJECT: &dyn Runs = &CODE;

static CODE: Code<AccuracySetup> = Code {
    workload: "choosing-among-many",
    about: "a selector chooses among processes none of which is a hog",
    numbers: &[
        Number::list("sizes", (10, 1_000_000), "numbers of processes"),
        Number::list(
            "trials",
            (1, 1000),
            "populations of each of the sizes that are drawn from a seed",
        ),
        Number::one(
            "headline",
            (1, 1_000_000),
            "the size whose metrics have rows in the report",
        ),
        Number::one(
            "crowded",
            (0, 1_000_000),
            "processes of one further population that is in the band; 0: none",
        ),
    ],
    of_designs: &[],
    takes_memory: false,
    clock: Clock::Virtual,
    setup: AccuracySetup::new,
    metrics: AccuracySetup::metrics,
    measure: |setup, case| (setup.measure(case), ()),
    parts: &[
        Part::new("wrong", |run| Ok(wrong(run).into())),
        Part::new("regret", |run| Ok(regret(run).into())).naming(&[PRECISE, APPROXIMATE, PATCH]),
        Part::new("sums", |run| Ok(sums(run).into())).naming(&[OURS, OURS_ON_TREE]),
        Part::new("times", |run| Ok(times(run).into())),
        Part::new("choices-at-cards", cards),
        Part::new("targets", |run| {
            Ok(Made::from(goals(&run.results)).fact("ours_chose", ours_chose(&run.results)))
        })
        .naming(&[OURS])
        .giving(&["ours_chose"]),
    ],
    cells: &[],
};

/// The design with our selector (algorithm that chooses the victim) and the patch's counters. The
/// experiment runs it to tell the effect of the selector from the effect of the counters.
const OURS_ON_TREE: &str = "select-bounded+tree";

/// A kind of population (the processes among which a victim is chosen) and its number of processes.
/// Each run draws `trials` such populations from its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PopulationSpec {
    kind: Kind,
    count: u32,
    trials: u64,
}

/// A population with at least this number of processes counts as large. In such a population, the
/// patch knows the exact size of few processes: it makes only 16 precise sums, which read every
/// CPU's part of a counter.
const MANY: u32 = 200;
fn specs(numbers: &Numbers) -> Vec<PopulationSpec> {
    let count = |count: &u64| u32::try_from(*count).expect("at most a million");
    let sizes: Vec<(u32, u64)> = numbers
        .list("sizes")
        .iter()
        .map(count)
        .zip(numbers.list("trials").iter().copied())
        .collect();
    let of = |kind| {
        sizes.iter().map(move |&(count, trials)| PopulationSpec {
            kind,
            count,
            trials,
        })
    };
    let mut specs: Vec<_> = Kind::WITHOUT_A_HOG.into_iter().flat_map(of).collect();
    let crowded = numbers.small("crowded");
    if crowded > 0 {
        specs.push(PopulationSpec {
            kind: Kind::InTheBand,
            count: crowded,
            trials: 1,
        });
    }
    specs
}

impl PopulationSpec {
    /// `metric`, with the kind and the number of the processes added to its name.
    fn metric(self, metric: &Metric) -> Metric {
        let name = format!("{}_{}_{}", self.kind.name(), self.count, metric.name);
        metric.clone().named(name)
    }
}

const WRONG: Metric = Metric::lower("wrong_percent", Unit::Percent);
/// The number of bytes by which the largest process exceeds the victim: the mean over all choices.
const REGRET: Metric = Metric::lower("regret_bytes", Unit::Bytes);
const REGRET_MAX: Metric = Metric::lower("regret_max_bytes", Unit::Bytes);
/// The value that [`REGRET`] would have, on average, if each victim were drawn at random.
const BY_LOT: Metric = Metric::neither("by_lot_bytes", Unit::Bytes);
const SUMS: Metric = Metric::lower("sums", Unit::Count);
const LEAST: Metric = Metric::neither("least_sums", Unit::Count);
/// How many more precise sums a selector took than a proof of the right choice needs. (A precise
/// sum reads every CPU's part of a counter.) The value is the maximum over all choices.
const EXCESS: Metric = Metric::lower("sums_over_least_max", Unit::Count);
const TIME: Metric = Metric::lower("select_ns", Unit::Nanos);

/// The metrics of the populations (sets of processes) of one kind and size. They are computed from
/// the choices that one design made in these populations on one seed.
const METRICS: &[Reading<Vec<Chosen>>] = readings!(|choices| {
    WRONG => mean(choices, |chosen| if chosen.judged.regret > 0 { 100.0 } else { 0.0 }),
    REGRET => mean(choices, |chosen| chosen.judged.regret as f64 * PAGE),
    REGRET_MAX => max(choices, |chosen| chosen.judged.regret as f64 * PAGE),
    BY_LOT => mean(choices, |chosen| chosen.judged.by_lot * PAGE),
    SUMS => mean(choices, |chosen| chosen.sums as f64),
    LEAST => mean(choices, |chosen| chosen.judged.least_sums as f64),
    EXCESS => max(choices, |chosen| chosen.sums.saturating_sub(chosen.judged.least_sums) as f64),
    TIME => mean(choices, |chosen| chosen.ns as f64),
});

/// Returns whether the report gives `metric` not only for each set of processes, but also for all
/// sets together.
fn together(metric: &Metric) -> bool {
    [WRONG, REGRET_MAX, EXCESS].contains(metric)
}

const PAGE: f64 = PAGE_SIZE as f64;

fn mean(choices: &[Chosen], value: impl Fn(&Chosen) -> f64) -> f64 {
    choices.iter().map(value).sum::<f64>() / choices.len().max(1) as f64
}

fn max(choices: &[Chosen], value: impl Fn(&Chosen) -> f64) -> f64 {
    choices.iter().map(value).fold(0.0, f64::max)
}

/// The machine, and the populations (sets of processes) among which a victim is chosen.
struct AccuracySetup {
    profile: Profile,
    specs: Vec<PopulationSpec>,
}

impl AccuracySetup {
    fn new(setting: &Setting<'_>) -> Result<Self, Error> {
        let numbers = setting.numbers;
        if numbers.list("sizes").len() != numbers.list("trials").len() {
            let why = "give as many trials as sizes";
            return Err(Error::Invalid(why.to_owned()));
        }
        Ok(Self {
            profile: super::profile(setting)?,
            specs: specs(numbers),
        })
    }

    fn metrics(&self) -> Vec<Metric> {
        let specs = self.specs.iter();
        let all = metrics_of(METRICS);
        let each = specs.flat_map(|spec| all.iter().map(|metric| spec.metric(metric)));
        let together = all.iter().filter(|metric| together(metric));
        each.chain(together.cloned()).collect()
    }

    /// Makes one selection of a victim in every population (set of processes) that is drawn from
    /// the seed of `case`.
    fn measure(&self, case: &Case<Tried>) -> Sample {
        let cpus = self.profile.topology.cpus();
        let mut metrics = Vec::new();
        let mut all = Vec::new();
        for spec in &self.specs {
            let choose = |trial: u64| {
                let seed = case.seed * 1000 + trial;
                let population = Population::new(spec.kind, spec.count, cpus, seed);
                processes::select(&self.profile, &case.design.design, population, seed)
            };
            let choices: Vec<Chosen> = (0..spec.trials).map(choose).collect();
            let values = read(METRICS, &choices).into_iter();
            metrics.extend(values.map(|(metric, value)| (spec.metric(&metric), value)));
            all.extend(choices);
        }
        let values = read(METRICS, &all).into_iter();
        metrics.extend(values.filter(|(metric, _)| together(metric)));
        let hash = fold_hashes(all.iter().map(|chosen| chosen.hash));
        Sample { hash, metrics }
    }
}

/// A table with a row for each population (set of processes) and a cell for each design.
fn by_population(
    run: &Run<'_, AccuracySetup>,
    title: &str,
    note: String,
    cell: impl Fn(&PopulationSpec, &str) -> String,
) -> Table {
    let table = tabulate!(
        title,
        note,
        &run.setup.specs,
        |spec| {
            "population" => spec.kind.name(),
            "processes" => spec.count,
        }
    );
    table.with_each(&run.setup.specs, heads(run.designs), |spec, design| {
        cell(spec, &design.name)
    })
}

fn wrong(run: &Run<'_, AccuracySetup>) -> Table {
    let note =
        "A victim is wrong if another process has more points. With equal points neither is wrong."
            .to_owned();
    by_population(run, "Share of wrong victims", note, |spec, design| {
        let mean = run.results.mean(design, &spec.metric(&WRONG));
        human(mean, Unit::Percent)
    })
}

fn regret(run: &Run<'_, AccuracySetup>) -> Table {
    let mean = |design: &str, metric: &Metric| human(run.results.mean(design, metric), Unit::Bytes);
    let table = by_population(
        run,
        "Memory by which the largest process exceeds the victim: mean and maximum",
        format!(
            "`by lot`: the mean if each victim were drawn at random. {}",
            drift(run)
        ),
        |spec, design| {
            let worst = run.results.max(design, &spec.metric(&REGRET_MAX));
            let mean = mean(design, &spec.metric(&REGRET));
            format!("{mean}, {}", human(worst, Unit::Bytes))
        },
    );
    table.with_each(&run.setup.specs, [("by lot", ())], |spec, ()| {
        mean(PRECISE, &spec.metric(&BY_LOT))
    })
}

fn sums(run: &Run<'_, AccuracySetup>) -> Table {
    let excess = |design| run.results.max(design, &EXCESS);
    let count = |value| human(value, Unit::Count);
    let note = format!(
        "How many precise sums are needed depends on how wide the ranges of the counters are. If \
         many processes are in the band, ours sums all that are left together, needed or not, \
         because that is cheaper. Precise sums beyond those needed: at most {} with ours, and at \
         most {} with our selector over the published tree.",
        count(excess(OURS)),
        count(excess(OURS_ON_TREE))
    );
    by_population(
        run,
        "Precise sums: mean number made, mean number needed, and the most beyond those needed",
        note,
        |spec, design| {
            let mean = |metric: &Metric| count(run.results.mean(design, &spec.metric(metric)));
            let taken = mean(&SUMS);
            if design == OURS || design == OURS_ON_TREE {
                let excess = run.results.max(design, &spec.metric(&EXCESS));
                format!("{taken}, {}, +{}", mean(&LEAST), count(excess))
            } else {
                taken
            }
        },
    )
}

fn times(run: &Run<'_, AccuracySetup>) -> Table {
    by_population(
        run,
        "Mean time of a selection",
        String::new(),
        |spec, design| {
            let mean = run.results.mean(design, &spec.metric(&TIME));
            human(mean, Unit::Nanos)
        },
    )
}

/// Makes the table of how often a wrong victim is chosen at each card (low, middle and high
/// prices). Prices do not change on which CPU a page is counted, but they change the order in which
/// the CPUs count.
fn cards(run: &Run<'_, AccuracySetup>) -> Result<Made, Error> {
    if !run.has_cards() {
        return Ok(Made::default());
    }
    let mut rows = Vec::new();
    for card in Card::ALL {
        let (_, results, _) = run.at(card, Effort::Quick, run.designs)?;
        rows.push((card, results));
    }
    let table = tabulate!(
        "Smaller populations at each cost card: wrong victims, and the most by which a process \
         exceeded the victim",
        "Costs decide when a page is counted, not which pages are.",
        &rows,
        |(card, _)| {
            "card" => card.name(),
        }
    );
    let table = table.with_each(&rows, heads(run.designs), |(_, results), design| {
        let wrong = results.mean(&design.name, &WRONG);
        let worst = results.max(&design.name, &REGRET_MAX);
        format!(
            "{}, {}",
            human(wrong, Unit::Percent),
            human(worst, Unit::Bytes)
        )
    });
    Ok(table.into())
}

fn goals(results: &Results) -> Table {
    let wrong = results.max(OURS, &WRONG);
    let excess = results.max(OURS, &EXCESS);
    targets(
        "Targets",
        "The largest value of any seed counts.",
        &[
            Target {
                what: "ours: wrong victims in any population",
                wanted: "none",
                measured: human(wrong, Unit::Percent),
                met: Some(wrong == 0.0),
            },
            Target {
                what: "ours: precise sums beyond those needed",
                wanted: "one at most",
                measured: format!("+{}", human(excess, Unit::Count)),
                met: Some(excess <= 1.0),
            },
        ],
    )
}

/// The clause of the answer that says how often our selector chooses a wrong victim.
fn ours_chose(results: &Results) -> String {
    if results.max(OURS, &WRONG) == 0.0 {
        return "chose no wrong victim in these populations".to_owned();
    }
    let wrong = human(results.mean(OURS, &WRONG), Unit::Percent);
    format!("chose {wrong} of its victims wrong")
}

/// The loss of a choice is how much larger the largest process is than the victim. If a design's
/// mean loss, divided by the mean loss of a random choice, is at least this number, the design
/// counts as no better than a random choice.
const NEAR_LOT: f64 = 0.75;

/// Makes the sentence that says whether the patch chooses better than at random among many similar
/// processes.
fn drift(run: &Run<'_, AccuracySetup>) -> String {
    let alike = run.setup.specs.iter().filter(|spec| {
        let is_alike = matches!(spec.kind, Kind::Alike | Kind::Random | Kind::InTheBand);
        spec.count >= MANY && is_alike
    });
    // The mean loss of `design` (how much larger the largest process is than the victim), divided
    // by the mean loss of a random choice.
    let share = |design: &str, spec: &PopulationSpec| {
        let [lost, by_lot] =
            [REGRET, BY_LOT].map(|metric| run.results.mean(design, &spec.metric(&metric)));
        (by_lot > 0.0).then(|| lost / by_lot)
    };
    let range = |design: &str| {
        let shares = alike.clone().filter_map(|spec| share(design, spec));
        shares.fold((f64::INFINITY, 0.0_f64), |(low, high), share| {
            (low.min(share), high.max(share))
        })
    };
    let (patch, estimates) = (range(PATCH), range(APPROXIMATE));
    let verdict = if patch.0 >= NEAR_LOT {
        "The patch is hardly better than a random choice: the expected drift is there"
    } else if patch.1 >= NEAR_LOT {
        "In some of these populations the patch is hardly better than a random choice: the \
         expected drift is there, but not everywhere"
    } else {
        "The expected drift to a random choice is not there"
    };
    format!(
        "In populations of {MANY} or more processes of the kinds alike, random and in_the_band, \
         the mean of the patch is {:.2} to {:.2} times that of a random choice, and the mean of \
         cheap sums alone {:.2} to {:.2} times. {verdict}.",
        patch.0, patch.1, estimates.0, estimates.1
    )
}

#[cfg(test)]
mod tests {
    use super::super::MACHINE;
    use super::*;
    use crate::catalog::designs;

    fn wrong_of(way: &str, kind: Kind, count: u32) -> Vec<Chosen> {
        choices_of(way, kind, count, 4)
    }

    fn choices_of(way: &str, kind: Kind, count: u32, trials: u64) -> Vec<Chosen> {
        let profile = Profile::load(MACHINE, Card::Mid).expect("built in");
        let design = designs::find(way).expect("a design").design;
        let choose = |seed| {
            let population = Population::new(kind, count, profile.topology.cpus(), seed);
            processes::select(&profile, &design, population, seed)
        };
        (0..trials).map(choose).collect()
    }

    fn value(metric: &Metric, choices: &Vec<Chosen>) -> f64 {
        let mut values = read(METRICS, choices).into_iter();
        let found = values.find(|(other, _)| other == metric);
        found.expect("a metric of a population").1
    }

    #[test]
    fn ours_and_the_precise_one_are_right_in_every_population() {
        for kind in Kind::WITHOUT_A_HOG {
            for way in [PRECISE, OURS, OURS_ON_TREE] {
                let choices = wrong_of(way, kind, 30);
                assert!(value(&WRONG, &choices) == 0.0, "{kind:?}, {way}");
            }
        }
    }

    /// The patch makes 16 precise sums (which read every CPU's part of a counter). This is enough
    /// for 10 processes. It is not enough for 200 processes if approximate sums do not show which
    /// of them is largest.
    #[test]
    fn the_patch_is_right_with_few_and_wrong_with_many_that_are_alike() {
        for kind in Kind::WITHOUT_A_HOG {
            assert!(value(&WRONG, &wrong_of(PATCH, kind, 10)) == 0.0, "{kind:?}");
        }
        assert!(value(&WRONG, &wrong_of(PATCH, Kind::InTheBand, 200)) > 0.0);
    }

    /// If a selector cannot tell the processes apart, its victim is about as far below the largest
    /// process, on average, as a random victim is.
    #[test]
    fn a_choice_that_sees_no_difference_loses_as_much_as_a_choice_by_lot() {
        let choices = choices_of(PATCH, Kind::InTheBand, 100, 16);
        let [regret, lot] = [REGRET, BY_LOT].map(|metric| value(&metric, &choices));
        let share = regret / lot;
        assert!((0.5..=1.5).contains(&share), "{regret} of {lot} bytes");
        // The approximate sums do not show which process is largest. So a proof of the right choice
        // needs precise sums of nearly all processes.
        let least = value(&LEAST, &choices);
        assert!((90.0..=100.0).contains(&least), "{least}");
    }
}
