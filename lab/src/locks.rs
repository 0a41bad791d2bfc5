//! Locks of one run, in the shape of `perf lock contention`, with what it cannot show.

use plimsoll_mm::site::{LockClass, Site};
use plimsoll_sim::Stats;

use crate::metric::Unit;
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
    let row = |(class, site, lock): &(LockClass, Site, &plimsoll_sim::LockStats)| {
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
            average(lock.hold_total.0, lock.acquisitions),
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
            "avg hold",
            "lock",
            "caller",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: rows.iter().map(row).collect(),
    }
}
