//! Candidates whose true memory is known, so that tests can check the choice of a selection. These
//! candidates record the queries of a selection, which are calls of `facts`, `approximate` or
//! `precise`.

use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use super::key::Key;
use super::{Slot, badness};
use crate::counter::{Range, Reading};
use crate::oom::candidate::Candidates;
use crate::oom::facts::{Facts, Memory, ScoreAdj};
use crate::oom::scope::Scope;
use crate::oom::standing::Standing;
use crate::oom::{Outcome, Selection, TotalPages};

/// A candidate: its facts, its true number of pages, and a cheap approximate reading of this
/// number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) facts: Facts,
    pub(super) pages: i64,
    pub(super) reading: Reading,
}

impl Member {
    /// Makes a process with `pages` pages. Its cheap reading is `estimate`, which may be up to
    /// `under` pages too small and `over` pages too large.
    pub(super) fn new(pages: i64, estimate: i64, under: u64, over: u64) -> Self {
        let range = Range {
            min: estimate.saturating_sub_unsigned(over),
            max: estimate.saturating_add_unsigned(under),
        };
        assert!(range.contains(pages), "a counter keeps its promise");
        Self {
            facts: Facts::PROCESS,
            pages,
            reading: Reading { estimate, range },
        }
    }

    pub(super) fn exactly(pages: i64) -> Self {
        Self::new(pages, pages, 0, 0)
    }

    pub(super) fn with_adj(mut self, adj: i32) -> Self {
        self.facts.adj = ScoreAdj::new(adj).expect("in range");
        self
    }
}

/// A change of a candidate while the selection runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Exit,
    Chosen,
    Reaped,
    Origin,
    Adj(i32),
    /// The candidate gains this number of pages; negative if it shrinks.
    Grow(i64),
}

/// The points of a candidate as the selection last read them.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seen {
    Nothing,
    Exempt,
    Dying,
    Range(Range),
}

/// The candidates of a test. The population counts the selection's queries, and records what each
/// query read. A test can make a candidate change just before the query with a given index.
#[derive(Debug)]
pub(super) struct Population {
    members: RefCell<Vec<Option<Member>>>,
    /// For each candidate, the points that the selection last read, and how the selection had to
    /// treat the candidate at that time.
    seen: RefCell<Vec<(Seen, Standing)>>,
    scope: Scope,
    questions: Cell<u32>,
    changes: Vec<(u32, u32, Change)>,
    pub(super) sums: Cell<u64>,
    /// The number of batches in which the selection summed the pages of several candidates
    /// together.
    pub(super) batches: Cell<u64>,
    pub(super) batch_gain: u32,
    /// The largest number of candidates whose pages the selection summed in one batch.
    pub(super) batch_max: Cell<usize>,
}

impl Population {
    pub(super) fn new(members: impl IntoIterator<Item = Member>, scope: Scope) -> Self {
        let members: Vec<_> = members.into_iter().map(Some).collect();
        let seen = members.iter().map(|_| (Seen::Nothing, Standing::Exempt));
        Self {
            seen: RefCell::new(seen.collect()),
            members: RefCell::new(members),
            scope,
            questions: Cell::new(0),
            changes: Vec::new(),
            sums: Cell::new(0),
            batches: Cell::new(0),
            batch_gain: 1,
            batch_max: Cell::new(0),
        }
    }

    /// Makes `candidate` change before query number `at`, counted from 0.
    pub(super) fn changing(mut self, at: u32, candidate: u32, change: Change) -> Self {
        self.changes.push((at, candidate, change));
        self
    }

    /// Sets the value that [`Candidates::batch_gain`] returns.
    pub(super) fn gaining(mut self, batch_gain: u32) -> Self {
        self.batch_gain = batch_gain;
        self
    }

    /// Returns the number of queries that the selection has made so far.
    pub(super) fn questions(&self) -> u32 {
        self.questions.get()
    }

    fn ask(&self, candidate: u32) -> Option<Member> {
        let now = self.questions.get();
        self.questions.set(now + 1);
        let mut members = self.members.borrow_mut();
        for &(_, who, change) in self.changes.iter().filter(|(at, ..)| *at == now) {
            let place = &mut members[who as usize];
            let Some(member) = place else { continue };
            match change {
                Change::Exit => *place = None,
                Change::Chosen => member.facts.is_victim = true,
                Change::Reaped => member.facts.memory = Memory::Reaped,
                Change::Origin => member.facts.is_origin = true,
                Change::Adj(adj) => member.facts.adj = ScoreAdj::new(adj).expect("in range"),
                Change::Grow(pages) => {
                    member.pages += pages;
                    member.reading.estimate += pages;
                    member.reading.range = member.reading.range + Range::exactly(pages);
                }
            }
        }
        members[candidate as usize]
    }

    /// Returns the points of a candidate as the selection last read them.
    pub(super) fn seen(&self, candidate: u32) -> Seen {
        self.seen.borrow()[candidate as usize].0
    }

    fn note(&self, candidate: u32, pages: Range) {
        let entry = &mut self.seen.borrow_mut()[candidate as usize];
        if let Standing::Counted(adj) = entry.1 {
            let points = |pages| badness::points(pages, adj, self.scope.total);
            let (min, max) = (points(pages.min), points(pages.max));
            entry.0 = Seen::Range(Range { min, max });
        }
    }

