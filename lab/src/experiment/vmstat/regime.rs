//! The regime map: a table that shows how the length of one CPU's drain affects contention. It
//! shows from which length on the schedule of the vmstat work matters, and at which length
//! contention jumps.
//!
//! Each CPU allocates and frees memory in one burst. After the burst, the CPU stays busy with only
//! a few pages, so that timers fire on time and every firing finds full page lists to drain. The
//! setup raises the price of freeing a page under the zone lock step by step, and measures how long
//! the drain takes at each price.

use std::rc::Rc;

use plimsoll_mm::machine::Machine;
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::units::{Nanos, Pages};
use plimsoll_sim::Stats;
use plimsoll_sim::profile::{CostKey, Profile};
use rand::RngExt;

use crate::catalog::designs;
use crate::error::Error;
use crate::measure::comparison::run_checked;
use crate::measure::metric::Unit;
use crate::measure::stats;
use crate::report::value::human;
use crate::report::{Table, tabulate};
use crate::run::options::{Effort, Options};
use crate::run::progress::Progress;
use crate::run::testbed::Testbed;
use crate::workload::Mapping;

const SCHEDULES: [&str; 5] = [
    "aligned",
    "round-jiffies",
    "stretched",
    "phased-wheel",
    "phased",
];
/// The prices of freeing one page under the zone lock, in percent of the price in the profile.
const PRICES: [u32; 6] = [100, 300, 1000, 3000, 10_000, 30_000];

/// Each CPU begins its burst at a random time within this interval. The interval is so long that
/// bursts rarely overlap.
const BURSTS_WITHIN: Nanos = Nanos::from_ms(500);

/// The time at which the measurement begins. At this time the bursts are over, and the shepherd has
/// started every CPU's vmstat work.
const SETTLED: Nanos = Nanos::from_ms(2600);

/// How often the vmstat work waits for the zone lock. Each cell has one schedule and one price of
/// freeing a page. The price determines how long a CPU holds the lock to drain page lists.
#[derive(Clone, Debug)]
pub(super) struct Regime {
    cells: Vec<Cell>,
    /// The time between the starts of vmstat work on two CPUs that run this work one after the
    /// other, in nanoseconds, if timers fire exactly at their phases.
    phase_gap_ns: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    price: u32,
    schedule: &'static str,
    /// The time, in nanoseconds, for which a firing (one run of the vmstat work) holds the zone
    /// lock to drain lists. Each run of the simulator gives the mean over its firings. This value
    /// is the median of these means over the seeds.
    drain_ns: f64,
    contentions: f64,
    wait_ns: f64,
}

pub(super) fn measure(
    profile: &Profile,
    options: &Options,
    progress: &Progress,
) -> Result<Regime, Error> {
    let (prices, seeds, seconds) = match options.effort {
        Effort::Full => (&PRICES[..], 2, 6),
        Effort::Quick => (&PRICES[1..4], 1, 5),
    };
    let mut cases = Vec::new();
    for &price in prices {
        for schedule in SCHEDULES {
            let design = designs::find(&format!("patched+{schedule}+shepherd-at-once"))?.design;
            cases.push((price, schedule, design));
        }
    }
    let cells = run_checked(&cases, options, progress, |&(price, schedule, design)| {
        let profile = profile.with_scaled(CostKey::Work(Work::BuddyFree), price);
        let end = Nanos(seconds * Nanos::SECOND.0);
        let seeds = options.seeds.iter().take(seeds);
        let runs: Vec<[f64; 3]> = seeds
            .map(|&seed| run(&profile, design, seed, end))
            .collect();
        let median = |nth: usize| {
            let values: Vec<f64> = runs.iter().map(|run| run[nth]).collect();
            stats::median(&values).expect("a seed runs")
        };
        Cell {
            price,
            schedule,
            drain_ns: median(0),
            contentions: median(1),
            wait_ns: median(2),
        }
    })?;
    let cpus = f64::from(profile.topology.cpus());
    Ok(Regime {
        cells,
        phase_gap_ns: Nanos::SECOND.0 as f64 / cpus,
    })
}

