//! The steps of a load's workers. The process that leads a load sends its workers programs made of
//! these steps.
//!
//! A step is one line of text, so that a program is easy to write to a worker's standard input and
//! easy to read.

use std::fmt;
use std::str::FromStr;

/// The line with which a worker tells its leader that it has reached an [`Op::Report`].
pub(crate) const REACHED: &str = "reached";

/// One step of a worker's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Binds the worker to this CPU from now on.
    Cpu(u32),
    /// Maps this many pages of anonymous memory and writes to each.
    Map(usize),
    /// Maps this many pages of anonymous memory, asks for huge pages (`MADV_HUGEPAGE`), and writes
    /// to each page.
    MapHuge(usize),
    /// Unmaps the oldest mapping of this worker.
    UnmapOldest,
    /// Unmaps the newest mapping of this worker.
    UnmapNewest,
    /// Unmaps all of this worker's mappings, the oldest first.
    UnmapAll,
    /// Writes a file of this many pages.
    WriteFile(String, usize),
    /// Reads this many pages of a file, or the whole file if the file is shorter.
    ReadFile(String, usize),
    /// Reads `pages` pages of a file, beginning with page number `first`, which counts from 0.
    ReadPart {
        file: String,
        first: usize,
        pages: usize,
    },
    /// Deletes a file.
    DeleteFile(String),
    /// Runs a program that exits at once, this many times, one run after the other.
    Exec(u32),
    /// Starts this many programs together, and lets them exit when all are running.
    ExecCrowd(u32),
    /// Makes this many pipes and fills each pipe; closes all pipes at the end of the step.
    Pipes(u32),
    /// Sends this many messages of 64 KiB over a local socket. Each message is received before the
    /// next message is sent.
    Messages(u32),
    /// Sleeps this many milliseconds.
    Sleep(u64),
    /// Sleeps until this many microseconds after the common start of all workers.
    Until(u64),
    /// Sets the `oom_score_adj` of this worker.
    OomScoreAdj(i32),
    /// Moves this worker into a memory cgroup, which is created if it does not exist.
    Group(String),
    /// Binds this worker's memory to a node, with a memory policy.
    Bind(u32),
    /// Starts a process that uses this worker's memory. The new process does nothing until it is
    /// killed.
    Share,
    /// Starts a process that uses this worker's memory, by `vfork`: this worker waits until that
    /// process is killed. Because this worker waits, the new process reports to the leader that the
    /// step was reached.
    Vfork,
    /// Reports to the leader that this step was reached.
    Report,
    /// Waits until the leader ends this worker.
    Wait,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(cpu) => write!(f, "cpu {cpu}"),
            Self::Map(pages) => write!(f, "map {pages}"),
            Self::MapHuge(pages) => write!(f, "map-huge {pages}"),
            Self::UnmapOldest => f.write_str("unmap-oldest"),
            Self::UnmapNewest => f.write_str("unmap-newest"),
            Self::UnmapAll => f.write_str("unmap-all"),
            Self::WriteFile(file, pages) => write!(f, "write {pages} {file}"),
            Self::ReadFile(file, pages) => write!(f, "read {pages} {file}"),
            Self::ReadPart { file, first, pages } => write!(f, "read-part {first} {pages} {file}"),
            Self::DeleteFile(file) => write!(f, "delete {file}"),
            Self::Exec(times) => write!(f, "exec {times}"),
            Self::ExecCrowd(times) => write!(f, "exec-crowd {times}"),
            Self::Pipes(times) => write!(f, "pipes {times}"),
            Self::Messages(times) => write!(f, "messages {times}"),
            Self::Sleep(ms) => write!(f, "sleep {ms}"),
            Self::Until(us) => write!(f, "until {us}"),
            Self::OomScoreAdj(adj) => write!(f, "oom-score-adj {adj}"),
            Self::Group(name) => write!(f, "group {name}"),
            Self::Bind(node) => write!(f, "bind {node}"),
            Self::Share => f.write_str("share"),
            Self::Vfork => f.write_str("vfork"),
            Self::Report => f.write_str("report"),
            Self::Wait => f.write_str("wait"),
        }
    }
}

