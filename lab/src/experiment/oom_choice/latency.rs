//! `reproduce oom-latency`: how long does it take to choose the victim?
//!
//! One population is that of the published benchmark: N processes, one of which takes all memory.
//! The other is the worst case of every selector that reads approximate sums first: these cannot
//! tell any two processes apart.

use std::num::NonZeroUsize;

use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::CpuId;
use plimsoll_sim::profile::{Card, Profile};

use super::population::{Kind, Population};
use super::processes::{self, Chosen};
use super::{
    APPROXIMATE, MACHINE, OURS, PATCH, PRECISE, Target, WAYS, Way, estimate, median, ratio, shown,
    targets, texts,
};
use crate::error::Error;
use crate::experiment::Experiment;
use crate::measure::comparison::{Comparison, Sample, fold_hashes};
use crate::measure::metric::{Metric, Unit};
use crate::report::value::{human, human_estimate, human_ratio};
use crate::report::{Report, Table};
use crate::run::options::{Effort, Options};
use crate::run::progress::Progress;

/// The experiment's entry in the catalog.
pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "oom-latency",
    title: "how long does it take to choose the victim when memory is out?",
    run,
};

/// Numbers of processes, of which one is the hog.
const COUNTS: [u32; 3] = [40, 1000, 10_000];
/// A number of processes that runs once, on the first seed: the counters take 3 GB of this
/// computer.
const MOST: u32 = 100_000;
/// The larger of the two published numbers of processes; the first of [`COUNTS`] is the other.
const HEADLINE: u32 = 10_000;
/// The number of processes in tables that show what else matters.
const FEW: u32 = 1000;

/// The numbers of processes that run with one hog.
fn counts(effort: Effort) -> &'static [u32] {
    match effort {
        Effort::Full => &COUNTS,
        Effort::Quick => &COUNTS[..2],
    }
}

/// The size of the population whose processes are all in the band.
const fn band_count(effort: Effort) -> u32 {
    match effort {
        Effort::Full => HEADLINE,
        Effort::Quick => FEW,
    }
}

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

fn run(options: &Options, progress: &Progress) -> Result<Vec<Report>, Error> {
    let card = options.card.unwrap_or(Card::Mid);
    let profile = Profile::load(MACHINE, card)?;
    let effort = options.effort;
    progress.start(format!("oom-latency on {MACHINE}"));
    let (runs, first) = Comparison::run_keeping(&WAYS, options, progress, |case| {
        measure(
            &profile,
            case.design,
            counts(effort),
            band_count(effort),
            case.seed,
        )
    })?;
    let mut report = Report::new("oom-latency", MACHINE, card, runs.seeds(), runs.hash());
    report.rows = runs.rows(published);
    let compared = [hog(FEW), hog(HEADLINE), band(band_count(effort))];
    report.verdicts = [
        (PRECISE, PATCH),
        (PRECISE, OURS),
        (APPROXIMATE, OURS),
        (PATCH, OURS),
    ]
    .into_iter()
    .flat_map(|(a, b)| runs.verdicts_between(a, b))
    .filter(|row| compared.contains(&row.metric))
    .collect();
    report.tables = vec![growth(&profile, &runs, options, progress)?, parts(&first)];
    report.tables.push(machines(card, options, progress)?);
    if effort == Effort::Full && options.card.is_none() {
        report.tables.push(cards(options, progress)?);
    }
    report.tables.push(goals(&runs));
    report.finding = finding(&runs, effort);
    Ok(vec![report])
}

/// Two selections of one run, each with its number of processes: one with the hog, then the band's.
type Kept = [(u32, Chosen); 2];

/// Selects from a population with one hog for each of `counts`, then from `in_band` processes in
/// the band.
fn measure(profile: &Profile, way: Way, counts: &[u32], in_band: u32, seed: u64) -> (Sample, Kept) {
    let mut metrics = Vec::new();
    let mut hashes = Vec::new();
    let mut choose = |kind, count, [ns, sums]: [Metric; 2]| {
        let population = Population::new(kind, count, profile.topology.cpus(), seed);
        let chosen = processes::select(profile, way, population, seed);
        metrics.push((ns, chosen.ns as f64));
        metrics.push((sums, chosen.sums as f64));
        hashes.push(chosen.hash);
        (count, chosen)
    };
    let hogs = counts.iter().map(|&count| {
        let of = [hog(count), hog_sums(count)];
        choose(Kind::OneHog, count, of)
    });
    let hogs: Vec<_> = hogs.collect();
    let band = choose(
        Kind::InTheBand,
        in_band,
        [band(in_band), band_sums(in_band)],
    );
    let shown = hogs.iter().find(|(count, _)| *count == in_band);
    let kept = [*shown.unwrap_or(&band), band];
    let hash = fold_hashes(hashes);
    (Sample { hash, metrics }, kept)
}

