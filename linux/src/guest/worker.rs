//! A worker: a process that reads a program from its standard input and performs it.
//!
//! Standard input holds the steps, one on each line, up to a line `ready?`. The worker answers
//! `ready` and waits for a line `go NS`. NS is the time, on the monotonic clock, at which all
//! workers start. At this time, the worker performs the steps.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use memmap2::{Advice, MmapMut};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use super::op::{Op, REACHED};
use super::second;

/// The size of a page, in bytes; guests are always x86-64.
pub(crate) const PAGE_BYTES: usize = 4096;
/// The line that ends a program on a worker's standard input.
pub(crate) const END_OF_PROGRAM: &str = "ready?";
/// The size of a message over a local socket, in bytes.
const MESSAGE_BYTES: usize = 64 << 10;
/// The number of bytes that a pipe holds before a writer must wait.
const PIPE_BYTES: usize = 64 << 10;

/// Reads a program from standard input and performs it.
///
/// # Errors
///
/// If a step cannot be read or performed.
pub fn run() -> io::Result<()> {
    let mut stdin = io::stdin().lock();
    let mut program = Vec::new();
    let mut line = String::new();
    loop {
        line.clear();
        if stdin.read_line(&mut line)? == 0 {
            return Err(io::Error::other("the program of a worker has no end"));
        }
        match line.trim_end() {
            END_OF_PROGRAM => break,
            step => program.push(step.parse::<Op>().map_err(io::Error::other)?),
        }
    }
    let mut worker = Worker::default();
    // The worker allocates the memory for the list of mappings before the start, so that this
    // allocation is not part of the load.
    worker.mappings.reserve(program.len());
    let mut steps = program.iter().peekable();
    // A worker waits for the start on the CPU on which it will work.
    while let Some(Op::Cpu(cpu)) = steps.peek() {
        pin(*cpu)?;
        steps.next();
    }
    say("ready")?;
    line.clear();
    stdin.read_line(&mut line)?;
    let start = line.trim_end().strip_prefix("go ");
    let start = start.and_then(|ns| ns.parse().ok());
    worker.start_ns = start.ok_or_else(|| io::Error::other("a worker was not told to go"))?;
    worker.wait_until(0);
    for step in steps {
        let told = |error: io::Error| io::Error::new(error.kind(), format!("{step}: {error}"));
        match step {
            Op::Wait => drop(stdin.read_line(&mut line)?),
            step => worker.perform(step).map_err(told)?,
        }
    }
    Ok(())
}

/// Returns the nanoseconds of the monotonic clock, which all processes share.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Binds the calling thread to one CPU; when the function returns, the thread already runs on this
/// CPU.
pub(crate) fn pin(cpu: u32) -> io::Result<()> {
    let mut only = CpuSet::new();
    let cpu = usize::try_from(cpu).unwrap_or(usize::MAX);
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::other(format!("CPU {cpu} cannot be asked for")));
    }
    only.set(cpu);
    sched_setaffinity(None, &only)?;
    let at = rustix::thread::sched_getcpu();
    if at != cpu {
        return Err(io::Error::other(format!(
            "on CPU {at} instead of CPU {cpu}"
        )));
    }
    Ok(())
}

/// Writes to each page of `pages`, so that the kernel allocates memory for each page.
pub(crate) fn touch(pages: &mut [u8]) {
    for page in pages.chunks_mut(PAGE_BYTES) {
        page[0] = 1;
    }
}

fn say(word: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{word}")?;
    stdout.flush()
}

#[derive(Default)]
struct Worker {
    mappings: VecDeque<MmapMut>,
    /// The common start of all workers, in nanoseconds of the monotonic clock.
    start_ns: u64,
}

impl Worker {
    fn perform(&mut self, step: &Op) -> io::Result<()> {
        match step {
            Op::Cpu(cpu) => pin(*cpu),
            Op::Map(pages) => self.map(*pages, None),
            Op::MapHuge(pages) => self.map(*pages, Some(Advice::HugePage)),
            Op::UnmapOldest => {
                drop(self.mappings.pop_front());
                Ok(())
            }
            Op::UnmapNewest => {
                drop(self.mappings.pop_back());
                Ok(())
            }
            Op::UnmapAll => {
                self.mappings.clear();
                Ok(())
            }
            Op::WriteFile(file, pages) => write_file(file, *pages),
            Op::ReadFile(file, pages) => read_file(file, 0, *pages),
            Op::ReadPart { file, first, pages } => read_file(file, *first, *pages),
            Op::DeleteFile(file) => fs::remove_file(file),
            Op::Exec(times) => (0..*times).try_for_each(|_| end(start_nothing()?)),
            Op::ExecCrowd(times) => exec_crowd(*times),
            Op::Pipes(times) => pipes(*times),
            Op::Messages(times) => messages(*times),
            Op::Sleep(ms) => {
                thread::sleep(Duration::from_millis(*ms));
                Ok(())
            }
            Op::Until(us) => {
                self.wait_until(us * 1000);
                Ok(())
            }
            Op::OomScoreAdj(adj) => fs::write("/proc/self/oom_score_adj", adj.to_string()),
            Op::Group(name) => enter_group(name),
            Op::Bind(node) => second::bind(*node),
            Op::Share => second::share(),
            Op::Vfork => second::vfork(),
            Op::Report => say(REACHED),
            // `run` handles this step, because the step reads from the worker's standard input.
            Op::Wait => Ok(()),
        }
    }

