//! Ways to find the candidate with the most points.
//!
//! | variant | cheap looks | precise sums | chooses |
//! |---|---|---|---|
//! | [`Approximate`], Linux before 6.18 | one each | none | the largest estimate |
//! | [`Precise`], Linux now | none | one each | the maximum |
//! | [`TwoPass`], the proposed patch | two each | at most 16 | the maximum, if at most 16 are near it |
//! | [`Bounded`], ours | one each | as few as can be known to be enough | the maximum |
//!
//! All of them say how far from the maximum their victim may be ([`Victim::behind`]), by the ranges
//! they have read. What they have read may have changed when they return: every statement is about
//! the last look at each candidate.
//!
//! Of equal points the later candidate is chosen. So no two candidates are equal, and by points and
//! then number there is one largest.

mod approximate;
mod band;
mod bounded;
mod key;
mod precise;
mod two_pass;

use core::fmt;

pub use self::approximate::Approximate;
pub use self::band::Slot;
pub use self::bounded::Bounded;
pub use self::precise::Precise;
pub use self::two_pass::TwoPass;
use super::badness::{self, POINTS_OF_ORIGIN};
use super::candidate::{Candidates, Reading, ScoreAdj};
use super::scope::{Scope, Standing};
use crate::counter::Range;

/// How a design chooses the victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Selecting {
    /// [`Approximate`].
    Approximate,
    /// [`Precise`].
    Precise,
    /// [`TwoPass`].
    TwoPass16,
    /// [`Bounded`], without a budget.
    Bounded,
}

impl Selecting {
    /// Every variant.
    pub const ALL: [Self; 4] = [
        Self::Approximate,
        Self::Precise,
        Self::TwoPass16,
        Self::Bounded,
    ];

    /// As designs spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Approximate => "select-approximate",
            Self::Precise => "select-precise",
            Self::TwoPass16 => "select-two-pass",
            Self::Bounded => "select-bounded",
        }
    }

    /// Looks for the victim. Only [`Bounded`] uses `slots`; see there how many are good.
    ///
    /// # Errors
    /// [`SelectError`]: a reading that cannot be, or no slot.
    pub fn select<C: Candidates + ?Sized>(
        self,
        candidates: &C,
        scope: &Scope,
        slots: &mut [Slot],
    ) -> Result<Selection, SelectError> {
        match self {
            Self::Approximate => Approximate.select(candidates, scope),
            Self::Precise => Precise.select(candidates, scope),
            Self::TwoPass16 => TwoPass::PATCH.select(candidates, scope),
            Self::Bounded => Bounded::new().select(candidates, scope, slots),
        }
    }
}

/// What a selection came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Whom, or why nobody.
    pub outcome: Outcome,
    /// Precise sums that were taken, one by one or in batches.
    pub precise_sums: u64,
    /// Times that several were taken together.
    pub batches: u64,
}

/// Whom to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This one.
    Victim(Victim),
    /// Nobody.
    Nobody(NoVictim),
}

/// The candidate that was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Its number.
    pub candidate: u32,
    /// Where its points are: one number if they were summed or a cheap look was exact, `i64::MAX` if
    /// it is an origin.
    pub points: Range,
    /// How many points more another candidate may have, at most. 0: this is the maximum.
    pub behind: u64,
}

/// Why nobody was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoVictim {
    /// There are no candidates.
    Empty,
    /// There are, but none may be killed, or none that may would help.
    NoneKillable,
    /// This one was chosen before and is still dying: wait for its memory (Linux: `chosen = -1`).
    Aborted {
        /// Its number.
        dying: u32,
    },
    /// Whoever was to be chosen exited, several times in a row. Its memory comes back: try the
    /// allocation again before another selection.
    Unsettled,
}

/// What makes a selection impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectError {
    /// A cheap look whose estimate is not in its range, or whose range ends before it begins.
    Reading {
        /// Of whom.
        candidate: u32,
        /// What was read.
        reading: Reading,
    },
    /// [`Bounded`] needs a slot at least.
    NoSlot,
}

impl fmt::Display for SelectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reading { candidate, reading } => {
                let Reading { estimate, range } = reading;
                let Range { min, max } = range;
                write!(
                    f,
                    "candidate {candidate} has about {estimate} pages, from {min} to {max}: \
                     these are not in order"
                )
            }
            Self::NoSlot => {
                f.write_str("bounded selection needs a slot; it is best with one per candidate")
            }
        }
    }
}

impl core::error::Error for SelectError {}

/// Why a selection ends before its end.
#[derive(Clone, Copy, Debug)]
enum Stop {
    /// This candidate is dying already.
    Dying(u32),
    Error(SelectError),
}

impl Stop {
    fn outcome(self) -> Result<Outcome, SelectError> {
        match self {
            Self::Dying(dying) => Ok(Outcome::Nobody(NoVictim::Aborted { dying })),
            Self::Error(error) => Err(error),
        }
    }
}

/// The standing of a candidate now. One that has exited is exempt.
fn look<C: Candidates + ?Sized>(
    candidates: &C,
    scope: &Scope,
    candidate: u32,
) -> Result<Standing, Stop> {
    let Some(facts) = candidates.facts(candidate) else {
        return Ok(Standing::Exempt);
    };
    match Standing::of(candidates, scope, &facts) {
        Standing::Dying => Err(Stop::Dying(candidate)),
        standing => Ok(standing),
    }
}

/// A candidate's points, as far as a cheap look can tell.
#[derive(Clone, Copy, Debug)]
struct Read {
    standing: Standing,
    estimate: i64,
    range: Range,
}

/// A cheap look at a candidate; `None` if it is exempt or has exited.
fn read<C: Candidates + ?Sized>(
    candidates: &C,
    scope: &Scope,
    candidate: u32,
) -> Result<Option<Read>, Stop> {
    let standing = look(candidates, scope, candidate)?;
    let adj = match standing {
        Standing::Counted(adj) => adj,
        Standing::Origin => {
            return Ok(Some(Read {
                standing,
                estimate: POINTS_OF_ORIGIN,
                range: Range::exactly(POINTS_OF_ORIGIN),
            }));
        }
        Standing::Exempt | Standing::Dying => return Ok(None),
    };
    let Some(reading) = candidates.approximate(candidate) else {
        return Ok(None);
    };
    if !reading.is_ordered() {
        return Err(Stop::Error(SelectError::Reading { candidate, reading }));
    }
    let points = |pages| badness::points(pages, adj, scope.total);
    Ok(Some(Read {
        standing,
        estimate: points(reading.estimate),
        range: Range {
            min: points(reading.range.min),
            max: points(reading.range.max),
        },
    }))
}

/// A candidate's points, exactly; `None` if it has exited.
fn sum<C: Candidates + ?Sized>(
    candidates: &C,
    scope: &Scope,
    candidate: u32,
    adj: ScoreAdj,
) -> Option<i64> {
    let pages = candidates.precise(candidate)?;
    Some(badness::points(pages, adj, scope.total))
}

/// The outcome if there is no victim among so many candidates.
fn nobody(candidates: u32) -> Outcome {
    Outcome::Nobody(if candidates == 0 {
        NoVictim::Empty
    } else {
        NoVictim::NoneKillable
    })
}

#[cfg(test)]
mod change;
#[cfg(test)]
mod drift;
#[cfg(test)]
mod props;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod torn;
#[cfg(test)]
mod truth;
