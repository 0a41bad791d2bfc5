//! Chooses a victim in one pass that sums the pages of every candidate precisely, as Linux does
//! from 6.18 on. The choice is correct, but slow on a machine with many CPUs.

use super::key::Key;
use super::{Outcome, SelectError, Selection, Stop, Victim};
use super::{look, nobody, sum};
use crate::counter::Range;
use crate::oom::badness::POINTS_OF_ORIGIN;
use crate::oom::candidate::Candidates;
use crate::oom::scope::Scope;
use crate::oom::standing::Standing;

/// Chooses the candidate with the most points.
#[derive(Clone, Copy, Debug)]
pub struct Precise;

impl Precise {
    /// Selects the victim.
    ///
    /// # Errors
    /// This method returns no error. It has the same return type as the method of the other
    /// selectors.
    pub fn select<C: Candidates + ?Sized>(
        self,
        candidates: &C,
        scope: &Scope,
    ) -> Result<Selection, SelectError> {
        let mut precise_sums = 0;
        let outcome = sum_all(candidates, scope, &mut precise_sums).or_else(Stop::outcome)?;
        Ok(Selection {
            outcome,
            precise_sums,
            batches: 0,
        })
    }
}

fn sum_all<C: Candidates + ?Sized>(
    candidates: &C,
    scope: &Scope,
    precise_sums: &mut u64,
) -> Result<Outcome, Stop> {
    let mut most: Option<Key> = None;
    let len = candidates.len();
    for candidate in 0..len {
        let points = match look(candidates, scope, candidate)? {
            Standing::Exempt | Standing::Dying => continue,
            Standing::Origin => Some(POINTS_OF_ORIGIN),
            Standing::Counted(adj) => {
                *precise_sums += 1;
                sum(candidates, scope, candidate, adj)
            }
        };
        most = most.max(points.map(|points| Key::new(points, candidate)));
    }
    let victim = |Key { points, candidate }| Victim {
        candidate,
        points: Range::exactly(points),
        behind: 0,
    };
    Ok(most.map_or(nobody(len), |most| Outcome::Victim(victim(most))))
}
