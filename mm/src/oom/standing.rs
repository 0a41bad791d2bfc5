//! The standing of a candidate, which says how a selection treats the candidate. `Standing::of` in
//! `scope.rs` determines it.

use super::facts::ScoreAdj;

/// How a selection treats a candidate, regardless of the memory that the candidate has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The selection skips the candidate.
    Exempt,
    /// The candidate is already dying, and no other candidate is chosen before it has exited.
    Dying,
    /// The candidate is chosen before all candidates whose points are counted.
    Origin,
    /// The candidate is compared by its points, which include this adjustment.
    Counted(ScoreAdj),
}
