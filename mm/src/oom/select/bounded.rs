//! Cheap looks first, then the fewest precise sums that can be known to be enough (ours).
//!
//! The first pass reads every range. The second sums the candidate that may have the most, until
//! one candidate surely has more than any other may have:
//!
//! ```text
//!              points →
//!   A        ├──────┤                        out: B alone is surely above
//!   B                   ├───────────┤        2nd: summed only if C does not settle it
//!   C                       ├────────────┤   1st: may have the most
//! ```
//!
//! **Correct.** At the end the victim's minimum, or its sum, is above the maximum of every other
//! candidate, as last read. Equal points are ordered by number, so this is exactly one candidate.
//!
//! **As few sums as possible.** Let `m` be the largest key and `w` its candidate. Any proof that
//! `w` has the most, even one that guesses right, has to sum every other candidate whose range
//! reaches above `m`: unsummed, it might have more. Here, the next candidate to be summed is the
//! one that may have the most of all that are left. If it is not `w`, it may have more than `w`
//! may, and that is `m` or more: it is one of those. So at most one sum, that of `w`, is not needed
//! by every proof: *sums ≤ least possible + 1*. No method that does not know the sums beforehand
//! can promise less: of two ranges that overlap, either may be the one whose sum settles it.
//!
//! **Batches.** Summing all `n` candidates together, CPU by CPU, costs as much as summing `n / g`
//! of them one by one, where `g` is [`Candidates::batch_gain`]. A batch of a few costs nearly as
//! much, because a batch is cheap only by reading memory sequentially. So this is a rent-or-buy
//! problem: single sums are the rent, and a batch of all that are left is the purchase, which ends
//! the search whatever it finds. A batch is bought only if more than `n / g` are left, and then as
//! soon as one of these holds:
//!
//! - At least 16 have been summed, and at their pace the rest would cost more than a batch: if `k`
//!   sums put `d` candidates out of the band, the summed ones included, then `l × k / d > n / g`
//!   for the `l` that are left. This is tested each time `k` has doubled. Where all look alike to a
//!   cheap look, each sum puts out only its own candidate, so `d = k` and a batch is bought at
//!   once.
//! - `n / 4g` have been summed (16 where that is less): whatever the pace, it was not over soon.
//!
//! So the whole costs at most `n / 4g + n / g` sums: with a gain of 6, little more than a fifth of
//! summing all one by one; and `16 + n / g` where all are alike. Before the batch there is at most
//! one sum too many. In the batch there may be many, if the very next sum would have settled it.
//! After 16 sums that did not, this cannot be known, and a wrong guess costs at most `n / g`.
//!
//! **Slots.** The band is kept in slots of 40 bytes that the caller supplies, because nothing can
//! be allocated when memory is out, and because a fixed number would be too few for some and too
//! many for most. One slot per candidate is always enough; so is one per candidate in the band.
//! With fewer the result is as correct: the slots keep the candidates that may have the most. If
//! these do not settle it, all candidates are looked at again, and those that may have more than
//! the best so far are summed, one window of all slots at a time. Each candidate is then summed at
//! most twice.
//!
//! **Change.** Each candidate is looked at again before it is summed, and the victim before it is
//! returned. If the candidate against which others were measured has exited or shrunk meanwhile,
//! the search begins again, at most three times in all. A candidate that grows is judged by its
//! last look.
//!
//! A sum is no snapshot: it reads one CPU after the other, and in a batch 10,000 candidates on
//! each, which takes milliseconds. Pages that are freed on a CPU already read and taken on one not
//! yet read count twice; the other way round they are missed. So a sum outside the range of the
//! candidate's last look is taken once more, and the second is believed; several such sums are
//! retaken together. A sum may be wrong by the width of its range and still lie inside: "correct"
//! above holds for candidates that do not change while they are summed, and for others up to that
//! width.

use core::cmp::Reverse;

