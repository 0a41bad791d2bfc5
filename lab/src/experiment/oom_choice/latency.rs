//! `reproduce oom-latency`: how long does it take to choose the victim?
//!
//! There are two populations. One is that of the published benchmark: N processes, one of which has
//! almost all memory. In the other, approximate sums cannot distinguish any two processes, which is
//! the worst case for every selector that reads approximate sums first.

use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::CpuId;
use plimsoll_sim::profile::{Card, Profile};

use super::matrix::Matrix;
use super::population::{Kind, Population};
use super::processes::{self, Chosen};
use super::{APPROXIMATE, MACHINE, OURS, PATCH, PRECISE, heads, published, short};
use crate::catalog::designs::Named;
use crate::error::Error;
use crate::experiment::Experiment;
use crate::experiment::declared::{
    Clock, Declaration, Finding, Headline, Headlines, LINUX_PATCH_OURS, Results, Run, Target,
    effect, targets, variants_of,
};
use crate::measure::comparison::{Comparison, Sample, fold_hashes};
use crate::measure::metric::{Metric, Unit};
use crate::report::value::{human, human_ratio};
use crate::report::{Table, tabulate};
use crate::run::cases::Case;
use crate::run::options::{Effort, Options};

/// This experiment as an entry of the catalog, the list of all published experiments.
pub(in super::super) static EXPERIMENT: &dyn Experiment = &DECLARATION;

static DECLARATION: Declaration<Scene, Kept> = Declaration {
    name: "oom-latency",
    question: "how long does it take to choose the victim when memory is out?",
    answer: Headlines {
        sides: LINUX_PATCH_OURS,
        rows: &[
            Headline::new(
                "a hog among 1000",
                "select_at_1000_ns",
                &[PRECISE, PATCH, OURS],
            ),
            Headline::new(
                "a hog among 10,000",
                "select_at_10000_ns",
                &[PRECISE, PATCH, OURS],
            ),
            Headline::new("10,000 alike", "band_at_10000_ns", &[PRECISE, PATCH, OURS]),
        ],
    },
    machines: &[MACHINE],
    clock: Clock::Virtual,
    designs: || variants_of("unpatched", [PRECISE, APPROXIMATE, PATCH, OURS]),
    verdicts: &[
        (PRECISE, PATCH),
        (PRECISE, OURS),
        (APPROXIMATE, OURS),
        (PATCH, OURS),
    ],
    published: published::PUBLISHED,
    setup: Scene::new,
    metrics: Scene::metrics,
    shown: None,
    compared: Some(|scene| vec![hog(FEW), hog(HEADLINE), band(scene.in_band)]),
    measure: Scene::measure,
    cards: None,
    conclude,
};

/// The numbers of processes. One process of each population is the hog.
const COUNTS: [u32; 3] = [40, 1000, 10_000];
/// A further number of processes, measured only on the first seed, because the counters take 3 GB
/// of this computer's memory.
const MOST: u32 = 100_000;
/// The larger of the two published numbers of processes. The first of [`COUNTS`] is the smaller.
const HEADLINE: u32 = 10_000;
/// The number of processes in the table that varies the number of CPUs, and in other places where
/// fewer processes than [`HEADLINE`] are enough.
const FEW: u32 = 1000;
/// The number of processes in the matrix of a quick run.
const COUNT_QUICK: u32 = 200;

/// The largest number of seeds for the tables of other machines and of other cards. These tables
/// show times, and no verdicts.
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

/// The machine, and the sizes of its populations.
struct Scene {
    profile: Profile,
    /// The numbers of processes in the populations with one hog.
    counts: &'static [u32],
    /// The number of processes in the population that is entirely in the band: approximate sums
    /// cannot tell its processes apart.
    in_band: u32,
}

/// Two selections of one run, each with the number of processes. The first is among processes with
/// one hog, the second among processes that approximate sums cannot tell apart.
type Kept = [(u32, Chosen); 2];

impl Scene {
    fn new(machine: &str, card: Card, effort: Effort) -> Result<Self, Error> {
        let (counts, in_band) = match effort {
            Effort::Full => (&COUNTS[..], HEADLINE),
            Effort::Quick => (&COUNTS[..2], FEW),
        };
        Ok(Self {
            profile: Profile::load(machine, card)?,
            counts,
            in_band,
        })
    }

    fn metrics(&self) -> Vec<Metric> {
        let hogs = self
            .counts
            .iter()
            .flat_map(|count| [hog(*count), hog_sums(*count)]);
        hogs.chain([band(self.in_band), band_sums(self.in_band)])
            .collect()
    }

