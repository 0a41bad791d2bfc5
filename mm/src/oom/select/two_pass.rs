//! The patch proposed for Linux: chooses a victim in two passes over approximate sums, with at most
//! 16 precise sums.
//!
//! This is the development version of the patch. We could not obtain the code of the versions that
//! were posted in January 2026 (v15 and v16). Their descriptions have the same structure, but they
//! may use other bounds.
//!
//! The first pass chooses the largest estimate. The second pass looks at all candidates again, and
//! skips those that cannot be above the chosen one. It sums the others precisely, until no more
//! sums are allowed. A summed candidate replaces the chosen one unless its sum shows that it is
//! below the chosen one.
//!
//! Two weaknesses of the patch are kept, for comparison:
//!
//! * When no more sums are allowed, a candidate that *may* be above the chosen one replaces it,
//!   even if it is probably below. The next candidate is compared with the new choice. So with
//!   every replacement, the next candidate needs fewer points to be chosen. Among a few hundred
//!   similar candidates the choice is practically random.
//! * The patch decides whether a candidate may be above the chosen one by the candidate's `over`,
//!   the bound on how much its estimate may be too large. The patch should use `under`, the bound
//!   on how much the estimate may be too small. This makes no difference if both the candidate and
//!   the chosen one have estimates of similar counters. If the chosen one was summed, the test is
//!   too strict.
//!
//! One weakness of the patch is not kept. The patch has two placeholders where points are expected:
//! one for a process that has to be killed first (Linux: `oom_task_origin`), and one that means
//! that no candidate is chosen yet. The patch computes with both as if they were points. Here the
//! placeholders enter no arithmetic. If the first pass finds no candidate, there is no second pass.

use super::key::{Highest, Key};
use super::{Outcome, Read, SelectError, Selection, Stop, Victim};
use super::{nobody, read, sum};
use crate::counter::Range;
use crate::oom::candidate::Candidates;
use crate::oom::scope::Scope;
use crate::oom::standing::Standing;

/// Chooses the candidate with the most points, but can be wrong if many candidates have nearly as
/// many.
#[derive(Clone, Copy, Debug)]
pub struct TwoPass {
    /// The maximum number of precise sums of candidates' pages that one selection takes.
    pub sums_max: u64,
}

/// The candidate chosen so far, which a later candidate may replace.
#[derive(Clone, Copy, Debug)]
struct Chosen {
    key: Key,
    standing: Standing,
    /// The number of points by which the candidate's estimate may be too small; 0 if the
    /// candidate's pages were summed precisely.
    under: u64,
    range: Range,
}

impl TwoPass {
    /// The patch proposed for Linux, which takes at most 16 precise sums.
    pub const PATCH: Self = Self { sums_max: 16 };

    /// Selects the victim. [`Victim::behind`] is computed from the ranges of all candidates'
    /// points; the Linux patch has no such value.
    ///
    /// If either pass finds an earlier victim that is still dying, the selection ends. A candidate
    /// that is chosen in the first pass and exits before the second remains chosen, as in Linux,
    /// where the selection holds a reference to that process.
    ///
    /// # Errors
    /// [`SelectError::Reading`] if the approximate sum of a candidate is outside its own range, or
    /// this range ends before it begins.
    pub fn select<C: Candidates + ?Sized>(
        self,
        candidates: &C,
        scope: &Scope,
    ) -> Result<Selection, SelectError> {
        let mut precise_sums = 0;
        let outcome = self.passes(candidates, scope, &mut precise_sums);
        Ok(Selection {
            outcome: outcome.or_else(Stop::outcome)?,
            precise_sums,
            batches: 0,
        })
    }

    fn passes<C: Candidates + ?Sized>(
        self,
        candidates: &C,
        scope: &Scope,
        sums: &mut u64,
    ) -> Result<Outcome, Stop> {
        let len = candidates.len();
        let Some(mut chosen) = estimate_all(candidates, scope, len)? else {
            return Ok(nobody(len));
        };
        let mut highest = Highest::default();
        for candidate in 0..len {
            let Some(mut read) = read(candidates, scope, candidate)? else {
                continue;
            };
            if let Standing::Counted(adj) = read.standing
                && may_replace(&read, &chosen)
                && *sums < self.sums_max
            {
                *sums += 1;
                let Some(points) = sum(candidates, scope, candidate, adj) else {
                    continue;
                };
                read.estimate = points;
                read.range = Range::exactly(points);
            }
            highest.see(Key::new(read.range.max, candidate));
            if may_replace(&read, &chosen) {
                chosen = Chosen::new(candidate, &read);
            }
        }
        let candidate = chosen.key.candidate;
        Ok(Outcome::Victim(Victim {
            candidate,
            points: chosen.range,
            behind: Key::new(chosen.range.min, candidate).behind(highest.except(candidate)),
        }))
    }
}

impl Chosen {
    fn new(candidate: u32, read: &Read) -> Self {
        Self {
            key: Key::new(read.estimate, candidate),
            standing: read.standing,
            under: read.range.max.abs_diff(read.estimate),
            range: read.range,
        }
    }
}

fn estimate_all<C: Candidates + ?Sized>(
    candidates: &C,
    scope: &Scope,
    len: u32,
) -> Result<Option<Chosen>, Stop> {
    let mut chosen: Option<Chosen> = None;
    for candidate in 0..len {
        let Some(read) = read(candidates, scope, candidate)? else {
            continue;
        };
        let now = Chosen::new(candidate, &read);
        if chosen.is_none_or(|chosen| now.key > chosen.key) {
            chosen = Some(now);
        }
    }
    Ok(chosen)
}

/// Returns whether a candidate may have at least as many points as the chosen one. Computes this as
/// the Linux patch does.
fn may_replace(read: &Read, chosen: &Chosen) -> bool {
    match (read.standing, chosen.standing) {
        (Standing::Origin, _) => true,
        (_, Standing::Origin) => false,
        _ => {
            let over = read.estimate.abs_diff(read.range.min);
            let most = i128::from(read.estimate) + i128::from(over) + i128::from(chosen.under);
            most >= i128::from(chosen.key.points)
        }
    }
}
