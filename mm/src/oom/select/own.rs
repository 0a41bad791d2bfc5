//! The interface for an embedder that chooses victims by a rule of its own.

use super::super::candidate::Candidates;
use super::super::scope::Scope;
use super::super::standing::Standing;
use super::{NoVictim, Outcome, SelectError, Selecting, Selection, Slot};

/// A rule for choosing the victim, which replaces the variant of the design
/// ([`OutOfMemory::selecting_by`](crate::oom::OutOfMemory::selecting_by)). Linux has this choice
/// only in user space (`oomd`, `lmkd`).
///
/// The selector runs while memory is out, under the OOM lock, and so on one CPU at a time. It must
/// not wait, and must ask neither the page allocator nor the global allocator for memory.
///
/// ```
/// use plimsoll_mm::counter::Range;
/// use plimsoll_mm::oom::{
///     Candidates, NoVictim, Outcome, Scope, SelectError, Selection, Selector, Slot, Standing, Victim,
/// };
///
/// /// Chooses the youngest process that may be killed, whatever its memory.
/// struct Youngest;
///
/// impl Selector for Youngest {
///     fn name(&self) -> &'static str {
///         "youngest"
///     }
///
///     fn select(
///         &self,
///         candidates: &dyn Candidates,
///         scope: &Scope,
///         _slots: &mut [Slot],
///     ) -> Result<Selection, SelectError> {
///         let mut outcome = Outcome::Nobody(NoVictim::NoneKillable);
///         for candidate in (0..candidates.len()).rev() {
///             let Some(facts) = candidates.facts(candidate) else { continue };
///             match Standing::of(candidates, scope, &facts) {
///                 Standing::Exempt => {}
///                 Standing::Dying => {
///                     outcome = Outcome::Nobody(NoVictim::Aborted { dying: candidate });
///                     break;
///                 }
///                 // An older process may be dying, so the loop does not end here.
///                 _ if matches!(outcome, Outcome::Victim(_)) => {}
///                 Standing::Origin | Standing::Counted(_) => {
///                     let Some(pages) = candidates.precise(candidate) else { continue };
///                     let points = Range::exactly(pages);
///                     outcome = Outcome::Victim(Victim { candidate, points, behind: 0 });
///                 }
///             }
///         }
///         Ok(Selection { outcome, precise_sums: 1, batches: 0 })
///     }
/// }
/// ```
pub trait Selector: Send + Sync {
    /// The selector's name, for reports.
    fn name(&self) -> &'static str;

    /// Chooses one of `candidates`, or nobody. Before it chooses a candidate, the selector asks
    /// [`Standing::of`], which says whether the candidate may be killed. If it finds a candidate
    /// that is [dying](Standing::Dying), it should return [`NoVictim::Aborted`], because that
    /// candidate will free its memory soon. The selector may overwrite `slots`, whose contents have
    /// no meaning when it is called.
    ///
    /// The selector is called again, at most three times more, if the candidate that it chose has
    /// exited since. It must not return [`NoVictim::Unsettled`] for ever: the allocation pauses and
    /// tries again each time.
    ///
    /// # Errors
    /// [`SelectError`] if the selector fails. In that case, the allocation fails, no process is
    /// killed, and [`Owner::report`](crate::oom::Owner::report) gets the error.
    fn select(
        &self,
        candidates: &dyn Candidates,
        scope: &Scope,
        slots: &mut [Slot],
    ) -> Result<Selection, SelectError>;
}

impl Selector for Selecting {
    fn name(&self) -> &'static str {
        (*self).name()
    }

    fn select(
        &self,
        candidates: &dyn Candidates,
        scope: &Scope,
        slots: &mut [Slot],
    ) -> Result<Selection, SelectError> {
        (*self).select(candidates, scope, slots)
    }
}

/// The largest number of times that a selector is asked for one decision.
const TRIES: usize = 4;

