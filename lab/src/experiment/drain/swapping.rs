//! `reproduce drain-swap`: how do the designs change throughput while the kernel reclaims and
//! swaps? The load is the second load of the mailing-list thread, which maps more memory than the
//! machine has.
//!
//! The load is `stress-ng --vm 10 --vm-bytes 30G` on 176 CPUs with 250 GB of memory and 179 GB of
//! swap. The lab scales the workers, the memory and the swap down, so that a run swaps within a
//! second of virtual time. The watermarks and the limits of the page lists follow from the scaled
//! memory, as Linux computes them. The CPUs, batches and prices stay those of the whole machine. In
//! contrast to the workloads of `setup`, nothing else uses memory. If an allocation finds too few
//! free pages, kswapd or the allocation itself reclaims pages.

use plimsoll_mm::design::Design;
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::{CpuId, Nanos};
use plimsoll_sim::Stats;
use plimsoll_sim::profile::Profile;

use super::setup::{HOLD_MAX, RATE, WAIT_MAX, ZONE_WAIT, seconds, worker_cpus};
use crate::error::Error;
use crate::experiment::driver::{
    Clock, Code, Number, Part, Reading, Run, Runs, Setting, metrics_of, read, readings,
};
use crate::measure::comparison::Sample;
use crate::measure::metric::{Metric, Unit};
use crate::report::{Table, tabulate};
use crate::run::pressure::ReclaimLog;
use crate::run::testbed::Testbed;
use crate::workload::stress_swap::StressSwap;
use crate::workload::stress_vm::Pause;

/// The workload of this experiment, which experiment files can name.
pub(in crate::experiment) static SUBJECT: &dyn Runs = &CODE;

static CODE: Code<SwapSetup> = Code {
    workload: "swapping-workers",
    about: "workers that map more memory than the machine has, while the kernel reclaims and swaps",
    numbers: &[
        Number::one("length_ms", (1, 3_600_000), "virtual milliseconds of a run"),
        Number::one("workers", (1, 4096), "processes, each on a CPU of its own"),
        Number::one("worker_bytes", (4096, 1 << 40), "memory that a worker maps"),
        Number::one("swap_bytes", (0, 1 << 40), "size of the swap"),
        Number::one(
            "memory_divided_by",
            (1, 1 << 20),
            "the machine has its memory divided by this number",
        ),
        Number::one(
            "use_ns_per_page",
            (0, 1_000_000_000),
            "time in which a worker uses a page that it has mapped",
        ),
    ],
    of_designs: &[],
    takes_memory: false,
    clock: Clock::Virtual,
    setup: SwapSetup::new,
    metrics: |_| metrics_of(METRICS),
    measure: |setup, case| (setup.measure(&case.design.design, case.seed), ()),
    parts: &[
        Part::new("workload", |run| Ok(run.setup.table().into())),
        Part::new("throughput", |run| Ok(beside(run).into())),
        Part::new("reclaimed", |run| Ok(reclaimed(run).into())),
    ],
    cells: &[],
};

/// The number of pages that workers touch per second of CPU time.
const RATE_OF_CPU: Metric = Metric::higher("pages_per_cpu_s", Unit::PagesPerSecond);
/// The number of pages that were moved to swap.
const OUT: Metric = Metric::neither("pages_out", Unit::Pages);
/// The number of pages that allocations moved to swap. Pages that kswapd moved do not count.
const OUT_DIRECT: Metric = Metric::neither("pages_out_direct", Unit::Pages);
/// The number of inactive pages that kswapd and direct reclaim looked at.
const SCANNED: Metric = Metric::neither("pages_scanned", Unit::Pages);
/// The number of times that an allocation reclaimed memory itself (direct reclaim).
const DIRECT: Metric = Metric::neither("direct_reclaims", Unit::Count);
/// The number of wake-ups of kswapd threads.
const WAKES: Metric = Metric::neither("kswapd_wakes", Unit::Count);
/// The number of waits for zone locks.
const CONTENTIONS: Metric = Metric::lower("contentions", Unit::Count);
/// The longest wait for a lock of the lists of used pages.
const LRU_WAIT_MAX: Metric = Metric::neither("lru_wait_max_ns", Unit::Nanos);
/// The number of holds of a zone lock that return more than 1000 pages.
const OVER_1000: Metric = Metric::lower("holds_over_1000_pages", Unit::Count);
/// The number of spills: holds of a zone lock that return pages because page lists have reached
/// `high`.
const SPILLS: Metric = Metric::neither("spills", Unit::Count);
/// The mean number of pages that a spill (see [`SPILLS`]) returns to a zone.
const PER_SPILL: Metric = Metric::neither("pages_per_spill", Unit::Pages);

