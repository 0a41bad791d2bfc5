//! Tables of waits for locks, from a simulated run or a recording. The tables have the form in
//! which `perf lock contention` prints such waits. For a simulated run, the tables also have
//! figures that perf cannot show. The module also computes the metrics of locks by which designs
//! are compared.

use plimsoll_mm::site::{LockClass, Site};
use plimsoll_sim::{LockStats, Stats};

use crate::measure::holds::HoldLog;
use crate::measure::metric::{Metric, Unit};
use crate::report::Table;
use crate::report::figures::{Figures, Line, Measure, Stand};
use crate::report::value::human;

/// The waits of one caller for one kind of lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRow {
    /// The number and the durations of the waits.
    pub waits: Waits,
    /// The kind of lock, as `perf lock contention` names it.
    pub kind: String,
    /// The function that requested the lock.
    pub caller: String,
}

/// The number of waits and their durations, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// The number of waits.
    pub count: u64,
    /// The total duration of all waits, in nanoseconds.
    pub total_ns: u64,
    /// The duration of the longest wait, in nanoseconds.
    pub max_ns: u64,
}

impl Waits {
    /// Counts one more wait.
    pub fn add(&mut self, wait_ns: u64) {
        self.count += 1;
        self.total_ns += wait_ns;
        self.max_ns = self.max_ns.max(wait_ns);
    }

    /// Adds the waits of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

/// A table with the columns of `perf lock contention` and a row for each of `rows`.
#[must_use]
pub fn contentions(rows: &[LockRow]) -> Figures {
    let line = |row: &LockRow| {
        let Waits {
            count,
            total_ns,
            max_ns,
        } = row.waits;
        let average_ns = total_ns.checked_div(count).unwrap_or(0);
        let times = [total_ns, max_ns, average_ns].map(|ns| ns as f64);
        let values = [count as f64].into_iter().chain(times);
        Line::full(vec![row.kind.clone(), row.caller.clone()], values)
    };
    Figures {
        name: "contentions",
        title: "Waits for locks, by caller",
        note: String::new(),
        keys: vec!["type", "caller"],
        same: 2,
        keys_stand: Stand::Behind,
        measures: vec![
            Measure::new("contended", "contended", Unit::Count),
            Measure::new("total wait", "total_wait_ns", Unit::Nanos),
            Measure::new("max wait", "max_wait_ns", Unit::Nanos),
            Measure::new("avg wait", "avg_wait_ns", Unit::Nanos),
        ],
        lines: rows.iter().map(line).collect(),
    }
}

/// Returns two tables about the locks of a simulated run. The first shows waits as
/// `perf lock contention` prints them. The second shows figures that perf cannot show. In both
/// tables, the lock for which CPUs waited longest in total comes first.
#[must_use]
pub fn tables(design: &str, stats: &Stats) -> [Table; 2] {
    let pairs = LockClass::ALL
        .iter()
        .flat_map(|class| Site::ALL.iter().map(move |site| (*class, *site)));
    let mut rows: Vec<_> = pairs
        .map(|(class, site)| (class, site, stats.site(class, site)))
        .filter(|(_, _, lock)| lock.acquisitions > 0)
        .collect();
    rows.sort_by_key(|(class, site, lock)| (std::cmp::Reverse(lock.wait_total), *class, *site));
    [waits(design, &rows), beyond_perf(design, &rows)]
}

fn waits(design: &str, rows: &[(LockClass, Site, &LockStats)]) -> Table {
    let waited = rows.iter().filter(|(_, _, lock)| lock.contentions > 0);
    let row = |(class, site, lock): &(LockClass, Site, &LockStats)| LockRow {
        waits: Waits {
            count: lock.contentions,
            total_ns: lock.wait_total.0,
            max_ns: lock.wait_max.map_or(0, |longest| longest.wait.0),
        },
        kind: class.name().to_owned(),
        caller: site.name().to_owned(),
    };
    let rows: Vec<LockRow> = waited.map(row).collect();
    let mut table = contentions(&rows).table(usize::MAX);
    table.title = format!("Waits for locks under {design}, first seed");
    table
}

fn beyond_perf(design: &str, rows: &[(LockClass, Site, &LockStats)]) -> Table {
    let count = |count: u64| human(count as f64, Unit::Count);
    let row = |(class, site, lock): &(LockClass, Site, &LockStats)| {
        vec![
            count(lock.acquisitions),
            count(lock.perf_contentions),
            human(lock.hold_max.0 as f64, Unit::Nanos),
            class.name().to_owned(),
            site.name().to_owned(),
        ]
    };
    Table {
        title: format!("Locks taken under {design}, first seed"),
        note: "`in perf`: the waits that perf lock contention sees, which are all but the first \
             waiter's."
            .to_owned(),
        columns: ["acquired", "in perf", "max hold", "type", "caller"]
            .map(str::to_owned)
            .to_vec(),
        rows: rows.iter().map(row).collect(),
    }
}

/// Returns the metrics of zone locks and page-list locks that most comparisons report.
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
