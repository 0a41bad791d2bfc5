//! `reproduce oom-latency`: how long does it take to choose the victim?
//!
//! There are two populations. The first is the population of the published benchmark: N processes,
//! one of which has almost all memory. In the second, approximate sums (which do not read every
//! CPU's part of a counter) cannot distinguish any two processes, which is the worst case for every
//! selector that reads approximate sums first.

use std::sync::OnceLock;

use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::CpuId;
use plimsoll_sim::profile::{Card, Profile};

use super::matrix::Matrix;
use super::population::{Kind, Population};
use super::processes::{self, Chosen};
use super::{APPROXIMATE, OURS, PRECISE, heads, short};
use crate::error::Error;
use crate::experiment::driver::{
    Clock, Code, Made, Number, Part, Results, Run, Runs, Setting, Target, Tried, targets,
};
use crate::measure::comparison::{Comparison, Sample, fold_hashes};
use crate::measure::metric::{Metric, Unit};
use crate::report::value::{human, human_ratio};
use crate::report::{Table, tabulate};
use crate::run::cases::Case;
use crate::run::options::Options;

/// The workload of this experiment, which experiment files can name.
pub(in super::super) static SUBJECT: &dyn Runs = &CODE;

static CODE: Code<LatencySetup, Kept> = Code {
    workload: "choosing-a-victim",
    about: "a selector chooses among processes with one hog, and among processes that are alike",
    numbers: &[
        Number::list(
            "hogs",
            (10, 1_000_000),
            "numbers of processes, one of which is the hog",
        ),
        Number::one(
            "in_band",
            (10, 1_000_000),
            "processes that approximate sums cannot tell apart",
        ),
        Number::one(
            "most",
            (0, 1_000_000),
            "processes of one further selection on the first seed; 0: none",
        ),
        Number::one(
            "matrix",
            (10, 1_000_000),
            "processes of each selection in the table `matrix`",
        ),
    ],
    of_designs: &[],
    takes_memory: false,
    clock: Clock::Virtual,
    setup: LatencySetup::new,
    metrics: LatencySetup::metrics,
    measure: LatencySetup::measure,
    parts: &[
        Part::new("growth", growth),
        Part::new("parts", |run| Ok(parts(run).into())),
        Part::new("matrix", |run| {
            let matrix = matrix(run)?;
            let tables = matrix.tables().into_iter().collect::<Vec<_>>();
            Ok(Made::from(tables).fact("counters_and_selector", matrix.conclusion()))
        })
        .giving(&["counters_and_selector"]),
        Part::new("machines", |run| Ok(machines(run)?.into())),
        Part::new("times-at-cards", cards).naming(&[APPROXIMATE, PRECISE, OURS]),
        Part::new(
            "targets",
            |run| Ok(goals(&run.results, matrix(run)?).into()),
        )
        .naming(&[APPROXIMATE, PRECISE, OURS]),
    ],
    cells: &[],
};

/// The larger of the two counts of processes for which times were published.
const HEADLINE: u32 = 10_000;
/// The count of processes in measurements that do not need [`HEADLINE`] processes, such as the
/// table that varies the number of CPUs.
const FEW: u32 = 1000;
/// The largest number of seeds for the tables of other machines, and for the tables of low and high
/// prices. These tables show times without verdicts.
const SIDE_SEEDS: usize = 3;

fn hog(count: u32) -> Metric {
    Metric::lower("", Unit::Nanos).named(format!("select_at_{count}_ns"))
}

fn hog_sums(count: u32) -> Metric {
    Metric::neither("", Unit::Count).named(format!("sums_at_{count}"))
}

fn band(count: u32) -> Metric {
    Metric::lower("", Unit::Nanos).named(format!("band_at_{count}_ns"))
}

fn band_sums(count: u32) -> Metric {
    Metric::neither("", Unit::Count).named(format!("band_sums_at_{count}"))
}

/// The machine, and the sizes of the sets of processes in which a victim is chosen.
struct LatencySetup {
    profile: Profile,
    /// The sizes of the sets of processes in which one process is a hog (a process that has almost
    /// all memory).
    counts: Vec<u32>,
    /// The number of processes in the second set. Approximate sums, which do not read every CPU's
    /// part of a counter, cannot tell any two of these processes apart.
    in_band: u32,
    /// The times of all selectors (algorithms that choose a victim) with all kinds of counters.
    /// Empty until a part of the report has measured them.
    matrix: OnceLock<Matrix>,
}

