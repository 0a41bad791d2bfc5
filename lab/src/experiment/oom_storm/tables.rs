//! Tables of the oom-storm report.

use plimsoll_sim::profile::{Card, Profile};

use super::scene::{CROWD, EXITS, REAPINGS, Scene, StormDesign, metrics};
use super::{MACHINE, Ran};
use crate::error::Error;
use crate::measure::metric::{Metric, Unit};
use crate::measure::stats::{Comparison, Verdict};
use crate::report::Table;
use crate::report::value::{NOTHING, human, human_ratio};
use crate::run::options::Options;
use crate::run::progress::Progress;
use crate::workload::storm::Part;

fn texts<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// A table of the processes in each scene, and of what is scaled down.
pub(super) fn scenes(scenes: &[Scene]) -> Table {
    let row = |scene: &Scene| {
        let headcount = &scene.storm.headcount;
        let kib = |pages: u64| pages << 2;
        let threads = headcount.hogs.iter().map(ToString::to_string);
        let threads: Vec<String> = threads.collect();
        vec![
            scene.name.to_owned(),
            scene.about.to_owned(),
            format!(
                "{} of {} to {} KiB",
                headcount.sleepers,
                kib(*headcount.pages.start()),
                kib(*headcount.pages.end())
            ),
            headcount.allocators.to_string(),
            if threads.is_empty() {
                NOTHING.to_owned()
            } else {
                threads.join(" and ")
            },
            human(f64::from(scene.storm.free.0) * 4096.0, Unit::Bytes),
        ]
    };
    Table {
        title: "Scenes".to_owned(),
        note: "The machine has its 1 TB, with its watermarks, but all except the last column is taken \
               before the storm and belongs to no process: small processes and hogs are scaled \
               down, so that a run takes a second. There is no swap and nothing to reclaim. Each \
               allocator has memory like a small process, thinks 2 ms, touches 64 pages, 64 times; each \
               thread of a hog touches pages as fast as it can."
            .to_owned(),
        columns: texts([
            "scene", "about", "processes", "allocators", "threads of hogs", "left free",
        ]),
        rows: scenes.iter().map(row).collect(),
    }
}

/// A table of what an allocator waited for in one scene.
pub(super) fn parts(ran: &Ran, scene: &Scene) -> Table {
    let row = |(nth, design): (usize, &StormDesign)| {
        let mut row = texts([design.short(), design.reaping.name()]);
        let waited = ran.median(nth, &scene.metric(&metrics::WAITED));
        row.push(human(waited, Unit::Nanos));
        let part = |part| human(ran.median(nth, &scene.part(part)), Unit::Nanos);
        row.extend(Part::ALL.map(part));
        row
    };
    let mut columns = texts(["selector", "reaping", "waited"]);
    columns.extend(Part::ALL.map(|part| part.name().replace('_', " ")));
    Table {
        title: format!("What an allocator waited for: {}", scene.about),
        note: "Mean of all allocators, median of seeds; within a seed parts add up to the whole. \
               Running: attempts (zones in vain, drained lists), looks (the high mark, the kill). \
               Select: by this CPU or another. Pausing: busy (another CPU has the lock and does not select), \
               to exit (from the kill until a CPU begins to empty the victim), emptying (until pages are \
               back), retry (from then to the end of the tick)."
            .to_owned(),
        columns,
        rows: ran.designs.iter().enumerate().map(row).collect(),
    }
}

/// A table of single stalls and of victims.
pub(super) fn kills(ran: &Ran, scenes: &[Scene]) -> Table {
    let mut rows = Vec::new();
    for scene in scenes {
        for (nth, design) in ran.designs.iter().enumerate() {
            if design.reaping != REAPINGS[0] {
                continue;
            }
            let value = |metric: &Metric| {
                let metric = scene.metric(metric);
                human(ran.median(nth, &metric), metric.unit)
            };
            let mut row = vec![scene.name.to_owned(), design.selector()];
            row.extend(
                [
                    metrics::STALLS,
                    metrics::MEDIAN,
                    metrics::WORST,
                    metrics::KILLS,
                    metrics::WRONG,
                    metrics::REGRET,
                    metrics::FREED,
                    metrics::FREE,
                ]
                .map(|metric| value(&metric)),
            );
            rows.push(row);
        }
    }
    Table {
        title: "Stalls and victims, reaping as Linux did".to_owned(),
        note: "Medians of seeds. A kill is wrong if another process had over 1 MiB more; regret: how much, on \
               average. Stalls of processes that were killed while they waited are left out."
            .to_owned(),
        columns: texts([
            "scene",
            "selector",
            "stalls",
            "median",
            "worst",
            "kills",
            "wrong",
            "regret",
            "victims had",
            "kill to free",
        ]),
        rows,
    }
}

