//! A tree of phases that shows how the time to empty address spaces is spent, like the call tree of
//! functions in `perf report`.
//!
//! ```text
//! exit_mmap ─┬─ unmap_page_range ─┬─ __pte_offset_map_lock
//!            │                    └─ folio_remove_rmap_ptes
//!            └─ free_pgtables
//! ```
//!
//! Each CPU, or each thread, is a *lane* with nested phases. All lanes are added to one tree.
//! Invariant: the inclusive time of a node is at least the sum of the inclusive times of its
//! children.

use std::collections::BTreeMap;

use plimsoll_mm::event::{Event, Phase};
use plimsoll_mm::units::Nanos;

use crate::measure::metric::Unit;
use crate::report::Table;
use crate::report::value::human;

/// Receives the events that begin and end phases, and builds a [`PhaseTree`] from them.
#[derive(Clone, Debug, Default)]
pub struct PhaseRecorder {
    tree: PhaseTree,
    /// For each lane, the phases that have begun and not ended yet, the outermost first. Each phase
    /// is stored as the index of its node in the tree and the time at which the phase began.
    open: BTreeMap<usize, Vec<(usize, Nanos)>>,
}

/// A tree of phases: how often each phase was entered within its parent, and how long it took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhaseTree {
    /// The nodes, each parent before its children.
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    phase: Phase,
    parent: Option<usize>,
    calls: u64,
    inclusive: Nanos,
}

/// One row of a phase tree's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseRow {
    /// The phase that the row describes.
    pub phase: Phase,
    /// The number of phases that enclose this phase.
    pub depth: usize,
    /// The number of times that the phase was entered.
    pub calls: u64,
    /// The time in the phase, including the phases inside it.
    pub inclusive: Nanos,
    /// The time in the phase, excluding the phases inside it.
    pub own: Nanos,
}

impl PhaseRecorder {
    /// Records `event` of `lane` (a CPU or a thread) at time `now`. Ignores an event that neither
    /// begins nor ends a phase.
    ///
    /// # Panics
    /// If the phase that ends is not the last phase that began on this lane. In this case, the code
    /// that emits the events has a bug.
    pub fn note(&mut self, lane: usize, now: Nanos, event: &Event) {
        let open = self.open.entry(lane).or_default();
        match *event {
            Event::Begin(phase) => {
                let parent = open.last().map(|&(node, _)| node);
                let node = self.tree.node(parent, phase);
                open.push((node, now));
            }
            Event::End(phase) => {
                let (node, since) = open.pop().expect("a phase that ends has begun");
                let node = &mut self.tree.nodes[node];
                assert_eq!(node.phase, phase, "phases nest");
                node.calls += 1;
                node.inclusive = node.inclusive + Nanos(now.0 - since.0);
            }
            _ => {}
        }
    }

    /// Returns the tree of all phases. All phases must have ended.
    ///
    /// # Panics
    /// If a phase has not ended.
    #[must_use]
    pub fn finish(self) -> PhaseTree {
        let all_ended = self.open.values().all(Vec::is_empty);
        assert!(all_ended, "a tree is looked at when all phases have ended");
        self.tree
    }
}

impl PhaseTree {
    /// Adds the calls and times of `other` to this tree.
    pub fn merge(&mut self, other: &Self) {
        let mut places = Vec::with_capacity(other.nodes.len());
        for node in &other.nodes {
            let parent = node.parent.map(|parent: usize| places[parent]);
            let place = self.node(parent, node.phase);
            self.nodes[place].calls += node.calls;
            self.nodes[place].inclusive = self.nodes[place].inclusive + node.inclusive;
            places.push(place);
        }
    }

    /// The time in `phase` inside `root`, including the phases inside `phase`. If `root` and
    /// `phase` are equal, the result is all the time in `phase`.
    #[must_use]
    pub fn time(&self, root: Phase, phase: Phase) -> Nanos {
        let outermost = |nth: &usize| self.nodes[*nth].phase == phase && !self.is_in(*nth, phase);
        let wanted = (0..self.nodes.len()).filter(outermost);
        let wanted = wanted.filter(|nth| root == phase || self.is_in(*nth, root));
        Nanos(wanted.map(|nth| self.nodes[nth].inclusive.0).sum())
    }

    /// Returns a row for each node, parents before their children and siblings in order of
    /// descending time.
    #[must_use]
    pub fn rows(&self) -> Vec<PhaseRow> {
        let mut rows = Vec::with_capacity(self.nodes.len());
        self.push_rows(None, 0, &mut rows);
        rows
    }

    /// Renders the tree as a table, in percent of the total time in phases.
    #[must_use]
    pub fn table(&self, title: String, note: &str) -> Table {
        let rows = self.rows();
        let outermost = rows.iter().filter(|row| row.depth == 0);
        let all: u64 = outermost.map(|row| row.inclusive.0).sum();
        let percent = |part: Nanos| format!("{:.1} %", 100.0 * part.0 as f64 / all.max(1) as f64);
        let nanos = |time: Nanos| human(time.0 as f64, Unit::Nanos);
        let cells = |row: &PhaseRow| {
            vec![
                format!("{}{}", "· ".repeat(row.depth), row.phase.name()),
                percent(row.inclusive),
                percent(row.own),
                nanos(row.inclusive),
                nanos(row.own),
                human(row.calls as f64, Unit::Count),
            ]
        };
        Table {
            title,
            note: note.to_owned(),
            columns: [
                "phase",
                "inclusive %",
                "self %",
                "inclusive",
                "self",
                "calls",
            ]
            .map(str::to_owned)
            .to_vec(),
            rows: rows.iter().map(cells).collect(),
        }
    }