    fn map(&mut self, pages: usize, advice: Option<Advice>) -> io::Result<()> {
        let mut mapping = MmapMut::map_anon(pages * PAGE_BYTES)?;
        if let Some(advice) = advice {
            mapping.advise(advice)?;
        }
        touch(&mut mapping);
        self.mappings.push_back(mapping);
        Ok(())
    }

    fn wait_until(&self, after_start_ns: u64) {
        let left = (self.start_ns + after_start_ns).saturating_sub(monotonic_ns());
        if left > 0 {
            thread::sleep(Duration::from_nanos(left));
        }
    }
}

fn write_file(file: &str, pages: usize) -> io::Result<()> {
    let page = [1; PAGE_BYTES];
    let mut file = File::create(file)?;
    (0..pages).try_for_each(|_| file.write_all(&page))
}

fn read_file(file: &str, first: usize, pages: usize) -> io::Result<()> {
    let mut page = [0; PAGE_BYTES];
    let mut file = File::open(file)?;
    file.seek(SeekFrom::Start((first * PAGE_BYTES) as u64))?;
    for _ in 0..pages {
        if file.read(&mut page)? == 0 {
            break;
        }
    }
    Ok(())
}

/// Starts this program as a process that does nothing and exits when its standard input is closed.
fn start_nothing() -> io::Result<Child> {
    Command::new("/proc/self/exe")
        .args(["guest", "nothing"])
        .stdin(Stdio::piped())
        .spawn()
}

fn end(mut child: Child) -> io::Result<()> {
    // `wait` first closes the child's standard input, which ends the child.
    let status = child.wait()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("a program ended with {status}")))
    }
}

fn exec_crowd(times: u32) -> io::Result<()> {
    let crowd: io::Result<Vec<Child>> = (0..times).map(|_| start_nothing()).collect();
    crowd?.into_iter().try_for_each(end)
}

fn pipes(times: u32) -> io::Result<()> {
    let full = vec![1; PIPE_BYTES];
    let mut open = Vec::new();
    for _ in 0..times {
        let (reader, writer) = rustix::pipe::pipe()?;
        let mut writer = File::from(writer);
        writer.write_all(&full)?;
        open.push((reader, writer));
    }
    Ok(())
}

fn messages(times: u32) -> io::Result<()> {
    let (mut sender, mut receiver) = UnixStream::pair()?;
    let mut message = vec![1; MESSAGE_BYTES];
    for _ in 0..times {
        sender.write_all(&message)?;
        receiver.read_exact(&mut message)?;
    }
    Ok(())
}

fn enter_group(name: &str) -> io::Result<()> {
    let group = format!("/sys/fs/cgroup/{name}");
    fs::create_dir_all(&group)?;
    fs::write(format!("{group}/cgroup.procs"), "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn perform(worker: &mut Worker, program: &[Op]) {
        for step in program {
            worker
                .perform(step)
                .unwrap_or_else(|e| panic!("{step}: {e}"));
        }
    }

    #[test]
    fn mappings_come_and_go_in_the_order_asked_for() {
        let mut worker = Worker::default();
        let program = [Op::Map(1), Op::Map(2), Op::MapHuge(3), Op::Map(4)];
        perform(&mut worker, &program);
        perform(&mut worker, &[Op::UnmapOldest, Op::UnmapNewest]);
        let pages = worker.mappings.iter().map(|m| m.len() / PAGE_BYTES);
        assert_eq!(pages.collect::<Vec<_>>(), [2, 3]);
        assert!(
            worker
                .mappings
                .iter()
                .all(|m| m[0] == 1 && m[m.len() - PAGE_BYTES] == 1)
        );
        perform(&mut worker, &[Op::UnmapAll]);
        assert!(worker.mappings.is_empty());
    }

    #[test]
    fn files_pipes_and_messages_leave_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file").display().to_string();
        let mut worker = Worker::default();
        perform(&mut worker, &[Op::WriteFile(file.clone(), 3)]);
        assert_eq!(fs::metadata(&file).unwrap().len(), 3 * 4096);
        perform(
            &mut worker,
            &[
                Op::ReadFile(file.clone(), 5),
                Op::ReadPart {
                    file: file.clone(),
                    first: 2,
                    pages: 5,
                },
                Op::DeleteFile(file.clone()),
                Op::Pipes(2),
                Op::Messages(2),
            ],
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_step_that_fails_says_so() {
        let mut worker = Worker::default();
        let file = "/no/such/folder/file".to_owned();
        assert!(worker.perform(&Op::WriteFile(file, 1)).is_err());
        assert!(worker.perform(&Op::Cpu(u32::MAX)).is_err());
    }
}
