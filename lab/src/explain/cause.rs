//! The work and the delays of a task that held a lock for which another task waited.

use plimsoll_mm::units::Nanos;
use plimsoll_sim::{Hold, Runs, Wait};
use serde::Serialize;

use super::sites;
use crate::slices::{Held, Run, Slices, Waited};

/// The largest number of holders that an explanation names for one wait. The first is the holder of
/// the lock, the second is the holder of the lock for which the first holder waited, and so on.
const CHAIN_MAX: u32 = 4;

/// A task that held a lock for which another task waited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// The CPU.
    pub cpu: u32,
    /// The call site that took the lock.
    pub site: String,
    /// The work of the call site, in words.
    pub doing: &'static str,
    /// When the task took the lock, in nanoseconds of virtual time. `None` if it is not known how
    /// long the task held the lock, or if this took no time.
    pub from_ns: Option<u64>,
    /// How long the task held the lock, in nanoseconds. `None` if this time is not known or 0.
    pub hold_ns: Option<u64>,
    /// How many pages moved to or from the zone while the task held the lock. `None` if the lock is
    /// not a zone lock.
    pub pages: Option<u32>,
    /// The number of blocks that the pages in `pages` formed.
    pub blocks: Option<u32>,
    /// The CPU whose page lists the task filled or emptied while it held the lock.
    pub lists_of: Option<u32>,
    /// The causes that delayed the task while it held the lock, during the wait that is explained.
    pub delays: Vec<Delay>,
    /// The task's own waits for other locks while it held this lock, during the wait that is
    /// explained. The longest wait comes first.
    pub waited: Vec<OwnWait>,
}

/// Something that delayed the holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Delay {
    /// The kind of delay: an interrupt, a softirq, a steal (the hypervisor took the CPU away), or
    /// `preempted`. With `preempted`, other work ran on the CPU.
    pub kind: &'static str,
    /// When the delay began, in nanoseconds of virtual time.
    pub from_ns: u64,
    /// The length of the delay, in nanoseconds.
    pub delay_ns: u64,
}

/// A wait for another lock by a task that held a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OwnWait {
    /// The lock.
    pub lock: String,
    /// The call site that requested the lock.
    pub site: String,
    /// How long the task waited for the lock `lock`, in nanoseconds.
    pub wait_ns: u64,
    /// The last task that held the lock `lock` before this task got it. `None` if the explanation
    /// does not follow the chain of holders this far.
    pub released_by: Option<Box<Holder>>,
}

/// Returns the last task that held the lock before the waiter got it.
pub(super) fn holder(slices: &Slices, wait: &Wait) -> Holder {
    let waited = slices.waits.iter().find(|waited| waited.wait == *wait);
    match waited {
        Some(waited) => released(slices, waited, wait, CHAIN_MAX),
        // The limit on what is kept of a run was reached before this wait ended. So only the task
        // that held the lock at the beginning of the wait is known.
        None => Holder::unknown(wait.blocker.0, wait.blocker_site),
    }
}

/// Returns the holds of the lock that overlap with the wait.
pub(super) fn ahead<'a>(slices: &'a Slices, wait: &Wait) -> Vec<&'a Held> {
    let in_wait = |held: &&Held| {
        let hold = &held.hold;
        hold.lock == wait.lock && hold.from < wait.until && wait.from < hold.until
    };
    slices.holds.iter().filter(in_wait).collect()
}

fn released(slices: &Slices, waited: &Waited, during: &Wait, chain: u32) -> Holder {
    let releaser = &waited.releaser;
    match releaser.hold.and_then(|number| slices.hold(number)) {
        Some(held) => Holder::followed(slices, held, during, chain),
        None => Holder::unknown(releaser.cpu.0, releaser.site),
    }
}

impl Holder {
    /// Describes the task of `held`, one of the holds of the lock that overlap with the wait
    /// `during`.
    pub(super) fn of(slices: &Slices, held: &Held, during: &Wait) -> Self {
        Self::followed(slices, held, during, CHAIN_MAX)
    }

