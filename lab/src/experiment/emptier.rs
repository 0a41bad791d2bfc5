//! The code that the workloads `killed-app` and `killed-server` share: the ways to empty a dying
//! address space, the metrics of a race (several tasks empty the address space at the same time),
//! and the tables that the reports of both experiments have.

use plimsoll_mm::design::Design;
use plimsoll_mm::site::LockClass;
use plimsoll_mm::units::Nanos;

use super::driver::{self, Number, Reading, Results, Target, Tried, readings};
use crate::measure::metric::{Metric, Unit};
use crate::report::value::human;
use crate::report::{Table, tabulate};
use crate::workload::victim::{Party, Raced};

/// The time from the kill until all memory is free.
pub(super) const WALL: Metric = Metric::lower("wall_ns", Unit::Nanos);
/// The sum of the running times of the exiting task and of all helper tasks, including their waits
/// for spinlocks.
pub(super) const RAN: Metric = Metric::lower("ran_ns", Unit::Nanos);
/// The sum of the times that the exiting task and helper tasks wait for page-table locks.
pub(super) const TABLE_WAIT: Metric = Metric::lower("table_wait_ns", Unit::Nanos);
/// The number of pages that are on page lists when all tasks have finished emptying the address
/// space.
pub(super) const LISTED: Metric = Metric::neither("listed_pages", Unit::Pages);
/// The sum of two times: [`RAN`], and the time that CPUs would need to return all pages on page
/// lists ([`LISTED`]) to their zones.
pub(super) const SETTLED: Metric = Metric::lower("settled_ran_ns", Unit::Nanos);

/// The metrics of a race, in which the exiting task and helper tasks empty one address space at the
/// same time.
pub(super) const METRICS: &[Reading<Raced>] = readings!(|raced| {
    WALL => raced.wall.0 as f64,
    RAN => both(raced, Raced::ran),
    TABLE_WAIT => both(raced, Raced::table_wait),
    Metric::lower("forget_mappings_ns", Unit::Nanos) => both(raced, Raced::forgetting),
    LISTED => raced.listed as f64,
    SETTLED => both(raced, Raced::ran) + raced.owed.0 as f64,
    Metric::lower("zone_wait_ns", Unit::Nanos) => raced.lock(LockClass::Zone).wait.0 as f64,
    Metric::lower("pcp_wait_ns", Unit::Nanos) => raced.lock(LockClass::Pcp).wait.0 as f64,
    Metric::lower("lru_wait_ns", Unit::Nanos) => raced.lock(LockClass::Lru).wait.0 as f64,
});

/// The name of one way to empty an address space: the exiting task empties it alone, as in Linux.
/// The reports compare all other ways with this way.
pub(super) const ALONE: &str = "exit alone";

/// The declaration of `helpers`, the number of helpers that an experiment file gives for a design.
pub(super) const HELPERS: Number = Number::one(
    "helpers",
    (0, 64),
    "tasks that help the last user to empty the address space",
);

/// The number of tasks that, in this design, help the exiting task to empty the address space.
pub(super) fn helpers(tried: &Tried) -> usize {
    tried.numbers.count(HELPERS.name)
}

/// The name of the way in which a design empties an address space, without the count of helpers. If
/// a design limits how long zone locks are held, the name says so, because long holds limit the
/// speed of many helpers.
pub(super) fn way(tried: &Tried) -> String {
    let reaping = tried.design.reaping.name();
    if helpers(tried) == 0 {
        ALONE.to_owned()
    } else if tried.design.holds.name() == Design::OURS.holds.name() {
        format!("{reaping}, bounded holds")
    } else {
        reaping.to_owned()
    }
}

/// Adds up a time, such as the running time, of the exiting task and of all helper tasks, in
/// nanoseconds. `time` returns the time of one of these two parties.
pub(super) fn both(raced: &Raced, time: impl Fn(&Raced, Party) -> Nanos) -> f64 {
    (time(raced, Party::Exit).0 + time(raced, Party::Helpers).0) as f64
}

/// The kinds of locks that at least one task waited for. The kind whose waits are longest in total
/// comes first.
fn waited_for(raced: &Raced) -> Vec<LockClass> {
    let mut classes = LockClass::ALL.to_vec();
    classes.retain(|class| raced.lock(*class).wait.0 > 0);
    classes.sort_by_key(|class| std::cmp::Reverse(raced.lock(*class).wait));
    classes
}