/// Runs the workload (one burst on each CPU, then a constant load) once. Returns three values. The
/// first is the mean time that a firing (one run of the vmstat work) holds the zone lock to drain
/// lists. The others are the number of waits of the vmstat work for the zone lock, and the sum of
/// these waits. Times are in nanoseconds.
fn run(profile: &Profile, design: plimsoll_mm::design::Design, seed: u64, end: Nanos) -> [f64; 3] {
    let testbed = Testbed::new(profile, design, seed);
    // One burst of 64 MiB leaves enough pages on the lists for a full drain in every later second.
    let mm = &testbed.mm;
    for cpu in testbed.sim.topology().ids() {
        let mm = Rc::clone(mm);
        testbed.sim.spawn(cpu, move |sim| {
            sim.sleep(Nanos(sim.rng().random_range(0..BURSTS_WITHIN.0)));
            let mut mapping = Mapping::new(&mm);
            mapping.fault(sim, Pages::from_bytes(64 << 20).index());
            mapping.unmap(sim);
            // From now on, the CPU is busy with a few pages. The number of these pages changes, so
            // each run of the vmstat work finds counts to add to the shared counters, and no CPU
            // stops its vmstat work.
            while sim.now() < end {
                sim.spend(Work::Think, 50_000_000);
                mapping.unmap(sim);
                let pages = sim.rng().random_range(4..12);
                mapping.fault(sim, pages);
            }
        });
    }
    // At `SETTLED`, all bursts are over, and the shepherd has started the vmstat work of every CPU.
    // The CPUs' own schedules cause all later contentions.
    testbed.sim.run_until(SETTLED);
    let decay = |stats: &Stats| stats.site(LockClass::Zone, Site::Decay).clone();
    let before = decay(&testbed.sim.stats());
    testbed.sim.run_until(end);
    let (stats, log) = testbed.finish();
    let after = decay(&stats);
    let firings = log.starts(SETTLED, None).count().max(1);
    [
        (after.hold_total.0 - before.hold_total.0) as f64 / firings as f64,
        (after.contentions - before.contentions) as f64,
        (after.wait_total.0 - before.wait_total.0) as f64,
    ]
}

impl Regime {
    pub(super) fn tables(&self) -> [Table; 2] {
        let note = "All CPUs busy; the drain is the mean time one firing holds the zone lock.";
        [
            self.table(
                "Regime map: contentions of decays by drain length",
                format!("{note} {}", self.jump()),
                |cell| human(cell.contentions, Unit::Count),
            ),
            self.table(
                "Regime map: total wait of decays by drain length",
                note.to_owned(),
                |cell| human(cell.wait_ns, Unit::Nanos),
            ),
        ]
    }

    /// A table with a row for each price of freeing a page and a column for each schedule (rule for
    /// when a CPU's vmstat work runs next).
    fn table(&self, title: &str, note: String, show: impl Fn(&Cell) -> String) -> Table {
        let by_price = self.cells.chunk_by(|one, next| one.price == next.price);
        let rows: Vec<&[Cell]> = by_price.collect();
        let drain = |cells: &&[Cell]| {
            let drains: Vec<f64> = cells.iter().map(|cell| cell.drain_ns).collect();
            human(
                stats::median(&drains).expect("a schedule runs"),
                Unit::Nanos,
            )
        };
        let table = tabulate!(
            title,
            note,
            &rows,
            |cells| {
                "page price" => format!("× {}", f64::from(cells[0].price) / 100.0),
                "drain per firing" => drain(cells),
            }
        );
        table.with_each(&rows, SCHEDULES.into_iter().zip(0_usize..), |cells, nth| {
            show(&cells[*nth])
        })
    }

    /// The sentence that says from which length of drains on the schedule `phased` causes much more
    /// contention, or that this happens at no measured length.
    fn jump(&self) -> String {
        let phased = || self.cells.iter().filter(|cell| cell.schedule == "phased");
        let jump = phased()
            .zip(phased().skip(1))
            .find(|(cell, next)| next.contentions > 10.0 * cell.contentions.max(1.0));
        let longest = phased().map(|cell| cell.drain_ns).fold(0.0, f64::max);
        match jump {
            Some((before, after)) => format!(
                "With exact phases contention jumps where a firing's drain grows from {} to {}; \
                 two phases are {} apart.",
                human(before.drain_ns, Unit::Nanos),
                human(after.drain_ns, Unit::Nanos),
                human(self.phase_gap_ns, Unit::Nanos),
            ),
            None => format!(
                "Up to a drain of {} per firing, exact phases show no jump in contention.",
                human(longest, Unit::Nanos),
            ),
        }
    }
}
