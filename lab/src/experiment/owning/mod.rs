//! `reproduce purge` and `reproduce exits`: what do page lists gain if they own blocks?
//!
//! Two needs were reported with the proposal of April 2026 to let CPUs own page blocks: allocators
//! that purge memory from threads of their own, and exits of large processes. In both, one CPU
//! allocates a page and another frees it. Each experiment runs on 96, 192 and 384 CPUs, with memory
//! that is fresh, aged and fragmented.
//!
//! The submodule `scene` has the machines, the loads and the metrics.

mod scene;

use self::scene::{
    CONTENTIONS, COST, HOLD_MAX, HUGE_LOST, LISTED, LONGEST, Load, METRICS, PCP_WAIT, RATE, Scene,
    WAIT_MAX, ZONE_WAIT,
};
use super::Experiment;
use super::declared::{Clock, Declaration, Finding, Results, Run, metrics_of, variants_of};
use crate::error::Error;
use crate::measure::metric::Metric;
use crate::report::{Table, tabulate};
use crate::run::aging::Memory;
use crate::run::options::Effort;

/// The entries in the catalog.
pub(super) static PURGE: &dyn Experiment = &declare(
    "purge",
    "what do lists that own blocks gain if threads allocate and a few others purge?",
    |machine, card, effort| Scene::new(machine, card, effort, Load::Purge),
);
pub(super) static EXITS: &dyn Experiment = &declare(
    "exits",
    "what do lists that own blocks gain if many processes end at once?",
    |machine, card, effort| Scene::new(machine, card, effort, Load::Exits),
);

type Declared = Declaration<Scene>;

const fn declare(
    name: &'static str,
    question: &'static str,
    setup: fn(&str, plimsoll_sim::profile::Card, Effort) -> Result<Scene, Error>,
) -> Declared {
    Declaration {
        name,
        question,
        machines: &["epyc-9654-2s"],
        clock: Clock::Virtual,
        designs: || variants_of("unpatched", DESIGNS),
        verdicts: &[
            (LINUX, BATCHED),
            (LINUX, BOUNDED),
            (LINUX, RFC),
            (BOUNDED, OURS),
            (RFC, OURS),
            (RFC_BOUNDED, OURS),
        ],
        published: &[],
        setup,
        metrics: |_| metrics_of(METRICS),
        shown: None,
        compared: Some(|_| COMPARED.to_vec()),
        measure: |scene, case| (scene.measure(&case.design.design, case.seed), ()),
        cards: None,
        conclude,
    }
}

/// Linux 6.18.
const LINUX: &str = "lists-6.18";
/// The design of Linux with the merged patch that frees pages in batches.
const BATCHED: &str = "batched";
/// Our design, in which each hold of the zone lock is short. No CPU owns page blocks.
const BOUNDED: &str = "bounded";
/// CPUs own page blocks as the patches of April 2026 proposed it, on the kernel for which these
/// were posted.
const RFC: &str = "batched+block-owned-rfc";
/// CPUs own page blocks as the patches of April 2026 proposed it, but each hold of the zone lock is
/// short, as in our design.
const RFC_BOUNDED: &str = "bounded+block-owned-rfc";
const OURS: &str = "bounded+block-owned";
const DESIGNS: [&str; 6] = [LINUX, BATCHED, BOUNDED, RFC, RFC_BOUNDED, OURS];

/// The metrics in which the report compares designs, with a verdict for each difference.
const COMPARED: [Metric; 8] = [
    RATE,
    COST,
    LONGEST,
    CONTENTIONS,
    ZONE_WAIT,
    PCP_WAIT,
    HOLD_MAX,
    WAIT_MAX,
];

/// All combinations of a machine and a state of memory, except that of the main table, run with at
/// most this many seeds.
const SEEDS: usize = 2;

/// The results on one machine with memory in one state (fresh, aged or fragmented).
struct Member {
    scene: Scene,
    results: Results,
}