    /// Makes a holder of which only the CPU and the call site are known.
    fn unknown(cpu: u32, site: plimsoll_mm::site::Site) -> Self {
        Self {
            cpu,
            site: site.name().to_owned(),
            doing: sites::doing(site),
            from_ns: None,
            hold_ns: None,
            pages: None,
            blocks: None,
            lists_of: None,
            delays: Vec::new(),
            waited: Vec::new(),
        }
    }

    fn followed(slices: &Slices, held: &Held, during: &Wait, chain: u32) -> Self {
        let hold = &held.hold;
        Self {
            from_ns: Some(hold.from.0),
            hold_ns: Some(hold.until.0 - hold.from.0),
            pages: held.moved.map(|moved| moved.pages.0),
            blocks: held.moved.map(|moved| moved.blocks),
            lists_of: held.moved.map(|moved| moved.lists_of.0),
            delays: delays(slices, hold, during),
            waited: own_waits(slices, hold, during, chain),
            ..Self::unknown(hold.cpu.0, hold.site)
        }
    }
}

/// Returns the delays of the holder during the wait `during`. These are disturbances of the
/// holder's CPU, such as interrupts. If the holder's task can leave the CPU during the hold, they
/// also include other work on this CPU.
fn delays(slices: &Slices, hold: &Hold, during: &Wait) -> Vec<Delay> {
    let delay = |kind, from: Nanos, until: Nanos| {
        let (from, until) = (from.max(hold.from), until.min(hold.until));
        let is_during = from < during.until && during.from < until;
        (from < until && is_during).then(|| Delay {
            kind,
            from_ns: from.0,
            delay_ns: until.0 - from.0,
        })
    };
    let runs = |run: &&Run| run.cpu == hold.cpu;
    let own =
        |run: &&Run| matches!(run.runs, Runs::Task(task) | Runs::Daemon(task) if task == hold.task);
    let preempted = slices
        .runs
        .iter()
        .filter(|run| hold.class.sleeps() && run.preempted && runs(run) && own(run));
    let preempted = preempted.filter_map(|run| {
        let again = slices
            .runs
            .iter()
            .filter(|next| runs(next) && own(next) && next.from >= run.until);
        let again = again.map(|next| next.from).min();
        delay("preempted", run.until, again.unwrap_or(hold.until))
    });
    let ran = |at: Nanos| {
        let mut own = slices.runs.iter().filter(|run| runs(run) && own(run));
        !hold.class.sleeps() || own.any(|run| run.from <= at && at <= run.until)
    };
    let disturbed = slices
        .disturbed
        .iter()
        .filter(|of| of.cpu == hold.cpu && ran(of.from));
    let disturbed = disturbed.filter_map(|of| delay(of.kind.name(), of.from, of.until));
    let mut delays: Vec<Delay> = preempted.chain(disturbed).collect();
    delays.sort_by_key(|delay| delay.from_ns);
    delays
}

fn own_waits(slices: &Slices, hold: &Hold, during: &Wait, chain: u32) -> Vec<OwnWait> {
    let within = |waited: &&Waited| {
        let wait = &waited.wait;
        wait.task == hold.task
            && wait.cpu == hold.cpu
            && hold.from <= wait.from
            && wait.until <= hold.until
            && wait.from < during.until
            && during.from < wait.until
    };
    let own = |waited: &Waited| OwnWait {
        lock: waited.wait.class.name().to_owned(),
        site: waited.wait.site.name().to_owned(),
        wait_ns: waited.wait.until.0 - waited.wait.from.0,
        released_by: (chain > 1).then(|| Box::new(released(slices, waited, during, chain - 1))),
    };
    let mut waits: Vec<OwnWait> = slices.waits.iter().filter(within).map(own).collect();
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.wait_ns));
    waits
}
