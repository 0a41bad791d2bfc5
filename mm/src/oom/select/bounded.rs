//! Plimsoll's way to choose a victim: it reads approximate sums of the candidates' pages first, and
//! then takes as few precise sums as a proof of the result needs.
//!
//! The first pass reads, for every candidate, the range that contains its points. The second pass
//! sums one candidate after another, always the one that may have the most points. It ends when one
//! candidate surely has more points than any other candidate may have:
//!
//! ```text
//!              points →
//!   A        ├──────┤                        out: B alone is surely above
//!   B                   ├───────────┤        2nd: summed only if C does not settle it
//!   C                       ├────────────┤   1st: may have the most
//! ```
//!
//! **Correct.** At the end the victim's minimum, or its sum, is above the maximum of every other
//! candidate, as last read. Equal points are ordered by number, so exactly one candidate is chosen.
//!
//! **As few sums as possible.** Let `m` be the largest key (points, then index), and `w` its
//! candidate. Any proof that `w` has the most points has to sum every other candidate whose range
//! reaches above `m`. Without its sum, that candidate might have more points than `w`. This
//! selector always sums the candidate that may have the most points. If that candidate is not `w`,
//! its range reaches above the range of `w`, and hence above `m`. So every proof has to sum that
//! candidate too, and only the sum of `w` may be unnecessary: *sums ≤ least possible + 1*. No
//! method that does not know the sums beforehand can promise fewer sums: if two ranges overlap,
//! either candidate may be the one whose sum decides.
//!
//! **Batches.** Summing all `n` candidates together, CPU by CPU, costs as much as summing `n / g`
//! of them one by one, where `g` is [`Candidates::batch_gain`]. A batch of a few candidates costs
//! nearly as much as a batch of all, because a batch is cheap only by reading memory sequentially.
//! So this is a rent-or-buy problem: single sums are the rent. The purchase is a batch of all
//! candidates that are left, which ends the search with any result. A batch is bought only if more
//! than `n / g` candidates are left, as soon as one of these conditions holds:
//!
//! - At least 16 candidates have been summed, and at that pace the rest would cost more than a
//!   batch. Suppose that `k` sums put `d` candidates out of the band, the summed ones included, and
//!   `l` are left. Then the condition is `l × k / d > n / g`. The search tests this each time `k`
//!   has doubled. If approximate sums cannot tell candidates apart, each precise sum puts only its
//!   own candidate out of the band. In that case `d = k`, and a batch is bought at once.
//! - At any pace, `n / 4g` candidates (or 16, if that is more) have been summed.
//!
//! So a whole search costs at most `n / 4g + n / g` single sums. With `g = 6`, that is little more
//! than a fifth of the cost of summing all candidates one by one. If approximate sums cannot tell
//! candidates apart, the search costs `16 + n / g`. Before the batch, at most one sum is
//! unnecessary. In the batch, many sums may be unnecessary: the next single sum might have ended
//! the search. The search cannot know that, and a wrong guess costs at most `n / g`.
//!
//! **Slots.** The band is kept in slots of 40 bytes that the caller supplies. Nothing can be
//! allocated when memory has run out, and a fixed number of slots would be too few for some callers
//! and too many for most. One slot per candidate is always enough. With fewer slots the result is
//! equally correct: the slots keep the candidates that may have the most points. If these
//! candidates do not decide the search, a third pass reads all candidates again. It collects the
//! candidates that may have more points than the best candidate so far. It sums the collected
//! candidates each time all slots are full, and at the end. With this pass, each candidate is
//! summed at most twice.
//!
//! **Change.** The search checks each candidate again before summing it, and the victim before
//! returning it. If the candidate that others were compared with has exited or shrunk by then, the
//! search starts again, for at most three rounds in all. A candidate that grows is judged by the
//! last look at it.
//!
//! A sum is not a snapshot: it reads one CPU after the other. With a batch of 10,000 candidates,
//! this takes milliseconds. If a page is freed on a CPU already read, and allocated on a CPU not
//! yet read, the page counts twice; in the opposite case it is missed. So a sum outside the range
//! that was last read is taken once more, and the second sum is used. Several such sums are taken
//! again together. A sum inside its range may still be wrong by the width of the range. So the
//! claim "Correct" above holds exactly for candidates that do not change while they are summed. For
//! other candidates, it holds up to that width.

use core::cmp::Reverse;

use super::band::Band;
use super::key::Key;
use super::slot::Slot;
use super::sums::{Summed, sum_batch};
use super::{NoVictim, Outcome, SelectError, Selection, Stop, Victim};
use super::{look, nobody, read};
use crate::oom::candidate::Candidates;
use crate::oom::scope::Scope;

/// The largest number of rounds of a search. If the candidate with the most points exits during a
/// round, another round follows.
const ROUNDS_MAX: u32 = 3;

/// Chooses the candidate with the most points. If the number of precise sums is limited, chooses a
/// candidate whose points are near the maximum.
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
    /// Makes a selector that sums the pages of as many candidates precisely as needed.
    #[must_use]
    pub const fn new() -> Self {
        Self::with_budget(u64::MAX)
    }

    /// Makes a selector that sums the pages of at most `precise_sums` candidates precisely. If
    /// these sums do not decide, the selector computes for each candidate by how many points
    /// another candidate may exceed it. The victim is the candidate for which this bound is
    /// smallest. [`Victim::behind`] is the victim's bound.
    #[must_use]
    pub const fn with_budget(precise_sums: u64) -> Self {
        Self {
            budget: precise_sums,
        }
    }

    /// Selects the victim. One slot per candidate is always enough; with fewer slots the search may
    /// take longer.
    ///
    /// # Errors
    /// [`SelectError::NoSlot`] if there are candidates but no slots. [`SelectError::Reading`] if
    /// the approximate sum of a candidate is outside its own range, or this range ends before it
    /// begins.
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

