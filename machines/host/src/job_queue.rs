//! The deferred jobs of one CPU: the time of each pending job, and the job that is running.
//!
//! A [`JobQueue`] is a table with one entry for each kind of job, and a condition variable that
//! signals changes of the table. Times are readings of the machine's clock. A job can be pending
//! and running at once: then it was deferred again while it ran, and will run once more. The only
//! lock is that of the table; no handler runs while it is held.

use std::sync::PoisonError;
use std::time::Duration;

use plimsoll_mm::machine::{Job, JobState};
use plimsoll_mm::units::Nanos;

use super::locks::sync::{Condvar, Mutex, MutexGuard};

/// The longest time that the worker sleeps before it checks the time again.
const NAP_MAX: Duration = Duration::from_secs(3600);

/// The deferred jobs of one CPU, with a condition variable for its worker.
#[derive(Default)]
pub(crate) struct JobQueue {
    table: Mutex<Table>,
    changed: Condvar,
}

#[derive(Default)]
struct Table {
    entries: [JobEntry; Job::ALL.len()],
    /// True when the worker has to exit.
    closing: bool,
}

#[derive(Clone, Copy, Default)]
struct JobEntry {
    due: Option<Nanos>,
    running: bool,
}

impl JobQueue {
    pub(crate) fn defer(&self, job: Job, due: Nanos) {
        self.table().entries[job as usize].due = Some(due);
        self.changed.notify_one();
    }

    pub(crate) fn cancel(&self, job: Job) {
        self.table().entries[job as usize].due = None;
    }

    pub(crate) fn state(&self, job: Job) -> JobState {
        match self.table().entries[job as usize] {
            JobEntry { due: Some(_), .. } => JobState::Pending,
            JobEntry { running: true, .. } => JobState::Running,
            JobEntry { .. } => JobState::Dormant,
        }
    }

    /// Waits for the next job that is due, and marks it as running until the returned value is
    /// dropped. Returns `None` when the queue is closed. Only one worker at a time may call this.
    pub(crate) fn next(&self, now: impl Fn() -> Nanos) -> Option<Running<'_>> {
        let mut table = self.table();
        // The loop ends when a job is due or the queue is closed. The worker sleeps at most until
        // the earliest job is due; `defer` and `close` wake it.
        loop {
            if table.closing {
                return None;
            }
            let waiting = |job: Job| table.entries[job as usize].due.map(|due| (due, job));
            let earliest = Job::ALL.into_iter().filter_map(waiting).min();
            let nap = match earliest {
                None => NAP_MAX,
                Some((due, job)) => {
                    let left = due.since(now());
                    if left == Nanos(0) {
                        table.entries[job as usize] = JobEntry {
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

    /// Makes [`JobQueue::next`] return `None` from now on. Pending jobs stay pending.
    pub(crate) fn close(&self) {
        self.table().closing = true;
        self.changed.notify_one();
    }

    pub(crate) fn open(&self) {
        self.table().closing = false;
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A panic while the lock is held cannot leave the table inconsistent. Each critical section
        // makes at most one assignment to the table, as its last step.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running job. Dropping this marks the job as finished.
pub(crate) struct Running<'a> {
    job_queue: &'a JobQueue,
    pub(crate) job: Job,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.job_queue.table().entries[self.job as usize].running = false;
    }
}
