//! Explains the longest waits for locks in a run. An explanation names the lock for which a CPU
//! waited, what the holders of the lock did during the wait, and what delayed them. It also names
//! the other CPUs that waited for this lock at the same time.
//!
//! A run is explained in two passes. The first pass finds the longest waits. The second pass runs
//! the same seed again, which gives the same run, and keeps what happened during these waits.

mod cause;
mod sites;
mod words;

use std::collections::BTreeMap;

use plimsoll_mm::units::Nanos;
use plimsoll_sim::{Access, Wait};
use serde::Serialize;

use self::cause::{Holder, ahead, holder};
pub use self::words::text;
use crate::slices::{LONGEST, Limits, Slices, Traces, Window};

/// The version of the fields that an [`Explanation`] has as JSON.
pub const SCHEMA: u32 = 1;

/// The explanation of the longest waits for locks in the run of one design with one seed on one
/// machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The version of the fields ([`SCHEMA`]).
    pub schema: u32,
    /// The machine.
    pub machine: String,
    /// The design.
    pub design: String,
    /// The seed.
    pub seed: u64,
    /// The hash of the run.
    pub hash: String,
    /// The virtual time at which the run ended, in nanoseconds.
    pub ended_ns: u64,
    /// The longest waits, the longest first.
    pub waits: Vec<LongWait>,
}

impl Explanation {
    /// The explanation as JSON, in one line.
    ///
    /// # Panics
    /// Never: all fields can be written as JSON.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("it has only numbers, texts and lists")
    }
}

/// One of the longest waits, and what caused it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LongWait {
    /// The CPU that waited.
    pub cpu: u32,
    /// The task that waited.
    pub task: u32,
    /// The lock.
    pub lock: String,
    /// The call site that requested the lock.
    pub site: String,
    /// The work of the call site, in words.
    pub doing: &'static str,
    /// How the task requested the lock: it spins, it sleeps, or it is a reader or a writer.
    pub access: &'static str,
    /// When the wait began, in nanoseconds of virtual time.
    pub from_ns: u64,
    /// How long the wait lasted, in nanoseconds.
    pub wait_ns: u64,
    /// The last task that held the lock before the waiter got it.
    pub released_by: Holder,
    /// How many holds of this lock overlap with the wait. Holds that took no time do not count.
    pub holds: usize,
    /// The total time, in nanoseconds, for which the holds that `holds` counts lasted during the
    /// wait. Several readers can hold a lock at the same time, so this may be longer than the wait.
    pub holds_ns: u64,
    /// The task with the longest of the holds that `holds` counts. `None` if `released_by`
    /// describes that hold.
    pub longest: Option<Holder>,
    /// The other CPUs that waited for this lock during the wait, in ascending order.
    pub queued: Vec<u32>,
}

/// Returns the [`Traces`] for the first of the two passes in which each run is made. These traces
/// keep only the longest waits of each run.
#[must_use]
pub fn first_pass() -> Traces {
    Traces::new(Limits {
        windows: Vec::new(),
        slices_max: 0,
    })
}

/// Returns the [`Traces`] for the second pass, which makes the same runs again. These traces keep
/// only what happened during the longest waits. `first` has the results of the first pass, with the
/// longest waits.
#[must_use]
pub fn second_pass(first: &[Slices]) -> Traces {
    let windows = |slices: &Slices| {
        let window = |wait: &Wait| Window {
            from: wait.from,
            until: wait.until,
        };
        slices.longest.iter().map(window).collect::<Vec<_>>()
    };
    let each: BTreeMap<(String, String), Vec<Window>> = first
        .iter()
        .map(|slices| {
            let name = (slices.machine.clone(), slices.design.clone());
            (name, windows(slices))
        })
        .collect();
    Traces::in_windows(each)
}

/// Explains the longest waits of a run. The run was made twice; `slices` has the parts of the
/// second run that were kept.
#[must_use]
pub fn explain(slices: &Slices) -> Explanation {
    Explanation {
        schema: SCHEMA,
        machine: slices.machine.clone(),
        design: slices.design.clone(),
        seed: slices.seed,
        hash: format!("{:016x}", slices.hash),
        ended_ns: slices.ended.0,
        waits: slices
            .longest
            .iter()
            .take(LONGEST)
            .map(|wait| long_wait(slices, wait))
            .collect(),
    }
}

fn long_wait(slices: &Slices, wait: &Wait) -> LongWait {
    let released_by = holder(slices, wait);
    let holds = ahead(slices, wait);
    let within = |from: Nanos, until: Nanos| {
        let (from, until) = (from.max(wait.from), until.min(wait.until));
        until.0.saturating_sub(from.0)
    };
    let longest = holds.iter().max_by_key(|held| {
        let hold = &held.hold;
        hold.until.0 - hold.from.0
    });
    let longest = longest.map(|held| Holder::of(slices, held, wait));
    let others = slices.waits.iter().map(|waited| &waited.wait);
    let mut queued: Vec<u32> = others
        .filter(|other| other.lock == wait.lock && other.task != wait.task)
        .filter(|other| within(other.from, other.until) > 0)
        .map(|other| other.cpu.0)
        .collect();
    queued.sort_unstable();
    queued.dedup();
    LongWait {
        cpu: wait.cpu.0,
        task: wait.task,
        lock: wait.class.name().to_owned(),
        site: wait.site.name().to_owned(),
        doing: sites::doing(wait.site),
        access: match wait.access {
            Access::Spin => "spin",
            Access::Sleep => "sleep",
            Access::Read => "read",
            Access::Write => "write",
        },
        from_ns: wait.from.0,
        wait_ns: wait.until.0 - wait.from.0,
        holds: holds.len(),
        holds_ns: holds
            .iter()
            .map(|held| within(held.hold.from, held.hold.until))
            .sum(),
        longest: longest.filter(|longest| *longest != released_by),
        released_by,
        queued,
    }
}