use super::band::Band;
use super::key::Key;
use super::slot::Slot;
use super::{NoVictim, Outcome, SelectError, Selection, Stop, Victim};
use super::{look, nobody, read};
use crate::oom::badness::{self, POINTS_OF_ORIGIN};
use crate::oom::candidate::Candidates;
use crate::oom::facts::ScoreAdj;
use crate::oom::scope::Scope;
use crate::oom::standing::Standing;

/// The most rounds a selection takes. A second is due to a giant that exits while it is looked at.
const ROUNDS_MAX: u32 = 3;

/// Chooses the maximum, or, with a limited number of precise sums, a candidate that is near it.
#[derive(Clone, Copy, Debug)]
pub struct Bounded {
    budget: u64,
}

impl Default for Bounded {
    fn default() -> Self {
        Self::new()
    }
}

impl Bounded {
    /// Takes as many precise sums as needed.
    #[must_use]
    pub const fn new() -> Self {
        Self::with_budget(u64::MAX)
    }

    /// Takes at most `precise_sums`. If they are not enough, the victim is the candidate whose
    /// distance from the maximum has the smallest bound, and [`Victim::behind`] is that bound.
    #[must_use]
    pub const fn with_budget(precise_sums: u64) -> Self {
        Self {
            budget: precise_sums,
        }
    }

    /// Looks for the victim. One slot per candidate is always enough; with fewer the search may
    /// take longer.
    ///
    /// # Errors
    /// [`SelectError::NoSlot`] if there are candidates but no slots; [`SelectError::Reading`].
    pub fn select<C: Candidates + ?Sized>(
        self,
        candidates: &C,
        scope: &Scope,
        slots: &mut [Slot],
    ) -> Result<Selection, SelectError> {
        let len = candidates.len();
        if slots.is_empty() && len > 0 {
            return Err(SelectError::NoSlot);
        }
        let mut search = Search {
            rules: self,
            candidates,
            len,
            scope,
            band: Band::new(slots),
            best: None,
            precise_sums: 0,
            batches: 0,
            rent: Rent::default(),
        };
        let outcome = search.rounds().or_else(Stop::outcome)?;
        Ok(Selection {
            outcome,
            precise_sums: search.precise_sums,
            batches: search.batches,
        })
    }
}

/// This many sums are taken one by one before a batch is considered.
const SINGLES_MIN: u64 = 16;
/// A batch is bought, even if the search might be over soon, when 1/`PART` of its price has been
/// spent on single sums.
const PART: u64 = 4;

/// A selection under way.
struct Search<'a, C: ?Sized> {
    rules: Bounded,
    candidates: &'a C,
    len: u32,
    scope: &'a Scope,
    band: Band<'a>,
    /// The candidate with the largest exact points in this round, whether summed or read exactly.
    best: Option<Slot>,
    precise_sums: u64,
    batches: u64,
    rent: Rent,
}

/// The single sums of this round, as the rent in the header's rent-or-buy problem.
#[derive(Clone, Copy, Debug, Default)]
struct Rent {
    /// Number of precise sums when the round began.
    sums_before: u64,
    /// Number of candidates in the band when the round began.
    band: u64,
    /// The number of sums at which the search next tests whether a batch is cheaper.
    ask_at: u64,
}

/// The result of a round.
enum Round {
    /// Nothing more can be found out.
    Over(Outcome),
    /// A candidate changed meanwhile. This is the best one seen, if it still exists.
    Changed(Option<Victim>),
}

