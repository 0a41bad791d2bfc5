//! `reproduce oom-storm`: how long does it take from a failed allocation to a successful one?
//!
//! Other experiments measure parts of an OOM kill: how long a selection takes, whether the
//! selection is right, and how soon a dead process's memory is free. This experiment runs the whole
//! sequence while allocators wait. It uses one machine with real zones, lists, page tables and
//! counters. The allocators drain lists, select a victim and kill it. Then the victim exits, or the
//! reaper empties its memory. Ticks pass between these steps.
//!
//! The submodule `scene` has the storms and their metrics. `tables` makes the tables, such as the
//! table of the parts of each stall.

mod scene;
mod tables;

use self::scene::{CROWD, EXITS, NUMBERS, Scenes};
use super::driver::{Clock, Code, Made, Part, Run, Runs, variants};
use crate::error::Error;

/// The storms (runs in which allocators wait for memory) as a workload that experiment files can
/// name.
pub(super) static SUBJECT: &dyn Runs = &CODE;

static CODE: Code<Scenes> = Code {
    workload: "out-of-memory-storm",
    about: "allocators run out of memory, kill processes, and wait for their memory",
    numbers: NUMBERS,
    of_designs: &[],
    takes_memory: false,
    clock: Clock::Virtual,
    setup: Scenes::new,
    metrics: Scenes::metrics,
    measure: |scenes, case| (scenes.measure(&case.design.design, case.seed), ()),
    parts: &[
        Part::new("scenes", |run| Ok(tables::scenes(&run.setup).into())),
        Part::new("stalls", |run: &Run<'_, Scenes>| {
            let scenes = run.setup.all.iter();
            let tables = scenes.map(|scene| tables::parts(run, scene));
            Ok(tables.collect::<Vec<_>>().into())
        })
        .naming(&EACH),
        Part::new("kills", |run| Ok(tables::kills(run).into())).naming(&EACH),
        Part::new("reaping", |run| Ok(tables::reaping(run).into())).naming(&EACH),
        Part::new("swapped", swapped).naming(&EACH),
        Part::new("waits-at-cards", |run| {
            if run.has_cards() {
                Ok(tables::cards(run)?.into())
            } else {
                Ok(Made::default())
            }
        })
        .naming(&[LINUX, PATCH, OURS]),
    ],
    cells: &[],
};

// The names of three designs. Each takes the selector (algorithm that chooses a victim), the
// counters and the way of reaping from one source: Linux, the patches, or this project.
const LINUX: &str = "select-precise+flat+ascending";
const PATCH: &str = "select-two-pass+tree+descending-by-vma";
const OURS: &str = "select-bounded+one-sided+meet-in-the-middle";

/// Three ways to choose a victim, each with the counters of the same source: Linux, the patch, and
/// this project.
const SELECTORS: [&str; 3] = [
    "select-precise+flat",
    "select-two-pass+tree",
    "select-bounded+one-sided",
];

/// Three ways in which the reaper walks an address space: the way of Linux before 6.18, the way of
/// Linux since 6.18, and our way.
const REAPINGS: [&str; 3] = ["ascending", "descending-by-vma", "meet-in-the-middle"];

/// Each selector (algorithm that chooses a victim) with the counters of another design. These
/// combinations show which part of a difference is due to the selector, and which part is due to
/// the counters.
const SWAPPED: [&str; 4] = [
    "select-precise+tree",
    "select-precise+one-sided",
    "select-two-pass+one-sided",
    "select-bounded+tree",
];

/// The designs that the tables name: each algorithm that chooses a victim with each way of reaping.
const EACH: [&str; 9] = [
    LINUX,
    "select-precise+flat+descending-by-vma",
    "select-precise+flat+meet-in-the-middle",
    "select-two-pass+tree+ascending",
    PATCH,
    "select-two-pass+tree+meet-in-the-middle",
    "select-bounded+one-sided+ascending",
    "select-bounded+one-sided+descending-by-vma",
    OURS,
];

fn with_reaping(selector: &str, reaping: &str) -> String {
    format!("{selector}+{reaping}")
}

/// Makes the table of selectors (algorithms that choose a victim) that run with the counters of
/// other designs.
fn swapped(run: &Run<'_, Scenes>) -> Result<Made, Error> {
    // First come the selectors (algorithms that choose a victim) with the counters of their own
    // designs. The runs of these designs exist already. Then come the selectors with the counters
    // of other designs. All designs reap as Linux did before 6.18, so only selector and counters
    // differ.
    let as_before = |selector| with_reaping(selector, REAPINGS[0]);
    let own = SELECTORS.map(as_before);
    let own = run.named(&own.each_ref().map(String::as_str));
    let swapped = variants("unpatched", SWAPPED.map(as_before))?;
    let two = run.setup.clone().only(&[EXITS, CROWD]);
    let about = "selectors over other counters";
    let seeds = run.numbers().count("swapped_seeds");
    let (results, _) = run.further_on_few(about, &two, &swapped, seeds)?;
    let own = own.iter().map(|design| (design, &run.results));
    let both: Vec<_> = own
        .chain(swapped.iter().map(|design| (design, &results)))
        .collect();
    Ok(tables::swapped(&both, &two, seeds).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_designs_are_every_selector_with_every_way_of_reaping() {
        let mut all = SELECTORS
            .into_iter()
            .flat_map(|selector| REAPINGS.map(|reaping| with_reaping(selector, reaping)));
        assert!(EACH.iter().all(|name| all.next().as_deref() == Some(*name)));
        assert_eq!(all.next(), None);
    }
}
