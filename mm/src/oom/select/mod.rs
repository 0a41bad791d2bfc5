//! Ways to find the candidate with the most points.
//!
//! A *cheap look* at a candidate reads its facts and its approximate sum.
//!
//! | variant | cheap looks | precise sums | chooses |
//! |---|---|---|---|
//! | [`Approximate`], Linux before 6.18 | one each | none | the largest estimate |
//! | [`Precise`], Linux now | none | one each | the maximum |
//! | [`TwoPass`], the proposed patch | two each | at most 16 | the maximum if at most 16 are near |
//! | [`Bounded`], ours | one each | as few as can be known to be enough | the maximum |
//!
//! Every selection reports how far below the maximum its victim may be ([`Victim::behind`]),
//! according to the ranges it has read. Candidates may have changed when a selection returns, so
//! every statement is about the last look at each candidate.
//!
//! An embedder may use a rule of its own instead: [`Selector`].
//!
//! Among candidates with equal points, the later one is chosen. So exactly one candidate is the
//! largest, ordered by points and then by number.

mod approximate;
mod band;
mod bounded;
mod key;
mod own;
mod precise;
mod slot;
mod sums;
mod two_pass;

use core::fmt;

pub use self::approximate::Approximate;
pub use self::bounded::Bounded;
pub use self::own::Selector;
pub(super) use self::own::select_by;
pub use self::precise::Precise;
pub use self::slot::Slot;
pub use self::two_pass::TwoPass;
use super::badness::{self, POINTS_OF_ORIGIN};
use super::candidate::Candidates;
use super::facts::ScoreAdj;
use super::scope::Scope;
use super::standing::Standing;
use crate::counter::{Range, Reading};

/// The ways to select a victim. A design names one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Selecting {
    /// Chooses the candidate with the most estimated points: [`Approximate`].
    Approximate,
    /// The pages of every candidate are summed precisely: [`Precise`].
    Precise,
    /// The patch proposed for Linux, with at most 16 precise sums: [`TwoPass`].
    TwoPass16,
    /// Plimsoll's selector, with no limit on precise sums: [`Bounded`].
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

    /// Returns the name of this way to select, such as `select-approximate`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Approximate => "select-approximate",
            Self::Precise => "select-precise",
            Self::TwoPass16 => "select-two-pass",
            Self::Bounded => "select-bounded",
        }
    }

    /// Selects the victim. Only [`Bounded`] uses `slots`; its documentation says how many are
    /// useful.
    ///
    /// # Errors
    /// [`SelectError::Reading`] if the approximate sum of a candidate is outside its own range, or
    /// this range ends before it begins; [`SelectError::NoSlot`] if [`Bounded`] gets no slots.
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

/// The result of a selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The victim, or the reason why there is none.
    pub outcome: Outcome,
    /// The number of precise sums of candidates' pages that were taken, one by one or in batches.
    pub precise_sums: u64,
    /// The number of batches, in each of which several sums were taken together.
    pub batches: u64,
}

/// The victim of a selection, or the reason why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This candidate is to be killed.
    Victim(Victim),
    /// No candidate was chosen.
    Nobody(NoVictim),
}

/// The candidate that was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// The index of the chosen candidate.
    pub candidate: u32,
    /// The range of the candidate's points. The range is a single number if the points come from a
    /// precise sum or an exact reading, and `i64::MAX` if the candidate is an origin.
    pub points: Range,
    /// An upper bound on the points by which any other candidate may exceed the victim. If it is 0,
    /// the victim is the maximum.
    pub behind: u64,
}

/// The reason why no candidate was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoVictim {
    /// There are no candidates.
    Empty,
    /// There are candidates, but none may be killed, or killing them would not help.
    NoneKillable,
    /// This candidate was chosen before and is still dying: wait for its memory (Linux: `chosen =
    /// -1`).
    Aborted {
        /// The number of the candidate that is still dying.
        dying: u32,
    },
    /// Several times in a row, the candidate that was about to be chosen exited. The memory of
    /// these candidates is being freed, so the caller should try the allocation again before it
    /// selects again.
    Unsettled,
}

/// The reason why a selection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectError {
    /// A candidate's cheap reading is impossible: the estimate is outside the range, or the range
    /// ends before it begins.
    Reading {
        /// The index of the candidate with the impossible reading.
        candidate: u32,
        /// The impossible reading.
        reading: Reading,
    },
    /// [`Bounded`] needs at least one slot.
    NoSlot,
    /// A [`Selector`] returned an index that belongs to no candidate.
    NoSuchCandidate {
        /// The index that the selector returned.
        candidate: u32,
    },
    /// A [`Selector`] chose a candidate that must not be killed, or whose death would not help.
    Exempt {
        /// The number of the candidate.
        candidate: u32,
    },
    /// A [`Selector`] returned [`NoVictim::Aborted`] for a candidate that is not dying.
    NotDying {
        /// The number of the candidate.
        candidate: u32,
    },
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
            Self::NoSuchCandidate { candidate } => write!(
                f,
                "the selector chose candidate {candidate}, which does not exist: \
                 it must choose a number below `Candidates::len`"
            ),
            Self::Exempt { candidate } => write!(
                f,
                "the selector chose candidate {candidate}, which is exempt: \
                 it must ask `Standing::of` before it chooses"
            ),
            Self::NotDying { candidate } => write!(
                f,
                "the selector waits for candidate {candidate}, which is not dying: \
                 it may return `NoVictim::Aborted` only for a candidate with `Standing::Dying`"
            ),
        }
    }
}

impl core::error::Error for SelectError {}

/// The reason why a selection ends at once and stops looking for a victim.
#[derive(Clone, Copy, Debug)]
enum Stop {
    /// This candidate is already dying.
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

/// Returns the current [`Standing`] of a candidate. A candidate that has exited is exempt.
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

/// The results of a cheap look at a candidate. The look makes no precise sum of the candidate's
/// pages.
#[derive(Clone, Copy, Debug)]
struct Read {
    standing: Standing,
    estimate: i64,
    range: Range,
}

/// Takes a cheap look at a candidate: reads its facts and its approximate sum. Returns `None` if
/// the candidate is exempt or has exited.
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

/// Returns the exact points of a candidate; `None` if the candidate has exited.
fn sum<C: Candidates + ?Sized>(
    candidates: &C,
    scope: &Scope,
    candidate: u32,
    adj: ScoreAdj,
) -> Option<i64> {
    let pages = candidates.precise(candidate)?;
    Some(badness::points(pages, adj, scope.total))
}

/// Returns the outcome if none of the candidates can be the victim. `candidates` is their number.
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