/// The published times for N processes and a hog, `tail /dev/zero`, on a virtual machine of 256
/// CPUs of an EPYC 9654.
fn published(design: &str, metric: &Metric) -> Option<f64> {
    let way = WAYS.iter().position(|way| way.to_string() == design)?;
    let [few, many] = match way {
        PRECISE => [0.5, 80.0],
        APPROXIMATE => [0.3, 3.0],
        PATCH => [0.3, 7.9],
        _ => return None,
    };
    let ms = if *metric == hog(COUNTS[0]) {
        few
    } else if *metric == hog(HEADLINE) {
        many
    } else {
        return None;
    };
    Some(ms * 1e6)
}

fn columns<const N: usize>(first: [&str; N]) -> Vec<String> {
    let mut columns = texts(first);
    columns.extend(WAYS.map(Way::short));
    columns
}

fn growth(
    profile: &Profile,
    runs: &Comparison,
    options: &Options,
    progress: &Progress,
) -> Result<Table, Error> {
    let row = |runs: &Comparison, count: u32| {
        let mut row = vec![human(f64::from(count), Unit::Count)];
        row.extend((0..WAYS.len()).map(|way| {
            let each = median(runs, way, &hog(count)).map(|ns| ns / f64::from(count));
            shown(each, Unit::Nanos)
        }));
        row
    };
    let counts = counts(options.effort).iter();
    let mut rows: Vec<_> = counts.map(|&count| row(runs, count)).collect();
    if options.effort == Effort::Full {
        let mut one = Options {
            jobs: NonZeroUsize::MIN,
            ..options.clone()
        };
        one.seeds.truncate(1);
        let runs = Comparison::run(&WAYS, &one, progress, |case| {
            measure(profile, case.design, &[MOST], COUNTS[0], case.seed).0
        })?;
        rows.push(row(&runs, MOST));
    }
    Ok(Table {
        title: "Time for each process, one hog".to_owned(),
        note: format!(
            "If the times of a column are equal, the whole grows in proportion to the number of processes. The first \
             look at a process costs as much with few processes as with many, because few are not in this CPU's \
             caches either. The row of {MOST} is one run, of the first seed."
        ),
        columns: columns(["processes"]),
        rows,
    })
}

fn parts(first: &[Kept]) -> Table {
    let row = |way: &Way, name: String, chosen: &Chosen| {
        let parts = chosen.parts;
        let known = parts.looks_ns + parts.scans_ns + parts.streams_ns;
        let times = [
            chosen.ns,
            parts.looks_ns,
            parts.scans_ns,
            parts.streams_ns,
            chosen.ns - known,
        ];
        let mut row = vec![name, way.short()];
        row.extend(times.map(|ns| human(ns as f64, Unit::Nanos)));
        row.push(human(chosen.sums as f64, Unit::Count));
        row
    };
    let both = |nth: usize, name: &'static str| {
        let rows = WAYS.iter().zip(first);
        rows.map(move |(way, kept)| {
            let (count, chosen) = &kept[nth];
            row(way, format!("{name}, {count}"), chosen)
        })
    };
    Table {
        title: "Where the time goes, first seed".to_owned(),
        note: "First looks at processes; precise sums one by one, and together; cache lines of counters, their \
               locks, and further looks. Comparing and sorting is not priced."
            .to_owned(),
        columns: texts([
            "population", "way", "time", "looks", "sums", "together", "rest", "sums taken",
        ]),
        rows: both(0, "one hog").chain(both(1, "in the band")).collect(),
    }
}

/// The first `cores` cores of each socket of the two-socket machine, all its prices kept.
fn of_cores(cores: u32, card: Card) -> Result<Profile, Error> {
    let mut profile = Profile::load("epyc-9654-2s", card)?;
    let per_socket = profile.topology.cpus() / 4;
    let places = profile
        .topology
        .ids()
        .map(|cpu: CpuId| profile.topology.place(cpu));
    let kept = places.filter(|place| place.core % per_socket < cores);
    profile.topology = Topology::new(kept.collect());
    Ok(profile)
}

/// Selection times with [`FEW`] processes on more and more CPUs of the same kind.
fn machines(card: Card, options: &Options, progress: &Progress) -> Result<Table, Error> {
    let mut rows = Vec::new();
    for cores in [18, 64, 96] {
        let profile = of_cores(cores, card)?;
        let runs = Comparison::run(&WAYS, options, progress, |case| {
            measure(&profile, case.design, &[FEW], FEW, case.seed).0
        })?;
        for (population, metric) in [("one hog", hog(FEW)), ("in the band", band(FEW))] {
            let mut row = vec![profile.topology.cpus().to_string(), population.to_owned()];
            row.extend((0..WAYS.len()).map(|way| shown(median(&runs, way, &metric), Unit::Nanos)));
            rows.push(row);
        }
    }
    rows.sort_by_key(|row| row[1] != "one hog");
    Ok(Table {
        title: format!("Time for {FEW} processes on more CPUs"),
        note: "That number of CPUs of epyc-9654-2s, the same on both sockets.".to_owned(),
        columns: columns(["CPUs", "population"]),
        rows,
    })
}

