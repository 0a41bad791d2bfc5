//! The parts that the experiments about dying address spaces share: the ways to empty one, the
//! metrics of a race, and the tables that both reports have.

use std::fmt;

use plimsoll_mm::design::Design;
use plimsoll_mm::site::LockClass;
use plimsoll_mm::space::reap::Reaping;
use plimsoll_mm::units::Nanos;

use crate::measure::metric::{Metric, Unit};
use crate::report::Table;
use crate::report::value::human;
use crate::workload::victim::{Party, Raced};

/// The metrics of a race.
pub(super) mod metrics {
    use crate::measure::metric::{Metric, Unit};

    pub(in crate::experiment) const WALL: Metric = Metric::lower("wall_ns", Unit::Nanos);
    pub(in crate::experiment) const RAN: Metric = Metric::lower("ran_ns", Unit::Nanos);
    pub(in crate::experiment) const TABLE_WAIT: Metric =
        Metric::lower("table_wait_ns", Unit::Nanos);
    pub(in crate::experiment) const FORGET: Metric =
        Metric::lower("forget_mappings_ns", Unit::Nanos);
    pub(in crate::experiment) const LISTED: Metric = Metric::neither("listed_pages", Unit::Pages);
    pub(in crate::experiment) const SETTLED: Metric = Metric::lower("settled_ran_ns", Unit::Nanos);
    pub(in crate::experiment) const ZONE_WAIT: Metric = Metric::lower("zone_wait_ns", Unit::Nanos);
    pub(in crate::experiment) const PCP_WAIT: Metric = Metric::lower("pcp_wait_ns", Unit::Nanos);
    pub(in crate::experiment) const LRU_WAIT: Metric = Metric::lower("lru_wait_ns", Unit::Nanos);
}

/// A way to empty an address space, with a number of helpers.
#[derive(Clone, Debug)]
pub(super) struct Emptier {
    pub(super) name: String,
    pub(super) reaping: Reaping,
    pub(super) helpers: usize,
    /// Whether a CPU holds a zone lock for a batch at most, as in `ours`.
    pub(super) bounded: bool,
}

impl fmt::Display for Emptier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

impl Emptier {
    /// The last user without helpers, as in Linux.
    pub(super) fn alone() -> Self {
        Self {
            name: "exit alone".to_owned(),
            reaping: Reaping::Ascending,
            helpers: 0,
            bounded: false,
        }
    }

    /// The last user with `helpers` helpers, which empty the space as `reaping` says.
    pub(super) fn helped(reaping: Reaping, helpers: usize) -> Self {
        let plural = if helpers == 1 { "" } else { "s" };
        Self {
            name: format!("{}, {helpers} helper{plural}", reaping.name()),
            reaping,
            helpers,
            bounded: false,
        }
    }

    /// This emptier with bounded holds of zone locks; unbounded ones are what limits many
    /// helpers.
    pub(super) fn bounded(self) -> Self {
        Self {
            name: format!("bounded, {}", self.name),
            bounded: true,
            ..self
        }
    }

    /// The name of the way, without the number of helpers.
    pub(super) fn way(&self) -> String {
        match (self.helpers, self.bounded) {
            (0, _) => "exit alone".to_owned(),
            (_, false) => self.reaping.name().to_owned(),
            (_, true) => format!("{}, bounded holds", self.reaping.name()),
        }
    }

    /// Unpatched Linux, but spaces are emptied as `reaping` says, and holds are ours if they are
    /// bounded.
    pub(super) fn design(&self) -> Design {
        let linux = Design {
            reaping: self.reaping,
            ..Design::UNPATCHED
        };
        if !self.bounded {
            return linux;
        }
        Design {
            holds: Design::OURS.holds,
            ..linux
        }
    }
}

