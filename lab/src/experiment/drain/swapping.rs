//! `reproduce drain-swap`: the second load of the mailing-list thread, which maps more memory than
//! the machine has. What do the designs gain while the kernel reclaims and swaps?
//!
//! The load is `stress-ng --vm 10 --vm-bytes 30G` on 176 CPUs with 250 GB of memory and 179 GB of
//! swap. The lab scales the workers, the memory and the swap down by [`SCALE`], so that a run swaps
//! within a second of virtual time. The watermarks and the limits of the page lists follow from the
//! memory, as Linux computes them; the CPUs, batches and prices stay those of the whole machine. In
//! contrast to the workloads of `scene`, nothing else uses memory, and if an allocation finds too
//! few free pages, kswapd or the allocation itself reclaims some.

use plimsoll_mm::design::Design;
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::{CpuId, Nanos};
use plimsoll_sim::Stats;
use plimsoll_sim::profile::{Card, Profile};

use super::scene::{HOLD_MAX, MEASURED_USE_NS, RATE, WAIT_MAX, ZONE_WAIT, seconds, worker_cpus};
use super::{BOUNDED, MERGED, UNBATCHED, published};
use crate::error::Error;
use crate::experiment::Experiment;
use crate::experiment::declared::{
    Clock, Declaration, Finding, Headline, Headlines, LINUX_PATCH_OURS, OTHERS, Reading, Results,
    Run, effect, metrics_of, read, readings, variants_of,
};
use crate::measure::comparison::Sample;
use crate::measure::metric::{Metric, Unit};
use crate::report::{Table, tabulate};
use crate::run::options::Effort;
use crate::run::pressure::ReclaimLog;
use crate::run::testbed::Testbed;
use crate::workload::stress_swap::StressSwap;
use crate::workload::stress_vm::Pause;

/// This experiment as an entry of the catalog, the list of all published experiments.
pub(in crate::experiment) static SWAPPING: &dyn Experiment = &DECLARED;

static DECLARED: Declaration<Scene> = Declaration {
    name: "drain-swap",
    question: "what do the designs of `drain` gain while the kernel reclaims and swaps?",
    answer: Headlines {
        sides: LINUX_PATCH_OURS,
        rows: &[
            Headline::new("pages/s", "pages_per_s", &[UNBATCHED, MERGED, BOUNDED]),
            Headline::new("longest wait", "wait_max_ns", &[UNBATCHED, MERGED, BOUNDED]),
        ],
    },
    machines: &["bergamo-176"],
    clock: Clock::Virtual,
    designs: || variants_of("unpatched", [UNBATCHED, MERGED, BOUNDED]),
    verdicts: &[(UNBATCHED, OTHERS)],
    published: published::SWAPPING,
    setup: Scene::new,
    metrics: |_| metrics_of(METRICS),
    shown: None,
    compared: Some(|_| vec![RATE, RATE_OF_CPU, HOLD_MAX, WAIT_MAX, ZONE_WAIT]),
    measure: |scene, case| (scene.measure(&case.design.design, case.seed), ()),
    cards: None,
    conclude,
};

/// The factor by which the mailing-list thread's workers, memory and swap are scaled down.
const SCALE: u64 = 200;
const WORKERS: u32 = 10;
const WORKER_BYTES: u64 = (30 << 30) / SCALE;
const SWAP_BYTES: u64 = 179_000_000_000 / SCALE;

/// The number of pages that workers touch per second of CPU time.
const RATE_OF_CPU: Metric = Metric::higher("pages_per_cpu_s", Unit::PagesPerSecond);
/// The number of pages that were moved to swap.
const OUT: Metric = Metric::neither("pages_out", Unit::Pages);
/// The number of pages that allocations, rather than kswapd, moved to swap.
const OUT_DIRECT: Metric = Metric::neither("pages_out_direct", Unit::Pages);
/// The number of inactive pages that passes of reclaim looked at.
const SCANNED: Metric = Metric::neither("pages_scanned", Unit::Pages);
/// The number of times that an allocation reclaimed memory itself (direct reclaim).
const DIRECT: Metric = Metric::neither("direct_reclaims", Unit::Count);
/// The number of times that a kswapd was woken.
const WAKES: Metric = Metric::neither("kswapd_wakes", Unit::Count);
/// The number of waits for zone locks.
const CONTENTIONS: Metric = Metric::lower("contentions", Unit::Count);
/// The longest wait for the lock of the lists of used pages.
const LRU_WAIT_MAX: Metric = Metric::neither("lru_wait_max_ns", Unit::Nanos);
/// The number of holds of a zone lock that return more than 1000 pages.
const OVER_1000: Metric = Metric::lower("holds_over_1000_pages", Unit::Count);
/// The number of holds of a zone lock that spill pages.
const SPILLS: Metric = Metric::neither("spills", Unit::Count);
/// The mean number of pages that one of the holds counted in [`SPILLS`] moves.
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

/// What was observed in one run, from which its metrics are computed.
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

/// The setting of all runs: the machine, whose memory is divided by [`SCALE`], and the length of a
/// run.
#[derive(Clone, Debug)]
struct Scene {
    profile: Profile,
    length: Nanos,
}

impl Scene {
    fn new(machine: &str, card: Card, effort: Effort) -> Result<Self, Error> {
        let mut profile = Profile::load(machine, card)?;
        for bytes in &mut profile.node_bytes {
            *bytes /= SCALE;
        }
        let length = match effort {
            Effort::Full => Nanos::from_ms(400),
            Effort::Quick => Nanos::from_ms(120),
        };
        Ok(Self { profile, length })
    }