/// The number of candidates whose pages are summed one by one before the search considers a batch,
/// that is, summing all other candidates together.
const SINGLES_MIN: u64 = 16;
/// If summing candidates one by one has cost 1/`PART` of what a batch costs, all remaining
/// candidates are summed together in a batch. This is so even if the search might end soon.
const PART: u64 = 4;

/// The state of a selection that is in progress.
struct Search<'a, C: ?Sized> {
    rules: Bounded,
    candidates: &'a C,
    len: u32,
    scope: &'a Scope,
    band: Band<'a>,
    /// The candidate with the most points, among the candidates whose exact points this round
    /// knows. The points of a candidate are exact if its pages were summed, or if its approximate
    /// sum was exact.
    best: Option<Slot>,
    precise_sums: u64,
    batches: u64,
    rent: Rent,
}

/// The numbers by which a round of the selection chooses between further sums of single candidates
/// and one batch, which sums the pages of all remaining candidates. In the rent-or-buy problem of
/// the file's header, the single sums are the rent.
#[derive(Clone, Copy, Debug, Default)]
struct Rent {
    /// The number of candidates whose pages had been summed precisely before the round began.
    sums_before: u64,
    /// The number of candidates in the band (those that may have the most points) when the round
    /// began.
    band: u64,
    /// When the search has taken this number of sums, it checks again whether to sum all remaining
    /// candidates in one batch.
    ask_at: u64,
}

/// The result of one round of the search.
enum Round {
    /// The outcome is final; another round could not improve it.
    Over(Outcome),
    /// A candidate changed during the round. Holds the best victim found, if that victim still
    /// exists.
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

    /// First pass: reads the ranges of all candidates, and keeps those that may have the most
    /// points.
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

    /// Second pass: sums the pages of the candidates that may have the most points, one by one,
    /// until one candidate surely has the most points or no candidate is left.
    fn sum_best_first(&mut self) -> Result<(), Stop> {
        // The loop ends: each turn takes at least one candidate out of the band (the set of
        // candidates that may have the most points).
        while let Some((top, second)) = self.band.top() {
            self.candidates.compared(self.band.take_comparisons());
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

    /// Third pass, if there were too few slots for all candidates that may have the most points:
    /// sums the pages of candidates that may have more points than the best candidate so far, in
    /// the order of their numbers.
    #[cold]
    fn sum_in_windows(&mut self) -> Result<(), Stop> {
        let (first, window) = (self.best, self.band.window().len());
        let (mut used, mut unsummed) = (0, None);
        for candidate in 0..self.len {
            if first.is_some_and(|best| best.candidate() == candidate) {
                continue; // The candidate's sum is known already.
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

    /// Returns whether the search should now sum, in one batch, the pages of all candidates that
    /// may have the most points.
    fn is_batch_cheaper(&mut self, bar: Option<Key>) -> bool {
        let summed = self.precise_sums - self.rent.sums_before;
        if summed < self.rent.ask_at {
            return false;
        }
        let price = self.price_of_all();
        let latest = SINGLES_MIN.max(price / PART);
        // `reaching` visits all candidates that are left. So it is called only after 16, 32, 64 and
        // so on sums, and for the last time after `latest` sums.
        self.rent.ask_at = if summed < latest {
            latest.min(2 * summed)
        } else {
            u64::MAX
        };
        let left = self.band.reaching(bar) as u64;
        if left <= price || left > self.sums_left() {
            return false;
        }
        // So far each sum has shown that `gone / summed` candidates do not have the most points. At
        // that pace, `left × summed / gone` more sums will be needed.
        let gone = self.rent.band.saturating_sub(left);
        let is_slow = left * summed > price * gone;
        is_slow || summed >= latest
    }

    /// The number of candidates that can be summed one by one in the time in which one batch sums
    /// all candidates.
    fn price_of_all(&self) -> u64 {
        u64::from(self.len / self.candidates.batch_gain().max(1))
    }

    /// Returns the candidate with the smallest bound on the points by which another candidate may
    /// exceed it.
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

    /// Returns the largest key (points, then index) that any candidate without a slot may have.
    /// The floor is the largest of all smallest possible keys. If the floor is at most `low`, this
    /// method ignores candidates below the floor, because their keys are smaller than `low`.
    fn left_out(&self, low: Key) -> Option<Key> {
        let below_floor = self.band.floor().filter(|floor| *floor > low);
        below_floor.max(self.band.rest())
    }

    fn answer(&mut self) -> Result<Round, Stop> {
        let Some(nearest) = self.nearest() else {
            // None of the candidates that were kept in slots can be chosen any more, for instance
            // because all of them have exited. So the candidates without a slot must be read again.
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

/// A candidate that may become the victim because its points are close to the maximum.
struct Nearest {
    slot: Slot,
    /// The largest key (points, then index) that any other candidate may have.
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
