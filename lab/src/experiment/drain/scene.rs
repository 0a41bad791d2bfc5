//! The workload of the drain experiment and its metrics.
//!
//! `stress-ng --vm` as in the thread: 50 workers on 176 CPUs; one per CPU on 316. The thread's
//! workers of 5 GB each fill that machine's memory. Here a worker maps 128 or 32 MiB, so that
//! rounds end within a run, and the scene takes other memory beforehand, so that the workers fill
//! the rest just as well. Nothing is reclaimed, so the scene leaves the zone where kswapd would
//! keep it: mostly between its low and its high watermark.

use plimsoll_mm::design::Design;
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::{CpuId, Nanos, Pages};
use plimsoll_sim::LongestWait;
use plimsoll_sim::profile::Profile;

use crate::measure::comparison::Sample;
use crate::measure::holds::HoldLog;
use crate::measure::metric::Metric;
use crate::report::Table;
use crate::run::options::Effort;
use crate::run::testbed::Testbed;
use crate::workload::stress_vm::{Pause, StressVm};

/// The metrics of each run.
pub(super) mod metrics {
    use crate::measure::metric::{Metric, Unit};

    pub(in crate::experiment::drain) const PAGES_MAX: Metric =
        Metric::lower("pages_per_hold_max", Unit::Pages);
    pub(super) const OVER_1000: Metric = Metric::lower("holds_over_1000_pages", Unit::Count);
    pub(super) const COMMIT_OVER_1000: Metric =
        Metric::lower("commits_over_1000_pages_per_s", Unit::PerSecond);
    pub(super) const DECAY_OVER_1000: Metric =
        Metric::lower("decays_over_1000_pages_per_s", Unit::PerSecond);
    pub(in crate::experiment::drain) const HOLD_MAX: Metric =
        Metric::lower("hold_max_ns", Unit::Nanos);
    pub(in crate::experiment::drain) const WAIT_MAX: Metric =
        Metric::lower("wait_max_ns", Unit::Nanos);
    pub(super) const WAIT_TOTAL: Metric = Metric::lower("wait_total_ns", Unit::Nanos);
    pub(super) const CONTENTIONS: Metric = Metric::lower("contentions", Unit::Count);
    pub(super) const OVER_1_MS: Metric = Metric::lower("cpus_waiting_over_1ms", Unit::Percent);
    pub(super) const OVER_10_MS: Metric = Metric::lower("cpus_waiting_over_10ms", Unit::Percent);
    pub(super) const OVER_100_MS: Metric = Metric::lower("cpus_waiting_over_100ms", Unit::Percent);
    pub(in crate::experiment::drain) const RATE: Metric =
        Metric::higher("pages_per_s", Unit::PagesPerSecond);
}

/// The workers, and the length of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene {
    workers: u32,
    worker: StressVm,
    length: Nanos,
}

/// On average, workers have mapped 59 % of what they want: a page takes about 1.6 µs to fill, 0.4
/// to use and 0.15 to unmap.
const MAPPED_PERCENT: u64 = 59;

/// The results of one run besides its sample.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) holds: HoldLog,
    pub(super) longest: Option<LongestWait>,
}

impl Scene {
    pub(super) fn of(profile: &Profile, effort: Effort) -> Self {
        let cpus = profile.topology.cpus();
        let large = cpus >= 300;
        let ms = match (effort, large) {
            // The run goes beyond the first second, so that vmstat work takes part.
            (Effort::Full, false) => 1200,
            (Effort::Full, true) => 400,
            (Effort::Quick, _) => 150,
        };
        Self {
            // The thread's command has 50 workers on 176 CPUs; on the larger machine every CPU has
            // one.
            workers: if large { cpus } else { 50 },
            worker: StressVm {
                // On a saturated machine a round takes ten times as long, and it must end within
                // the run.
                bytes: if large { 32 << 20 } else { 128 << 20 },
                use_ns_per_page: 400,
                pause: Pause::No,
            },
            length: Nanos::from_ms(ms),
        }
    }

