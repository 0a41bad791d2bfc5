//! The standing of a candidate in a selection, which `Standing::of` in `scope.rs` determines.

use super::facts::ScoreAdj;

/// The way in which a selection treats a candidate, whatever its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The candidate is passed over.
    Exempt,
    /// The candidate is dying already, and no other candidate is chosen before it is gone.
    Dying,
    /// The candidate is chosen before all that are counted.
    Origin,
    /// The candidate's points are counted, with this adjustment.
    Counted(ScoreAdj),
}