/// The ratio of B to A, with a word if its interval is on one side of 1.
fn ratio(compared: Option<Comparison>) -> String {
    compared.map_or_else(String::new, |it| {
        let word = match it.verdict {
            Verdict::Lower => " lower",
            Verdict::Higher => " higher",
            Verdict::NoDifference => "",
            Verdict::TooFewSeeds => " too few seeds",
        };
        format!("{}{word}", human_ratio(&it.ratio))
    })
}

/// The meaning of a ratio without a word.
const NO_WORD: &str = "A ratio without a verdict shows no difference.";

/// A table of whether the way of reaping matters.
pub(super) fn reaping(ran: &Ran, scenes: &[Scene]) -> Table {
    let mut rows = Vec::new();
    for scene in scenes {
        for first in (0..ran.designs.len()).step_by(REAPINGS.len()) {
            for other in first + 1..first + REAPINGS.len() {
                let mut row = vec![
                    scene.name.to_owned(),
                    ran.designs[first].short().to_owned(),
                    ran.designs[other].reaping.name().to_owned(),
                ];
                for metric in [metrics::WAITED, metrics::FREE] {
                    row.push(ratio(ran.compare(first, other, &scene.metric(&metric))));
                }
                rows.push(row);
            }
        }
    }
    Table {
        title: "Ways of reaping (B) against ascending (A)".to_owned(),
        note: format!("{NO_WORD} By chance, one comparison in twenty is outside its interval."),
        columns: texts([
            "scene",
            "selector",
            "B",
            "waited, B / A",
            "kill to free, B / A",
        ]),
        rows,
    }
}

/// A table of selectors over counters they do not belong to.
pub(super) fn swapped(ran: &Ran, scenes: &[Scene]) -> Table {
    let row = |(nth, design): (usize, &StormDesign)| {
        let mut row = vec![design.selector()];
        for scene in scenes {
            for metric in [metrics::WAITED, metrics::KILLS, metrics::WRONG] {
                let metric = scene.metric(&metric);
                row.push(human(ran.median(nth, &metric), metric.unit));
            }
            let select = scene.part(Part::Select);
            row.push(human(ran.median(nth, &select), Unit::Nanos));
        }
        row
    };
    let mut columns = texts(["selector"]);
    for scene in scenes {
        let of = ["waited", "kills", "wrong", "of waited, select"];
        columns.extend(of.map(|what| format!("{}: {what}", scene.name)));
    }
    Table {
        title: "Effects of the selector, and of its counters".to_owned(),
        note: "Reaping as Linux did. The first three rows have the counters of their own designs."
            .to_owned(),
        columns,
        rows: ran.designs.iter().enumerate().map(row).collect(),
    }
}

/// A table of the wholes at each cost card; `mid` has run already.
pub(super) fn cards(mid: &Ran, options: &Options, progress: &Progress) -> Result<Table, Error> {
    let scenes = Scene::all(options.effort);
    let scenes = [scenes[EXITS].clone(), scenes[CROWD].clone()];
    let wholes = StormDesign::wholes();
    let mut rows = Vec::new();
    let mut push = |card: Card, ran: &Ran| {
        for scene in &scenes {
            for (a, b) in [(0, 1), (0, 2), (1, 2)] {
                let [a, b] = [a, b].map(|nth| ran.position(wholes[nth]));
                let metric = scene.metric(&metrics::WAITED);
                let mut row = vec![card.name().to_owned(), scene.name.to_owned()];
                row.extend([a, b].map(|nth| ran.designs[nth].selector()));
                row.push(ratio(ran.compare(a, b, &metric)));
                rows.push(row);
            }
        }
    };
    for card in Card::ALL {
        if card == Card::Mid {
            push(card, mid);
            continue;
        }
        let profile = Profile::load(MACHINE, card)?;
        progress.start(format!("oom-storm on {MACHINE}, card {}", card.name()));
        let ran = Ran::new(wholes.clone(), &scenes, &profile, options, progress)?;
        push(card, &ran);
    }
    Ok(Table {
        title: "The wait of an allocator, at each cost card".to_owned(),
        note: format!(
            "Each selector with its own way of reaping. {NO_WORD} A ratio that changes between cards is fragile."
        ),
        columns: texts(["card", "scene", "A", "B", "B / A"]),
        rows,
    })
}