/// The error for a line of text that cannot be parsed as a step. The error holds this line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoOp(String);

impl fmt::Display for NoOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a step of a worker", self.0)
    }
}

impl std::error::Error for NoOp {}

impl FromStr for Op {
    type Err = NoOp;

    fn from_str(line: &str) -> Result<Self, NoOp> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        parse(word, rest).ok_or_else(|| NoOp(line.to_owned()))
    }
}

fn parse(word: &str, rest: &str) -> Option<Op> {
    let sized_file = || -> Option<(String, usize)> {
        let (pages, file) = rest.split_once(' ')?;
        Some((file.to_owned(), pages.parse().ok()?))
    };
    Some(match word {
        "cpu" => Op::Cpu(rest.parse().ok()?),
        "map" => Op::Map(rest.parse().ok()?),
        "map-huge" => Op::MapHuge(rest.parse().ok()?),
        "unmap-oldest" => Op::UnmapOldest,
        "unmap-newest" => Op::UnmapNewest,
        "unmap-all" => Op::UnmapAll,
        "write" => sized_file().map(|(file, pages)| Op::WriteFile(file, pages))?,
        "read" => sized_file().map(|(file, pages)| Op::ReadFile(file, pages))?,
        "read-part" => {
            let (first, rest) = rest.split_once(' ')?;
            let (pages, file) = rest.split_once(' ')?;
            Op::ReadPart {
                file: file.to_owned(),
                first: first.parse().ok()?,
                pages: pages.parse().ok()?,
            }
        }
        "delete" => Op::DeleteFile(rest.to_owned()),
        "exec" => Op::Exec(rest.parse().ok()?),
        "exec-crowd" => Op::ExecCrowd(rest.parse().ok()?),
        "pipes" => Op::Pipes(rest.parse().ok()?),
        "messages" => Op::Messages(rest.parse().ok()?),
        "sleep" => Op::Sleep(rest.parse().ok()?),
        "until" => Op::Until(rest.parse().ok()?),
        "oom-score-adj" => Op::OomScoreAdj(rest.parse().ok()?),
        "group" => Op::Group(rest.to_owned()),
        "bind" => Op::Bind(rest.parse().ok()?),
        "share" => Op::Share,
        "vfork" => Op::Vfork,
        "report" => Op::Report,
        "wait" => Op::Wait,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_reads_back_from_its_line() {
        let file = || "/tmp/a file".to_owned();
        for op in [
            Op::Cpu(254),
            Op::Map(8192),
            Op::MapHuge(512),
            Op::UnmapOldest,
            Op::UnmapNewest,
            Op::UnmapAll,
            Op::WriteFile(file(), 3),
            Op::ReadFile(file(), 4),
            Op::ReadPart {
                file: file(),
                first: 0,
                pages: 5,
            },
            Op::DeleteFile(file()),
            Op::Exec(5),
            Op::ExecCrowd(6),
            Op::Pipes(7),
            Op::Messages(8),
            Op::Sleep(9),
            Op::Until(10),
            Op::OomScoreAdj(-1000),
            Op::Group("small".to_owned()),
            Op::Bind(1),
            Op::Share,
            Op::Vfork,
            Op::Report,
            Op::Wait,
        ] {
            let line = op.to_string();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(line.parse(), Ok(op));
        }
    }

    #[test]
    fn a_line_that_is_no_step_is_named() {
        for line in [
            "",
            "map",
            "map many",
            "jump 3",
            "write /tmp/f",
            "read-part 3 /tmp/f",
            "cpu -1",
        ] {
            let error = line.parse::<Op>().unwrap_err();
            assert!(error.to_string().contains(line), "{error}");
        }
    }
}
