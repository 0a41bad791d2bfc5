//! The workload of the vmstat experiment and its metrics.
//!
//! The workload is `stress-ng --vm` in bursts: two thirds of the CPUs map, write and unmap 64 MiB,
//! then rest for several seconds. The pages that a burst frees remain on the page lists, and decay
//! returns them to the zone over the following seconds. Daemons on all CPUs wake every few
//! milliseconds, because a deferrable timer fires only when something wakes its CPU. On the
//! remaining third of the CPUs, daemons free a few pages and allocate others so rarely that these
//! CPUs go dormant and become active again.

use plimsoll_mm::design::Design;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::{CpuId, Hz, Nanos};
use plimsoll_sim::LockStats;
use plimsoll_sim::profile::{Card, Profile};

use crate::error::Error;
use crate::experiment::declared::{Reading, read, readings};
use crate::measure::comparison::Sample;
use crate::measure::metric::{Metric, Unit};
use crate::run::options::Effort;
use crate::run::testbed::{Log, Testbed, crowd, crowd_on_one_tick};
use crate::workload::daemons::Daemons;
use crate::workload::stress_vm::{Pause, StressVm};

/// The number of waits for the zone lock in `free_pcppages_bulk`.
pub(super) const CONTENTIONS: Metric = Metric::lower("contentions", Unit::Count);
/// The number of waits of decays for the zone lock.
pub(super) const DECAY_CONTENTIONS: Metric = Metric::lower("decay_contentions", Unit::Count);
/// The number of pages that decays returned to their zones.
pub(super) const DECAYED: Metric = Metric::neither("pages_decayed", Unit::Pages);
/// [`DECAY_CONTENTIONS`] per million of [`DECAYED`].
pub(super) const PER_DECAYED: Metric = Metric::lower("decay_contentions_per_mpage", Unit::Count);

/// The metrics of each run.
pub(super) const METRICS: &[Reading<Seen>] = readings!(|seen| {
    CONTENTIONS => seen.bulk.contentions as f64,
    lower("perf_contentions", Unit::Count) => seen.bulk.perf_contentions as f64,
    lower("total_wait_ns", Unit::Nanos) => seen.bulk.wait_total.0 as f64,
    lower("max_wait_ns", Unit::Nanos) => max(&seen.bulk),
    lower("avg_wait_ns", Unit::Nanos) => per(seen.bulk.wait_total.0, seen.bulk.contentions),
    DECAY_CONTENTIONS => seen.decay.contentions as f64,
    lower("decay_wait_ns", Unit::Nanos) => seen.decay.wait_total.0 as f64,
    lower("zone_contentions", Unit::Count) => seen.zone.contentions as f64,
    lower("zone_total_wait_ns", Unit::Nanos) => seen.zone.wait_total.0 as f64,
    lower("zone_max_wait_ns", Unit::Nanos) => max(&seen.zone),
    Metric::neither("refreshes", Unit::Count) => seen.log.refreshes as f64,
    Metric::neither("kicks", Unit::Count) => seen.log.kicks as f64,
    DECAYED => seen.log.decayed as f64,
    PER_DECAYED => 1e6 * per(seen.decay.contentions, seen.log.decayed),
    lower("cpus_starting_within_1_jiffy_max", Unit::Cpus) => seen.starting_on_one_tick(),
    lower("cpus_starting_within_1ms_max", Unit::Cpus) => seen.starting_within(1),
    lower("cpus_starting_within_4ms_max", Unit::Cpus) => seen.starting_within(4),
    lower("cpus_starting_within_32ms_max", Unit::Cpus) => seen.starting_within(32),
});

const fn lower(name: &'static str, unit: Unit) -> Metric {
    Metric::lower(name, unit)
}

/// The longest wait, in nanoseconds; 0 if there was none.
fn max(stats: &LockStats) -> f64 {
    stats.wait_max.map_or(0, |longest| longest.wait.0) as f64
}

/// `count` divided by `of`, or 0 if `of` is 0.
fn per(count: u64, of: u64) -> f64 {
    if of == 0 {
        0.0
    } else {
        count as f64 / of as f64
    }
}

/// The observations of one run.
pub(super) struct Seen {
    /// The statistics of the zone lock: `bulk` those in `free_pcppages_bulk`, `decay` those in
    /// decays alone, and `zone` those at all call sites.
    bulk: LockStats,
    decay: LockStats,
    zone: LockStats,
    log: Log,
    settled: Nanos,
    hz: Hz,
}

impl Seen {
    fn starts(&self) -> impl Iterator<Item = Nanos> {
        self.log.starts(self.settled, None)
    }

    /// The largest number of CPUs whose vmstat work starts between two successive ticks.
    fn starting_on_one_tick(&self) -> f64 {
        crowd_on_one_tick(self.starts(), self.hz) as f64
    }

    /// The largest number of CPUs whose vmstat work starts within any `ms` milliseconds.
    fn starting_within(&self, ms: u64) -> f64 {
        crowd(self.starts(), Nanos::from_ms(ms)) as f64
    }
}

/// The machine, the length of a run, and the time that a run takes to settle.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) profile: Profile,
    length: Nanos,
    /// The time after which page lists are full and schedules have settled. Only after this time
    /// does a run count the CPUs whose vmstat work starts together.
    settled: Nanos,
}

impl Scene {
    pub(super) fn new(machine: &str, card: Card, effort: Effort) -> Result<Self, Error> {
        let seconds = match effort {
            Effort::Full => 20,
            Effort::Quick => 5,
        };
        Ok(Self {
            profile: Profile::load(machine, card)?,
            length: Nanos(seconds * Nanos::SECOND.0),
            settled: Nanos(5 * Nanos::SECOND.0 / 2),
        })
    }

    /// Runs the workload once on one seed.
    pub(super) fn measure(&self, design: &Design, seed: u64) -> Sample {
        let testbed = Testbed::new(&self.profile, *design, seed);
        self.populate(&testbed);
        testbed.sim.run_until(self.length);
        let (stats, log) = testbed.finish();
        let zone = |site: Site| stats.site(LockClass::Zone, site).clone();
        let bulk_sites = Site::ALL.into_iter().filter(|site| site.is_bulk_free());
        let seen = Seen {
            bulk: LockStats::sum(&bulk_sites.map(zone).collect::<Vec<_>>()),
            decay: zone(Site::Decay),
            zone: stats.class(LockClass::Zone),
            log,
            settled: self.settled,
            hz: self.profile.hz,
        };
        Sample {
            hash: stats.hash,
            metrics: read(METRICS, &seen),
        }
    }

    fn populate(&self, testbed: &Testbed) {
        let cpus = testbed.sim.topology().cpus();
        let bursts = StressVm {
            bytes: 64 << 20,
            use_ns_per_page: 400,
            pause: Pause::Asleep(Nanos(6 * Nanos::SECOND.0)),
        };
        let bursting = |cpu: &CpuId| cpu.0 % 3 != 2;
        bursts.start(testbed, (0..cpus).map(CpuId).filter(bursting), self.length);
        for cpu in (0..cpus).map(CpuId) {
            let daemons = Daemons {
                every: Nanos::from_ms(4),
                work: Nanos(50_000),
                pages: 8,
                // On CPUs with bursts, daemons exchange pages every 0.4 s. On the others they do so
                // every 4 s, so that the CPU goes dormant in between.
                exchange_one_in: if bursting(&cpu) { 100 } else { 1000 },
            };
            daemons.start(testbed, [cpu], self.length);
        }
    }
}
