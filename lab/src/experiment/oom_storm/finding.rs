//! What follows from a run of oom-storm, in words that its intervals choose.

use super::Ran;
use super::scene::{
    CROWD, Contestant, EXITS, HELPED, REAPINGS, SELECTORS, STUCK_SCENE, Scene, metrics,
};
use crate::metric::{Metric, Unit};
use crate::report::value::{human, human_estimate, human_ratio};
use crate::stats::Verdict;
use crate::workload::storm::Part;

/// Positions of the selectors, each with the first way of reaping.
const PRECISE: usize = 0;
const PATCH: usize = REAPINGS.len();
const OURS: usize = 2 * REAPINGS.len();

/// One paragraph.
pub(super) fn finding(ran: &Ran, swapped: &Ran, scenes: &[Scene]) -> String {
    [
        waits(ran, &scenes[EXITS]),
        crowd(ran, swapped, &scenes[CROWD]),
        stuck(ran, &scenes[STUCK_SCENE]),
        reaping(ran, scenes),
    ]
    .join(" ")
}

fn waited(ran: &Ran, nth: usize, scene: &Scene) -> String {
    let estimate = ran.estimate(nth, &scene.metric(&metrics::WAITED));
    estimate.map_or_else(String::new, |it| human_estimate(&it, Unit::Nanos))
}

/// Whose victims exit by themselves.
fn waits(ran: &Ran, scene: &Scene) -> String {
    let select = |nth: usize| {
        let whole = ran.median(nth, &scene.metric(&metrics::WAITED)).max(1.0);
        format!(
            "{:.0} %",
            100.0 * ran.median(nth, &scene.part(Part::Select)) / whole
        )
    };
    let against = |a, b| {
        let compared = ran.compare(a, b, &scene.metric(&metrics::WAITED));
        compared.map_or_else(String::new, |it| {
            format!("{} ({})", human_ratio(&it.ratio), it.verdict)
        })
    };
    format!(
        "When hogs die and exit by themselves an allocator waits {} with precise sums of all, {} with the \
         patch and {} with ours; {}, {} and {} of it while a victim is looked for. Ours over Linux: {}; \
         over the patch: {}.",
        waited(ran, PRECISE, scene),
        waited(ran, PATCH, scene),
        waited(ran, OURS, scene),
        select(PRECISE),
        select(PATCH),
        select(OURS),
        against(PRECISE, OURS),
        against(PATCH, OURS),
    )
}

/// Without a hog.
fn crowd(ran: &Ran, swapped: &Ran, scene: &Scene) -> String {
    let value = |ran: &Ran, nth, metric: &Metric| {
        let metric = scene.metric(metric);
        human(ran.median(nth, &metric), metric.unit)
    };
    let kills = |nth| value(ran, nth, &metrics::KILLS);
    let other = Contestant {
        selecting: SELECTORS[1].0,
        counting: SELECTORS[2].1,
        reaping: REAPINGS[0],
    };
    let other = swapped.position(other);
    format!(
        "Without a hog Linux kills {} processes, the patch {}, of which {} are not the largest, and ours \
         {}; with our counters the patch kills {}.",
        kills(PRECISE),
        kills(PATCH),
        value(ran, PATCH, &metrics::WRONG),
        kills(OURS),
        value(swapped, other, &metrics::KILLS),
    )
}

/// When only the reaper is left.
fn stuck(ran: &Ran, scene: &Scene) -> String {
    let share = |nth: usize| {
        let whole = ran.median(nth, &scene.metric(&metrics::WAITED)).max(1.0);
        100.0 * ran.median(nth, &scene.part(Part::ToExit)) / whole
    };
    let least = [PRECISE, PATCH, OURS]
        .map(share)
        .into_iter()
        .fold(100.0, f64::min);
    format!(
        "When the victim is stuck, {least:.0} % of the wait or more is the reaper's delay of 2 s, \
         whoever selects and however it reaps."
    )
}

/// Whether the way of reaping was seen to matter.
fn reaping(ran: &Ran, scenes: &[Scene]) -> String {
    let differs = |scene: &Scene, metric: &Metric| {
        let mut seen = 0;
        for first in [PRECISE, PATCH, OURS] {
            for other in first + 1..first + REAPINGS.len() {
                let compared = ran.compare(first, other, &scene.metric(metric));
                let differs = |verdict| matches!(verdict, Verdict::Lower | Verdict::Higher);
                seen += usize::from(compared.is_some_and(|it| differs(it.verdict)));
            }
        }
        seen
    };
    let all = SELECTORS.len() * (REAPINGS.len() - 1) * scenes.len();
    let waits: usize = scenes
        .iter()
        .map(|scene| differs(scene, &metrics::WAITED))
        .sum();
    let helped = &scenes[HELPED];
    let meet = |metric| {
        let compared = ran.compare(OURS, OURS + REAPINGS.len() - 1, &helped.metric(metric));
        compared.map_or_else(String::new, |it| human_ratio(&it.ratio))
    };
    format!(
        "How a victim is emptied changes what allocators wait in {waits} of {all} comparisons with \
         ascending: the first pages are back as soon as anybody begins, and the rest comes faster than \
         they take it. Where a daemon helps, memory is all free in {} of the time if they meet in the \
         middle, and allocators wait {}.",
        meet(&metrics::FREE),
        meet(&metrics::WAITED),
    )
}
