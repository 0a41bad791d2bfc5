//! `reproduce purge` and `reproduce exits`: how much faster do CPUs free pages if page lists own
//! blocks?
//!
//! Patches of April 2026 proposed that CPUs own page blocks. The proposal came with reports of two
//! loads that need page lists which own blocks: allocators that purge memory from separate threads,
//! and exits of large processes. In both loads, one CPU allocates a page and another CPU frees the
//! page. Each experiment runs on 96, 192 and 384 CPUs, with memory that is fresh, aged and
//! fragmented.
//!
//! The submodule `setup` has the machines, the loads and the metrics.

mod setup;

use self::setup::{
    CONTENTIONS, COST, HUGE_LOST, LISTED, Load, METRICS, NUMBERS, OwningSetup, PURGE_NUMBERS, RATE,
};
use super::driver::{Clock, Code, Made, Number, Part, Results, Run, Runs, Setting, metrics_of};
use crate::error::Error;
use crate::measure::metric::Metric;
use crate::report::{Table, tabulate};
use crate::run::aging::Memory;

/// The two loads, which experiment files can name as workloads.
pub(super) static PURGE: &dyn Runs = &code(
    "purge",
    "threads allocate, and one thread of each group purges what they no longer use",
    &PURGE_NUMBERS,
    |setting| OwningSetup::new(setting, Load::Purge),
);
pub(super) static EXITS: &dyn Runs = &code(
    "exits",
    "all processes end at once; one thread frees what all threads have allocated",
    &NUMBERS,
    |setting| OwningSetup::new(setting, Load::Exits),
);

const fn code(
    workload: &'static str,
    about: &'static str,
    numbers: &'static [Number],
    setup: fn(&Setting<'_>) -> Result<OwningSetup, Error>,
) -> Code<OwningSetup> {
    Code {
        workload,
        about,
        numbers,
        of_designs: &[],
        takes_memory: false,
        clock: Clock::Virtual,
        setup,
        metrics: |_| metrics_of(METRICS),
        measure: |setup, case| (setup.measure(&case.design.design, case.seed), ()),
        parts: PARTS,
        cells: &[],
    }
}

const PARTS: &[Part<OwningSetup>] = &[
    Part::new("workload", |run| Ok(run.setup.table().into())),
    Part::new("family", tables_of_family)
        .naming(&[LINUX, BOUNDED, RFC, OURS])
        .giving(&[
            "ours_over_bounded",
            "ours_over_proposed",
            "proposed_over_linux",
            "ours_over_linux",
            "free_time_over_bounded",
            "free_time_over_proposed",
        ]),
];

/// The design of Linux 6.18.
const LINUX: &str = "lists-6.18";
/// Our design, in which each hold of the zone lock is short. No CPU owns page blocks.
const BOUNDED: &str = "bounded";
/// The design that the patches of April 2026 proposed, in which CPUs own page blocks. In all else,
/// it is the design of the kernel for which the patches were posted.
const RFC: &str = "batched+block-owned-rfc";
const OURS: &str = "bounded+block-owned";

/// The results on one machine with memory in one state (fresh, aged or fragmented).
struct Member {
    setup: OwningSetup,
    results: Results,
}

fn tables_of_family(run: &Run<'_, OwningSetup>) -> Result<Made, Error> {
    let family = family(run)?;
    let labels: Vec<&str> = run
        .designs
        .iter()
        .map(|tried| tried.name.as_str())
        .collect();
    let others: Vec<&str> = labels
        .iter()
        .copied()
        .filter(|name| *name != LINUX)
        .collect();
    let tables = vec![
        table(
            (&family, &others),
            &RATE,
            "Throughput",
            "Pages faulted in per second, as multiples of Linux's.",
        ),
        table(
            (&family, &others),
            &COST,
            "Time to free a page",
            "Unmapping and freeing, per page, as multiples of Linux's.",
        ),
        table(
            (&family, &others),
            &CONTENTIONS,
            "Contentions of zone locks",
            "As multiples of Linux's. A dash: Linux has none.",
        ),
        pages(&family, &labels),
    ];
    let range = |pair, metric: &Metric| range(&family, pair, metric);
    Ok(Made::from(tables)
        .fact("ours_over_bounded", range((BOUNDED, OURS), &RATE))
        .fact("ours_over_proposed", range((RFC, OURS), &RATE))
        .fact("proposed_over_linux", range((LINUX, RFC), &RATE))
        .fact("ours_over_linux", range((LINUX, OURS), &RATE))
        .fact("free_time_over_bounded", range((BOUNDED, OURS), &COST))
        .fact("free_time_over_proposed", range((RFC, OURS), &COST)))
}

/// Runs all designs on each machine, with memory in each state (fresh, aged and fragmented).
fn family(run: &Run<'_, OwningSetup>) -> Result<Vec<Member>, Error> {
    let numbers = run.numbers();
    let seeds = numbers.count("family_seeds");
    let member = |setup: OwningSetup| {
        let results = if setup.is_like(&run.setup) {
            run.results.clone()
        } else {
            let about = format!("{} CPUs, {} memory", setup.cpus(), setup.memory.name());
            run.further_on_few(&about, &setup, run.designs, seeds)?.0
        };
        Ok::<_, Error>(Member { setup, results })
    };
    let states = &Memory::ALL[..numbers.count("family_states")];
    let mut members = Vec::new();
    for cpus in numbers.list("family_cpus") {
        let cpus = u32::try_from(*cpus).expect("at most 4096");
        for memory in states {
            members.push(member(run.setup.on(cpus, *memory)?)?);
        }
    }
    Ok(members)
}

/// Makes a table of `metric` for each design, divided by `metric` for Linux.
fn table(
    (family, others): (&[Member], &[&str]),
    metric: &Metric,
    title: &str,
    note: &str,
) -> Table {
    let table = tabulate!(title, note, family, |member| {
        "CPUs" => member.setup.cpus(),
        "memory" => member.setup.memory.name(),
    });
    let designs = others.iter().map(|design| (*design, *design));
    table.with_each(family, designs, |member, design| {
        let ratio = member.results.ratio((LINUX, design), metric);
        if ratio.is_finite() {
            format!("{ratio:.2}")
        } else {
            "–".to_owned()
        }
    })
}

/// Makes a table with two counts. The first is the number of pages on page lists when the load
/// ends. The second is the number of huge blocks that are still missing after all memory was freed
/// and all lists were drained.
fn pages(family: &[Member], labels: &[&str]) -> Table {
    let table = tabulate!(
        "Pages on lists at the end of the load",
        "In brackets: free huge blocks that are missing after everything was freed and drained.",
        family,
        |member| {
            "CPUs" => member.setup.cpus(),
            "memory" => member.setup.memory.name(),
        }
    );
    let designs = labels.iter().map(|design| (*design, *design));
    table.with_each(family, designs, |member, design| {
        let results = &member.results;
        let lost = results.max(design, &HUGE_LOST);
        format!("{} ({lost})", results.show(design, &LISTED))
    })
}

/// The smallest and the largest ratio of `metric` between the two designs of `pair`, over all
/// machines and states of memory in `family`.
fn range(family: &[Member], pair: (&str, &str), metric: &Metric) -> String {
    let ratios = family
        .iter()
        .map(|member| member.results.ratio(pair, metric));
    let (low, high) = ratios.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), ratio| {
        (low.min(ratio), high.max(ratio))
    });
    format!("{low:.2}–{high:.2}")
}
