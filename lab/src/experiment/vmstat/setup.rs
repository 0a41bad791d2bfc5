//! One workload of the vmstat experiment on one machine, and its metrics.
//!
//! Published counts and times are those of `perf lock contention`, which leaves out the first
//! waiter of a lock. Metrics whose names begin with `perf` are compared with the published values,
//! so they leave out the first waiter too. The other metrics count every waiter.

use plimsoll_mm::design::Design;
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::{Hz, Nanos};
use plimsoll_sim::LockStats;
use plimsoll_sim::profile::Profile;

use super::workloads::{FAMILY, MAIN};
use crate::error::Error;
use crate::experiment::driver::{Number, Reading, Setting, read, readings};
use crate::measure::comparison::Sample;
use crate::measure::metric::{Metric, Unit};
use crate::run::testbed::{Log, crowd, crowd_on_one_tick};
use crate::workload::mix::Mix;

/// The number of waits for the zone lock in `free_pcppages_bulk`.
pub(super) const CONTENTIONS: Metric = Metric::lower("contentions", Unit::Count);
/// The number of waits for the zone lock in `free_pcppages_bulk` that perf shows.
pub(super) const PERF_CONTENTIONS: Metric = Metric::lower("perf_contentions", Unit::Count);
/// The sum of the waits that perf shows.
pub(super) const PERF_TOTAL_WAIT: Metric = Metric::lower("perf_total_wait_ns", Unit::Nanos);
/// The longest wait that perf shows.
pub(super) const PERF_MAX_WAIT: Metric = Metric::lower("perf_max_wait_ns", Unit::Nanos);
/// The mean of the waits that perf shows.
pub(super) const PERF_MEAN_WAIT: Metric = Metric::lower("perf_avg_wait_ns", Unit::Nanos);
/// The number of [`CONTENTIONS`] for each million pages of [`RETURNED`].
pub(super) const PER_RETURNED: Metric = Metric::lower("contentions_per_mpage", Unit::Count);
/// The number of pages that page lists returned to their zones.
pub(super) const RETURNED: Metric = Metric::neither("pages_returned", Unit::Pages);
/// The number of times that the vmstat work waited for the zone lock while it returned pages of
/// page lists (decays).
pub(super) const DECAY_CONTENTIONS: Metric = Metric::lower("decay_contentions", Unit::Count);
/// The number of pages that the vmstat work returned from page lists to their zones (decays).
pub(super) const DECAYED: Metric = Metric::neither("pages_decayed", Unit::Pages);
/// The waits for the zone lock during decays ([`DECAY_CONTENTIONS`]), per million pages that decays
/// returned ([`DECAYED`]).
pub(super) const PER_DECAYED: Metric = Metric::lower("decay_contentions_per_mpage", Unit::Count);

/// The largest number of CPUs whose vmstat work starts between two successive ticks.
pub(super) const STARTING_TOGETHER: Metric =
    Metric::lower("cpus_starting_within_1_jiffy_max", Unit::Cpus);

/// The metrics of each run.
pub(super) const METRICS: &[Reading<Seen>] = readings!(|seen| {
    CONTENTIONS => seen.bulk.contentions as f64,
    PERF_CONTENTIONS => seen.bulk.perf_contentions as f64,
    PERF_TOTAL_WAIT => seen.bulk.perf_wait_total.0 as f64,
    PERF_MAX_WAIT => seen.bulk.perf_wait_max.0 as f64,
    PERF_MEAN_WAIT => per(seen.bulk.perf_wait_total.0, seen.bulk.perf_contentions),
    lower("total_wait_ns", Unit::Nanos) => seen.bulk.wait_total.0 as f64,
    lower("max_wait_ns", Unit::Nanos) => max(&seen.bulk),
    lower("avg_wait_ns", Unit::Nanos) => per(seen.bulk.wait_total.0, seen.bulk.contentions),
    RETURNED => seen.returned() as f64,
    PER_RETURNED => 1e6 * per(seen.bulk.contentions, seen.returned()),
    DECAY_CONTENTIONS => seen.decay.contentions as f64,
    lower("decay_wait_ns", Unit::Nanos) => seen.decay.wait_total.0 as f64,
    lower("zone_contentions", Unit::Count) => seen.zone.contentions as f64,
    lower("zone_total_wait_ns", Unit::Nanos) => seen.zone.wait_total.0 as f64,
    lower("zone_max_wait_ns", Unit::Nanos) => max(&seen.zone),
    Metric::neither("refreshes", Unit::Count) => seen.log.refreshes as f64,
    Metric::neither("kicks", Unit::Count) => seen.log.kicks as f64,
    DECAYED => seen.log.decayed as f64,
    PER_DECAYED => 1e6 * per(seen.decay.contentions, seen.log.decayed),
    STARTING_TOGETHER => seen.starting_on_one_tick(),
    lower("cpus_starting_within_1ms_max", Unit::Cpus) => seen.starting_within(1),
    lower("cpus_starting_within_4ms_max", Unit::Cpus) => seen.starting_within(4),
    lower("cpus_starting_within_32ms_max", Unit::Cpus) => seen.starting_within(32),
});

