//! `reproduce oom-storm`: how long does it take from a failed allocation to one that succeeds?
//!
//! Other experiments measure parts of an OOM kill: how long a selection takes, whether the
//! selection is right, and how soon a dead process's memory is free. This experiment runs the whole
//! sequence on one machine with real zones, lists, page tables and counters, while allocators wait.
//! The allocators drain lists, select a victim and kill it. The victim then exits or the reaper
//! empties its memory, and ticks pass between these steps.
//!
//! The submodule `scene` has the storms and their metrics. `tables` makes the tables, such as those
//! of the parts of each stall.

mod scene;
mod tables;

use self::scene::{CROWD, EXITS, FREE, KILLS, Scenes, WAITED, WORST};
use super::Experiment;
use super::declared::{Clock, Declaration, Finding, Results, Run, level, variants_of};
use crate::catalog::designs::Named;
use crate::error::Error;
use crate::measure::metric::Metric;
use crate::report::Table;

/// The experiment's entry in the catalog.
pub(super) static EXPERIMENT: &dyn Experiment = &DECLARATION;

static DECLARATION: Declaration<Scenes> = Declaration {
    name: "oom-storm",
    question: "how long is it from an allocation that failed to one that succeeds?",
    machines: &["epyc-9654-256"],
    clock: Clock::Virtual,
    designs,
    verdicts: &[
        (LINUX, PATCH),
        (LINUX, OURS),
        (PATCH, OURS),
        (
            "select-precise+flat+ascending",
            "select-precise+flat+meet-in-the-middle",
        ),
        (
            "select-two-pass+tree+ascending",
            "select-two-pass+tree+meet-in-the-middle",
        ),
        (
            "select-bounded+one-sided+ascending",
            "select-bounded+one-sided+meet-in-the-middle",
        ),
    ],
    published: &[],
    setup: Scenes::new,
    metrics: Scenes::metrics,
    shown: Some(shown),
    compared: Some(shown),
    measure: |scenes, case| (scenes.measure(&case.design.design, case.seed), ()),
    cards: None,
    conclude,
};

// Three designs, each of a selector, counters and a way of reaping: all three are from Linux, or
// from the patches, or ours.
const LINUX: &str = "select-precise+flat+ascending";
const PATCH: &str = "select-two-pass+tree+descending-by-vma";
const OURS: &str = "select-bounded+one-sided+meet-in-the-middle";

/// Linux's selector with Linux's counters, the patch's selector with the patch's counters, and our
/// selector with our counters.
const SELECTORS: [&str; 3] = [
    "select-precise+flat",
    "select-two-pass+tree",
    "select-bounded+one-sided",
];

/// The ways in which the reaper walks an address space: that of Linux before 6.18, that of Linux
/// since 6.18, and ours.
const REAPINGS: [&str; 3] = ["ascending", "descending-by-vma", "meet-in-the-middle"];

/// Each selector with the counters of another design. These combinations show which part of a
/// difference is due to the selector and which to the counters.
const SWAPPED: [&str; 4] = [
    "select-precise+tree",
    "select-precise+one-sided",
    "select-two-pass+one-sided",
    "select-bounded+tree",
];

/// The designs in [`SWAPPED`] run with at most this many seeds, because they are only for one
/// table.
const SWAPPED_SEEDS: usize = 3;

/// Each selector with each way of reaping, grouped by selector.
fn designs() -> Result<Vec<Named>, Error> {
    let with = |selector| REAPINGS.map(|reaping| with_reaping(selector, reaping));
    variants_of("unpatched", SELECTORS.into_iter().flat_map(with))
}

fn with_reaping(selector: &str, reaping: &str) -> String {
    format!("{selector}+{reaping}")
}

/// The metrics that have a separate row for each design. The other metrics are only in tables.
fn shown(scenes: &Scenes) -> Vec<Metric> {
    scenes.of_each(&[WAITED, WORST, KILLS, FREE])
}

fn conclude(run: &Run<'_, Scenes>) -> Result<(Vec<Table>, Finding), Error> {
    // First the selectors with the counters of their own designs, whose runs exist already, then
    // the selectors with the counters of other designs. All reap as Linux did before 6.18, so only
    // selector and counters differ.
    let as_before = |selector| with_reaping(selector, REAPINGS[0]);
    let own = SELECTORS.map(as_before);
    let own = run.named(&own.each_ref().map(String::as_str));
    let swapped = variants_of("unpatched", SWAPPED.map(as_before))?;
    let two = run.scene.clone().only(&[EXITS, CROWD]);
    let about = "selectors over other counters";
    let (results, _) = run.further_on_few(about, &two, &swapped, SWAPPED_SEEDS)?;
    let own = own.iter().map(|design| (design, &run.results));
    let both: Vec<_> = own
        .chain(swapped.iter().map(|design| (design, &results)))
        .collect();

    let mut tables = vec![tables::scenes(&run.scene)];
    let scenes = run.scene.all.iter();
    tables.extend(scenes.map(|scene| tables::parts(run, scene)));
    tables.push(tables::kills(run));
    tables.push(tables::reaping(run));
    tables.push(tables::swapped(&both, &two));
    if run.has_cards() {
        tables.push(tables::cards(run)?);
    }
    Ok((tables, finding(&run.results, &run.scene)))
}

/// Makes the report's finding, its conclusion in words. Every statement in it is computed from the
/// medians and intervals of the runs.
fn finding(results: &Results, scenes: &Scenes) -> Finding {
    let waited = scenes.scene(EXITS).metric(&WAITED);
    let kills = scenes.scene(CROWD).metric(&KILLS);
    let against = |a| level(results.compare((a, OURS), &waited).verdict);
    let answer = format!(
        "If killed hogs exit by themselves, the time that an allocator waits is {} with ours \
         compared with Linux and {} compared with the patches; if no process is much larger than \
         the others, Linux kills {} processes, the patches kill {} and ours kills {}.",
        against(LINUX),
        against(PATCH),
        results.show(LINUX, &kills),
        results.show(PATCH, &kills),
        results.show(OURS, &kills),
    );
    Finding::new(
        answer,
        [
            ("waits with Linux", results.show_interval(LINUX, &waited)),
            ("with the patches", results.show_interval(PATCH, &waited)),
            ("with ours", results.show_interval(OURS, &waited)),
            (
                "ours over Linux",
                results.show_ratio((LINUX, OURS), &waited),
            ),
            (
                "ours over the patches",
                results.show_ratio((PATCH, OURS), &waited),
            ),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_selector_meets_every_way_of_reaping() {
        let all = designs().expect("names that can be typed");
        assert_eq!(all.len(), SELECTORS.len() * REAPINGS.len());
        for design in all {
            let variants = design.design.variants().join("+");
            for part in design.name.split('+') {
                assert!(variants.contains(part), "{part} of {}", design.name);
            }
        }
    }
}