/// The two selections of one run, each with its number of processes. The first selection is among
/// processes with one hog (a process that has almost all memory). The second is among processes
/// whose sizes differ by less than the error of an approximate sum.
type Kept = [(u32, Chosen); 2];

impl LatencySetup {
    fn new(setting: &Setting<'_>) -> Result<Self, Error> {
        let counts = setting.numbers.list("hogs").iter();
        let counts = counts.map(|count| u32::try_from(*count).expect("at most a million"));
        let in_band = setting.numbers.small("in_band");
        Ok(Self::of(
            super::profile(setting)?,
            counts.collect(),
            in_band,
        ))
    }

    const fn of(profile: Profile, counts: Vec<u32>, in_band: u32) -> Self {
        Self {
            profile,
            counts,
            in_band,
            matrix: OnceLock::new(),
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let hogs = self
            .counts
            .iter()
            .flat_map(|count| [hog(*count), hog_sums(*count)]);
        hogs.chain([band(self.in_band), band_sums(self.in_band)])
            .collect()
    }

    fn measure(&self, case: &Case<Tried>) -> (Sample, Kept) {
        let mut metrics = Vec::new();
        let mut hashes = Vec::new();
        let mut choose = |kind, count, [ns, sums]: [Metric; 2]| {
            let cpus = self.profile.topology.cpus();
            let population = Population::new(kind, count, cpus, case.seed);
            let chosen =
                processes::select(&self.profile, &case.design.design, population, case.seed);
            metrics.push((ns, chosen.ns as f64));
            metrics.push((sums, chosen.sums as f64));
            hashes.push(chosen.hash);
            (count, chosen)
        };
        let hogs = self.counts.iter().map(|&count| {
            let of = [hog(count), hog_sums(count)];
            choose(Kind::OneHog, count, of)
        });
        let hogs: Vec<_> = hogs.collect();
        let of_band = [band(self.in_band), band_sums(self.in_band)];
        let band = choose(Kind::InTheBand, self.in_band, of_band);
        let shown = hogs.iter().find(|(count, _)| *count == self.in_band);
        let kept = [*shown.unwrap_or(&band), band];
        let hash = fold_hashes(hashes);
        (Sample { hash, metrics }, kept)
    }
}

/// Returns the times of all selectors (algorithms that choose a victim) with all kinds of counters.
/// Only the first call for a report measures them.
fn matrix<'a>(run: &'a Run<'_, LatencySetup, Kept>) -> Result<&'a Matrix, Error> {
    let LatencySetup {
        profile, matrix, ..
    } = &run.setup;
    if let Some(matrix) = matrix.get() {
        return Ok(matrix);
    }
    let count = run.numbers().small("matrix");
    let measured = Matrix::measure(profile, count, run.options, run.progress)?;
    Ok(matrix.get_or_init(|| measured))
}

fn growth(run: &Run<'_, LatencySetup, Kept>) -> Result<Made, Error> {
    let counts = run.setup.counts.iter();
    let mut rows: Vec<_> = counts.map(|count| (*count, &run.results)).collect();
    let most;
    let largest = run.numbers().small("most");
    if largest > 0 {
        let mut one = Options {
            jobs: run.options.jobs.one_at_a_time(),
            ..run.options.clone()
        };
        one.seeds.truncate(1);
        let few = run.setup.counts[0];
        let setup = LatencySetup::of(run.setup.profile.clone(), vec![largest], few);
        let about = format!("{largest} processes");
        run.progress
            .start_on("oom-latency", &setup.profile.name, &about);
        let measure = |case: &Case<Tried>| setup.measure(case).0;
        most = Results::new(Comparison::run(run.designs, &one, run.progress, measure)?);
        rows.push((largest, &most));
    }
    let table = tabulate!(
        "Time of a selection divided by the number of processes, one hog",
        format!(
            "If the times in a column are equal, the time of a selection grows in proportion to \
             the number of processes. The first look at a process costs as much among few \
             processes as among many, because even few are not in this CPU's caches. The row of \
             {} is one run, with the first seed.",
            run.full_number("most")
        ),
        &rows,
        |(count, _)| {
            "processes" => human(f64::from(*count), Unit::Count),
        }
    );
    let table = table.with_each(&rows, heads(run.designs), |(count, results), design| {
        let time = results.median(&design.name, &hog(*count));
        human(time / f64::from(*count), Unit::Nanos)
    });
    Ok(table.into())
}

fn parts(run: &Run<'_, LatencySetup, Kept>) -> Table {
    let of = |nth: usize, name: &'static str| {
        let runs = run.each();
        runs.map(move |(design, kept)| (name, design, &kept[nth]))
    };
    let time = |ns: u64| human(ns as f64, Unit::Nanos);
    let rows = of(0, "one hog").chain(of(1, "in the band"));
    tabulate!(
        "Where the time goes, first seed",
        "`looks`: first looks at processes. `sums`: precise sums made one by one. `together`: \
         those made together. `rest`: cache lines and locks of counters, and further looks. No \
         price is computed from a published time, but `next_cpu` was added because the published \
         time of `precise` was missed without it.",
        &rows.collect::<Vec<_>>(),
        |(name, design, (count, chosen))| {
            "population" => format!("{name}, {count}"),
            "way" => short(design),
            "time" => time(chosen.ns),
            "looks" => time(chosen.parts.looks_ns),
            "sums" => time(chosen.parts.scans_ns),
            "together" => time(chosen.parts.streams_ns),
            "sorting" => time(chosen.parts.sorts_ns),
            "rest" => {
                let parts = chosen.parts;
                let known = parts.looks_ns + parts.scans_ns + parts.streams_ns + parts.sorts_ns;
                time(chosen.ns - known)
            },
            "sums made" => human(chosen.sums as f64, Unit::Count),
        }
    )
}