/// The headline at each cost card.
fn cards(options: &Options, progress: &Progress) -> Result<Table, Error> {
    let mut rows = Vec::new();
    for card in Card::ALL {
        let profile = Profile::load(MACHINE, card)?;
        let runs = Comparison::run(&WAYS, options, progress, |case| {
            measure(&profile, case.design, &[HEADLINE], FEW, case.seed).0
        })?;
        let mut row = vec![card.name().to_owned()];
        row.extend(
            (0..WAYS.len()).map(|way| shown(median(&runs, way, &hog(HEADLINE)), Unit::Nanos)),
        );
        let of = |a, metric| ratio(&runs, a, OURS, &metric);
        let ratios = [of(APPROXIMATE, hog(HEADLINE)), of(PRECISE, band(FEW))];
        row.extend(ratios.map(|it| it.map_or_else(String::new, |it| human_ratio(&it))));
        rows.push(row);
    }
    let mut columns = columns(["card"]);
    columns.extend(texts(["ours / approximate", "in the band: ours / precise"]));
    Ok(Table {
        title: format!("One hog among {HEADLINE} processes at each cost card"),
        note: format!("The last column is of {FEW} processes, all in the band."),
        columns,
        rows,
    })
}

/// The most time that ours may take, as a multiple of one approximate sum of every process.
const HOG_RATIO_MAX: f64 = 1.3;
/// The least speed of ours, as a multiple of that of precise sums of every process, all in the
/// band.
const BAND_GAIN_MIN: f64 = 5.0;

fn goals(runs: &Comparison) -> Table {
    let hog = ratio(runs, APPROXIMATE, OURS, &hog(HEADLINE));
    let band = ratio(runs, OURS, PRECISE, &band(HEADLINE));
    let is = |it: &Option<crate::measure::stats::Estimate>| {
        it.as_ref().map_or_else(String::new, human_ratio)
    };
    targets([
        Target {
            what: "one hog among 10,000: ours at most 1.3 x select-approximate",
            is: is(&hog),
            met: hog.map(|it| it.high <= HOG_RATIO_MAX),
        },
        Target {
            what: "all of 10,000 in the band: ours at least 5 x faster than select-precise",
            is: is(&band),
            met: band.map(|it| it.low >= BAND_GAIN_MIN),
        },
    ])
}

/// One paragraph, every word of it following from this run's numbers.
fn finding(runs: &Comparison, effort: Effort) -> String {
    let count = band_count(effort);
    let time = |way, metric: Metric| {
        let estimate = estimate(runs, way, &metric);
        estimate.map_or_else(String::new, |it| human_estimate(&it, Unit::Nanos))
    };
    let over = |a, b, metric: Metric| {
        ratio(runs, a, b, &metric).map_or_else(String::new, |it| human_ratio(&it))
    };
    let sums = |way, metric: Metric| shown(median(runs, way, &metric), Unit::Count);
    format!(
        "With one hog among {count} processes, precise sums of all take {}, two passes over the \
         published tree {}, one cheap look over flat counters {}, and ours {}: {} of that look, and {} \
         precise sums. With all processes in the band, ours takes {}; precise sums of all take {} \
         ({} times as long), and ours takes {} precise sums. The price of a precise sum is fitted to the \
         published 80 ms, so its time is no result; the price of looking at a process is not fitted.",
        time(PRECISE, hog(count)),
        time(PATCH, hog(count)),
        time(APPROXIMATE, hog(count)),
        time(OURS, hog(count)),
        over(APPROXIMATE, OURS, hog(count)),
        sums(OURS, hog_sums(count)),
        time(OURS, band(count)),
        time(PRECISE, band(count)),
        over(OURS, PRECISE, band(count)),
        sums(OURS, band_sums(count)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(way: usize, kind: Kind, count: u32) -> Chosen {
        let profile = Profile::load(MACHINE, Card::Mid).expect("built in");
        let population = Population::new(kind, count, profile.topology.cpus(), 3);
        processes::select(&profile, WAYS[way], population, 3)
    }

    #[test]
    fn a_hog_is_found_by_all_and_costs_ours_no_sum() {
        for way in [PRECISE, APPROXIMATE, PATCH, OURS] {
            assert_eq!(
                chosen(way, Kind::OneHog, 200).judged.regret,
                0,
                "{}",
                WAYS[way]
            );
        }
        assert_eq!(chosen(OURS, Kind::OneHog, 200).sums, 0);
        assert_eq!(chosen(PRECISE, Kind::OneHog, 200).sums, 200);
    }

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
            let profile = of_cores(cores, Card::Mid).expect("built in");
            let topology = &profile.topology;
            let places = topology.ids().map(|cpu| topology.place(cpu));
            let first = places.filter(|place| place.socket == 0).count();
            assert_eq!([topology.ids().count(), 2 * first], [cpus; 2]);
        }
    }
}