const fn lower(name: &'static str, unit: Unit) -> Metric {
    Metric::lower(name, unit)
}

/// The longest wait, in nanoseconds, or 0 if there was no wait.
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

/// The observations of one run, from which its metrics are computed.
pub(super) struct Seen {
    /// The statistics of the zone lock by call site: `bulk` counts only waits in
    /// `free_pcppages_bulk`, `decay` only waits of the vmstat work that returns pages of page
    /// lists, and `zone` all waits.
    bulk: LockStats,
    decay: LockStats,
    zone: LockStats,
    log: Log,
    settled: Nanos,
    hz: Hz,
}

impl Seen {
    /// How many pages calls of `free_pcppages_bulk` returned to zones.
    fn returned(&self) -> u64 {
        let pages = |site| self.log.holds.site(site).pages;
        bulk_sites().map(pages).sum()
    }

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

/// The call sites that correspond to `free_pcppages_bulk` in Linux.
fn bulk_sites() -> impl Iterator<Item = Site> {
    Site::ALL.into_iter().filter(|site| site.is_bulk_free())
}

/// The numbers that an experiment file gives for the workload.
pub(super) const NUMBERS: &[Number] = &[
    Number::one("seconds", (3, 3600), "virtual seconds of a run"),
    Number::one(
        "family_seconds",
        (3, 3600),
        "virtual seconds of a run that only the tables of the family show",
    ),
    Number::one("family_seeds", (1, 10_000), "the most seeds of these runs"),
];

/// A workload on a machine, the length of a run, and the time that a run takes to settle.
#[derive(Clone, Debug)]
pub(super) struct VmstatSetup {
    pub(super) profile: Profile,
    pub(super) workload: &'static Mix,
    length: Nanos,
    /// The time after which page lists are full and schedules have settled. From this time on, a
    /// run counts how many CPUs start their vmstat work together.
    settled: Nanos,
}

impl VmstatSetup {
    /// The setup of the workload [`MAIN`].
    pub(super) fn new(setting: &Setting<'_>) -> Result<Self, Error> {
        Self::of(MAIN, setting.profile()?, setting.get("seconds"))
    }

    /// The setup of the workload in `FAMILY` whose name is `workload`. Each run takes `seconds` of
    /// virtual time.
    pub(super) fn of(workload: &str, profile: Profile, seconds: u64) -> Result<Self, Error> {
        Ok(Self {
            profile,
            workload: Mix::find(&FAMILY, workload)?,
            length: Nanos(seconds * Nanos::SECOND.0),
            settled: Nanos(5 * Nanos::SECOND.0 / 2),
        })
    }

    /// Runs the workload once on one seed.
    pub(super) fn measure(&self, design: &Design, seed: u64) -> Sample {
        let testbed = self.workload.testbed(&self.profile, *design, seed);
        self.workload.start(&testbed, self.length);
        testbed.sim.run_until(self.length);
        let (stats, log) = testbed.finish();
        let zone = |site: Site| stats.site(LockClass::Zone, site).clone();
        let seen = Seen {
            bulk: LockStats::sum(&bulk_sites().map(zone).collect::<Vec<_>>()),
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
}