/// Names what limits the speed of a race, in which several tasks empty one address space. Two
/// limits are compared: the spinlock with the longest waits, and "cache lines" (the time to acquire
/// free locks and to move cache lines). Returns the larger one and its percentage of the tasks'
/// running time. If this percentage is small, the limit is "work".
pub(super) fn limiter(raced: &Raced) -> String {
    let ran = both(raced, Raced::ran).max(1.0);
    let spun: Vec<LockClass> = waited_for(raced)
        .into_iter()
        .filter(|class| !class.sleeps())
        .collect();
    let waits: u64 = spun.iter().map(|class| raced.lock(*class).wait.0).sum();
    let lines = ran - raced.worked.0 as f64 - waits as f64;
    let longest = spun.first().map_or(0, |class| raced.lock(*class).wait.0) as f64;
    let (name, part) = match spun.first() {
        Some(class) if longest >= lines => (class.name(), longest),
        _ => ("cache lines", lines),
    };
    let percent = 100.0 * part / ran;
    if percent < LIMITS_FROM_PERCENT {
        return "work".to_owned();
    }
    format!("{name}, {percent:.0} % of running")
}

/// [`limiter`] names a lock or "cache lines" only if they take at least this percentage of the
/// running time. Otherwise it names "work".
const LIMITS_FROM_PERCENT: f64 = 5.0;

/// Makes a table of the waits for each lock while several tasks empty one address space. It shows
/// only the runs with the first seed.
pub(super) fn waits<'a>(races: impl Iterator<Item = (&'a Tried, &'a Raced)>) -> Table {
    let rows = races.flat_map(|(tried, raced)| {
        let classes = waited_for(raced).into_iter();
        classes.map(move |class| (&tried.name, raced, class, raced.lock(class)))
    });
    tabulate!(
        "Which locks are waited for, first seed",
        "Waits and holds of exit and helpers together. `of running`: the waits in percent of the \
         running time of both.",
        &rows.collect::<Vec<_>>(),
        |(name, raced, class, used)| {
            "design" => name,
            "lock" => class.name(),
            "waits" => human(used.wait.0 as f64, Unit::Nanos),
            "of running" => {
                if class.sleeps() {
                    "asleep".to_owned()
                } else {
                    let ran = both(raced, Raced::ran).max(1.0);
                    format!("{:.2} %", 100.0 * used.wait.0 as f64 / ran)
                }
            },
            "contended" => human(used.contentions as f64, Unit::Count),
            "holds" => human(used.hold.0 as f64, Unit::Nanos),
        }
    )
}

/// The longest time that our design is allowed to wait for page-table locks, in percent of the time
/// that the design `ascending` waits for them.
const WAIT_PERCENT_MAX: f64 = 1.0;

/// Returns the two targets for the time that our design waits for page-table locks. First, this
/// time must be at most 1 % of the time that the design `ascending` waits, and `percent` is the
/// measured percentage. Second, our design must never wait longer than the design
/// `descending-by-vma`. There are `cases` cases, and in `above` of them our design waited longer.
pub(super) fn waits_hardly(percent: f64, (above, cases): (usize, usize)) -> [Target; 2] {
    [
        Target {
            what: "waits for page tables, against ascending",
            wanted: "1 % at most",
            measured: format!("{percent:.2} %"),
            met: Some(percent <= WAIT_PERCENT_MAX),
        },
        Target {
            what: "cases in which it waits longer than descending-by-vma",
            wanted: "none",
            measured: format!("{above} of {cases}"),
            met: Some(above == 0),
        },
    ]
}

/// The table of the targets that our design must reach.
pub(super) fn targets(targets: &[Target]) -> Table {
    driver::targets(
        "What meet-in-the-middle must reach",
        "Ratios are taken seed by seed; shown is their median. A case is one seed in one scene, or \
         with one number of helpers.",
        targets,
    )
}

/// Returns how many times as fast `design` is as an exit without helpers, by the median ratio of
/// the metric `wall`.
pub(super) fn faster(results: &Results, design: &str, wall: &Metric) -> f64 {
    1.0 / results.ratio((ALONE, design), wall)
}