const METRICS: &[Reading<Seen>] = readings!(|seen| {
    RATE => seen.pages / seconds(seen.window),
    RATE_OF_CPU => seen.pages / seconds(seen.cpu_time),
    HOLD_MAX => seen.stats.class(LockClass::Zone).hold_max.0 as f64,
    WAIT_MAX => seen.longest_wait(LockClass::Zone),
    ZONE_WAIT => seen.stats.class(LockClass::Zone).wait_total.0 as f64,
    CONTENTIONS => seen.stats.class(LockClass::Zone).contentions as f64,
    OVER_1000 => seen.log.holds.all().over_1000 as f64,
    SPILLS => seen.log.holds.site(Site::Spill).holds as f64,
    PER_SPILL => seen.per_spill(),
    LRU_WAIT_MAX => seen.longest_wait(LockClass::Lru),
    OUT => (seen.reclaim().by_kswapd + seen.reclaim().by_direct) as f64,
    OUT_DIRECT => seen.reclaim().by_direct as f64,
    SCANNED => seen.reclaim().scanned as f64,
    DIRECT => seen.reclaim().direct as f64,
    WAKES => seen.reclaim().kswapd_wakes as f64,
});

/// The observations of one run, from which its metrics are computed.
struct Seen {
    stats: Stats,
    log: crate::run::testbed::Log,
    /// The number of pages that workers touched within `window`, the measured part of the run.
    pages: f64,
    window: Nanos,
    /// The total time that workers ran within `window`. They sleep only while they wait for
    /// reclaim.
    cpu_time: Nanos,
}

impl Seen {
    fn reclaim(&self) -> &ReclaimLog {
        &self.log.reclaim
    }

    fn longest_wait(&self, class: LockClass) -> f64 {
        let longest = self.stats.class(class).wait_max;
        longest.map_or(0, |longest| longest.wait.0) as f64
    }

    fn per_spill(&self) -> f64 {
        let spills = self.log.holds.site(Site::Spill);
        spills.pages as f64 / spills.holds.max(1) as f64
    }
}

/// The machine with its scaled memory, the length of a run, and the workers.
#[derive(Clone, Debug)]
struct SwapSetup {
    profile: Profile,
    length: Nanos,
    divided_by: u64,
    workers: u32,
    worker_bytes: u64,
    swap_bytes: u64,
    use_ns: u32,
}

impl SwapSetup {
    fn new(setting: &Setting<'_>) -> Result<Self, Error> {
        let numbers = setting.numbers;
        let divided_by = numbers.get("memory_divided_by");
        let mut profile = setting.profile()?;
        for bytes in &mut profile.node_bytes {
            *bytes /= divided_by;
        }
        let workers = numbers.small("workers");
        if workers >= profile.topology.cpus() {
            let why = format!("{workers} workers leave no CPU to kswapd: write fewer workers");
            return Err(Error::Invalid(why));
        }
        Ok(Self {
            profile,
            length: Nanos::from_ms(numbers.get("length_ms")),
            divided_by,
            workers,
            worker_bytes: numbers.get("worker_bytes"),
            swap_bytes: numbers.get("swap_bytes"),
            use_ns: numbers.small("use_ns_per_page"),
        })
    }