fn conclude(run: &Run<'_, Scene>) -> Result<(Vec<Table>, Finding), Error> {
    let family = family(run)?;
    let tables = vec![
        run.scene.table(),
        table(
            &family,
            &RATE,
            "Throughput",
            "Pages faulted in per second, as multiples of Linux's.",
        ),
        table(
            &family,
            &COST,
            "Time to free a page",
            "Unmapping and freeing, per page, as multiples of Linux's.",
        ),
        table(
            &family,
            &CONTENTIONS,
            "Contentions of zone locks",
            "As multiples of Linux's. A dash: Linux has none.",
        ),
        pages(&family),
    ];
    Ok((tables, finding(&family)))
}

/// Runs all designs on each machine, with memory fresh, aged and fragmented.
fn family(run: &Run<'_, Scene>) -> Result<Vec<Member>, Error> {
    let member = |scene: Scene| {
        let results = if scene.is_like(&run.scene) {
            run.results.clone()
        } else {
            let about = format!("{} CPUs, {} memory", scene.cpus(), scene.memory.name());
            run.further_on_few(&about, &scene, &run.designs, SEEDS)?.0
        };
        Ok(Member { scene, results })
    };
    let scenes: Vec<Scene> = match run.options.effort {
        Effort::Quick => vec![run.scene.clone()],
        Effort::Full => {
            let sizes = [96, 192, 384].iter();
            let each = sizes.flat_map(|cpus| Memory::ALL.map(|memory| (*cpus, memory)));
            each.map(|(cpus, memory)| run.scene.on(cpus, memory))
                .collect()
        }
    };
    scenes.into_iter().map(member).collect()
}

/// Makes a table of `metric` with each design, divided by `metric` with Linux.
fn table(family: &[Member], metric: &Metric, title: &str, note: &str) -> Table {
    let table = tabulate!(title, note, family, |member| {
        "CPUs" => member.scene.cpus(),
        "memory" => member.scene.memory.name(),
    });
    let designs = DESIGNS[1..].iter().map(|design| (design, design));
    table.with_each(family, designs, |member, design| {
        let ratio = member.results.ratio((LINUX, design), metric);
        if ratio.is_finite() {
            format!("{ratio:.2}")
        } else {
            "–".to_owned()
        }
    })
}

/// Makes the table of the pages on page lists when the load ends, and of the huge blocks that are
/// still missing after all memory was freed and all lists were drained.
fn pages(family: &[Member]) -> Table {
    let table = tabulate!(
        "Pages on lists at the end of the load",
        "In brackets: free huge blocks that are missing after everything was freed and drained.",
        family,
        |member| {
            "CPUs" => member.scene.cpus(),
            "memory" => member.scene.memory.name(),
        }
    );
    let designs = DESIGNS.iter().map(|design| (design, design));
    table.with_each(family, designs, |member, design| {
        let results = &member.results;
        let lost = results.max(design, &HUGE_LOST);
        format!("{} ({lost})", results.show(design, &LISTED))
    })
}

/// Makes the report's finding, its conclusion in words. Every statement in it is computed from the
/// medians of the runs.
fn finding(family: &[Member]) -> Finding {
    let range = |pair: (&str, &str), metric: &Metric| {
        let ratios = family
            .iter()
            .map(|member| member.results.ratio(pair, metric));
        let (low, high) = ratios.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), ratio| {
            (low.min(ratio), high.max(ratio))
        });
        format!("{low:.2}–{high:.2}")
    };
    Finding::new(
        format!(
            "Over all machines and states of memory, our owned blocks multiply the throughput of \
             bounded holds by {} and that of the proposed form by {}.",
            range((BOUNDED, OURS), &RATE),
            range((RFC, OURS), &RATE),
        ),
        [
            ("proposed form against Linux", range((LINUX, RFC), &RATE)),
            ("ours against Linux", range((LINUX, OURS), &RATE)),
            (
                "time to free a page, ours against bounded holds",
                range((BOUNDED, OURS), &COST),
            ),
            ("ours against the proposed form", range((RFC, OURS), &COST)),
        ],
    )
}
