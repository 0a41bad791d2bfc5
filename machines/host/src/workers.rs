//! The threads that run deferred work, one for each CPU.
//!
//! Each CPU has a worker thread. So a job runs on its own CPU, as `Machine` promises, and a slow
//! job of one CPU does not delay the jobs of another CPU. A sleeping thread costs only its stack.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::{fmt, io, mem};

use plimsoll_mm::machine::{Job, Machine};
use plimsoll_mm::units::CpuId;

use crate::Host;

impl Host {
    /// Starts the workers. From now on `handler` runs each deferred job, on a thread that plays the
    /// job's CPU. The thread is pinned to that CPU if possible.
    ///
    /// A job whose handler panics counts as run, and later jobs run too. [`Workers::panicked`]
    /// reports the panic at once, and the panic resumes on the thread that drops the workers. The
    /// workers do not defer the job again. If the job was the vmstat work of a CPU, the shepherd
    /// (the job that looks for CPUs whose vmstat work has stopped) restarts it. If the job was the
    /// shepherd itself, [`Manager::start`](plimsoll_mm::Manager::start) restarts it.
    ///
    /// # Errors
    /// If the machine already has workers, or a thread could not be created.
    pub fn start(
        &self,
        handler: impl Fn(&Self, Job) + Send + Sync + 'static,
    ) -> Result<Workers, StartError> {
        // Acquire pairs with the Release in `Workers::finish`: if earlier workers have finished,
        // this thread also sees that their job queues are open again.
        if self.shared.served.swap(true, Acquire) {
            return Err(StartError::Started);
        }
        let handler: Arc<Handler> = Arc::new(handler);
        let mut workers = Workers {
            host: self.clone(),
            threads: Vec::new(),
            panics: Arc::default(),
        };
        for cpu in self.topology().ids() {
            let (host, handler) = (self.clone(), Arc::clone(&handler));
            let panics = Arc::clone(&workers.panics);
            let thread = thread::Builder::new().name(format!("plimsoll/{cpu}"));
            // On an error, dropping `workers` stops the threads that already run.
            workers
                .threads
                .push(thread.spawn(move || serve(&host, cpu, &*handler, &panics))?);
        }
        Ok(workers)
    }
}

type Handler = dyn Fn(&Host, Job) + Send + Sync;

/// The first panic of a handler with its payload, and the number of panics.
#[derive(Default)]
struct Panics {
    first: Option<(Panicked, Box<dyn Any + Send>)>,
    count: u64,
}

/// A report about handlers that panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked {
    /// The CPU of the first handler that panicked.
    pub cpu: CpuId,
    /// The job of the first handler that panicked.
    pub job: Job,
    /// The number of panics of handlers, at least 1.
    pub count: u64,
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, job, count } = self;
        write!(
            f,
            "{count} handlers panicked, first that of {job:?} on CPU {cpu}"
        )
    }
}

/// Runs the jobs of `cpu` until its job queue is closed, even after a handler has panicked.
fn serve(host: &Host, cpu: CpuId, handler: &Handler, panics: &Mutex<Panics>) {
    let _entered = host
        .enter_pinned(cpu)
        .unwrap_or_else(|_unpinned| host.enter(cpu));
    while let Some(running) = host.shared.job_queues[cpu.index()].next(|| host.now()) {
        let job = running.job;
        // The panic is reported to the embedder, which has to judge what the handler left
        // unfinished.
        let Err(payload) = panic::catch_unwind(AssertUnwindSafe(|| handler(host, job))) else {
            continue;
        };
        let mut panics = panics.lock().unwrap_or_else(PoisonError::into_inner);
        panics.count += 1;
        let count = 0;
        let first = Panicked { cpu, job, count };
        panics.first.get_or_insert((first, payload));
    }
}

/// The threads that run a machine's deferred work. Dropping this value stops and joins the threads.
///
/// Pending jobs then stay pending, for workers that are started later. A handler may drop the
/// workers on which it runs, but the machine cannot have new workers after that. In a forked child,
/// which has no such threads, the drop does nothing.
#[must_use = "dropping it stops the workers"]
pub struct Workers {
    host: Host,
    threads: Vec<JoinHandle<()>>,
    panics: Arc<Mutex<Panics>>,
}

impl Workers {
    /// The panics of handlers since the workers were started; `None` if there were none.
    #[must_use]
    pub fn panicked(&self) -> Option<Panicked> {
        let panics = self.panics.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, _) = panics.first.as_ref()?;
        let count = panics.count;
        Some(Panicked { count, ..*first })
    }

    /// Lets running jobs finish, and ends the threads. If handlers panicked, returns the payload of
    /// the first panic as the error.
    fn finish(&mut self) -> thread::Result<()> {
        let job_queues = &self.host.shared.job_queues;
        job_queues.iter().for_each(|job_queue| job_queue.close());
        let (mut outcome, mut served) = (Ok(()), false);
        let mut threads = self.threads.drain(..);
        for job_queue in job_queues {
            match threads.next() {
                // A handler that drops the workers runs on a worker thread, which cannot wait for
                // itself. The job queue of this thread stays closed, so the thread ends once the
                // handler returns.
                Some(own) if own.thread().id() == thread::current().id() => served = true,
                Some(thread) => {
                    outcome = outcome.and(thread.join());
                    job_queue.open();
                }
                None => job_queue.open(),
            }
        }
        // Release pairs with the Acquire in `Host::start`.
        self.host.shared.served.store(served, Release);
        let mut panics = self.panics.lock().unwrap_or_else(PoisonError::into_inner);
        match panics.first.take() {
            Some((_, payload)) => outcome.and(Err(payload)),
            None => outcome,
        }
    }
}

impl Drop for Workers {
    /// # Panics
    /// With the payload of the first panic, if a handler panicked and this thread is not already
    /// panicking.
    fn drop(&mut self) {
        if self.host.is_in_child() {
            // A forked child does not have the worker threads of its parent. Joining or detaching a
            // thread that does not exist is undefined behaviour. A thread of the parent may also
            // hold the lock of a job queue.
            self.threads.drain(..).for_each(mem::forget);
            return;
        }
        if let Err(payload) = self.finish()
            && !thread::panicking()
        {
            panic::resume_unwind(payload);
        }
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers")
            .field("threads", &self.threads.len())
            .finish_non_exhaustive()
    }
}

/// The reason why a machine's workers did not start.
#[derive(Debug)]
pub enum StartError {
    /// The machine already has workers.
    Started,
    /// A thread could not be created.
    Thread(io::Error),
}

impl From<io::Error> for StartError {
    fn from(why: io::Error) -> Self {
        Self::Thread(why)
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started => f.write_str("the machine has workers already"),
            Self::Thread(why) => write!(f, "a worker thread could not be made: {why}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Started => None,
            Self::Thread(why) => Some(why),
        }
    }
}
