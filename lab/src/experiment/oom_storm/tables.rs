//! Tables of the oom-storm report.

use plimsoll_sim::profile::Card;

use super::scene::{
    CROWD, EXITS, FREE, FREED, HELPED, KILLS, MEDIAN, REGRET, STALLS, STUCK, Scene, Scenes, WAITED,
    WORST, WRONG,
};
use super::{LINUX, OURS, PATCH, REAPINGS, SELECTORS, with_reaping};
use crate::error::Error;
use crate::experiment::driver::{Results, Run, Tried};
use crate::measure::metric::{Metric, Unit};
use crate::measure::stats::{Comparison, Verdict};
use crate::report::value::{NOTHING, human, human_ratio};
use crate::report::{Table, tabulate};
use crate::run::options::Effort;
use crate::workload::storm::Part;

/// The name of the algorithm by which a design selects a victim. The name does not include the
/// counters.
fn short(design: &Tried) -> &'static str {
    let name = design.design.selecting.name();
    name.strip_prefix("select-").unwrap_or(name)
}

/// The names of a design's selector (algorithm that chooses a victim) and counters.
fn selector(design: &Tried) -> String {
    format!("{} over {}", short(design), design.design.counting.name())
}

fn reaping_of(design: &Tried) -> &'static str {
    design.design.reaping.name()
}

/// Makes a table of the scenes and their processes. The note under the table says which sizes are
/// smaller than on a real machine.
pub(super) fn scenes(scenes: &Scenes) -> Table {
    tabulate!(
        "Scenes",
        "The machine has 1 TB and the watermarks of that size. All memory except that in the last \
         column is taken before the storm and belongs to no process. Processes and hogs are scaled \
         down, so that a run takes a second. There is no swap and nothing to reclaim. Each \
         allocator has as much memory as one of the processes, and repeats 64 times: think for 2 \
         ms, touch 64 pages. Each thread of a hog touches pages as fast as it can.",
        &scenes.all,
        |scene| {
            "scene" => scene.name,
            "about" => scene.about,
            "processes" => {
                let headcount = &scene.storm.headcount;
                let kib = |pages: &u64| pages << 2;
                format!("{} of {} to {} KiB",
                    headcount.sleepers,
                    kib(headcount.pages.start()),
                    kib(headcount.pages.end())
                )
            },
            "allocators" => scene.storm.headcount.allocators,
            "threads of hogs" => {
                let threads = scene.storm.headcount.hogs.iter();
                let threads: Vec<String> = threads.map(ToString::to_string).collect();
                if threads.is_empty() {
                    NOTHING.to_owned()
                } else {
                    threads.join(" and ")
                }
            },
            "left free" => human(f64::from(scene.storm.free.0) * 4096.0, Unit::Bytes),
        }
    )
}

/// A table of the parts of an allocator's wait in one scene, such as the wait for the selection,
/// for the exit or for the reaper.
pub(super) fn parts(run: &Run<'_, Scenes>, scene: &Scene) -> Table {
    let stuck = if scene.name == STUCK {
        until_reaping(&run.results, scene)
    } else {
        String::new()
    };
    let show = |design: &Tried, metric: &Metric| run.results.show(&design.name, metric);
    let table = tabulate!(
        format!("What an allocator waited for: {}", scene.about),
        format!(
            "The mean over all allocators; of the seeds, the median. Within a seed, the parts add \
             up to `waited`. While the allocator runs: `attempts` (tries zones in vain, drains \
             lists), `looks` (looks for memory above the high watermark, kills). `select`: this \
             CPU or another selects. While it sleeps: `busy` (another CPU has the OOM lock and \
             does not select), `to exit` (from the kill until a CPU begins to empty the victim), \
             `emptying` (from then until pages are free), `retry` (from then to the end of the \
             tick).{stuck}"
        ),
        run.designs,
        |design| {
            "selector" => short(design),
            "reaping" => reaping_of(design),
            "waited" => show(design, &scene.metric(&WAITED)),
        }
    );
    table.with_each(
        run.designs,
        Part::ALL.map(|part| (part.name().replace('_', " "), part)),
        |design, part| show(design, &scene.part(*part)),
    )
}

