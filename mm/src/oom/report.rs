//! The report that an embedder may print when memory runs out (Linux: `dump_header`, `dump_tasks`).
//!
//! The CPU that reports still holds the lock under which it chose the victim. So a report reads its
//! data in place, and copies and allocates nothing.

use core::fmt;

use super::badness;
use super::candidate::Candidates;
use super::census::{Census, Pages};
use super::facts::{Facts, Kind, ScoreAdj};
use super::kill::Killed;
use super::scope::{Constraint, Scope};
use super::select::{NoVictim, SelectError};
use crate::machine::Machine;
use crate::units::ProcessId;

/// An out-of-memory report: the shortage, the candidates, and the outcome.
pub struct Report<'a, M: Machine> {
    pub(super) scope: Scope,
    pub(super) census: &'a Census<'a, M>,
    pub(super) verdict: Verdict,
}

/// The outcome of an attempt to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This process was killed, and perhaps others with it. The row was read just before the kill.
    Killed(Row, Killed),
    /// No process could be killed.
    Nobody(NoVictim),
    /// No process was killed, because the selection failed.
    Failed(SelectError),
}

/// One row of the table of candidates in a report: one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The id of the process.
    pub process: ProcessId,
    /// The memory of the process, as approximate sums in pages.
    pub pages: Pages,
    /// The adjustment of the process, which makes it more or less likely to be killed than others.
    pub adj: ScoreAdj,
    /// The points of the process, computed from `pages`; `None` if the process may not be killed.
    pub points: Option<i64>,
}

impl<M: Machine> Report<'_, M> {
    /// Returns the scope of the shortage.
    #[must_use]
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Returns the outcome of the attempt to kill.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Returns one row for each process that has an address space and uses the memory that is
    /// short, in the order in which the processes were created. The rows show approximate sums; the
    /// victim may have been chosen by precise sums.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        (0..self.census.len()).filter_map(|candidate| Row::of(self.census, &self.scope, candidate))
    }
}

impl Row {
    pub(super) fn of<M: Machine>(
        census: &Census<'_, M>,
        scope: &Scope,
        candidate: u32,
    ) -> Option<Self> {
        let process = census.process(candidate)?;
        let space = process.space(census.machine())?;
        let facts = census.facts(candidate)?;
        concerns(census, scope, &facts).then(|| {
            let pages = Pages::of(census.machine(), space);
            // An embedder may add any numbers to the counters, and a report must not fail. So a sum
            // that does not fit 63 bits becomes the largest value.
            let all = i64::try_from(pages.all()).unwrap_or(i64::MAX);
            Self {
                process: process.id(),
                pages,
                adj: facts.adj,
                points: badness(&facts, all, scope.total),
            }
        })
    }
}

/// Returns whether the shortage affects the memory of the process that has these `facts`.
fn concerns<M: Machine>(census: &Census<'_, M>, scope: &Scope, facts: &Facts) -> bool {
    facts.kind != Kind::KernelThread
        && match scope.constraint {
            Constraint::Machine => true,
            Constraint::Nodes(nodes) => facts.nodes.meets(nodes),
            Constraint::Group(group) => census.is_within(facts.group, group),
        }
}

impl<M: Machine> fmt::Display for Report<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let constraint = match self.scope.constraint {
            Constraint::Machine => "CONSTRAINT_NONE",
            Constraint::Nodes(_) => "CONSTRAINT_CPUSET",
            Constraint::Group(_) => "CONSTRAINT_MEMCG",
        };
        let total = self.scope.total.get();
        writeln!(f, "oom-kill:constraint={constraint},total={total} pages")?;
        writeln!(f, "Tasks state (memory values in pages):")?;
        let [pid, rss, anon, file] = ["[  pid  ]", "rss", "rss_anon", "rss_file"];
        let [shmem, tables, swap, adj] = ["rss_shmem", "pgtables", "swapents", "oom_score_adj"];
        writeln!(
            f,
            "{pid} {rss:>8} {anon:>8} {file:>8} {shmem:>9} {tables:>8} {swap:>8} {adj:>13}"
        )?;
        self.rows().try_for_each(|row| writeln!(f, "{row}"))?;
        match self.verdict {
            Verdict::Nobody(_) => f.write_str("Out of memory and no killable processes..."),
            Verdict::Failed(error) => write!(f, "Out of memory and no victim selected: {error}"),
            Verdict::Killed(row, killed) => write_killed(f, self.scope.constraint, &row, killed),
        }
    }
}

fn write_killed(
    f: &mut fmt::Formatter<'_>,
    constraint: Constraint,
    row: &Row,
    killed: Killed,
) -> fmt::Result {
    let what = match constraint {
        Constraint::Group(_) => "Memory cgroup out of memory",
        Constraint::Machine | Constraint::Nodes(_) => "Out of memory",
    };
    let Row {
        process,
        pages,
        adj,
        ..
    } = row;
    let kib = |pages: u64| pages.saturating_mul(4);
    write!(
        f,
        "{what}: Killed process {process} anon-rss:{}kB, file-rss:{}kB, shmem-rss:{}kB \
         pgtables:{}kB oom_score_adj:{}",
        kib(pages.anon),
        kib(pages.file),
        kib(pages.shmem),
        kib(pages.tables),
        adj.get()
    )?;
    match killed.signalled {
        0 | 1 => Ok(()),
        all => write!(f, " and {} more", all - 1),
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pages {
            file,
            anon,
            shmem,
            swap,
            tables,
        } = self.pages;
        let (process, rss, adj) = (self.process.0, self.pages.resident(), self.adj.get());
        write!(
            f,
            "[{process:>7}] {rss:>8} {anon:>8} {file:>8} {shmem:>9} {tables:>8} {swap:>8} {adj:>13}"
        )
    }
}

impl<M: Machine> fmt::Debug for Report<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Report")
            .field("scope", &self.scope)
            .field("verdict", &self.verdict)
            .finish_non_exhaustive()
    }
}
