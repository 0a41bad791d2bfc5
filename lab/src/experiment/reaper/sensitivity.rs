//! Which prices decide the result: the ratios of the headline with single prices halved and doubled.

use plimsoll_mm::site::Work;
use plimsoll_sim::profile::CostKey;

use super::scene::Scenes;
use super::{ASCENDING, OURS, PATCH};
use crate::error::Error;
use crate::experiment::declared::{Results, Run};
use crate::experiment::emptier::{Emptier, RAN, WALL};
use crate::measure::comparison::Comparison;
use crate::report::{Table, tabulate};
use crate::run::cases::Case;
use crate::workload::victim::Raced;

/// The prices that change the ratios most. Each is of work under the lock of a page table, or of
/// work that follows from it.
const PRICES: [CostKey; 3] = [
    CostKey::Work(Work::SwapFree),
    CostKey::Work(Work::Rmap),
    CostKey::Work(Work::Release),
];
const PERCENT: [u32; 2] = [50, 200];
/// The number of seeds.
const SEEDS: usize = 3;

/// The table of the ratios at each price: the patch and ours against Linux.
pub(super) fn table(run: &Run<'_, Scenes, Raced, Emptier>) -> Result<Table, Error> {
    let mut few = run.options.clone();
    few.seeds.truncate(SEEDS);
    let designs = run.named(&[ASCENDING, PATCH, OURS]);
    let mut rows: Vec<(String, Results)> = Vec::new();
    let mut changes = vec![None];
    changes.extend(
        PRICES
            .into_iter()
            .flat_map(|key| PERCENT.map(|percent| Some((key, percent)))),
    );
    for change in changes {
        let (scene, about) = match change {
            None => (run.scene.first_alone(), "as they are".to_owned()),
            Some((key, percent)) => {
                let factor = f64::from(percent) / 100.0;
                let scene = run.scene.first_alone().with_scaled(key, percent);
                (scene, format!("{key} × {factor}"))
            }
        };
        run.progress.start(format!("reaper, prices: {about}"));
        let measure = |case: &Case<Emptier>| scene.measure(case).0;
        let results = Comparison::run(&designs, &few, run.progress, measure)?;
        rows.push((about, Results::new(results)));
    }
    let table = tabulate!(
        "If a price is halved or doubled, first scene",
        format!(
            "The first {SEEDS} seeds. Running time, and time until all memory is free, against \
             {ASCENDING}."
        ),
        &rows,
        |(about, _)| {
            "prices" => about,
        }
    );
    let columns = [
        ("running: patch", (PATCH, RAN)),
        ("running: ours", (OURS, RAN)),
        ("until free: patch", (PATCH, WALL)),
        ("until free: ours", (OURS, WALL)),
    ];
    Ok(
        table.with_each(&rows, columns, |(_, results), (design, metric)| {
            format!("{:.3}", results.ratio((ASCENDING, design), metric))
        }),
    )
}
