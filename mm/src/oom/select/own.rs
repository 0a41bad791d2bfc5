//! Selectors that the embedder writes.

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
///                 Standing::Origin | Standing::Counted(_) => {
///                     let Some(pages) = candidates.precise(candidate) else { continue };
///                     let points = Range::exactly(pages);
///                     outcome = Outcome::Victim(Victim { candidate, points, behind: 0 });
///                     break;
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
    /// candidate will free its memory soon. The selector may use `slots`, whose contents are of no
    /// value to it.
    ///
    /// # Errors
    /// [`SelectError`]; the allocation then fails, and no process is killed.
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

/// Runs `selector` and checks its choice, because code of the embedder may choose wrongly.
///
/// # Errors
/// Those of the selector; also [`SelectError::NoSuchCandidate`] and [`SelectError::Exempt`].
pub(in crate::oom) fn select_by(
    selector: &dyn Selector,
    candidates: &dyn Candidates,
    scope: &Scope,
    slots: &mut [Slot],
) -> Result<Selection, SelectError> {
    let selection = selector.select(candidates, scope, slots)?;
    let Outcome::Victim(victim) = selection.outcome else {
        return Ok(selection);
    };
    let candidate = victim.candidate;
    if candidate >= candidates.len() {
        return Err(SelectError::NoSuchCandidate { candidate });
    }
    let facts = candidates.facts(candidate);
    match facts.map(|facts| Standing::of(candidates, scope, &facts)) {
        Some(Standing::Exempt) => Err(SelectError::Exempt { candidate }),
        Some(Standing::Dying) => Ok(Selection {
            outcome: Outcome::Nobody(NoVictim::Aborted { dying: candidate }),
            ..selection
        }),
        // If the candidate has exited, the caller finds that out when it kills, and tries the
        // allocation again.
        Some(Standing::Origin | Standing::Counted(_)) | None => Ok(selection),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::{Range, Reading};
    use crate::oom::{Facts, Kind, TotalPages, Victim};

    /// Three processes: one that may be killed, a kernel thread, and one that has exited.
    struct Three;

    impl Candidates for Three {
        fn len(&self) -> u32 {
            3
        }

        fn facts(&self, candidate: u32) -> Option<Facts> {
            let kind = [Kind::Process, Kind::KernelThread]
                .into_iter()
                .nth(candidate as usize)?;
            Some(Facts {
                kind,
                ..Facts::PROCESS
            })
        }

        fn approximate(&self, _: u32) -> Option<Reading> {
            None
        }

        fn precise(&self, _: u32) -> Option<i64> {
            None
        }
    }

    struct Always(u32);

    impl Selector for Always {
        fn name(&self) -> &'static str {
            "always"
        }

        fn select(
            &self,
            _: &dyn Candidates,
            _: &Scope,
            _: &mut [Slot],
        ) -> Result<Selection, SelectError> {
            let (candidate, points) = (self.0, Range::exactly(1));
            let outcome = Outcome::Victim(Victim {
                candidate,
                points,
                behind: 0,
            });
            Ok(Selection {
                outcome,
                precise_sums: 0,
                batches: 0,
            })
        }
    }

    #[test]
    fn a_wrong_choice_is_an_error_and_kills_nobody() {
        let scope = Scope::machine(TotalPages::new(1 << 20).expect("enough"));
        let by = |selector: &dyn Selector| select_by(selector, &Three, &scope, &mut []);
        assert!(by(&Always(0)).is_ok(), "it may be killed");
        assert!(
            by(&Always(2)).is_ok(),
            "it has exited, so its memory is free soon"
        );
        let candidate = 1;
        assert_eq!(by(&Always(1)), Err(SelectError::Exempt { candidate }));
        let candidate = 3;
        assert_eq!(
            by(&Always(3)),
            Err(SelectError::NoSuchCandidate { candidate })
        );
        assert_eq!(Selector::name(&Selecting::Bounded), "select-bounded");
    }
}
