//! Runs experiments for Python. The experiments run without the interpreter's lock, so that other
//! threads of Python can continue. Ctrl-C ends such a run.

use std::any::Any;
use std::num::NonZeroUsize;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use plimsoll_lab::run::jobs::Jobs;
use plimsoll_lab::run::progress::Progress;
use plimsoll_lab::store::Collected;
use plimsoll_lab::store::head::{Head, Inputs, Machine, New, Program};
use plimsoll_lab::{Error, NoStack};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::{BadInput, Error as Raised, raised};

/// The interval at which a waiting call looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// The outcome of a thread: a value, an error, or the payload of a panic.
type Ended<T> = thread::Result<Result<T, Error>>;

/// The place where a thread leaves its outcome.
struct Done<T> {
    ended: Mutex<Option<Ended<T>>>,
    changed: Condvar,
}

impl<T> Done<T> {
    fn set(&self, ended: Ended<T>) {
        // No holder of this lock panics, so the lock is never poisoned.
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
        self.changed.notify_all();
    }

    /// Waits until the thread has ended, at most for [`LOOK`].
    fn wait(&self) -> Option<Ended<T>> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(ended, LOOK, |ended| ended.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.take()
    }
}

/// Runs `work` on a new thread, and waits for this thread without the interpreter's lock. If the
/// handler of a signal, such as Ctrl-C, raises an exception, the function returns the exception at
/// once. `work` uses `jobs` for its simulated runs. After an exception, no more of these runs
/// start, and those that have started end in the background.
pub(crate) fn detached<T: Send + 'static>(
    py: Python<'_>,
    jobs: &Jobs,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    let done = Arc::new(Done {
        ended: Mutex::new(None),
        changed: Condvar::new(),
    });
    let of_thread = Arc::clone(&done);
    thread::Builder::new()
        .name("plimsoll".to_owned())
        .spawn(move || of_thread.set(panic::catch_unwind(AssertUnwindSafe(work))))
        .map_err(|error| Raised::new_err(format!("cannot start a thread: {error}")))?;
    loop {
        match py.detach(|| done.wait()) {
            Some(Ok(result)) => return result.map_err(|error| raised(&error)),
            Some(Err(cause)) => return Err(of_panic(&*cause)),
            None => py.check_signals().inspect_err(|_| jobs.stop())?,
        }
    }
}

/// The exception for a panic. The panic hook has already printed the panic, unless the computer had
/// no memory for the stacks of tasks.
fn of_panic(cause: &(dyn Any + Send)) -> PyErr {
    if let Some(refused) = cause.downcast_ref::<NoStack>() {
        return BadInput::new_err(refused.to_string());
    }
    let owned = cause.downcast_ref::<String>().map(String::as_str);
    let text = owned.or_else(|| cause.downcast_ref::<&str>().copied());
    let text = text.unwrap_or("no message");
    Raised::new_err(format!("this is a fault of Plimsoll: {text}"))
}

/// The settings of a call from Python: how many simulated runs proceed at once, and whether a bar
/// shows the progress.
pub(crate) struct How {
    pub(crate) jobs: Jobs,
    collected: Arc<Collected>,
    bar: bool,
}

impl How {
    /// Allows `jobs` simulated runs at once; one per CPU if `jobs` is `None`. If `bar` is true and
    /// standard error is a terminal, shows a progress bar there.
    pub(crate) fn new(jobs: Option<NonZeroUsize>, bar: bool) -> Self {
        Self {
            jobs: jobs.map_or_else(Jobs::one_per_cpu, Jobs::new),
            collected: Arc::new(Collected::default()),
            bar,
        }
    }

    /// Runs `work` with a progress that collects the samples (the values measured in each run).
    /// Returns the table of the samples as Parquet.
    pub(crate) fn table<'py>(
        self,
        py: Python<'py>,
        experiment: &str,
        new: New,
        work: impl FnOnce(&Progress) -> Result<(), Error> + Send + 'static,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let bar = if self.bar {
            Progress::new()
        } else {
            Progress::hidden()
        };
        let progress = bar.kept_in(Arc::clone(&self.collected) as _, experiment);
        let collected = Arc::clone(&self.collected);
        let parquet = detached(py, &self.jobs, move || {
            let ran = work(&progress);
            progress.finish();
            ran.map(|()| collected.rows(&Head::unkept(new)).parquet())
        })?;
        Ok(PyBytes::new(py, &parquet))
    }
}

/// Returns the description of a new run. `command` has the words of a command line.
pub(crate) fn new_run(command: Vec<String>, machines: Vec<Machine>, inputs: Inputs) -> New {
    New {
        command,
        program: Program {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: env!("PLIMSOLL_COMMIT").to_owned(),
            // The identity of the program's build is needed only by a store, which decides by it
            // whether a run can be resumed.
            build: String::new(),
        },
        machines,
        inputs,
    }
}
