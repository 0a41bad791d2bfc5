//! The workload of the vmstat experiment and its metrics.
//!
//! `stress-ng --vm` in bursts: two thirds of the CPUs map, write and unmap 64 MiB, then rest for
//! seconds. What a burst freed stays on the page lists, and decay gives it back second by second.
//! On all CPUs, daemons wake every few milliseconds, so that deferrable timers get to fire. On the
//! remaining third they exchange a few pages so seldom that these CPUs go dormant and come back.

use plimsoll_mm::design::Design;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::{CpuId, Nanos};
use plimsoll_sim::profile::Profile;
use plimsoll_sim::{LockStats, Stats};

use crate::measure::comparison::Sample;
use crate::measure::metric::Metric;
use crate::run::options::Effort;
use crate::run::testbed::{Log, Testbed, crowd, crowd_on_one_tick};
use crate::workload::daemons::Daemons;
use crate::workload::stress_vm::{Pause, StressVm};

/// The metrics of each run.
pub(super) mod metrics {
    use crate::measure::metric::{Metric, Unit};

    /// All waits for the zone lock in `free_pcppages_bulk`.
    pub(in crate::experiment::vmstat) const CONTENTIONS: Metric =
        Metric::lower("contentions", Unit::Count);
    pub(super) const PERF_CONTENTIONS: Metric = Metric::lower("perf_contentions", Unit::Count);
    pub(super) const TOTAL_WAIT: Metric = Metric::lower("total_wait_ns", Unit::Nanos);
    pub(super) const MAX_WAIT: Metric = Metric::lower("max_wait_ns", Unit::Nanos);
    pub(super) const AVG_WAIT: Metric = Metric::lower("avg_wait_ns", Unit::Nanos);
    pub(super) const DECAY_CONTENTIONS: Metric = Metric::lower("decay_contentions", Unit::Count);
    pub(super) const DECAY_WAIT: Metric = Metric::lower("decay_wait_ns", Unit::Nanos);
    pub(super) const ZONE_CONTENTIONS: Metric = Metric::lower("zone_contentions", Unit::Count);
    pub(super) const ZONE_TOTAL_WAIT: Metric = Metric::lower("zone_total_wait_ns", Unit::Nanos);
    pub(super) const ZONE_MAX_WAIT: Metric = Metric::lower("zone_max_wait_ns", Unit::Nanos);
    pub(super) const REFRESHES: Metric = Metric::neither("refreshes", Unit::Count);
    pub(super) const KICKS: Metric = Metric::neither("kicks", Unit::Count);
    pub(super) const DECAYED: Metric = Metric::neither("pages_decayed", Unit::Pages);
    pub(super) const PER_DECAYED: Metric =
        Metric::lower("decay_contentions_per_mpage", Unit::Count);
    pub(super) const CROWD_TICK: Metric =
        Metric::lower("cpus_starting_within_1_jiffy_max", Unit::Cpus);
    pub(super) const CROWD_1: Metric = Metric::lower("cpus_starting_within_1ms_max", Unit::Cpus);
    pub(super) const CROWD_4: Metric = Metric::lower("cpus_starting_within_4ms_max", Unit::Cpus);
    pub(super) const CROWD_32: Metric = Metric::lower("cpus_starting_within_32ms_max", Unit::Cpus);
}

/// The length of a run, and of its first part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene {
    length: Nanos,
    /// The time until which page lists fill and schedules settle; crowding is counted from then on.
    settled: Nanos,
}

impl Scene {
    pub(super) fn of(effort: Effort) -> Self {
        let seconds = match effort {
            Effort::Full => 20,
            Effort::Quick => 5,
        };
        Self {
            length: Nanos(seconds * Nanos::SECOND.0),
            settled: Nanos(5 * Nanos::SECOND.0 / 2),
        }
    }

    /// Runs the workload once on one seed.
    pub(super) fn measure(&self, profile: &Profile, design: &Design, seed: u64) -> Sample {
        let testbed = Testbed::new(profile, *design, seed);
        self.populate(&testbed);
        testbed.sim.run_until(self.length);
        let (stats, log) = testbed.finish();
        Sample {
            hash: stats.hash,
            metrics: self.metrics(profile, &stats, &log),
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
                // They exchange pages every 0.4 s, or every 4 s, so that the CPU goes dormant in
                // between.
                exchange_one_in: if bursting(&cpu) { 100 } else { 1000 },
            };
            daemons.start(testbed, [cpu], self.length);
        }
    }

    fn metrics(&self, profile: &Profile, stats: &Stats, log: &Log) -> Vec<(Metric, f64)> {
        let zone = |site: Site| stats.site(LockClass::Zone, site);
        let bulk_sites = Site::ALL.into_iter().filter(|site| site.is_bulk_free());
        let bulk: Vec<LockStats> = bulk_sites.map(zone).cloned().collect();
        let bulk = LockStats::sum(&bulk);
        let decay = zone(Site::Decay);
        let all = stats.class(LockClass::Zone);
        let max = |stats: &LockStats| stats.wait_max.map_or(0, |longest| longest.wait.0);
        let per = |count: u64, of: u64| {
            if of == 0 {
                0.0
            } else {
                count as f64 / of as f64
            }
        };
        let starts = || log.starts(self.settled, None);
        let ms = |ms| crowd(starts(), Nanos::from_ms(ms)) as f64;
        let tick = crowd_on_one_tick(starts(), profile.hz) as f64;
        vec![
            (metrics::CONTENTIONS, bulk.contentions as f64),
            (metrics::PERF_CONTENTIONS, bulk.perf_contentions as f64),
            (metrics::TOTAL_WAIT, bulk.wait_total.0 as f64),
            (metrics::MAX_WAIT, max(&bulk) as f64),
            (metrics::AVG_WAIT, per(bulk.wait_total.0, bulk.contentions)),
            (metrics::DECAY_CONTENTIONS, decay.contentions as f64),
            (metrics::DECAY_WAIT, decay.wait_total.0 as f64),
            (metrics::ZONE_CONTENTIONS, all.contentions as f64),
            (metrics::ZONE_TOTAL_WAIT, all.wait_total.0 as f64),
            (metrics::ZONE_MAX_WAIT, max(&all) as f64),
            (metrics::REFRESHES, log.refreshes as f64),
            (metrics::KICKS, log.kicks as f64),
            (metrics::DECAYED, log.decayed as f64),
            (
                metrics::PER_DECAYED,
                1e6 * per(decay.contentions, log.decayed),
            ),
            (metrics::CROWD_TICK, tick),
            (metrics::CROWD_1, ms(1)),
            (metrics::CROWD_4, ms(4)),
            (metrics::CROWD_32, ms(32)),
        ]
    }
}