/// Returns `profile` with only the first `cores` cores of each socket. `profile` must describe a
/// machine with two sockets whose cores have two CPUs each. All prices stay the same.
fn of_cores(mut profile: Profile, cores: u32) -> Profile {
    let per_socket = profile.topology.cpus() / 4;
    let places = profile
        .topology
        .ids()
        .map(|cpu: CpuId| profile.topology.place(cpu));
    let kept = places.filter(|place| place.core % per_socket < cores);
    profile.topology = Topology::new(kept.collect());
    profile
}

/// A table of the time to select a victim among [`FEW`] processes on machines that differ only in
/// their number of CPUs.
fn machines(run: &Run<'_, LatencySetup, Kept>) -> Result<Table, Error> {
    let mut all = Vec::new();
    for cores in [18, 64, 96] {
        let profile = of_cores(run.load("epyc-9654-2s", run.card)?, cores);
        let setup = LatencySetup::of(profile, vec![FEW], FEW);
        let cpus = setup.profile.topology.cpus();
        let about = format!("{cpus} CPUs");
        let (results, _) = run.further_on_few(&about, &setup, run.designs, SIDE_SEEDS)?;
        all.push((cpus, results));
    }
    let of = |name: &'static str, metric: fn(u32) -> Metric| {
        all.iter()
            .map(move |(cpus, results)| (*cpus, name, metric(FEW), results))
    };
    let rows: Vec<_> = of("one hog", hog).chain(of("in the band", band)).collect();
    let table = tabulate!(
        format!("Time of a selection among {FEW} processes, by number of CPUs"),
        format!(
            "Machines with this many CPUs of epyc-9654-2s, half of them on each socket; {SIDE_SEEDS} \
             seeds at most."
        ),
        &rows,
        |(cpus, name, ..)| {
            "CPUs" => cpus,
            "population" => name,
        }
    );
    Ok(table.with_each(
        &rows,
        heads(run.designs),
        |(_, _, metric, results), design| results.show(&design.name, metric),
    ))
}

/// The table of the most important metrics at each card: with low, middle and high prices.
fn cards(run: &Run<'_, LatencySetup, Kept>) -> Result<Made, Error> {
    if !run.has_cards() {
        return Ok(Made::default());
    }
    let mut rows = Vec::new();
    for card in Card::ALL {
        let setup = LatencySetup::of(run.load(run.machine, card)?, vec![HEADLINE], FEW);
        let about = format!("card {}", card.name());
        let (results, _) = run.further_on_few(&about, &setup, run.designs, SIDE_SEEDS)?;
        rows.push((card, results));
    }
    let table = tabulate!(
        format!("One hog among {HEADLINE} processes at each cost card"),
        format!(
            "The last column is the ratio with {FEW} processes, all of them in the band. {SIDE_SEEDS} \
             seeds at most."
        ),
        &rows,
        |(card, _)| {
            "card" => card.name(),
        }
    );
    let table = table.with_each(&rows, heads(run.designs), |(_, results), design| {
        results.show(&design.name, &hog(HEADLINE))
    });
    let table = table.with_each(
        &rows,
        [
            ("ours / approximate", (APPROXIMATE, hog(HEADLINE))),
            ("in the band: ours / precise", (PRECISE, band(FEW))),
        ],
        |(_, results), (a, metric)| results.show_ratio((a, OURS), metric),
    );
    Ok(table.into())
}

