//! Waits for the end of a recording: the command ends, the time is over, a signal arrives, or the
//! disk is full.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// The interval at which progress is shown.
const SHOWN_EVERY: Duration = Duration::from_millis(500);

/// Events that end a recording, or may end it.
#[derive(Debug)]
pub(super) enum News {
    /// The command has ended.
    Ended(io::Result<ExitStatus>),
    /// The signal with this number arrived.
    Signal(i32),
    /// A write to the file failed.
    Failed,
}

/// A receiver of [`News`]. While it exists, SIGINT, SIGTERM and SIGHUP do not end the process.
#[derive(Debug)]
pub(super) struct Watch {
    news: Receiver<News>,
    sender: Sender<News>,
    signals: Vec<SigId>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(super) fn new() -> io::Result<Self> {
        let (sender, news) = channel();
        // Signals arrive through a pipe. The signal iterator of the crate `signal_hook` needs
        // sockets, which a kernel built for recordings may lack.
        let (mut reader, writer) = io::pipe()?;
        let last = Arc::new(AtomicUsize::new(0));
        let mut signals = Vec::new();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // Actions run in the order in which they are registered, so `last` holds the signal's
            // number before the pipe wakes the reader.
            let number = usize::try_from(signal).unwrap_or_default();
            signals.push(flag::register_usize(signal, Arc::clone(&last), number)?);
            signals.push(low_level::pipe::register(signal, writer.try_clone()?)?);
        }
        let of_signals = sender.clone();
        let thread = thread::Builder::new().name("plimsoll-signals".to_owned());
        let thread = thread.spawn(move || {
            // The loop ends when the actions are unregistered, because unregistering closes the
            // writing ends of the pipe.
            while matches!(reader.read(&mut [0]), Ok(1)) {
                let signal = i32::try_from(last.load(Ordering::SeqCst)).unwrap_or_default();
                // After the end of the recording the receiver no longer exists, so this thread
                // ignores an error.
                let _ = of_signals.send(News::Signal(signal));
            }
        })?;
        Ok(Self {
            news,
            sender,
            signals,
            thread: Some(thread),
        })
    }

    pub(super) fn sender(&self) -> Sender<News> {
        self.sender.clone()
    }

    /// Waits for the end of the recording. With a command, the recording ends when the command
    /// ends; the time `until`, or a first signal, only makes the command end. Without a command,
    /// the recording ends at `until` or at the first signal. A second signal or a write error
    /// always ends the recording. Returns the exit status if the command has ended.
    pub(super) fn run(
        &self,
        command: Option<Child>,
        mut until: Option<Instant>,
        mut show: impl FnMut(),
    ) -> io::Result<Option<ExitStatus>> {
        let pid = command.as_ref().map(|child| child.id());
        if let Some(mut child) = command {
            let ended = self.sender();
            let thread = thread::Builder::new().name("plimsoll-command".to_owned());
            thread.spawn(move || ended.send(News::Ended(child.wait())))?;
        }
        let mut told = false;
        // The loop ends. Without a command, it ends at `until` or at the first signal. With a
        // command, it ends when the command ends or a second signal arrives.
        loop {
            let now = Instant::now();
            let left = until.map_or(SHOWN_EVERY, |until| until.saturating_duration_since(now));
            if left.is_zero() {
                let Some(pid) = pid else {
                    return Ok(None);
                };
                // At the time `until`, the recorder tells the command to end, and then records
                // until the command has ended.
                until = None;
                terminate(pid);
                continue;
            }
            match self.news.recv_timeout(left.min(SHOWN_EVERY)) {
                Err(RecvTimeoutError::Timeout) => show(),
                Ok(News::Ended(status)) => return status.map(Some),
                // A command needs no SIGINT from this process, because the terminal has sent SIGINT
                // to the command too.
                Ok(News::Signal(signal)) if pid.is_some() && !told => {
                    told = true;
                    if signal != SIGINT
                        && let Some(pid) = pid
                    {
                        terminate(pid);
                    }
                }
                Ok(News::Signal(_) | News::Failed) | Err(RecvTimeoutError::Disconnected) => {
                    return Ok(None);
                }
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for signal in self.signals.drain(..) {
            low_level::unregister(signal);
        }
        if let Some(thread) = self.thread.take() {
            // The thread that waits for signals does not panic, and its result is not needed.
            let _ = thread.join();
        }
    }
}

fn terminate(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // This call fails if the command has already ended, so its error is ignored.
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// Starts the command. An environment variable tells the command the path of the file for notes. If
/// there is a folder for texts, another variable tells the command the path of this folder.
pub(super) fn start(
    command: &[OsString],
    marker: &Path,
    texts: Option<&Path>,
) -> io::Result<Option<Child>> {
    let Some((name, arguments)) = command.split_first() else {
        return Ok(None);
    };
    let mut command = Command::new(name);
    command.args(arguments).env("PLIMSOLL_MARKER", marker);
    if let Some(texts) = texts {
        command.env("PLIMSOLL_TEXTS", texts);
    }
    command.spawn().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_told_and_the_end_of_watching_waits_for_nothing() {
        let watch = Watch::new().unwrap();
        low_level::raise(SIGHUP).unwrap();
        let news = watch.news.recv_timeout(Duration::from_secs(60));
        assert!(matches!(news, Ok(News::Signal(SIGHUP))), "{news:?}");
        drop(watch);
    }
}
