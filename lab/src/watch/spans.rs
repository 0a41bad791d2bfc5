//! The phases of tasks over time: which tasks end an address space, which tasks help to empty it,
//! and which tasks wait for memory.

use std::collections::BTreeMap;

use plimsoll_mm::event::Phase;

use super::course::Span;

/// The largest number of phases of tasks that are kept. If there are more, the shortest phases
/// inside other phases are left out first.
const SPANS_MAX: usize = 4000;

/// Returns whether phases of the kind `phase` are kept. The phases of all other kinds are too short
/// and too many for a chart over time.
const fn is_kept(phase: Phase) -> bool {
    !matches!(
        phase,
        Phase::TableLock | Phase::Rmap | Phase::Flush | Phase::FreePages | Phase::FinishGather
    )
}

/// The phases of tasks during a run: the times in which tasks end address spaces or wait for
/// memory.
#[derive(Default)]
pub(super) struct Spans {
    /// For each task, the phases that have begun and not ended, each with its CPU and the time of
    /// its beginning, in nanoseconds.
    open: BTreeMap<u32, Vec<(Phase, u32, u64)>>,
    ended: Vec<Ended>,
}

#[derive(Clone, Copy)]
struct Ended {
    phase: Phase,
    task: u32,
    cpu: u32,
    from_ns: u64,
    until_ns: u64,
    depth: u32,
}

impl Spans {
    pub(super) fn begin(&mut self, task: u32, cpu: u32, at_ns: u64, phase: Phase) {
        if is_kept(phase) {
            self.open.entry(task).or_default().push((phase, cpu, at_ns));
        }
    }

    pub(super) fn end(&mut self, task: u32, at_ns: u64, phase: Phase) {
        if !is_kept(phase) {
            return;
        }
        let open = self.open.entry(task).or_default();
        // If the phase began before the run was watched, the time at which it began is not known,
        // and the phase is ignored.
        let Some((phase, cpu, from_ns)) = open.pop_if(|open| open.0 == phase) else {
            return;
        };
        let depth = open.len();
        self.keep(phase, [task, cpu], [from_ns, at_ns], depth);
        if self.ended.len() == 2 * SPANS_MAX {
            self.keep_longest();
        }
    }

    fn keep(
        &mut self,
        phase: Phase,
        [task, cpu]: [u32; 2],
        [from_ns, until_ns]: [u64; 2],
        depth: usize,
    ) {
        self.ended.push(Ended {
            phase,
            task,
            cpu,
            from_ns,
            until_ns,
            depth: u32::try_from(depth).unwrap_or(u32::MAX),
        });
    }

    fn keep_longest(&mut self) {
        let rank = |span: &Ended| {
            let length_ns = span.until_ns - span.from_ns;
            let length = std::cmp::Reverse(length_ns);
            (span.depth > 0, length, span.from_ns, span.task, span.depth)
        };
        // A stable sort would need a buffer on the stack, but the stacks of simulated tasks are
        // small.
        self.ended.sort_unstable_by_key(rank);
        self.ended.truncate(SPANS_MAX);
    }

    /// The phases in the order in which they began. A phase that has not ended gets the end of the
    /// run, `end_ns`, as its end.
    pub(super) fn finish(mut self, end_ns: u64) -> Vec<Span> {
        for (task, open) in std::mem::take(&mut self.open) {
            for (depth, (phase, cpu, from_ns)) in open.into_iter().enumerate() {
                self.keep(phase, [task, cpu], [from_ns, end_ns.max(from_ns)], depth);
            }
        }
        self.keep_longest();
        self.ended
            .sort_by_key(|span| (span.from_ns, span.task, span.depth));
        let span = |of: &Ended| Span {
            phase: of.phase.name().to_owned(),
            task: of.task,
            cpu: of.cpu,
            from_ns: of.from_ns,
            until_ns: of.until_ns,
            depth: of.depth,
        };
        self.ended.iter().map(span).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_have_their_task_and_their_depth() {
        let mut spans = Spans::default();
        spans.end(7, 1, Phase::Exit);
        spans.begin(7, 3, 10, Phase::Exit);
        spans.begin(8, 4, 11, Phase::Reap);
        spans.begin(7, 3, 12, Phase::Unmap);
        spans.begin(7, 3, 13, Phase::Rmap);
        spans.end(7, 14, Phase::Rmap);
        spans.end(7, 20, Phase::Unmap);
        spans.end(8, 21, Phase::Reap);
        spans.end(7, 30, Phase::Exit);
        spans.begin(9, 5, 31, Phase::Exit);
        let shown: Vec<_> = spans
            .finish(40)
            .into_iter()
            .map(|span| {
                (
                    span.phase,
                    span.task,
                    span.cpu,
                    span.from_ns,
                    span.until_ns,
                    span.depth,
                )
            })
            .collect();
        let want = [
            ("exit_mmap", 7, 3, 10, 30, 0),
            ("__oom_reap_task_mm", 8, 4, 11, 21, 0),
            ("unmap_page_range", 7, 3, 12, 20, 1),
            ("exit_mmap", 9, 5, 31, 40, 0),
        ];
        let want = want.map(|(phase, task, cpu, from, until, depth)| {
            (phase.to_owned(), task, cpu, from, until, depth)
        });
        assert_eq!(shown, want);
    }

    #[test]
    fn too_many_phases_lose_the_shortest_that_others_enclose() {
        let mut spans = Spans::default();
        for nth in 0..10_000 {
            spans.begin(1, 0, nth * 100, Phase::Exit);
            spans.begin(1, 0, nth * 100 + 1, Phase::Unmap);
            spans.end(1, nth * 100 + 2 + nth % 50, Phase::Unmap);
            spans.end(1, nth * 100 + 60, Phase::Exit);
        }
        let kept = spans.finish(1_000_000);
        assert_eq!(kept.len(), SPANS_MAX);
        assert!(kept.iter().all(|span| span.depth == 0));
    }
}