/// Runs `selector` and checks its choice, because code of the embedder may choose wrongly.
///
/// A choice may also be wrong because the candidate has exited since the selector looked at it. So
/// the selector is asked again. It is at fault only if it then chooses the same candidate once
/// more. If it chooses [`TRIES`] different candidates in vain, the outcome is
/// [`NoVictim::Unsettled`].
///
/// # Errors
/// The errors of the selector, and [`SelectError::NoSuchCandidate`], [`SelectError::Exempt`] and
/// [`SelectError::NotDying`] if its choice is wrong.
pub(in crate::oom) fn select_by(
    selector: &dyn Selector,
    candidates: &dyn Candidates,
    scope: &Scope,
    slots: &mut [Slot],
) -> Result<Selection, SelectError> {
    let mut refused = [None; TRIES];
    let (mut precise_sums, mut batches) = (0, 0);
    let mut outcome = Outcome::Nobody(NoVictim::Unsettled);
    for nth in 0..TRIES {
        let selection = selector.select(candidates, scope, slots)?;
        precise_sums += selection.precise_sums;
        batches += selection.batches;
        match checked(candidates, scope, selection.outcome) {
            Ok(stands) => {
                outcome = stands;
                break;
            }
            Err(SelectError::Exempt { candidate } | SelectError::NotDying { candidate })
                if !refused.contains(&Some(candidate)) =>
            {
                refused[nth] = Some(candidate);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Selection {
        outcome,
        precise_sums,
        batches,
    })
}

/// Looks again at the candidate that a selector's outcome names. Returns the outcome that is valid
/// after this look, or an error if the candidate does not fit the selector's outcome.
fn checked(
    candidates: &dyn Candidates,
    scope: &Scope,
    outcome: Outcome,
) -> Result<Outcome, SelectError> {
    let (candidate, is_victim) = match outcome {
        Outcome::Victim(victim) => (victim.candidate, true),
        Outcome::Nobody(NoVictim::Aborted { dying }) => (dying, false),
        Outcome::Nobody(_) => return Ok(outcome),
    };
    if candidate >= candidates.len() {
        return Err(SelectError::NoSuchCandidate { candidate });
    }
    let Some(facts) = candidates.facts(candidate) else {
        // The candidate has exited, so its memory is free soon. The caller finds that out when it
        // kills, or when it tries the allocation again.
        return Ok(outcome);
    };
    match Standing::of(candidates, scope, &facts) {
        Standing::Dying => Ok(Outcome::Nobody(NoVictim::Aborted { dying: candidate })),
        Standing::Exempt if is_victim => Err(SelectError::Exempt { candidate }),
        Standing::Origin | Standing::Counted(_) if is_victim => Ok(outcome),
        Standing::Exempt | Standing::Origin | Standing::Counted(_) => {
            Err(SelectError::NotDying { candidate })
        }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU32;
    use core::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::counter::{Range, Reading};
    use crate::oom::{Facts, Kind, Memory, TotalPages, Victim};

    /// The number of the process that is dying.
    const DYING: u32 = 2;
    /// The first of the processes that no longer have memory.
    const GONE: u32 = 3;

    /// Candidates of a test: a process that may be killed, a kernel thread, a process that is
    /// dying, and five that have no memory any more.
    struct Eight;

    impl Candidates for Eight {
        fn len(&self) -> u32 {
            8
        }

        fn facts(&self, candidate: u32) -> Option<Facts> {
            let of = |kind, memory| Facts {
                kind,
                memory,
                is_victim: candidate == DYING,
                ..Facts::PROCESS
            };
            Some(match candidate {
                0 | DYING => of(Kind::Process, Memory::Own),
                1 => of(Kind::KernelThread, Memory::Own),
                _ => of(Kind::Process, Memory::Gone),
            })
        }

        fn approximate(&self, _: u32) -> Option<Reading> {
            None
        }

        fn precise(&self, _: u32) -> Option<i64> {
            None
        }
    }

    fn victim(candidate: u32) -> Outcome {
        Outcome::Victim(Victim {
            candidate,
            points: Range::exactly(1),
            behind: 0,
        })
    }

    fn aborted(dying: u32) -> Outcome {
        Outcome::Nobody(NoVictim::Aborted { dying })
    }

    /// A selector that returns these outcomes one after the other, and then the last outcome again
    /// and again.
    struct Says<'o>(&'o [Outcome], AtomicU32);

    impl Selector for Says<'_> {
        fn name(&self) -> &'static str {
            "says"
        }

        fn select(
            &self,
            _: &dyn Candidates,
            _: &Scope,
            _: &mut [Slot],
        ) -> Result<Selection, SelectError> {
            let turn = self.1.fetch_add(1, Relaxed) as usize;
            Ok(Selection {
                outcome: self.0[turn.min(self.0.len() - 1)],
                precise_sums: 1,
                batches: 0,
            })
        }
    }

    /// Runs a selector that returns `outcomes` one after the other. Returns the outcome that
    /// [`select_by`] accepts, and how often it asked the selector.
    fn by(outcomes: &[Outcome]) -> (Result<Outcome, SelectError>, u32) {
        let scope = Scope::machine(TotalPages::new(1 << 20).expect("enough"));
        let selector = Says(outcomes, AtomicU32::new(0));
        let selection = select_by(&selector, &Eight, &scope, &mut []);
        let asked = selector.1.into_inner();
        if let Ok(selection) = selection {
            assert_eq!(selection.precise_sums, u64::from(asked));
        }
        (selection.map(|selection| selection.outcome), asked)
    }

    #[test]
    fn a_wrong_choice_is_an_error_and_kills_nobody() {
        assert_eq!(by(&[victim(0)]), (Ok(victim(0)), 1));
        let candidate = 1;
        assert_eq!(
            by(&[victim(1)]),
            (Err(SelectError::Exempt { candidate }), 2)
        );
        for outcome in [victim(8), aborted(8)] {
            let candidate = 8;
            let error = SelectError::NoSuchCandidate { candidate };
            assert_eq!(by(&[outcome]), (Err(error), 1));
        }
        assert_eq!(Selector::name(&Selecting::Bounded), "select-bounded");
    }

    #[test]
    fn a_victim_that_exits_meanwhile_is_no_fault_of_the_selector() {
        assert_eq!(by(&[victim(GONE), victim(0)]), (Ok(victim(0)), 2));
        let all = [GONE, GONE + 1, GONE + 2, GONE + 3].map(victim);
        let unsettled = Outcome::Nobody(NoVictim::Unsettled);
        assert_eq!(by(&all), (Ok(unsettled), 4));
        let again = [GONE, GONE + 1, GONE].map(victim);
        let error = SelectError::Exempt { candidate: GONE };
        assert_eq!(by(&again), (Err(error), 3));
    }

    #[test]
    fn a_dying_candidate_is_waited_for_only_if_it_is_dying() {
        assert_eq!(by(&[victim(DYING)]), (Ok(aborted(DYING)), 1));
        assert_eq!(by(&[aborted(DYING)]), (Ok(aborted(DYING)), 1));
        assert_eq!(by(&[aborted(GONE), victim(0)]), (Ok(victim(0)), 2));
        for candidate in [0, GONE] {
            let error = SelectError::NotDying { candidate };
            assert_eq!(by(&[aborted(candidate)]), (Err(error), 2));
        }
    }
}
