//! Chooses a victim in one pass over approximate sums of the candidates' pages. This is fast, but
//! the choice can be wrong by the errors of these sums (Linux before 6.18).

use super::key::{Highest, Key};
use super::{Outcome, SelectError, Selection, Stop, Victim};
use super::{nobody, read};
use crate::counter::Range;
use crate::oom::candidate::Candidates;
use crate::oom::scope::Scope;

/// Chooses the candidate with the most estimated points.
#[derive(Clone, Copy, Debug)]
pub struct Approximate;

impl Approximate {
    /// Selects the victim. [`Victim::behind`] is computed from the ranges of all candidates'
    /// points; Linux does not report it.
    ///
    /// # Errors
    /// [`SelectError::Reading`] if the approximate sum of a candidate is outside its own range, or
    /// this range ends before it begins.
    pub fn select<C: Candidates + ?Sized>(
        self,
        candidates: &C,
        scope: &Scope,
    ) -> Result<Selection, SelectError> {
        let outcome = estimate_all(candidates, scope).or_else(Stop::outcome)?;
        Ok(Selection {
            outcome,
            precise_sums: 0,
            batches: 0,
        })
    }
}

fn estimate_all<C: Candidates + ?Sized>(candidates: &C, scope: &Scope) -> Result<Outcome, Stop> {
    let mut chosen: Option<(Key, Range)> = None;
    let mut highest = Highest::default();
    let len = candidates.len();
    for candidate in 0..len {
        let Some(read) = read(candidates, scope, candidate)? else {
            continue;
        };
        highest.see(Key::new(read.range.max, candidate));
        let key = Key::new(read.estimate, candidate);
        if chosen.is_none_or(|(most, _)| key > most) {
            chosen = Some((key, read.range));
        }
    }
    let victim = |(Key { candidate, .. }, points): (Key, Range)| Victim {
        candidate,
        points,
        behind: Key::new(points.min, candidate).behind(highest.except(candidate)),
    };
    Ok(chosen.map_or(nobody(len), |chosen| Outcome::Victim(victim(chosen))))
}
