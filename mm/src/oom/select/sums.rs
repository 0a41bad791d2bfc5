//! Precise sums of the candidates in some slots, for [`Bounded`](super::Bounded).

use super::slot::Slot;
use super::{Stop, look};
use crate::oom::badness::{self, POINTS_OF_ORIGIN};
use crate::oom::candidate::Candidates;
use crate::oom::facts::ScoreAdj;
use crate::oom::scope::Scope;
use crate::oom::standing::Standing;
use crate::site::sort_comparisons;
use crate::units::count_of;

/// The best of the candidates that were summed, and the numbers of sums and batches taken.
pub(super) struct Summed {
    pub(super) best: Option<Slot>,
    pub(super) count: u64,
    pub(super) batches: u64,
}

/// Sums the candidates in `slots`, except those with exactly known points and those that may no
/// longer be chosen. If a sum is outside its candidate's range, takes it once more, as far as
/// `sums_left` allows.
pub(super) fn sum_batch<C: Candidates + ?Sized>(
    candidates: &C,
    scope: &Scope,
    slots: &mut [Slot],
    sums_left: u64,
) -> Result<Summed, Stop> {
    let mut best: Option<Slot> = None;
    let mut see = |slot: Slot| {
        if best.is_none_or(|best| slot.low() > best.low()) {
            best = Some(slot);
        }
    };
    let mut kept = 0;
    for at in 0..slots.len() {
        let (candidate, before) = (slots[at].candidate(), slots[at]);
        match look(candidates, scope, candidate)? {
            Standing::Exempt | Standing::Dying => {}
            Standing::Origin => see(Slot::exactly(candidate, Standing::Origin, POINTS_OF_ORIGIN)),
            standing if standing == before.standing() && before.is_exact() => see(before),
            Standing::Counted(adj) => {
                slots[kept] = before.to_sum(adj);
                kept += 1;
            }
        }
    }
    let slots = &mut slots[..kept];
    take_sums(candidates, slots);
    let mut doubtful = 0;
    for at in 0..kept {
        let slot = slots[at];
        let Some((points, adj)) = points_of(&slot, scope) else {
            continue;
        };
        let may_sum = ((kept + doubtful) as u64) < sums_left;
        if slot.range().contains(points) || !may_sum {
            see(Slot::exactly(slot.candidate(), slot.standing(), points));
        } else {
            slots[doubtful] = slot.to_sum(adj);
            doubtful += 1;
        }
    }
    let slots = &mut slots[..doubtful];
    take_sums(candidates, slots);
    for slot in &*slots {
        if let Some((points, _)) = points_of(slot, scope) {
            see(Slot::exactly(slot.candidate(), slot.standing(), points));
        }
    }
    let count = (kept + doubtful) as u64;
    let batches = u64::from(kept > 1) + u64::from(doubtful > 1);
    Ok(Summed {
        best,
        count,
        batches,
    })
}

/// Sums the candidates in `slots`. Sums a single candidate directly, and several of them together,
/// CPU by CPU.
fn take_sums<C: Candidates + ?Sized>(candidates: &C, slots: &mut [Slot]) {
    let in_order = slots.is_sorted_by_key(Slot::candidate);
    candidates.compared(sort_comparisons(count_of(slots.len()), in_order));
    if !in_order {
        slots.sort_unstable_by_key(Slot::candidate);
    }
    match slots {
        [] => {}
        [slot] => match candidates.precise(slot.candidate()) {
            Some(pages) => slot.add(pages),
            None => slot.exited(),
        },
        many => candidates.precise_many(many),
    }
}

/// Returns the points that a candidate's sum gives, and its adjustment; `None` if it has exited.
fn points_of(slot: &Slot, scope: &Scope) -> Option<(i64, ScoreAdj)> {
    let (pages, adj) = slot.summed()?;
    Some((badness::points(pages, adj, scope.total), adj))
}