impl<C: Candidates + ?Sized> Search<'_, C> {
    fn rounds(&mut self) -> Result<Outcome, Stop> {
        let mut seen = None;
        for _ in 0..ROUNDS_MAX {
            match self.round()? {
                Round::Over(outcome) => return Ok(outcome),
                Round::Changed(victim) => seen = victim,
            }
        }
        Ok(seen.map_or(Outcome::Nobody(NoVictim::Unsettled), Outcome::Victim))
    }

    fn round(&mut self) -> Result<Round, Stop> {
        self.best = None;
        self.read_all()?;
        self.rent = Rent {
            sums_before: self.precise_sums,
            band: self.band.reaching(None) as u64,
            ask_at: SINGLES_MIN,
        };
        self.sum_best_first()?;
        let is_settled = self.nearest().is_some_and(|nearest| nearest.is_maximum());
        if self.band.is_short() && !is_settled && self.sums_left() > 0 {
            self.sum_in_windows()?;
        }
        self.answer()
    }

    /// First pass: finds the candidates in the band.
    fn read_all(&mut self) -> Result<(), Stop> {
        self.band.clear();
        for candidate in 0..self.len {
            if let Some(read) = read(self.candidates, self.scope, candidate)? {
                self.band
                    .offer(Slot::of(candidate, read.standing, read.range));
            }
        }
        self.band.drop_below_floor();
        Ok(())
    }

    /// Second pass: sums the candidates that may have the most, until one surely has or none is
    /// left.
    fn sum_best_first(&mut self) -> Result<(), Stop> {
        // This ends: each turn takes at least one candidate out of the band.
        while let Some((top, second)) = self.band.top() {
            let best = self.best.map(|slot| slot.low());
            let others = second.max(best).max(self.left_out(top.low()));
            let is_over = best > Some(top.high()) || Some(top.low()) > others;
            if is_over || self.sums_left() == 0 {
                break;
            }
            let batch = if self.is_batch_cheaper(best) {
                self.band.take_all(best)
            } else {
                self.band.take_first()
            };
            let left = self.rules.budget.saturating_sub(self.precise_sums);
            let summed = sum_batch(self.candidates, self.scope, batch, left)?;
            self.note(&summed);
        }
        Ok(())
    }

    /// Third pass, if slots were short: sums the candidates that may exceed the best so far, in
    /// order.
    #[cold]
    fn sum_in_windows(&mut self) -> Result<(), Stop> {
        let (first, window) = (self.best, self.band.window().len());
        let (mut used, mut unsummed) = (0, None);
        for candidate in 0..self.len {
            if first.is_some_and(|best| best.candidate() == candidate) {
                continue; // Its sum is known.
            }
            let Some(read) = read(self.candidates, self.scope, candidate)? else {
                continue;
            };
            let slot = Slot::of(candidate, read.standing, read.range);
            if self.best.is_some_and(|best| best.low() > slot.high()) {
                continue;
            }
            if used as u64 >= self.sums_left() {
                unsummed = unsummed.max(Some(slot.high()));
                continue;
            }
            self.band.window()[used] = slot;
            used += 1;
            if used == window {
                self.sum_window(used)?;
                used = 0;
            }
        }
        self.sum_window(used)?;
        if let Some(high) = unsummed {
            self.band.leave_out(high);
        }
        Ok(())
    }

    fn sum_window(&mut self, used: usize) -> Result<(), Stop> {
        let left = self.sums_left();
        let batch = &mut self.band.window()[..used];
        let summed = sum_batch(self.candidates, self.scope, batch, left)?;
        self.note(&summed);
        Ok(())
    }

    fn note(&mut self, summed: &Summed) {
        let Summed {
            best,
            count,
            batches,
        } = *summed;
        self.best = [self.best, best]
            .into_iter()
            .flatten()
            .max_by_key(Slot::low);
        self.precise_sums += count;
        self.batches += batches;
    }

    fn sums_left(&self) -> u64 {
        self.rules.budget.saturating_sub(self.precise_sums)
    }

    /// Returns whether to sum all that are left in the band together.
    fn is_batch_cheaper(&mut self, bar: Option<Key>) -> bool {
        let summed = self.precise_sums - self.rent.sums_before;
        if summed < self.rent.ask_at {
            return false;
        }
        let price = self.price_of_all();
        let latest = SINGLES_MIN.max(price / PART);
        // Counting the candidates that are left visits each of them, so do it half as often each
        // time.
        self.rent.ask_at = if summed < latest {
            latest.min(2 * summed)
        } else {
            u64::MAX
        };
        let left = self.band.reaching(bar) as u64;
        if left <= price || left > self.sums_left() {
            return false;
        }
        // So far each sum has put `gone / summed` candidates out of the band. At that pace `left ×
        // summed / gone` more sums are to come.
        let gone = self.rent.band.saturating_sub(left);
        let is_slow = left * summed > price * gone;
        is_slow || summed >= latest
    }

    /// The number of single sums that cost as much as summing all candidates together.
    fn price_of_all(&self) -> u64 {
        u64::from(self.len / self.candidates.batch_gain().max(1))
    }

    /// The candidate that is nearest to the maximum, as far as is known.
    fn nearest(&mut self) -> Option<Nearest> {
        let top = self.band.top();
        let best = self.best;
        let nearest = |slot: Slot| {
            let is_other = |other: &Slot| other.candidate() != slot.candidate();
            let best = best.filter(is_other).map(|best| best.low());
            let top = top.and_then(|(top, second)| {
                if is_other(&top) {
                    Some(top.high())
                } else {
                    second
                }
            });
            let others = best.max(top).max(self.left_out(slot.low()));
            Nearest { slot, others }
        };
        [best, top.map(|(top, _)| top), self.band.surest()]
            .into_iter()
            .flatten()
            .map(nearest)
            .min_by_key(|nearest| (nearest.behind(), Reverse(nearest.slot.low())))
    }

    /// The largest key of any candidate without a slot, if it matters to one whose minimum is
    /// `low`.
    fn left_out(&self, low: Key) -> Option<Key> {
        let below_floor = self.band.floor().filter(|floor| *floor > low);
        below_floor.max(self.band.rest())
    }

    fn answer(&mut self) -> Result<Round, Stop> {
        let Some(nearest) = self.nearest() else {
            // All candidates seen have exited since. Those below the floor need another look.
            return Ok(if self.band.floor().max(self.band.rest()).is_some() {
                Round::Changed(None)
            } else {
                Round::Over(nobody(self.len))
            });
        };
        let slot = nearest.slot;
        if look(self.candidates, self.scope, slot.candidate())? != slot.standing() {
            return Ok(Round::Changed(None));
        }
        let victim = Victim {
            candidate: slot.candidate(),
            points: slot.range(),
            behind: nearest.behind(),
        };
        Ok(if nearest.is_maximum() || self.sums_left() == 0 {
            Round::Over(Outcome::Victim(victim))
        } else {
            Round::Changed(Some(victim))
        })
    }
}

