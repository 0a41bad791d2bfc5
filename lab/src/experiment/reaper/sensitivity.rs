//! Which prices decide the result? The table shows the headline ratios when one price at a time is
//! halved or doubled.

use plimsoll_mm::site::Work;
use plimsoll_mm::topology::Distance;
use plimsoll_sim::profile::CostKey;

use super::scene::Scenes;
use super::{ASCENDING, OURS, PATCH};
use crate::error::Error;
use crate::experiment::declared::{Results, Run};
use crate::experiment::emptier::{Emptier, RAN, WALL};
use crate::measure::comparison::Comparison;
use crate::measure::metric::Metric;
use crate::report::{Table, tabulate};
use crate::run::cases::Case;
use crate::run::options::Effort;
use crate::workload::victim::Raced;

/// The prices that are halved and doubled, one at a time: those of all steps of emptying an address
/// space, and of moving cache lines on the phone.
const PRICES: [CostKey; 12] = [
    CostKey::Work(Work::Zap),
    CostKey::Work(Work::Rmap),
    CostKey::Work(Work::SwapFree),
    CostKey::Work(Work::LruRemove),
    CostKey::Work(Work::Release),
    CostKey::Work(Work::PcpFree),
    CostKey::Work(Work::BuddyFree),
    CostKey::Work(Work::TlbFlush),
    CostKey::Work(Work::WalkTable),
    CostKey::Work(Work::ForgetMapping),
    CostKey::Transfer(Distance::Llc),
    CostKey::Transfer(Distance::Socket),
];
const PERCENT: [u32; 2] = [50, 200];
/// The number of prices in the table: those that change the ratios most.
const SHOWN: usize = 3;
const SEEDS: usize = 3;

/// The columns: for each, its head, and the design and the metric whose ratio to Linux it shows.
const COLUMNS: [(&str, (&str, Metric)); 4] = [
    ("running: patch", (PATCH, RAN)),
    ("running: ours", (OURS, RAN)),
    ("until free: patch", (PATCH, WALL)),
    ("until free: ours", (OURS, WALL)),
];

/// One price, and the results with the price at each of [`PERCENT`].
struct Varied {
    key: CostKey,
    results: [Results; 2],
}

impl Varied {
    /// The largest factor by which a ratio changes when the price is halved or doubled; at least 1.
    fn effect(&self, plain: &Results) -> f64 {
        let results = self.results.iter();
        let factors = results.flat_map(|varied| {
            COLUMNS.map(|(_, (design, metric))| {
                let of = |results: &Results| results.ratio((ASCENDING, design), &metric);
                let factor = of(varied) / of(plain);
                factor.max(1.0 / factor)
            })
        });
        factors.fold(1.0, f64::max)
    }
}

/// The table of the ratios of patch and ours to Linux, for the prices that change them most.
pub(super) fn table(run: &Run<'_, Scenes, Raced, Emptier>) -> Result<Table, Error> {
    let mut few = run.options.clone();
    few.seeds.truncate(SEEDS);
    let designs = run.named(&[ASCENDING, PATCH, OURS]);
    let scene = Scenes::new(run.machine, run.card, Effort::Quick)?.first_alone();
    let measure = |scene: &Scenes, about: String| {
        run.progress.start(format!("reaper, {about}"));
        let measure = |case: &Case<Emptier>| scene.measure(case).0;
        let results = Comparison::run(&designs, &few, run.progress, measure)?;
        Ok::<_, Error>(Results::new(results))
    };
    let plain = measure(&scene, "prices as they are".to_owned())?;
    let mut all = Vec::new();
    for key in PRICES {
        let at = |percent| {
            let varied = scene.clone().with_scaled(key, percent);
            measure(&varied, format!("{key} at {percent} %"))
        };
        let results = [at(PERCENT[0])?, at(PERCENT[1])?];
        all.push(Varied { key, results });
    }
    all.sort_by(|a, b| b.effect(&plain).total_cmp(&a.effect(&plain)));
    let next = all.get(SHOWN).map_or(1.0, |varied| varied.effect(&plain));
    let mut rows = vec![("as they are".to_owned(), &plain)];
    for Varied { key, results } in &all[..SHOWN] {
        let factors = PERCENT.map(|percent| f64::from(percent) / 100.0);
        let of_key = factors.iter().zip(results);
        rows.extend(of_key.map(|(factor, results)| (format!("{key} × {factor}"), results)));
    }
    let seeds = few.seeds.len();
    let table = tabulate!(
        "Which prices decide: the three that change the ratios most, first scene",
        format!(
            "A fifth of the mappings, {seeds} seeds. Ratios to {ASCENDING} of the running time and of \
             the time until all memory is free. Each of {} prices was halved and doubled; no other \
             changes a ratio by a factor of more than {next:.3}.",
            PRICES.len()
        ),
        &rows,
        |(about, _)| {
            "price" => about,
        }
    );
    Ok(
        table.with_each(&rows, COLUMNS, |(_, results), (design, metric)| {
            format!("{:.3}", results.ratio((ASCENDING, design), metric))
        }),
    )
}