    /// Returns the tree's node for `phase` inside `parent`, and creates this node if it does not
    /// exist.
    fn node(&mut self, parent: Option<usize>, phase: Phase) -> usize {
        let mut nodes = self.nodes.iter();
        let found = nodes.position(|node| node.parent == parent && node.phase == phase);
        found.unwrap_or_else(|| {
            self.nodes.push(Node {
                phase,
                parent,
                calls: 0,
                inclusive: Nanos(0),
            });
            self.nodes.len() - 1
        })
    }

    /// Returns whether the node `nth` is inside a node of `phase`.
    fn is_in(&self, nth: usize, phase: Phase) -> bool {
        let mut above = self.nodes[nth].parent;
        // The loop ends because every parent precedes its children in `nodes`.
        while let Some(parent) = above {
            if self.nodes[parent].phase == phase {
                return true;
            }
            above = self.nodes[parent].parent;
        }
        false
    }

    fn push_rows(&self, parent: Option<usize>, depth: usize, rows: &mut Vec<PhaseRow>) {
        let children = (0..self.nodes.len()).filter(|&nth| self.nodes[nth].parent == parent);
        let mut children: Vec<usize> = children.collect();
        children.sort_by_key(|&nth| std::cmp::Reverse(self.nodes[nth].inclusive));
        for nth in children {
            let node = &self.nodes[nth];
            let inside = self.nodes.iter().filter(|inner| inner.parent == Some(nth));
            let inside: u64 = inside.map(|inner| inner.inclusive.0).sum();
            rows.push(PhaseRow {
                phase: node.phase,
                depth,
                calls: node.calls,
                inclusive: node.inclusive,
                own: Nanos(node.inclusive.0 - inside),
            });
            self.push_rows(Some(nth), depth + 1, rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(events: &[(usize, u64, Event)]) -> PhaseRecorder {
        let mut recorder = PhaseRecorder::default();
        for (lane, now, event) in events {
            recorder.note(*lane, Nanos(*now), event);
        }
        recorder
    }

    const BEGIN_EXIT: Event = Event::Begin(Phase::Exit);
    const END_EXIT: Event = Event::End(Phase::Exit);
    const BEGIN_UNMAP: Event = Event::Begin(Phase::Unmap);
    const END_UNMAP: Event = Event::End(Phase::Unmap);

    /// The phases of two CPUs that work at the same time: one exits, and the other reaps.
    fn race() -> PhaseTree {
        record(&[
            (0, 10, BEGIN_EXIT),
            (1, 11, Event::Begin(Phase::Reap)),
            (0, 12, BEGIN_UNMAP),
            (0, 13, Event::Begin(Phase::Rmap)),
            (1, 14, BEGIN_UNMAP),
            (0, 18, Event::End(Phase::Rmap)),
            (0, 20, END_UNMAP),
            (0, 21, BEGIN_UNMAP),
            (1, 24, END_UNMAP),
            (0, 30, END_UNMAP),
            (1, 31, Event::End(Phase::Reap)),
            (0, 40, END_EXIT),
        ])
        .finish()
    }

    #[test]
    fn each_phase_has_its_time_with_and_without_those_inside() {
        let rows = race().rows();
        let shown: Vec<_> = rows
            .iter()
            .map(|row| (row.phase, row.depth, row.calls, row.inclusive.0, row.own.0))
            .collect();
        assert_eq!(
            shown,
            [
                (Phase::Exit, 0, 1, 30, 13),
                (Phase::Unmap, 1, 2, 17, 12),
                (Phase::Rmap, 2, 1, 5, 5),
                (Phase::Reap, 0, 1, 20, 10),
                (Phase::Unmap, 1, 1, 10, 10),
            ]
        );
    }

    /// The exit and the reaper have separate times for the same phase. A lookup names one of the
    /// two, and the phase.
    #[test]
    fn time_is_looked_up_by_who_spent_it() {
        let tree = race();
        assert_eq!(tree.time(Phase::Exit, Phase::Exit), Nanos(30));
        assert_eq!(tree.time(Phase::Exit, Phase::Unmap), Nanos(17));
        assert_eq!(tree.time(Phase::Reap, Phase::Unmap), Nanos(10));
        assert_eq!(tree.time(Phase::Reap, Phase::Rmap), Nanos(0));
    }

    #[test]
    fn trees_of_two_threads_add_up() {
        let mut both = race();
        both.merge(&race());
        let (one, two) = (race().rows(), both.rows());
        assert_eq!(one.len(), two.len());
        for (one, two) in one.iter().zip(two) {
            assert_eq!((two.phase, two.calls), (one.phase, 2 * one.calls));
            assert_eq!(two.own.0, 2 * one.own.0);
        }
    }

    #[test]
    fn a_table_says_who_has_which_share() {
        let table = race().table("Race".to_owned(), "");
        let cells: Vec<&str> = table.rows[2].iter().map(String::as_str).collect();
        assert_eq!(
            cells,
            [
                "· · folio_remove_rmap_ptes",
                "10.0 %",
                "10.0 %",
                "5 ns",
                "5 ns",
                "1"
            ]
        );
    }

    #[test]
    #[should_panic(expected = "phases nest")]
    fn a_phase_that_ends_out_of_turn_is_a_bug() {
        record(&[(0, 1, BEGIN_EXIT), (0, 2, BEGIN_UNMAP), (0, 3, END_EXIT)]);
    }

    #[test]
    #[should_panic(expected = "all phases have ended")]
    fn a_phase_that_has_not_ended_is_a_bug() {
        drop(record(&[(0, 1, BEGIN_EXIT)]).finish());
    }
}