/// A candidate that may be the victim.
struct Nearest {
    slot: Slot,
    /// The largest key that any other candidate may have.
    others: Option<Key>,
}

impl Nearest {
    fn is_maximum(&self) -> bool {
        Some(self.slot.low()) > self.others
    }

    fn behind(&self) -> u64 {
        self.slot.low().behind(self.others)
    }
}

/// The result of summing some candidates.
struct Summed {
    best: Option<Slot>,
    count: u64,
    batches: u64,
}

/// Sums the candidates in `slots`, except those whose points are known exactly or that dropped out.
/// Sums that lie outside the range last read are taken once more, as far as `sums_left` allows.
fn sum_batch<C: Candidates + ?Sized>(
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

/// Sums the candidates in `slots`: a single one directly, several CPU by CPU.
fn take_sums<C: Candidates + ?Sized>(candidates: &C, slots: &mut [Slot]) {
    slots.sort_unstable_by_key(Slot::candidate);
    match slots {
        [] => {}
        [slot] => match candidates.precise(slot.candidate()) {
            Some(pages) => slot.add(pages),
            None => slot.exited(),
        },
        many => candidates.precise_many(many),
    }
}

/// The candidate's points by its sum, and the adjustment used; `None` if it has exited.
fn points_of(slot: &Slot, scope: &Scope) -> Option<(i64, ScoreAdj)> {
    let (pages, adj) = slot.summed()?;
    Some((badness::points(pages, adj, scope.total), adj))
}