/// The sentence about the storm in which only the reaper can empty the victim. It says how much of
/// an allocator's wait is the reaper's delay.
fn until_reaping(results: &Results, scene: &Scene) -> String {
    let share = |selector| {
        share(
            results,
            &with_reaping(selector, REAPINGS[0]),
            scene,
            Part::ToExit,
        )
    };
    let least = SELECTORS.map(share).into_iter().fold(100.0, f64::min);
    format!(
        " With every selector, at least {:.0} % of the wait is the reaper's delay.",
        least.floor()
    )
}

/// The share of `part` in the total waiting time of the allocators, in percent.
fn share(results: &Results, design: &str, scene: &Scene, part: Part) -> f64 {
    let whole = results.median(design, &scene.metric(&WAITED)).max(1.0);
    100.0 * results.median(design, &scene.part(part)) / whole
}

/// A table that shows how long single stalls (waits of an allocation because memory is out) last,
/// how many victims there are, and how well the victims were chosen.
pub(super) fn kills(run: &Run<'_, Scenes>) -> Table {
    let designs = || {
        let designs = run.designs.iter();
        designs.filter(|design| reaping_of(design) == REAPINGS[0])
    };
    let scenes = run.setup.all.iter();
    let rows = scenes.flat_map(|scene| designs().map(move |design| (scene, design)));
    let rows: Vec<(&Scene, &Tried)> = rows.collect();
    let table = tabulate!(
        "Stalls and victims, reaping as Linux did before 6.18",
        "Medians of seeds. A kill is wrong if another process had over 1 MiB more than the victim. \
         `regret`: how much more the largest process had, on average over all kills. Stalls of \
         processes that were killed while they waited are left out.",
        &rows,
        |(scene, design)| {
            "scene" => scene.name,
            "selector" => selector(design),
        }
    );
    table.with_each(
        &rows,
        [
            ("stalls", STALLS),
            ("median", MEDIAN),
            ("worst", WORST),
            ("kills", KILLS),
            ("wrong", WRONG),
            ("regret", REGRET),
            ("victims had", FREED),
            ("kill to free", FREE),
        ],
        |(scene, design), metric| run.results.show(&design.name, &scene.metric(metric)),
    )
}

/// The ratio of design B to design A, followed by a word for the verdict if B differs from A.
fn with_word(compared: Comparison) -> String {
    let word = match compared.verdict {
        Verdict::Lower => " lower",
        Verdict::Higher => " higher",
        Verdict::NoDifference | Verdict::Equal => "",
        Verdict::TooFewSeeds => " too few seeds",
    };
    format!("{}{word}", human_ratio(&compared.ratio))
}

/// The note under a table in which some ratios have no verdict.
const NO_WORD: &str = "A ratio without a verdict shows no difference.";

