//! The paragraph that follows from a run of oom-storm; the intervals choose its words.

use plimsoll_mm::counter::Counting;
use plimsoll_mm::oom::Selecting;

use super::Ran;
use super::scene::{
    CROWD, EXITS, HELPED, REAPINGS, SELECTORS, STUCK_SCENE, Scene, StormDesign, metrics,
};
use crate::measure::metric::{Metric, Unit};
use crate::measure::stats::Verdict;
use crate::report::value::{human, human_estimate, human_ratio};
use crate::workload::storm::Part;

/// The position of each selector with the first way of reaping.
const PRECISE: usize = 0;
const PATCH: usize = REAPINGS.len();
const OURS: usize = 2 * REAPINGS.len();

/// The whole paragraph.
pub(super) fn finding(ran: &Ran, swapped: &Ran, scenes: &[Scene]) -> String {
    [
        waits(ran, &scenes[EXITS]),
        counters(swapped, &scenes[EXITS]),
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

/// The ratio of what allocators wait with B to what they wait with A, in words.
fn against(ran: &Ran, a: usize, b: usize, scene: &Scene) -> String {
    let compared = ran.compare(a, b, &scene.metric(&metrics::WAITED));
    compared.map_or_else(String::new, |it| {
        let words = match it.verdict {
            Verdict::Lower => "lower",
            Verdict::Higher => "higher",
            Verdict::NoDifference => "no difference seen",
            Verdict::TooFewSeeds => "too few seeds to tell",
        };
        format!("{} ({words})", human_ratio(&it.ratio))
    })
}

/// The share of one part in the time that allocators wait, in percent.
fn share(ran: &Ran, nth: usize, scene: &Scene, part: Part) -> f64 {
    let whole = ran.median(nth, &scene.metric(&metrics::WAITED)).max(1.0);
    100.0 * ran.median(nth, &scene.part(part)) / whole
}

/// The sentence on the scene in which victims exit by themselves.
fn waits(ran: &Ran, scene: &Scene) -> String {
    let select = |nth| format!("{:.0} %", share(ran, nth, scene, Part::Select));
    format!(
        "When hogs are killed and exit by themselves, an allocator waits {} with precise sums of all \
         over flat counters, {} with the patch and {} with ours; {}, {} and {} of it while a victim is \
         looked for. Ours over Linux: {}; over the patch: {}.",
        waited(ran, PRECISE, scene),
        waited(ran, PATCH, scene),
        waited(ran, OURS, scene),
        select(PRECISE),
        select(PATCH),
        select(OURS),
        against(ran, PRECISE, OURS, scene),
        against(ran, PATCH, OURS, scene),
    )
}

/// The sentence on what is due to the counters.
fn counters(swapped: &Ran, scene: &Scene) -> String {
    let with = |selector: (Selecting, Counting)| {
        let (selecting, counting) = selector;
        swapped.position(StormDesign {
            selecting,
            counting,
            reaping: REAPINGS[0],
        })
    };
    let [linux, _, ours] = SELECTORS;
    let sums = with((linux.0, ours.1));
    format!(
        "Precise sums of all over our counters: {}; our selector over that: {}.",
        waited(swapped, sums, scene),
        against(swapped, sums, with(ours), scene),
    )
}

/// The sentence on the scene without a hog.
fn crowd(ran: &Ran, swapped: &Ran, scene: &Scene) -> String {
    let value = |ran: &Ran, nth, metric: &Metric| {
        let metric = scene.metric(metric);
        human(ran.median(nth, &metric), metric.unit)
    };
    let kills = |nth| value(ran, nth, &metrics::KILLS);
    let other = swapped.position(StormDesign {
        selecting: SELECTORS[1].0,
        counting: SELECTORS[2].1,
        reaping: REAPINGS[0],
    });
    format!(
        "Without a hog Linux kills {} processes, the patch {}, of which {} are not the largest, and ours \
         {}; over our counters the patch kills {}.",
        kills(PRECISE),
        kills(PATCH),
        value(ran, PATCH, &metrics::WRONG),
        kills(OURS),
        value(swapped, other, &metrics::KILLS),
    )
}

/// The sentence on the scene in which only the reaper can empty the victim.
fn stuck(ran: &Ran, scene: &Scene) -> String {
    let delay = |nth| share(ran, nth, scene, Part::ToExit);
    let least = [PRECISE, PATCH, OURS].map(delay).into_iter();
    format!(
        "If the victim is stuck, at least {:.0} % of the wait is the reaper's delay, with every selector.",
        least.fold(100.0, f64::min).floor()
    )
}

/// The sentence on whether the way of reaping matters.
fn reaping(ran: &Ran, scenes: &[Scene]) -> String {
    let (mut seen, mut all) = (0, 0);
    for scene in scenes {
        for first in [PRECISE, PATCH, OURS] {
            for other in first + 1..first + REAPINGS.len() {
                let compared = ran.compare(first, other, &scene.metric(&metrics::WAITED));
                let differs = |verdict| matches!(verdict, Verdict::Lower | Verdict::Higher);
                seen += usize::from(compared.is_some_and(|it| differs(it.verdict)));
                all += 1;
            }
        }
    }
    let helped = &scenes[HELPED];
    let first_pages = [PRECISE, PATCH, OURS].map(|nth| share(ran, nth, helped, Part::Emptying));
    let most = first_pages.into_iter().fold(0.0, f64::max);
    let meet = |first| {
        let metric = helped.metric(&metrics::FREE);
        let compared = ran.compare(first, first + REAPINGS.len() - 1, &metric);
        compared.map_or_else(String::new, |it| human_ratio(&it.ratio))
    };
    format!(
        "How a victim is emptied changes the wait of allocators in {seen} of {all} comparisons with \
         ascending, of which one in twenty would do so by chance: where a daemon helps, at most {most:.0} % \
         of the wait is from the first emptied page table until pages are back. All memory is free \
         there in {} (over Linux's selector) and {} (over ours) of the time if exit and daemon meet in the middle.",
        meet(PRECISE),
        meet(OURS),
    )
}