/// If one process has almost all memory, the ratio of two times must not exceed this number: the
/// time of our selection, and that of a selection that makes one approximate sum of every process.
const HOG_RATIO_MAX: f64 = 1.3;
/// If approximate sums cannot tell any two processes apart, our selection must be at least this
/// many times as fast as a selection that makes a precise sum of every process.
const BAND_GAIN_MIN: f64 = 5.0;

/// The table of the targets for how long our selection may take, with the verdict on each target. A
/// quick run measures only the target for the case that every process's counters are trees.
fn goals(results: &Results, matrix: &Matrix) -> Table {
    let ratio = |pair, metric: Metric| {
        let measured = results.has(&metric);
        measured.then(|| results.compare(pair, &metric).ratio)
    };
    let hog = ratio((APPROXIMATE, OURS), hog(HEADLINE));
    let band = ratio((OURS, PRECISE), band(HEADLINE));
    let grown = Some(matrix.every_tree_grown());
    let of = |what, wanted, ratio: Option<_>, met: Option<bool>| Target {
        what,
        wanted,
        measured: ratio.as_ref().map_or_else(String::new, human_ratio),
        met,
    };
    targets(
        "Targets",
        "A target is met if the less favourable end of the interval meets it.",
        &[
            of(
                "one hog among 10,000: ours against select-approximate",
                "at most 1.3 times the time",
                hog,
                hog.map(|ratio| ratio.high <= HOG_RATIO_MAX),
            ),
            of(
                "one hog, every tree grown: ours against select-approximate over flat",
                "at most 1.3 times the time",
                grown,
                grown.map(|ratio| ratio.high <= HOG_RATIO_MAX),
            ),
            of(
                "all of 10,000 in the band: ours against select-precise",
                "at least 5 times as fast",
                band,
                band.map(|ratio| ratio.low >= BAND_GAIN_MIN),
            ),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::super::{MACHINE, PATCH};
    use super::*;
    use crate::catalog::designs;

    fn chosen(name: &str, kind: Kind, count: u32) -> Chosen {
        let profile = Profile::load(MACHINE, Card::Mid).expect("built in");
        let population = Population::new(kind, count, profile.topology.cpus(), 3);
        let named = designs::find(name).expect("a design");
        processes::select(&profile, &named.design, population, 3)
    }

    #[test]
    fn a_hog_is_found_by_all_and_costs_ours_no_sum() {
        for way in [PRECISE, APPROXIMATE, PATCH, OURS] {
            assert_eq!(chosen(way, Kind::OneHog, 200).judged.regret, 0, "{way}");
        }
        assert_eq!(chosen(OURS, Kind::OneHog, 200).sums, 0);
        assert_eq!(chosen(PRECISE, Kind::OneHog, 200).sums, 200);
    }

    /// If approximate sums cannot tell the processes apart, our selector (algorithm that chooses
    /// the victim) has to make a precise sum of each process. It sums the counters of many
    /// processes at once. This is faster than the precise selector, which sums one process after
    /// another.
    #[test]
    fn all_in_the_band_have_to_be_summed_and_that_is_cheaper_together() {
        let [precise, ours] = [PRECISE, OURS].map(|way| chosen(way, Kind::InTheBand, 300));
        assert_eq!((precise.judged.regret, ours.judged.regret), (0, 0));
        assert!(ours.parts.streams_ns > 0);
        assert!(ours.ns < precise.ns / 2, "{} {}", ours.ns, precise.ns);
    }

    #[test]
    fn parts_are_at_most_the_whole_and_a_selection_is_a_function_of_its_seed() {
        for way in [PRECISE, APPROXIMATE, PATCH, OURS] {
            let [one, again] = [(); 2].map(|()| chosen(way, Kind::InTheBand, 50));
            assert_eq!((one.hash, one.ns), (again.hash, again.ns));
            let parts = one.parts;
            assert!(parts.looks_ns + parts.scans_ns + parts.streams_ns <= one.ns);
            assert!(parts.looks_ns > 0);
        }
    }

    #[test]
    fn machines_keep_both_sockets_alike() {
        for (cores, cpus) in [(18, 72), (64, 256), (96, 384)] {
            let profile = of_cores(
                Profile::load("epyc-9654-2s", Card::Mid).expect("built in"),
                cores,
            );
            let topology = &profile.topology;
            let places = topology.ids().map(|cpu| topology.place(cpu));
            let first = places.filter(|place| place.socket == 0).count();
            assert_eq!([topology.ids().count(), 2 * first], [cpus; 2]);
        }
    }
}
