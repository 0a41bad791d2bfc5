//! The crew of a load: its worker processes, and the operations by which their leader controls
//! them.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use super::op::{Op, REACHED};
use super::worker::{END_OF_PROGRAM, monotonic_ns};

/// The time between the first order to start and the start of all workers, in nanoseconds. It is
/// long enough to send the order to 255 workers.
const START_AFTER_NS: u64 = 20_000_000;

/// Workers that have received their programs (lists of steps) and wait for the start.
#[derive(Debug)]
pub(crate) struct Crew {
    workers: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Crew {
    /// Starts one worker for each program (a list of steps), and waits until all are ready.
    pub(crate) fn ready(programs: &[Vec<Op>]) -> io::Result<Self> {
        let workers: io::Result<Vec<Worker>> = programs.iter().map(|p| Worker::start(p)).collect();
        let mut workers = workers?;
        for worker in &mut workers {
            worker.hear("ready")?;
        }
        Ok(Self { workers })
    }

    /// Starts all workers at the same time, and waits until all have ended.
    pub(crate) fn together(mut self) -> io::Result<()> {
        self.go()?;
        self.workers.into_iter().try_for_each(Worker::end)
    }

    /// Runs the workers one after the other.
    pub(crate) fn in_turn(self) -> io::Result<()> {
        for mut worker in self.workers {
            worker.go(monotonic_ns())?;
            worker.end()?;
        }
        Ok(())
    }

    /// Starts all workers at the same time, and returns without waiting for their end.
    pub(crate) fn go(&mut self) -> io::Result<()> {
        let start_ns = monotonic_ns() + START_AFTER_NS;
        self.workers.iter_mut().try_for_each(|w| w.go(start_ns))
    }

    /// Waits until every worker has reached an [`Op::Report`].
    pub(crate) fn all_reached(&mut self) -> io::Result<()> {
        let mut workers = self.workers.iter_mut();
        workers.try_for_each(|worker| worker.hear(REACHED))
    }

    /// Returns the process ID of each worker, in the order of the programs (lists of steps) that
    /// the workers run.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.workers.iter().map(|worker| worker.child.id())
    }

    /// Returns the exit status of each worker, in the order of the programs (lists of steps) that
    /// the workers run; `None` for a worker that is still running.
    pub(crate) fn ended(&mut self) -> io::Result<Vec<Option<ExitStatus>>> {
        let workers = self.workers.iter_mut();
        workers.map(|worker| worker.child.try_wait()).collect()
    }

    /// Kills all workers.
    pub(crate) fn kill(mut self) -> io::Result<()> {
        for worker in &mut self.workers {
            worker.child.kill()?;
            worker.child.wait()?;
        }
        Ok(())
    }
}

impl Worker {
    fn start(program: &[Op]) -> io::Result<Self> {
        let mut child = Command::new("/proc/self/exe")
            .args(["guest", "worker"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let answers = child.stdout.take().expect("standard output is a pipe");
        let mut worker = Self {
            child,
            answers: BufReader::new(answers),
        };
        let mut text: String = program.iter().map(|step| format!("{step}\n")).collect();
        text += END_OF_PROGRAM;
        worker.tell(&text)?;
        Ok(worker)
    }

    fn go(&mut self, start_ns: u64) -> io::Result<()> {
        self.tell(&format!("go {start_ns}"))
    }

    fn tell(&mut self, text: &str) -> io::Result<()> {
        let stdin = self.child.stdin.as_mut();
        let stdin = stdin.expect("standard input is a pipe until the worker is waited for");
        stdin.write_all(format!("{text}\n").as_bytes())
    }

    fn hear(&mut self, word: &str) -> io::Result<()> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        if line.trim_end() == word {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "worker {} should have said `{word}`, but said `{}`",
            self.child.id(),
            line.trim_end()
        )))
    }

    fn end(mut self) -> io::Result<()> {
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "worker {} ended with {status}",
            self.child.id()
        )))
    }
}
