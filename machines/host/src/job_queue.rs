//! The deferred jobs of one CPU: which jobs wait until when, and which job runs.
//!
//! A [`JobQueue`] is a table with one slot per kind of job, and a condition variable that says that the
//! table has changed. Times are the machine's. A slot can be waiting and running at once: then its
//! job was deferred again while it ran, and will run once more. Lock: the table's; no handler runs
//! inside it.

use std::sync::PoisonError;
use std::time::Duration;

use plimsoll_mm::machine::{Job, JobState};
use plimsoll_mm::units::Nanos;

use super::locks::sync::{Condvar, Mutex, MutexGuard};

/// The longest wait for a deadline before the worker looks at the clock again.
const NAP_MAX: Duration = Duration::from_secs(3600);

/// The deferred jobs of one CPU, with a condition variable for its worker.
#[derive(Default)]
pub(crate) struct JobQueue {
    table: Mutex<Table>,
    changed: Condvar,
}

#[derive(Default)]
struct Table {
    slots: [Slot; Job::ALL.len()],
    /// True when the worker is to end.
    closing: bool,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    due: Option<Nanos>,
    running: bool,
}

impl JobQueue {
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

    /// Waits for the next job whose time has come, and marks it running until the returned value is
    /// dropped. Returns `None` once the queue closes. Only one worker at a time may call this.
    pub(crate) fn next(&self, now: impl Fn() -> Nanos) -> Option<Running<'_>> {
        let mut table = self.table();
        // This ends when a job is due or the queue closes; both wake the worker.
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
                        return Some(Running {
                            job_queue: self,
                            job,
                        });
                    }
                    Duration::from_nanos(left.0).min(NAP_MAX)
                }
            };
            let woken = self.changed.wait_timeout(table, nap);
            table = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Makes [`JobQueue::next`] return `None`. Jobs that wait keep waiting.
    pub(crate) fn close(&self) {
        self.table().closing = true;
        self.changed.notify_one();
    }

    pub(crate) fn open(&self) {
        self.table().closing = false;
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A panic inside the lock leaves the table whole, because each section writes one field
        // last.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A job that runs. It has finished when this is dropped.
pub(crate) struct Running<'a> {
    job_queue: &'a JobQueue,
    pub(crate) job: Job,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.job_queue.table().slots[self.job as usize].running = false;
    }
}