    /// Returns three keys (points, then index) of every candidate that may be chosen: the smallest
    /// possible, the true and the largest possible key. The candidates are in ascending order.
    pub(super) fn keys(&self) -> Vec<(Key, Key, Key)> {
        let members = self.members.borrow();
        let key = |(nth, member): (usize, &Option<Member>)| {
            let member = member.as_ref()?;
            let nth = u32::try_from(nth).expect("few");
            let keys = |low, points, high| {
                let key = |points| Key::new(points, nth);
                (key(low), key(points), key(high))
            };
            match Standing::of(self, &self.scope, &member.facts) {
                Standing::Counted(adj) => {
                    let points = |pages| badness::points(pages, adj, self.scope.total);
                    let Range { min, max } = member.reading.range;
                    Some(keys(points(min), points(member.pages), points(max)))
                }
                Standing::Origin => Some(keys(i64::MAX, i64::MAX, i64::MAX)),
                Standing::Exempt | Standing::Dying => None,
            }
        };
        members.iter().enumerate().filter_map(key).collect()
    }

    /// Returns the key (points, then index) of the candidate with the most points.
    pub(super) fn maximum(&self) -> Option<Key> {
        self.keys().into_iter().map(|(_, key, _)| key).max()
    }

    /// Returns by how many points the victim of `selection` is below the maximum; `None` if there
    /// is no victim.
    pub(super) fn regret(&self, selection: &Selection) -> Option<u64> {
        let Outcome::Victim(victim) = selection.outcome else {
            return None;
        };
        let is_it = |key: &Key| key.candidate == victim.candidate;
        let chosen = self.keys().into_iter().map(|keys| keys.1).find(is_it);
        let maximum = self.maximum().expect("a candidate was chosen");
        Some(
            maximum
                .points
                .abs_diff(chosen.expect("it was killable").points),
        )
    }

    /// Returns the least number of precise sums that prove which candidate has the most points, if
    /// the candidates to sum are guessed right.
    ///
    /// Call the candidate with the most points the best. Every other candidate whose range reaches
    /// above the points of the best has to be summed. The best has to be summed, too, unless all
    /// others whose ranges reach above the low end of its range are summed instead.
    pub(super) fn least_sums(&self) -> u64 {
        let keys = self.keys();
        let Some(&(low, maximum, high)) = keys.iter().max_by_key(|(_, key, _)| *key) else {
            return 0;
        };
        let reaching = |bar: Key| {
            let others = keys.iter().filter(|(_, key, _)| *key != maximum);
            others.filter(|(.., high)| *high > bar).count() as u64
        };
        let all_below = |bar: Key| keys.iter().all(|(_, key, _)| *key == maximum || *key < bar);
        let with = reaching(maximum) + u64::from(low != high);
        if all_below(low) {
            with.min(reaching(low))
        } else {
            with
        }
    }
}

impl Candidates for Population {
    fn len(&self) -> u32 {
        u32::try_from(self.members.borrow().len()).expect("few")
    }

    fn facts(&self, candidate: u32) -> Option<Facts> {
        let facts = self.ask(candidate).map(|member| member.facts);
        let standing = facts.map_or(Standing::Exempt, |facts| {
            Standing::of(self, &self.scope, &facts)
        });
        let entry = &mut self.seen.borrow_mut()[candidate as usize];
        entry.1 = standing;
        match standing {
            Standing::Exempt => entry.0 = Seen::Exempt,
            Standing::Dying => entry.0 = Seen::Dying,
            Standing::Origin => entry.0 = Seen::Range(Range::exactly(i64::MAX)),
            Standing::Counted(_) => {}
        }
        facts
    }

    fn approximate(&self, candidate: u32) -> Option<Reading> {
        let reading = self.ask(candidate).map(|member| member.reading);
        match reading {
            Some(reading) => self.note(candidate, reading.range),
            None => self.seen.borrow_mut()[candidate as usize].0 = Seen::Exempt,
        }
        reading
    }

    fn precise(&self, candidate: u32) -> Option<i64> {
        self.sums.set(self.sums.get() + 1);
        let pages = self.ask(candidate).map(|member| member.pages);
        match pages {
            Some(pages) => self.note(candidate, Range::exactly(pages)),
            None => self.seen.borrow_mut()[candidate as usize].0 = Seen::Exempt,
        }
        pages
    }

    fn batch_gain(&self) -> u32 {
        self.batch_gain
    }

    fn precise_many(&self, slots: &mut [Slot]) {
        assert!(
            slots.is_sorted_by(|a, b| a.candidate() < b.candidate()),
            "in order"
        );
        self.batches.set(self.batches.get() + 1);
        self.batch_max.set(self.batch_max.get().max(slots.len()));
        for slot in slots {
            match self.precise(slot.candidate()) {
                // Add the pages in two parts, as if they were read from several CPUs.
                Some(pages) => {
                    slot.add(pages / 2);
                    slot.add(pages - pages / 2);
                }
                None => slot.exited(),
            }
        }
    }
}

/// The scope of a shortage on a machine of 16 GiB. A thousandth of its memory is 4194 points.
pub(super) fn machine() -> Scope {
    Scope::machine(TotalPages::new(4 << 20).expect("some"))
}
