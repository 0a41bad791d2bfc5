//! The targets for our design, and whether the runs reach them. Our design is meet-in-the-middle:
//! the exiting thread and one reaper empty an address space from both ends.

use super::scene::{Scene, Scenes};
use super::{ASCENDING, OURS, PATCH};
use crate::experiment::driver::{Results, Target};
use crate::experiment::emptier::{self, ALONE, LISTED, RAN, SETTLED, TABLE_WAIT, WALL, faster};

/// The largest percentage by which the CPU time of our design is allowed to exceed the CPU time of
/// an exit without a reaper.
const WORK_PERCENT_MAX: f64 = 3.0;
/// Our design must free the memory at least this many times as fast as an exit without a reaper.
const FASTER_MIN: f64 = 1.8;
/// The speed-up of our design for a victim with one large mapping, divided by its speed-up for a
/// victim with many small mappings, must be at least this number.
const ONE_MIN: f64 = 0.97;

/// All targets, judged by the results of the runs.
///
/// CPU time and speed have two targets each. One is for a machine that has no free memory left, as
/// when the OOM killer acts. The other is for a machine that has free memory. On such a machine,
/// more of the freed pages remain on page lists. If the process exits without a reaper, one CPU
/// frees all pages, and most of them remain on its lists, because these lists grew while this CPU
/// touched the pages. The time until all memory is free does not include the return of these pages
/// to the zone.
pub(super) fn of(results: &Results, scenes: &Scenes) -> Vec<Target> {
    let equal = |metric| scenes.equal().metric(metric);
    let waits = 100.0 * results.ratio((ASCENDING, OURS), &equal(TABLE_WAIT));
    let mut all = emptier::waits_hardly(waits, cases_above(results, scenes)).to_vec();
    let many = faster(results, OURS, &equal(WALL));
    let one = faster(results, OURS, &scenes.one().metric(WALL));
    all.extend([
        work(
            results,
            scenes.short(),
            "work beyond that of exit alone, no memory left",
        ),
        work(
            results,
            scenes.equal(),
            "work beyond that of exit alone, memory left",
        ),
        speed(
            results,
            scenes.short(),
            "from kill to free, against exit alone, no memory left",
        ),
        speed(
            results,
            scenes.equal(),
            "from kill to free, against exit alone, memory left",
        ),
        Target {
            what: "the same with one large mapping",
            wanted: "as much as with many small ones",
            measured: format!("{one:.2} times"),
            met: Some(one >= ONE_MIN * many),
        },
    ]);
    all
}

/// The target for the CPU time of our design in one scene, compared with an exit without a reaper.
/// A scene is a victim, and the CPUs that empty the victim's memory. The time includes the later
/// return of pages from page lists to their zones.
fn work(results: &Results, scene: &Scene, what: &'static str) -> Target {
    let percent = |metric| 100.0 * (results.ratio((ALONE, OURS), &scene.metric(metric)) - 1.0);
    let (work, ran) = (percent(SETTLED), percent(RAN));
    Target {
        what,
        wanted: "3 % at most",
        measured: format!("{work:+.2} %; until all is free {ran:+.2} %"),
        met: Some(work <= WORK_PERCENT_MAX),
    }
}

/// The target for the speed of our design in one scene. The row of this target also shows how many
/// pages are on page lists at the end, both with our design and with an exit that no reaper helps.
fn speed(results: &Results, scene: &Scene, what: &'static str) -> Target {
    let times = faster(results, OURS, &scene.metric(WALL));
    let listed = |design| results.show(design, &scene.metric(LISTED));
    Target {
        what,
        wanted: "1.8 times as fast",
        measured: format!(
            "{times:.2} times; {} pages still on lists, {} of exit alone",
            listed(OURS),
            listed(ALONE)
        ),
        met: Some(times >= FASTER_MIN),
    }
}

/// Counts the cases in which waits for page tables are longer with our design than with the Linux
/// patch. Also counts all cases. A case is one seed in one scene.
fn cases_above(results: &Results, scenes: &Scenes) -> (usize, usize) {
    let (mut above, mut cases) = (0, 0);
    for scene in &scenes.all {
        let metric = scene.metric(TABLE_WAIT);
        let patch = results.values(PATCH, &metric).into_iter();
        for (patch, ours) in patch.zip(results.values(OURS, &metric)) {
            cases += 1;
            above += usize::from(ours > patch);
        }
    }
    (above, cases)
}