/// A table that shows whether the way in which the reaper walks an address space affects how long
/// allocators wait.
pub(super) fn reaping(run: &Run<'_, Scenes>) -> Table {
    let mut rows = Vec::new();
    for scene in &run.setup.all {
        // Each chunk has the designs with the same selector (algorithm that chooses a victim). They
        // differ only in the way of reaping. Compare the first design of the chunk with each of
        // the others.
        for of_selector in run.designs.chunks(REAPINGS.len()) {
            let (first, others) = of_selector.split_first().expect("a way of reaping");
            rows.extend(others.iter().map(|other| (scene, first, other)));
        }
    }
    let compare = |scene: &Scene, a: &Tried, b: &Tried, metric: &Metric| {
        run.results
            .compare((&a.name, &b.name), &scene.metric(metric))
    };
    let compared = rows
        .iter()
        .map(|(scene, a, b)| compare(scene, a, b, &WAITED).verdict);
    let seen = compared.filter(|verdict| matches!(verdict, Verdict::Lower | Verdict::Higher));
    let helped = run.setup.scene(HELPED);
    let emptying = SELECTORS.map(|selector| {
        let first = with_reaping(selector, REAPINGS[0]);
        share(&run.results, &first, helped, Part::Emptying)
    });
    tabulate!(
        "Ways of reaping (B) against ascending (A)",
        format!(
            "{NO_WORD} By chance, one comparison in twenty shows a difference where there is none. \
             The wait of allocators differs in {} of {} comparisons. Where a daemon helps, at most \
             {:.0} % of the wait lies between the first emptied page table and the first free \
             pages.",
            seen.count(),
            rows.len(),
            emptying.into_iter().fold(0.0, f64::max)
        ),
        &rows,
        |(scene, a, b)| {
            "scene" => scene.name,
            "selector" => short(a),
            "B" => reaping_of(b),
            "waited, B / A" => with_word(compare(scene, a, b, &WAITED)),
            "kill to free, B / A" => with_word(compare(scene, a, b, &FREE)),
        }
    )
}

/// A table of selectors (algorithms that choose a victim), each with the counters of its own design
/// and with the counters of other designs. `designs` has each design with the results of its runs.
pub(super) fn swapped(designs: &[(&Tried, &Results)], scenes: &Scenes, seeds: usize) -> Table {
    let table = tabulate!(
        "Effects of the selector, and of its counters",
        format!(
            "Reaping as Linux did before 6.18. In the first three rows, each selector has the counters \
             of its own design, and all seeds; in the others, {seeds} seeds."
        ),
        designs,
        |(design, _)| {
            "selector" => selector(design),
        }
    );
    let columns = scenes.all.iter().flat_map(|scene| {
        let head = |what| format!("{}: {what}", scene.name);
        [
            (head("waited"), scene.metric(&WAITED)),
            (head("kills"), scene.metric(&KILLS)),
            (head("wrong"), scene.metric(&WRONG)),
            (head("of waited, select"), scene.part(Part::Select)),
        ]
    });
    table.with_each(designs, columns, |(design, results), metric| {
        results.show(&design.name, metric)
    })
}

/// A table that compares Linux, the patches and our design with each other at each card (with low,
/// middle and high prices).
pub(super) fn cards(run: &Run<'_, Scenes>) -> Result<Table, Error> {
    let wholes = run.named(&[LINUX, PATCH, OURS]);
    let at = |card: Card| {
        let scenes = run.setup_on(run.machine, card, Effort::Full)?;
        let scenes = scenes.only(&[EXITS, CROWD]);
        let about = format!("card {}", card.name());
        run.further(&about, &scenes, &wholes)
    };
    let (low, high) = (at(Card::Low)?.0, at(Card::High)?.0);
    let mut rows = Vec::new();
    for (card, results) in [
        (Card::Low, &low),
        (Card::Mid, &run.results),
        (Card::High, &high),
    ] {
        for scene in [EXITS, CROWD] {
            for (a, b) in [(0, 1), (0, 2), (1, 2)] {
                let metric = run.setup.scene(scene).metric(&WAITED);
                let [a, b] = [a, b].map(|nth: usize| &wholes[nth]);
                let compared = results.compare((&a.name, &b.name), &metric);
                rows.push((card, scene, [a, b], compared));
            }
        }
    }
    Ok(tabulate!(
        "The wait of an allocator, at each cost card",
        format!(
            "Each selector with its own way of reaping. {NO_WORD} A ratio that changes between cards is fragile."
        ),
        &rows,
        |(card, scene, [a, b], compared)| {
            "card" => card.name(),
            "scene" => scene,
            "A" => selector(a),
            "B" => selector(b),
            "B / A" => with_word(*compared),
        }
    ))
}