    fn table(&self) -> Table {
        let bytes: u64 = self.profile.node_bytes.iter().sum();
        Table::facts(
            "Workload: stress-ng --vm 10 --vm-bytes 30G",
            format!(
                "Workers, memory and swap are {SCALE} times smaller than the published ones. A \
                 worker touches each page twice in a round, and brings it back if it is in swap. \
                 Swap is synchronous and is priced as compressed memory: no device is modelled. \
                 All memory is anonymous."
            ),
            &[
                ("workers", WORKERS.to_string()),
                ("memory per worker", format!("{} MiB", WORKER_BYTES >> 20)),
                ("memory of the machine", format!("{} MiB", bytes >> 20)),
                ("swap", format!("{} MiB", SWAP_BYTES >> 20)),
                ("use of each page", format!("{MEASURED_USE_NS} ns")),
                ("virtual time", format!("{} ms", self.length.0 / 1_000_000)),
            ],
        )
    }

    fn measure(&self, design: &Design, seed: u64) -> Sample {
        let slots = u32::try_from(SWAP_BYTES >> 12).unwrap_or(u32::MAX);
        let testbed = Testbed::with_pressure(&self.profile, *design, seed, slots);
        let pressure = testbed.pressure.clone().expect("it was asked for");
        let cpus = self.profile.topology.cpus();
        // The CPUs are divided into equal parts, and a worker runs on the first CPU of each part.
        // So the last CPU has no worker, and kswapd runs there.
        pressure.seat_kswapd(CpuId(cpus - 1));
        let worker = StressSwap {
            bytes: WORKER_BYTES,
            use_ns_per_page: MEASURED_USE_NS,
            pause: Pause::No,
        };
        let done = worker.start(&testbed, worker_cpus(cpus, WORKERS), self.length);
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
            cpu_time: Nanos((u64::from(WORKERS) * window.0).saturating_sub(paused)),
        };
        Sample {
            hash: seen.stats.hash,
            metrics: read(METRICS, &seen),
        }
    }
}

fn conclude(run: &Run<'_, Scene>) -> Result<(Vec<Table>, Finding), Error> {
    let results = &run.results;
    Ok((
        vec![run.scene.table(), beside(results), reclaimed(results)],
        finding(results),
    ))
}

/// The table of how much the merged patch changes the throughput: in our runs, and as published.
fn beside(results: &Results) -> Table {
    let rows = published::SWAPPING.iter().flat_map(|of| of.figures);
    let change = |ratio: f64| format!("{:+.2} %", 100.0 * (ratio - 1.0));
    tabulate!(
        "Throughput of the merged patch against unbatched Linux, beside the published changes",
        "Medians of the ratios of equal seeds, with 95 % intervals.",
        &rows.collect::<Vec<_>>(),
        |figure| {
            "quantity" => figure.what,
            "published" => figure.values.percent().map_or_else(String::new, |by| format!("{by:+} %")),
            "ours" => {
                let metric = if figure.metric == RATE_OF_CPU.name { RATE_OF_CPU } else { RATE };
                let ratio = results.compare((UNBATCHED, MERGED), &metric).ratio;
                format!("{} [{}, {}]", change(ratio.median), change(ratio.low), change(ratio.high))
            },
        }
    )
}

/// The table of what reclaim did with each design.
fn reclaimed(results: &Results) -> Table {
    tabulate!(
        "What reclaim did",
        "Medians over the seeds. Each design runs on the same workload with the same reclaim.",
        &[UNBATCHED, MERGED, BOUNDED],
        |design| {
            "design" => design,
            "pages out" => results.show(design, &OUT),
            "by allocations" => results.show(design, &OUT_DIRECT),
            "looked at" => results.show(design, &SCANNED),
            "direct reclaims" => results.show(design, &DIRECT),
            "kswapd woken" => results.show(design, &WAKES),
            "spills" => results.show(design, &SPILLS),
            "pages each" => results.show(design, &PER_SPILL),
        }
    )
}

fn finding(results: &Results) -> Finding {
    let effect = |design, metric| effect(results.compare((UNBATCHED, design), metric).verdict);
    let answer = format!(
        "While the kernel reclaims and swaps, the merged patch {} the throughput of unbatched \
         Linux and {} its longest wait for the zone lock; ours {} the throughput and {} the wait.",
        effect(MERGED, &RATE),
        effect(MERGED, &WAIT_MAX),
        effect(BOUNDED, &RATE),
        effect(BOUNDED, &WAIT_MAX),
    );
    let throughput = format!(
        "With 10 workers that map a quarter more than the machine has, the merged patch multiplies \
         the throughput of unbatched Linux by {}, and bounded holds multiply it by {}.",
        results.show_ratio((UNBATCHED, MERGED), &RATE),
        results.show_ratio((UNBATCHED, BOUNDED), &RATE),
    );
    let show = |metric: &Metric| results.show(UNBATCHED, metric);
    Finding::new(
        answer,
        [
            ("pages moved to swap, unbatched", show(&OUT)),
            ("of which by allocations", show(&OUT_DIRECT)),
            ("longest wait for the zone lock, unbatched", show(&WAIT_MAX)),
            ("bounded", results.show(BOUNDED, &WAIT_MAX)),
        ],
    )
    .further(throughput)
}
