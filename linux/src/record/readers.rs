//! The readers: one thread for each CPU, which takes sub-buffers out of the CPU's ring buffer.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fs::OFlags;

use super::pressure::Pressure;
use crate::tracefs::Instance;

/// The time for which a reader sleeps after it has emptied its ring buffer. A shorter time disturbs
/// the load with more wake-ups; a longer time needs larger buffers.
const PAUSE: Duration = Duration::from_millis(50);

/// The largest number of sub-buffers in a batch.
const BATCH: usize = 64;

/// Consecutive sub-buffers of one CPU.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) cpu: u32,
    pub(super) bytes: Vec<u8>,
}

/// The running threads that take sub-buffers out of the ring buffers.
#[derive(Debug)]
pub(super) struct Readers {
    threads: Vec<JoinHandle<io::Result<()>>>,
    stop: Arc<Stop>,
}

#[derive(Debug, Default)]
struct Stop {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// The readers empty their ring buffers from time to time, until the state changes.
    #[default]
    Reading,
    /// The readers take the remaining sub-buffers, and end.
    Emptying,
    /// The readers end without taking the remaining sub-buffers.
    Abandoned,
}

impl Readers {
    /// Starts a reader for each of `cpus`. Each [`Batch`] consists of whole sub-buffers of
    /// `sub_buffer_bytes` bytes.
    pub(super) fn start(
        instance: &Instance,
        cpus: &[u32],
        sub_buffer_bytes: usize,
        pressure: &Arc<Pressure>,
        batches: &SyncSender<Batch>,
    ) -> io::Result<Self> {
        let mut readers = Self {
            threads: Vec::new(),
            stop: Arc::new(Stop::default()),
        };
        for &cpu in cpus {
            let path = instance.path(&format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
            let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
            let mut options = OpenOptions::new();
            let source = options.read(true).custom_flags(nonblocking).open(path)?;
            let reader = Reader {
                cpu,
                source,
                sub_buffer_bytes,
                pressure: Arc::clone(pressure),
                batches: batches.clone(),
            };
            let stop = Arc::clone(&readers.stop);
            let thread = thread::Builder::new().name(format!("plimsoll-cpu{cpu}"));
            readers
                .threads
                .push(thread.spawn(move || reader.run(&stop))?);
        }
        Ok(readers)
    }

    /// Makes all readers take the remaining sub-buffers and end, and waits for them. The caller
    /// must have switched tracing off. Otherwise, the readers may never find the buffers empty.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.end(State::Emptying)
    }

    fn end(&mut self, state: State) -> io::Result<()> {
        *self.stop.lock() = state;
        self.stop.changed.notify_all();
        let mut result = Ok(());
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            let ended = ended.unwrap_or_else(|_| Err(io::Error::other("a reader panicked")));
            result = result.and(ended);
        }
        result
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        // If readers still run here, an error has occurred, which the caller reports. The readers
        // must end, because the kernel does not remove an instance while its ring buffers are open.
        let _ = self.end(State::Abandoned);
    }
}

impl Stop {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is one word, so a panic of another thread cannot have left it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps for [`PAUSE`], or until the readers must end; returns the state.
    fn pause(&self) -> State {
        let reading = |state: &mut State| *state == State::Reading;
        let waited = self.changed.wait_timeout_while(self.lock(), PAUSE, reading);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

struct Reader<S> {
    cpu: u32,
    source: S,
    sub_buffer_bytes: usize,
    pressure: Arc<Pressure>,
    batches: SyncSender<Batch>,
}

impl<S: Read> Reader<S> {
    fn run(mut self, stop: &Stop) -> io::Result<()> {
        // The loop ends: with tracing off, the buffer becomes empty.
        loop {
            let state = stop.pause();
            if state == State::Abandoned {
                return Ok(());
            }
            while let Some(batch) = self.batch()? {
                if !self.send(batch) {
                    return Ok(());
                }
            }
            if state == State::Emptying {
                return Ok(());
            }
        }
    }

    /// Takes up to [`BATCH`] sub-buffers out of the ring buffer; returns `None` if the ring buffer
    /// is empty.
    fn batch(&mut self) -> io::Result<Option<Batch>> {
        let mut bytes = Vec::new();
        for _ in 0..BATCH {
            let begin = bytes.len();
            bytes.resize(begin + self.sub_buffer_bytes, 0);
            let count = match self.source.read(&mut bytes[begin..]) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(error) if error.kind() == ErrorKind::Interrupted => {
                    bytes.truncate(begin);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if count == 0 {
                bytes.truncate(begin);
                break;
            }
        }
        let cpu = self.cpu;
        Ok((!bytes.is_empty()).then_some(Batch { cpu, bytes }))
    }

    /// Sends a batch to the converter, and waits while the memory for batches is full. Returns
    /// false if the converter has ended.
    fn send(&self, batch: Batch) -> bool {
        match self.batches.try_send(batch) {
            Ok(()) => true,
            Err(TrySendError::Full(batch)) => {
                self.pressure.raise();
                self.batches.send(batch).is_ok()
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }
}
