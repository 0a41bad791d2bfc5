//! The converter: a thread that decodes the sub-buffers that the readers took, packs the events and
//! writes them to the file.

use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;

use plimsoll_recording::ring::Decoder;
use plimsoll_recording::{Event, What, WriteError, Writer};
use rustix::process::setpriority_process;
use rustix::thread::gettid;

use super::pressure::Pressure;
use super::readers::Batch;
use super::summary::Counts;

/// The lowest priority of a thread, as a nice value.
const LOWEST: i32 = 19;
/// The default priority of a thread, as a nice value.
const USUAL: i32 = 0;

/// The progress of the converter, which another thread reads and displays.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) events: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// The state of the converter at its end: the file's writer, and counts of events and of damage.
#[derive(Debug)]
pub(super) struct Converted<W> {
    /// The writer of the recording's file, or the error that stopped the writer.
    pub(super) writer: Result<Writer<W>, WriteError>,
    pub(super) symbols: Vec<String>,
    pub(super) counts: Counts,
    /// The number of sub-buffers that could not be decoded to their end, and the first error.
    pub(super) damaged: u64,
    pub(super) first_damage: Option<String>,
}

/// Decodes batches of sub-buffers and writes their events to a file.
pub(super) struct Converter<W> {
    pub(super) decoder: Decoder,
    pub(super) writer: Writer<W>,
    pub(super) sub_buffer_bytes: usize,
    pub(super) pressure: Arc<Pressure>,
    pub(super) done: Arc<Done>,
    /// The converter calls this function once if a write to the file fails.
    pub(super) on_failure: Box<dyn Fn() + Send>,
}

impl<W: Write> Converter<W> {
    /// Receives and converts batches until all readers have ended.
    pub(super) fn run(mut self, batches: &Receiver<Batch>) -> Converted<W> {
        set_priority(LOWEST);
        let mut lowest = true;
        let mut counts = Counts::default();
        let mut waits = Waits::default();
        let (mut damaged, mut first_damage) = (0, None);
        let mut failed = None;
        let mut events = Vec::new();
        for batch in batches {
            if failed.is_some() {
                // The converter still receives batches, so that readers do not wait for a file that
                // cannot be written.
                continue;
            }
            if lowest && self.pressure.is_high() {
                set_priority(USUAL);
                lowest = false;
            }
            for sub_buffer in batch.bytes.chunks(self.sub_buffer_bytes) {
                let decoded = self.decoder.sub_buffer(batch.cpu, sub_buffer, &mut events);
                if let Err(error) = decoded {
                    damaged += 1;
                    first_damage.get_or_insert_with(|| error.to_string());
                }
            }
            events.retain(|event| waits.is_of_use(event));
            for event in &events {
                counts.count(event);
            }
            failed = self.write(&mut events).err();
            if failed.is_some() {
                (self.on_failure)();
            }
        }
        let writer = match failed {
            None => Ok(self.writer),
            Some(error) => Err(error),
        };
        Converted {
            writer,
            symbols: self.decoder.symbols().to_vec(),
            counts,
            damaged,
            first_damage,
        }
    }

    fn write(&mut self, events: &mut Vec<Event>) -> Result<(), WriteError> {
        let count = events.len() as u64;
        self.writer.symbols(self.decoder.symbols())?;
        for event in events.drain(..) {
            self.writer.push(event)?;
        }
        // Relaxed: the number is only displayed, and no other memory depends on it.
        self.done.events.fetch_add(count, Ordering::Relaxed);
        let bytes = self.writer.totals().bytes;
        self.done.bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }
}

/// Sets the priority of the calling thread. Ignores errors, because a wrong priority only costs
/// speed.
fn set_priority(nice: i32) {
    let _ = setpriority_process(Some(gettid()), nice);
}

/// Matches the end of each wait with the wait's beginning. The kernel reports the end of every
/// wait, but only the beginning shows whether the wait was for a spinning lock.
#[derive(Debug, Default)]
struct Waits {
    /// The CPU and the lock of each wait that has begun and has not ended. A spinning waiter does
    /// not move to another CPU.
    open: HashSet<(u32, u64)>,
}

impl Waits {
    fn is_of_use(&mut self, event: &Event) -> bool {
        match event.what {
            What::ContentionBegin { lock, .. } => {
                self.open.insert((event.cpu, lock));
                true
            }
            What::ContentionEnd { lock, .. } => self.open.remove(&(event.cpu, lock)),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_without_its_beginning_is_left_out() {
        let mut waits = Waits::default();
        let event = |cpu, what| Event {
            time_ns: 1,
            cpu,
            pid: 1,
            what,
        };
        let begin = |lock| What::ContentionBegin {
            lock,
            flags: 1,
            stack: Vec::new(),
        };
        let end = |lock| What::ContentionEnd { lock, result: 0 };
        assert!(!waits.is_of_use(&event(0, end(7))));
        assert!(waits.is_of_use(&event(0, begin(7))));
        assert!(!waits.is_of_use(&event(1, end(7))), "another CPU's");
        assert!(waits.is_of_use(&event(0, end(7))));
        assert!(!waits.is_of_use(&event(0, end(7))), "it has ended before");
    }
}