    fn table(&self) -> Table {
        let bytes: u64 = self.profile.node_bytes.iter().sum();
        Table::facts(
            "Workload: stress-ng --vm 10 --vm-bytes 30G",
            format!(
                "Workers, memory and swap are {} times smaller than the published ones. A \
                 worker touches each page twice in a round, and brings it back if it is in swap. \
                 Swap is synchronous and is priced as compressed memory: no device is modelled. \
                 All memory is anonymous.",
                self.divided_by
            ),
            &[
                ("workers", self.workers.to_string()),
                (
                    "memory per worker",
                    format!("{} MiB", self.worker_bytes >> 20),
                ),
                ("memory of the machine", format!("{} MiB", bytes >> 20)),
                ("swap", format!("{} MiB", self.swap_bytes >> 20)),
                ("use of each page", format!("{} ns", self.use_ns)),
                ("virtual time", format!("{} ms", self.length.0 / 1_000_000)),
            ],
        )
    }

    fn measure(&self, design: &Design, seed: u64) -> Sample {
        let slots = u32::try_from(self.swap_bytes >> 12).unwrap_or(u32::MAX);
        let testbed = Testbed::with_pressure(&self.profile, *design, seed, slots);
        let pressure = testbed.pressure.clone().expect("it was asked for");
        let cpus = self.profile.topology.cpus();
        // The CPUs are divided into parts of equal size, and a worker runs on the first CPU of each
        // part. So the last CPU has no worker, and kswapd can run there.
        pressure.seat_kswapd(CpuId(cpus - 1));
        let worker = StressSwap {
            bytes: self.worker_bytes,
            use_ns_per_page: self.use_ns,
            pause: Pause::No,
        };
        let done = worker.start(&testbed, worker_cpus(cpus, self.workers), self.length);
        let settled = Nanos(self.length.0 * 2 / 5);
        testbed.sim.run_until(settled);
        let (pages, paused) = (done.pages(), pressure.paused());
        testbed.sim.run_until(self.length);
        let (pages, paused) = (done.pages() - pages, pressure.paused().0 - paused.0);
        let (stats, log) = testbed.finish();
        let window = Nanos(self.length.0 - settled.0);
        let seen = Seen {
            stats,
            log,
            pages: pages as f64,
            window,
            cpu_time: Nanos((u64::from(self.workers) * window.0).saturating_sub(paused)),
        };
        Sample {
            hash: seen.stats.hash,
            metrics: read(METRICS, &seen),
        }
    }
}

/// Makes the table that shows how the merged patch, which frees pages in batches, changes
/// throughput, in our runs and as published.
fn beside(run: &Run<'_, SwapSetup>) -> Table {
    let rows = run.figures().iter().flat_map(|of| &of.figures);
    let rows = rows.filter(|figure| figure.percent().is_some());
    let change = |ratio: f64| format!("{:+.2} %", 100.0 * (ratio - 1.0));
    tabulate!(
        "Throughput of the merged patch against unbatched Linux, beside the published changes",
        "Medians of the ratios of equal seeds, with 95 % intervals.",
        &rows.collect::<Vec<_>>(),
        |figure| {
            "quantity" => figure.what,
            "published" => figure.percent().map_or_else(String::new, |by| format!("{by:+} %")),
            "ours" => {
                let metric = if figure.metric == RATE_OF_CPU.name { RATE_OF_CPU } else { RATE };
                let [linux, patch] = [&figure.designs[0], &figure.designs[1]];
                let ratio = run.results.compare((linux, patch), &metric).ratio;
                format!("{} [{}, {}]", change(ratio.median), change(ratio.low), change(ratio.high))
            },
        }
    )
}

/// Makes the table that shows how much work reclaim did with each design.
fn reclaimed(run: &Run<'_, SwapSetup>) -> Table {
    let results = &run.results;
    tabulate!(
        "What reclaim did",
        "Medians over the seeds. Each design runs on the same workload with the same reclaim.",
        run.designs,
        |tried| {
            "design" => tried.name,
            "pages out" => results.show(&tried.name, &OUT),
            "by allocations" => results.show(&tried.name, &OUT_DIRECT),
            "looked at" => results.show(&tried.name, &SCANNED),
            "direct reclaims" => results.show(&tried.name, &DIRECT),
            "kswapd woken" => results.show(&tried.name, &WAKES),
            "spills" => results.show(&tried.name, &SPILLS),
            "pages each" => results.show(&tried.name, &PER_SPILL),
        }
    )
}