    fn measure(&self, case: &Case<Named>) -> (Sample, Kept) {
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

fn conclude(run: &Run<'_, Scene, Kept>) -> Result<(Vec<Table>, Finding), Error> {
    let count = match run.options.effort {
        Effort::Full => FEW,
        Effort::Quick => COUNT_QUICK,
    };
    let profile = &run.scene.profile;
    let matrix = Matrix::measure(profile, count, run.options, run.progress)?;
    let mut tables = vec![growth(run)?, parts(run)];
    tables.extend(matrix.tables());
    tables.push(machines(run)?);
    if run.has_cards() {
        tables.push(cards(run)?);
    }
    tables.push(goals(&run.results, &matrix));
    Ok((tables, finding(run, &matrix)))
}

fn growth(run: &Run<'_, Scene, Kept>) -> Result<Table, Error> {
    let counts = run.scene.counts.iter();
    let mut rows: Vec<_> = counts.map(|count| (*count, &run.results)).collect();
    let most;
    if run.options.effort == Effort::Full {
        let mut one = Options {
            jobs: run.options.jobs.one_at_a_time(),
            ..run.options.clone()
        };
        one.seeds.truncate(1);
        let scene = Scene {
            profile: run.scene.profile.clone(),
            counts: &[MOST],
            in_band: COUNTS[0],
        };
        let about = format!("{MOST} processes");
        run.progress
            .start_on("oom-latency", &scene.profile.name, &about);
        let measure = |case: &Case<Named>| scene.measure(case).0;
        most = Results::new(Comparison::run(&run.designs, &one, run.progress, measure)?);
        rows.push((MOST, &most));
    }
    let table = tabulate!(
        "Time of a selection divided by the number of processes, one hog",
        format!(
            "If the times in a column are equal, the time of a selection grows in proportion to \
             the number of processes. The first look at a process costs as much among few \
             processes as among many, because even few are not in this CPU's caches. The row of \
             {MOST} is one run, with the first seed."
        ),
        &rows,
        |(count, _)| {
            "processes" => human(f64::from(*count), Unit::Count),
        }
    );
    Ok(
        table.with_each(&rows, heads(&run.designs), |(count, results), design| {
            let time = results.median(&design.name, &hog(*count));
            human(time / f64::from(*count), Unit::Nanos)
        }),
    )
}

fn parts(run: &Run<'_, Scene, Kept>) -> Table {
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

/// Returns `profile` with only the first `cores` cores of each socket. The profile must be that of
/// a machine of two sockets whose cores have two CPUs each. All prices stay the same.
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

/// A table of the time to select among [`FEW`] processes on machines that differ only in their
/// number of CPUs.
fn machines(run: &Run<'_, Scene, Kept>) -> Result<Table, Error> {
    let mut all = Vec::new();
    for cores in [18, 64, 96] {
        let scene = Scene {
            profile: of_cores(run.load("epyc-9654-2s", run.card)?, cores),
            counts: &[FEW],
            in_band: FEW,
        };
        let cpus = scene.profile.topology.cpus();
        let about = format!("{cpus} CPUs");
        let (results, _) = run.further_on_few(&about, &scene, &run.designs, SIDE_SEEDS)?;
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
        heads(&run.designs),
        |(_, _, metric, results), design| results.show(&design.name, metric),
    ))
}

/// The table of the most important metrics at each card: with low, middle and high prices.
fn cards(run: &Run<'_, Scene, Kept>) -> Result<Table, Error> {
    let mut rows = Vec::new();
    for card in Card::ALL {
        let scene = Scene {
            profile: run.load(MACHINE, card)?,
            counts: &[HEADLINE],
            in_band: FEW,
        };
        let about = format!("card {}", card.name());
        let (results, _) = run.further_on_few(&about, &scene, &run.designs, SIDE_SEEDS)?;
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
    let table = table.with_each(&rows, heads(&run.designs), |(_, results), design| {
        results.show(&design.name, &hog(HEADLINE))
    });
    Ok(table.with_each(
        &rows,
        [
            ("ours / approximate", (APPROXIMATE, hog(HEADLINE))),
            ("in the band: ours / precise", (PRECISE, band(FEW))),
        ],
        |(_, results), (a, metric)| results.show_ratio((a, OURS), metric),
    ))
}

/// If one process is a hog, our selection may take at most this many times as long as a selection
/// that makes one approximate sum of every process.
const HOG_RATIO_MAX: f64 = 1.3;
/// If approximate sums cannot tell any processes apart (all are in the band), our selection must be
/// at least this many times as fast as a selection that makes a precise sum of every process.
const BAND_GAIN_MIN: f64 = 5.0;

/// The table of the targets for the time of our selection, and whether it meets them. A quick run
/// measures only the target for processes whose counters are all trees.
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

/// Makes the report's finding. Every statement in it follows from the numbers of the runs.
fn finding(run: &Run<'_, Scene, Kept>, matrix: &Matrix) -> Finding {
    let (results, count) = (&run.results, run.scene.in_band);
    let verdict = |a| effect(results.compare((a, OURS), &hog(count)).verdict);
    let median = |design| results.show(design, &hog(count));
    let answer = format!(
        "With one hog among {count} processes it takes {} with Linux, {} with the patch and {} with \
         ours; ours {} the time of Linux and {} that of the patch.",
        median(PRECISE),
        median(PATCH),
        median(OURS),
        verdict(PRECISE),
        verdict(PATCH),
    );
    let further = format!(
        "With one hog among {count} processes, ours takes {} times as long as one cheap look at \
         each process, and makes {} precise sums; with all of them in the band, precise sums of \
         all take {} times as long as ours. {}",
        results.show_ratio((APPROXIMATE, OURS), &hog(count)),
        results.show(OURS, &hog_sums(count)),
        results.show_ratio((OURS, PRECISE), &band(count)),
        matrix.conclusion(),
    );
    let time = |design| results.show_interval(design, &hog(count));
    Finding::new(
        answer,
        [
            ("one hog: precise sums of all", time(PRECISE)),
            ("two passes over the published tree", time(PATCH)),
            ("one cheap look at each", time(APPROXIMATE)),
            ("ours", time(OURS)),
            (
                "all in the band: ours",
                results.show_interval(OURS, &band(count)),
            ),
        ],
    )
    .further(further)
}

#[cfg(test)]
mod tests {
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

    /// If approximate sums cannot tell any processes apart (all are in the band), our selector has
    /// to make a precise sum of each. It sums many at once, which is faster than the precise
    /// selector's sums one by one.
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
