//! The deferred jobs of one CPU: which wait until when, and which runs.
//!
//! A desk is a table of one slot per kind of job and a condition: "the table changed". Times are
//! the machine's. A slot may wait and run at once: its job was deferred again while it ran, and
//! will run once more. Lock: the table's; no handler runs inside it.

use std::sync::PoisonError;
use std::time::Duration;

use plimsoll_mm::machine::{Job, JobState};
use plimsoll_mm::units::Nanos;

use super::locks::sync::{Condvar, Mutex, MutexGuard};

/// The longest wait for a deadline before looking at the clock again.
const NAP_MAX: Duration = Duration::from_secs(3600);

#[derive(Default)]
pub(crate) struct Desk {
    table: Mutex<Table>,
    changed: Condvar,
}

#[derive(Default)]
struct Table {
    slots: [Slot; Job::ALL.len()],
    /// The worker is to go home.
    closing: bool,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    due: Option<Nanos>,
    running: bool,
}

impl Desk {
    pub(crate) fn defer(&self, job: Job, due: Nanos) {
        self.table().slots[job as usize].due = Some(due);
        self.changed.notify_one();
    }

    pub(crate) fn cancel(&self, job: Job) {
        self.table().slots[job as usize].due = None;
    }

    pub(crate) fn state(&self, job: Job) -> JobState {
        match self.table().slots[job as usize] {
            Slot { due: Some(_), .. } => JobState::Pending,
            Slot { running: true, .. } => JobState::Running,
            Slot { .. } => JobState::Dormant,
        }
    }

    /// Waits for the next job whose time has come and marks it running until what this returns
    /// is dropped; `None` once the desk closes. For one worker at a time.
    pub(crate) fn next(&self, now: impl Fn() -> Nanos) -> Option<Running<'_>> {
        let mut table = self.table();
        // Ends when a job is due or the desk closes; both wake it.
        loop {
            if table.closing {
                return None;
            }
            let waiting = |job: Job| table.slots[job as usize].due.map(|due| (due, job));
            let earliest = Job::ALL.into_iter().filter_map(waiting).min();
            let nap = match earliest {
                None => NAP_MAX,
                Some((due, job)) => {
                    let left = due.since(now());
                    if left == Nanos(0) {
                        table.slots[job as usize] = Slot {
                            due: None,
                            running: true,
                        };
                        return Some(Running { desk: self, job });
                    }
                    Duration::from_nanos(left.0).min(NAP_MAX)
                }
            };
            let woken = self.changed.wait_timeout(table, nap);
            table = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Makes [`Desk::next`] return `None`; the jobs keep waiting.
    pub(crate) fn close(&self) {
        self.table().closing = true;
        self.changed.notify_one();
    }

    pub(crate) fn open(&self) {
        self.table().closing = false;
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A panic inside the lock leaves the table whole: each section writes one field last.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A job that runs; it has finished when this is dropped.
pub(crate) struct Running<'a> {
    desk: &'a Desk,
    pub(crate) job: Job,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.desk.table().slots[self.job as usize].running = false;
    }
}
