//! Sums the pages of several candidates precisely, all at once, for [`Bounded`](super::Bounded).

use super::slot::Slot;
use super::{Stop, look};
use crate::oom::badness::{self, POINTS_OF_ORIGIN};
use crate::oom::candidate::Candidates;
use crate::oom::facts::ScoreAdj;
use crate::oom::scope::Scope;
use crate::oom::standing::Standing;
use crate::site::sort_comparisons;
use crate::units::count_of;

/// The result of taking several precise sums: the candidate with the most points, the number of
/// sums, and the number of batches. A batch sums several candidates together.
pub(super) struct Summed {
    pub(super) best: Option<Slot>,
    pub(super) count: u64,
    pub(super) batches: u64,
}

/// Sums the pages of the candidates in `slots`. Skips candidates whose points are known exactly,
/// and candidates that must no longer be killed. If a candidate's points are outside the range of
/// its cheap reading, sums its pages once more, provided that this takes no more than `sums_left`
/// sums in all.
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

/// Sums the pages of the candidates in `slots`. Sums a single candidate alone, and several
/// candidates together, CPU by CPU.
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

/// Returns the candidate's points, computed from the precise sum of its pages, and its
/// `oom_score_adj`; `None` if the candidate has exited.
fn points_of(slot: &Slot, scope: &Scope) -> Option<(i64, ScoreAdj)> {
    let (pages, adj) = slot.summed()?;
    Some((badness::points(pages, adj, scope.total), adj))
}
