//! Locks of one run: as metrics, and in the shape of `perf lock contention` with what that cannot
//! show.

use plimsoll_mm::site::{LockClass, Site};
use plimsoll_sim::{LockStats, Stats};

use crate::holds::HoldLog;
use crate::metric::{Metric, Unit};
use crate::report::Table;
use crate::report::value::human;

/// Every lock that was taken, by class and call site; most waited for first.
#[must_use]
pub fn table(design: &str, stats: &Stats) -> Table {
    let pairs = LockClass::ALL
        .iter()
        .flat_map(|class| Site::ALL.iter().map(move |site| (*class, *site)));
    let mut rows: Vec<_> = pairs
        .map(|(class, site)| (class, site, stats.site(class, site)))
        .filter(|(_, _, lock)| lock.acquisitions > 0)
        .collect();
    rows.sort_by_key(|(class, site, lock)| (std::cmp::Reverse(lock.wait_total), *class, *site));
    let row = |(class, site, lock): &(LockClass, Site, &LockStats)| {
        let nanos = |ns: u64| human(ns as f64, Unit::Nanos);
        let count = |count: u64| human(count as f64, Unit::Count);
        let average = |total: u64, of: u64| nanos(total.checked_div(of).unwrap_or(0));
        vec![
            count(lock.contentions),
            count(lock.perf_contentions),
            nanos(lock.wait_total.0),
            nanos(lock.wait_max.map_or(0, |longest| longest.wait.0)),
            average(lock.wait_total.0, lock.contentions),
            count(lock.acquisitions),
            nanos(lock.hold_max.0),
            class.name().to_owned(),
            site.name().to_owned(),
        ]
    };
    Table {
        title: format!("Locks under {design}, first seed"),
        note: "`in perf`: without the first waiter, which perf lock contention does not see."
            .to_owned(),
        columns: [
            "contended",
            "in perf",
            "total wait",
            "max wait",
            "avg wait",
            "acquired",
            "max hold",
            "lock",
            "caller",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: rows.iter().map(row).collect(),
    }
}

/// What most comparisons want to know of the locks of a run.
#[must_use]
pub fn metrics(stats: &Stats, holds: &HoldLog) -> Vec<(Metric, f64)> {
    let zone = stats.class(LockClass::Zone);
    let pcp = stats.class(LockClass::Pcp);
    let all = holds.all();
    let longest = |stats: &LockStats| stats.wait_max.map_or(0.0, |longest| longest.wait.0 as f64);
    let lower = Metric::lower;
    vec![
        (lower("contentions", Unit::Count), zone.contentions as f64),
        (
            lower("perf_contentions", Unit::Count),
            zone.perf_contentions as f64,
        ),
        (
            lower("total_wait_ns", Unit::Nanos),
            zone.wait_total.0 as f64,
        ),
        (lower("wait_max_ns", Unit::Nanos), longest(&zone)),
        (lower("hold_max_ns", Unit::Nanos), zone.hold_max.0 as f64),
        (
            lower("zone_lock_acquisitions", Unit::Count),
            zone.acquisitions as f64,
        ),
        (lower("pages_per_hold_max", Unit::Pages), f64::from(all.max)),
        (
            lower("holds_over_1000_pages", Unit::Count),
            all.over_1000 as f64,
        ),
        (
            lower("pcp_contentions", Unit::Count),
            pcp.contentions as f64,
        ),
    ]
}