/// The metrics that every race has, with their values.
pub(super) fn common(raced: &Raced) -> Vec<(Metric, f64)> {
    let wait = |class| raced.lock(class).wait.0 as f64;
    vec![
        (metrics::WALL, raced.wall.0 as f64),
        (metrics::RAN, both(raced, Raced::ran)),
        (metrics::TABLE_WAIT, both(raced, Raced::table_wait)),
        (metrics::FORGET, both(raced, Raced::forgetting)),
        (metrics::LISTED, raced.listed as f64),
        (
            metrics::SETTLED,
            both(raced, Raced::ran) + raced.owed.0 as f64,
        ),
        (metrics::ZONE_WAIT, wait(LockClass::Zone)),
        (metrics::PCP_WAIT, wait(LockClass::Pcp)),
        (metrics::LRU_WAIT, wait(LockClass::Lru)),
    ]
}

/// A time of the last user plus that of the helpers, in nanoseconds.
pub(super) fn both(raced: &Raced, time: impl Fn(&Raced, Party) -> Nanos) -> f64 {
    (time(raced, Party::Exit).0 + time(raced, Party::Helpers).0) as f64
}

/// The locks that a task waited for, those with the longest waits first.
pub(super) fn waited_for(raced: &Raced) -> Vec<LockClass> {
    let mut classes = LockClass::ALL.to_vec();
    classes.retain(|class| raced.lock(*class).wait.0 > 0);
    classes.sort_by_key(|class| std::cmp::Reverse(raced.lock(*class).wait));
    classes
}

/// The limit of a race besides its work, with its share of the time that all tasks ran: the
/// spinlock with the longest waits, or taking free locks and moving cache lines if that takes more
/// time.
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

/// The least share of the running time, in percent, that counts as a limit.
const LIMITS_FROM_PERCENT: f64 = 5.0;

/// A table of the waits for each lock in the races of the first seed.
pub(super) fn waits<'a>(races: impl Iterator<Item = (&'a str, &'a Raced)>) -> Table {
    let mut rows = Vec::new();
    for (name, raced) in races {
        let ran = both(raced, Raced::ran).max(1.0);
        for class in waited_for(raced) {
            let used = raced.lock(class);
            let wait = used.wait.0 as f64;
            rows.push(vec![
                name.to_owned(),
                class.name().to_owned(),
                human(wait, Unit::Nanos),
                if class.sleeps() {
                    "asleep".to_owned()
                } else {
                    format!("{:.2} %", 100.0 * wait / ran)
                },
                human(used.contentions as f64, Unit::Count),
                human(used.hold.0 as f64, Unit::Nanos),
            ]);
        }
    }
    Table {
        title: "Which locks are waited for, first seed".to_owned(),
        note:
            "Waits and holds of exit and helpers together; waits in percent of the time they ran."
                .to_owned(),
        columns: [
            "design",
            "lock",
            "waits",
            "of running",
            "contended",
            "holds",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows,
    }
}

/// One target that ours must reach.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) what: &'static str,
    pub(super) wanted: &'static str,
    pub(super) measured: String,
    pub(super) is_met: bool,
}

/// The most that ours may wait for page tables, in percent of ascending's wait.
const WAIT_PERCENT_MAX: f64 = 1.0;

/// The two targets on page-table waits: `percent`, ours against ascending, is at most 1 %; and ours
/// never waits longer than the patch, which it did in `above` of `cases`.
pub(super) fn waits_hardly(percent: f64, (above, cases): (usize, usize)) -> [Target; 2] {
    [
        Target {
            what: "waits for page tables, against ascending",
            wanted: "1 % at most",
            measured: format!("{percent:.2} %"),
            is_met: percent <= WAIT_PERCENT_MAX,
        },
        Target {
            what: "cases in which it waits longer than descending-by-vma",
            wanted: "none",
            measured: format!("{above} of {cases}"),
            is_met: above == 0,
        },
    ]
}

/// A table of the targets, with a verdict on each.
pub(super) fn targets(targets: &[Target]) -> Table {
    let row = |target: &Target| {
        vec![
            target.what.to_owned(),
            target.wanted.to_owned(),
            target.measured.clone(),
            if target.is_met { "met" } else { "missed" }.to_owned(),
        ]
    };
    Table {
        title: "What meet-in-the-middle must reach".to_owned(),
        note: "Medians of ratios by seed; cases are seeds and scenes.".to_owned(),
        columns: ["what", "wanted", "measured", "verdict"]
            .map(str::to_owned)
            .to_vec(),
        rows: targets.iter().map(row).collect(),
    }
}