    pub(super) fn table(&self) -> Table {
        let rows = [
            ("workers", self.workers.to_string()),
            (
                "memory left above the middle of low and high",
                format!("{} MiB", self.room_for_workers().bytes() >> 20),
            ),
            (
                "memory per worker",
                format!("{} MiB", self.worker.bytes >> 20),
            ),
            (
                "use of each page",
                format!("{} ns", self.worker.use_ns_per_page),
            ),
            ("virtual time", format!("{} ms", self.length.0 / 1_000_000)),
        ];
        Table {
            title: "Workload: stress-ng --vm".to_owned(),
            note: "The thread's 50 workers of 5 GB filled its machine; the rest of ours is in use \
                   beforehand."
                .to_owned(),
            columns: ["what", "is"].map(str::to_owned).to_vec(),
            rows: rows.map(|(what, is)| vec![what.to_owned(), is]).to_vec(),
        }
    }

    /// The memory that is left above the middle between the low and the high watermark: as much as
    /// the workers have mapped on average, so that the zone is mostly between the two.
    fn room_for_workers(&self) -> Pages {
        let wanted = u64::from(self.workers) * self.worker.bytes;
        Pages::from_bytes(wanted * MAPPED_PERCENT / 100)
    }

    /// Runs the workload once. Panics, with the seed, when a design breaks its own bound.
    pub(super) fn measure(
        &self,
        profile: &Profile,
        design: &Design,
        seed: u64,
    ) -> (Sample, Measured) {
        let testbed = Testbed::new(profile, *design, seed);
        let cpus = room_cpus(profile, self.workers);
        testbed.fill(self.room_for_workers());
        let done = self.worker.start(&testbed, cpus, self.length);
        // By then the workers are at different points of a round, no longer all at its start.
        let settled = Nanos(self.length.0 / 5);
        testbed.sim.run_until(settled);
        let before = done.pages();
        testbed.sim.run_until(self.length);
        let (stats, log) = testbed.finish();
        let zone = stats.class(LockClass::Zone);
        let cpus = f64::from(profile.topology.cpus());
        let waited = |ms: u64| {
            let waited = stats.cpus_that_waited(LockClass::Zone, Nanos::from_ms(ms));
            100.0 * waited as f64 / cpus
        };
        let all = log.holds.all();
        let seconds = self.length.0 as f64 / Nanos::SECOND.0 as f64;
        let settled_seconds = (self.length.0 - settled.0) as f64 / Nanos::SECOND.0 as f64;
        let over_1000 = |site| log.holds.site(site).over_1000 as f64 / seconds;
        let metrics: Vec<(Metric, f64)> = vec![
            (metrics::PAGES_MAX, f64::from(all.max)),
            (metrics::OVER_1000, all.over_1000 as f64),
            (metrics::COMMIT_OVER_1000, over_1000(Site::Spill)),
            (metrics::DECAY_OVER_1000, over_1000(Site::Decay)),
            (metrics::HOLD_MAX, zone.hold_max.0 as f64),
            (
                metrics::WAIT_MAX,
                zone.wait_max.map_or(0, |longest| longest.wait.0) as f64,
            ),
            (metrics::WAIT_TOTAL, zone.wait_total.0 as f64),
            (metrics::CONTENTIONS, zone.contentions as f64),
            (metrics::OVER_1_MS, waited(1)),
            (metrics::OVER_10_MS, waited(10)),
            (metrics::OVER_100_MS, waited(100)),
            (
                metrics::RATE,
                (done.pages() - before) as f64 / settled_seconds,
            ),
        ];
        let sample = Sample {
            hash: stats.hash,
            metrics,
        };
        let measured = Measured {
            holds: log.holds,
            longest: zone.wait_max,
        };
        (sample, measured)
    }
}

/// The CPUs of workers that are spread evenly over the machine, as a scheduler would spread them.
fn room_cpus(profile: &Profile, workers: u32) -> impl Iterator<Item = CpuId> + use<> {
    let cpus = profile.topology.cpus();
    (0..workers).map(move |worker| CpuId(worker * cpus / workers))
}
