//! A slot, which the caller of a selection supplies and the candidates fill with precise sums.

use super::key::Key;
use crate::counter::Range;
use crate::oom::facts::ScoreAdj;
use crate::oom::standing::Standing;

/// Room for one candidate while [`Bounded`](super::Bounded) looks for the victim.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    candidate: u32,
    standing: Standing,
    /// The range of its points, as last read.
    range: Range,
    /// Its pages so far, while it is being summed.
    sum: i64,
    note: i64,
}

const _: () = assert!(size_of::<Slot>() == 40, "100,000 slots are 4 MB");

impl Slot {
    /// The value of an unused slot; a selection does not read it.
    pub const EMPTY: Self = Self {
        candidate: 0,
        standing: Standing::Exempt,
        range: Range::exactly(0),
        sum: 0,
        note: 0,
    };

    /// The candidate that is to be summed.
    #[must_use]
    pub const fn candidate(&self) -> u32 {
        self.candidate
    }

    /// Adds `pages` to the candidate's sum, which begins at 0.
    pub const fn add(&mut self, pages: i64) {
        self.sum = self.sum.saturating_add(pages);
    }

    /// Remembers a number while the candidate is being summed, such as where its counters are.
    pub const fn set_note(&mut self, note: i64) {
        self.note = note;
    }

    /// The number last set by [`Slot::set_note`]; 0 at first.
    #[must_use]
    pub const fn note(&self) -> i64 {
        self.note
    }

    /// Records that the candidate has no memory any more because it exited.
    pub const fn exited(&mut self) {
        self.standing = Standing::Exempt;
    }

    /// A slot with the points that a cheap look has shown.
    pub(super) const fn of(candidate: u32, standing: Standing, range: Range) -> Self {
        Self {
            candidate,
            standing,
            range,
            sum: 0,
            note: 0,
        }
    }

    /// A slot with exactly `points`.
    pub(super) const fn exactly(candidate: u32, standing: Standing, points: i64) -> Self {
        Self {
            candidate,
            standing,
            range: Range::exactly(points),
            sum: 0,
            note: 0,
        }
    }

    /// The slot made ready to be summed with the adjustment `adj`. Its range stays, unless the
    /// range was computed with another adjustment.
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

    /// The candidate's sum and adjustment; `None` if it exited.
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

    /// The smallest key the candidate can have.
    pub(super) const fn low(&self) -> Key {
        Key::new(self.range.min, self.candidate)
    }

    /// The largest key the candidate can have.
    pub(super) const fn high(&self) -> Key {
        Key::new(self.range.max, self.candidate)
    }
}
