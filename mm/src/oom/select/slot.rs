//! A slot: memory for one candidate, which the caller of a selection supplies, and in which the
//! precise sum of the candidate's pages is computed.

use super::key::Key;
use crate::counter::Range;
use crate::oom::facts::ScoreAdj;
use crate::oom::standing::Standing;

/// Room for one candidate while [`Bounded`](super::Bounded) looks for the victim.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    candidate: u32,
    standing: Standing,
    /// The range of the candidate's points, as last read.
    range: Range,
    /// While the candidate's pages are being summed, the number of pages summed so far.
    sum: i64,
    note: i64,
}

const _: () = assert!(size_of::<Slot>() == 40, "100,000 slots are 4 MB");

impl Slot {
    /// The value of an unused slot. A selection does not read it.
    pub const EMPTY: Self = Self {
        candidate: 0,
        standing: Standing::Exempt,
        range: Range::exactly(0),
        sum: 0,
        note: 0,
    };

    /// Returns the number of the candidate whose pages are to be summed.
    #[must_use]
    pub const fn candidate(&self) -> u32 {
        self.candidate
    }

    /// Adds `pages` to the candidate's sum, which begins at 0.
    pub const fn add(&mut self, pages: i64) {
        self.sum = self.sum.saturating_add(pages);
    }

    /// Stores a number for use by the code that sums the candidate's pages, such as the position of
    /// the candidate's counters in memory.
    pub const fn set_note(&mut self, note: i64) {
        self.note = note;
    }

    /// Returns the number last stored by [`Slot::set_note`]; 0 at first.
    #[must_use]
    pub const fn note(&self) -> i64 {
        self.note
    }

    /// Records that the candidate has exited, so that it has no memory any more.
    pub const fn exited(&mut self) {
        self.standing = Standing::Exempt;
    }

    /// Makes a slot for a candidate whose points come from the approximate sum of its pages.
    pub(super) const fn of(candidate: u32, standing: Standing, range: Range) -> Self {
        Self {
            candidate,
            standing,
            range,
            sum: 0,
            note: 0,
        }
    }

    /// Makes a slot for a candidate with exactly `points`.
    pub(super) const fn exactly(candidate: u32, standing: Standing, points: i64) -> Self {
        Self {
            candidate,
            standing,
            range: Range::exactly(points),
            sum: 0,
            note: 0,
        }
    }

    /// Prepares the slot for a sum of the candidate's pages; the candidate's adjustment is `adj`.
    /// Keeps the range, unless it was computed with another adjustment.
    pub(super) fn to_sum(self, adj: ScoreAdj) -> Self {
        let standing = Standing::Counted(adj);
        let range = if self.standing == standing {
            self.range
        } else {
            Range {
                min: i64::MIN,
                max: i64::MAX,
            }
        };
        Self {
            standing,
            range,
            sum: 0,
            note: 0,
            ..self
        }
    }

    /// Returns the candidate's sum and adjustment; `None` if the candidate has exited.
    pub(super) const fn summed(&self) -> Option<(i64, ScoreAdj)> {
        match self.standing {
            Standing::Counted(adj) => Some((self.sum, adj)),
            _ => None,
        }
    }

    pub(super) const fn standing(&self) -> Standing {
        self.standing
    }

    pub(super) const fn range(&self) -> Range {
        self.range
    }

    pub(super) const fn is_exact(&self) -> bool {
        self.range.min == self.range.max
    }

    /// Returns the smallest key (points, then index) that the candidate can have.
    pub(super) const fn low(&self) -> Key {
        Key::new(self.range.min, self.candidate)
    }

    /// Returns the largest key (points, then index) that the candidate can have.
    pub(super) const fn high(&self) -> Key {
        Key::new(self.range.max, self.candidate)
    }
}
