//! The candidates that may still have the most points, in slots the caller has supplied.
//!
//! A candidate is in the *band* if its points may be more than the *floor*, the most that some
//! candidate is known to have. Of all others it is only known that they have less than that; of those
//! for which there was no slot, that they have `rest` at most.
//!
//! ```text
//! slots: [ settled .. | sorted, largest maximum first .. | not sorted, all below those | unused ]
//!                     ^ next                             ^ sorted                      ^ used
//! ```

use core::cmp::Reverse;

use super::Read;
use super::key::Key;
use crate::counter::Range;
use crate::oom::candidate::ScoreAdj;
use crate::oom::scope::Standing;

/// How many are sorted first.
const SORTED_FIRST: usize = 32;

/// Room for one candidate while [`Bounded`](super::Bounded) looks for the victim.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    candidate: u32,
    standing: Standing,
    /// Its points, as last read.
    range: Range,
    /// While it is being summed: its pages so far.
    sum: i64,
    note: i64,
}

const _: () = assert!(size_of::<Slot>() == 40, "100,000 slots are 4 MB");

impl Slot {
    /// What unused slots may hold; a selection does not look at it.
    pub const EMPTY: Self = Self {
        candidate: 0,
        standing: Standing::Exempt,
        range: Range::exactly(0),
        sum: 0,
        note: 0,
    };

    /// The candidate to be summed.
    #[must_use]
    pub const fn candidate(&self) -> u32 {
        self.candidate
    }

    /// Adds `pages` to its sum, which begins at 0.
    pub const fn add(&mut self, pages: i64) {
        self.sum = self.sum.saturating_add(pages);
    }

    /// Remembers a number while the candidate is being summed, such as where its counters are.
    pub const fn set_note(&mut self, note: i64) {
        self.note = note;
    }

    /// What was remembered; 0 at first.
    #[must_use]
    pub const fn note(&self) -> i64 {
        self.note
    }

    /// The candidate has no memory any more: it exited.
    pub const fn exited(&mut self) {
        self.standing = Standing::Exempt;
    }

    /// As a cheap look shows it.
    pub(super) const fn of(candidate: u32, read: &Read) -> Self {
        Self {
            candidate,
            standing: read.standing,
            range: read.range,
            sum: 0,
            note: 0,
        }
    }

    /// With `points`, exactly.
    pub(super) const fn exactly(candidate: u32, standing: Standing, points: i64) -> Self {
        Self {
            candidate,
            standing,
            range: Range::exactly(points),
            sum: 0,
            note: 0,
        }
    }

    /// Ready to be summed with the adjustment `adj`. Its range stays, unless it was read with another.
    pub(super) fn to_sum(self, adj: ScoreAdj) -> Self {
        let standing = Standing::Counted(adj);
        let range = if self.standing == standing {
            self.range
        } else {
            Range {
                min: i64::MIN,
                max: i64::MAX,
            }
        };
        Self {
            standing,
            range,
            sum: 0,
            note: 0,
            ..self
        }
    }

    /// Its sum and adjustment; `None` if it exited.
    pub(super) const fn summed(&self) -> Option<(i64, ScoreAdj)> {
        match self.standing {
            Standing::Counted(adj) => Some((self.sum, adj)),
            _ => None,
        }
    }

    pub(super) const fn standing(&self) -> Standing {
        self.standing
    }

    pub(super) const fn range(&self) -> Range {
        self.range
    }

    pub(super) const fn is_exact(&self) -> bool {
        self.range.min == self.range.max
    }

    /// The least it can have.
    pub(super) const fn low(&self) -> Key {
        Key::new(self.range.min, self.candidate)
    }

    /// The most it can have.
    pub(super) const fn high(&self) -> Key {
        Key::new(self.range.max, self.candidate)
    }
}

/// Candidates in the caller's slots, those that may have the most first.
pub(super) struct Band<'a> {
    slots: &'a mut [Slot],
    next: usize,
    sorted: usize,
    used: usize,
    floor: Option<Key>,
    rest: Option<Key>,
    /// Some candidate was left out for want of a slot.
    is_short: bool,
}

impl<'a> Band<'a> {
    /// An empty band. If a candidate is to be offered, there must be a slot.
    pub(super) fn new(slots: &'a mut [Slot]) -> Self {
        Self {
            slots,
            next: 0,
            sorted: 0,
            used: 0,
            floor: None,
            rest: None,
            is_short: false,
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        (self.next, self.sorted, self.used) = (0, 0, 0);
        (self.floor, self.rest, self.is_short) = (None, None, false);
    }

    /// The most points that some candidate was seen to have at least; who is not here has less, unless
    /// [`Band::rest`] says otherwise.
    pub(super) fn floor(&self) -> Option<Key> {
        self.floor
    }

    /// The most points of any candidate that has no slot though it is in the band.
    pub(super) fn rest(&self) -> Option<Key> {
        self.rest
    }

    /// Whether some candidate was left out for want of a slot.
    pub(super) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Counts `high` among those that have no slot though they are in the band.
    pub(super) fn leave_out(&mut self, high: Key) {
        self.rest = self.rest.max(Some(high));
    }

    /// Puts a candidate in, if it is in the band. Before anything was taken out.
    #[inline]
    pub(super) fn offer(&mut self, slot: Slot) {
        if Some(slot.high()) >= self.floor {
            self.offer_slow(slot);
        }
    }

    fn offer_slow(&mut self, slot: Slot) {
        debug_assert!(self.next == 0 && self.sorted == 0, "the first pass is over");
        self.floor = self.floor.max(Some(slot.low()));
        // Those left out for want of a slot have at most `rest`: who is kept may have more than any.
        let is_out = Some(slot.high()) < self.rest;
        if is_out || (self.used == self.slots.len() && !self.make_room(slot.high())) {
            return self.leave_out(slot.high());
        }
        self.slots[self.used] = slot;
        self.used += 1;
    }

    /// Forgets whoever is below the floor by now.
    pub(super) fn drop_below_floor(&mut self) {
        self.used = self.retain_from(0, self.floor);
    }

    /// Frees half of the slots at least, so each costs a constant number of steps; a single one
    /// only for a candidate that may have more. Whether `high` may have more than all left out.
    #[cold]
    fn make_room(&mut self, high: Key) -> bool {
        self.drop_below_floor();
        let keep = self.slots.len() / 2;
        if self.used > keep {
            self.is_short = true;
            let used = &mut self.slots[..self.used];
            used.select_nth_unstable_by_key(keep, |slot| Reverse(slot.high()));
            // Keys differ: all from here on are below those before it, and this is their largest.
            let out = used[keep].high();
            if keep == 0 && high < out {
                return false;
            }
            self.leave_out(out);
            self.used = keep;
        }
        Some(high) > self.rest
    }

    /// The candidate that may have the most, and the most that any of the others here may have.
    pub(super) fn top(&mut self) -> Option<(Slot, Option<Key>)> {
        if self.next == self.used {
            return None;
        }
        self.sort(2);
        let second = (self.next + 1 < self.used).then(|| self.slots[self.next + 1].high());
        Some((self.slots[self.next], second))
    }

    /// Of those still here the one that surely has the most.
    pub(super) fn surest(&self) -> Option<Slot> {
        let left = &self.slots[self.next..self.used];
        left.iter().copied().max_by_key(Slot::low)
    }

    /// How many of those still here may have more than `bar`.
    pub(super) fn reaching(&self, bar: Option<Key>) -> usize {
        let left = &self.slots[self.next..self.used];
        left.iter().filter(|slot| Some(slot.high()) > bar).count()
    }

    /// Takes out the first candidate, in a slice of one. There must be one.
    pub(super) fn take_first(&mut self) -> &mut [Slot] {
        self.sort(1);
        self.next += 1;
        &mut self.slots[self.next - 1..self.next]
    }

    /// Takes out all candidates that may have more than `bar`; forgets the others.
    pub(super) fn take_all(&mut self, bar: Option<Key>) -> &mut [Slot] {
        let first = self.next;
        let end = self.retain_from(first, bar);
        (self.next, self.sorted, self.used) = (end, end, end);
        &mut self.slots[first..end]
    }

    /// Keeps, from slot `first` on, whoever is not below `bar`; where they end.
    fn retain_from(&mut self, first: usize, bar: Option<Key>) -> usize {
        let mut kept = first;
        for at in first..self.used {
            if Some(self.slots[at].high()) >= bar {
                self.slots[kept] = self.slots[at];
                kept += 1;
            }
        }
        kept
    }

    /// Sorts so far that the next `wanted` are in order. What is sorted at least doubles each time,
    /// so that all sorting is little more than if everything were sorted once.
    fn sort(&mut self, wanted: usize) {
        if self.next + wanted <= self.sorted || self.sorted == self.used {
            return;
        }
        let end = (self.next + wanted).max(2 * self.sorted).max(SORTED_FIRST);
        let rest = &mut self.slots[self.sorted..self.used];
        let count = (end - self.sorted).min(rest.len());
        if count < rest.len() {
            rest.select_nth_unstable_by_key(count, |slot| Reverse(slot.high()));
        }
        rest[..count].sort_unstable_by_key(|slot| Reverse(slot.high()));
        self.sorted += count;
    }

    /// All slots, for passes that need no order.
    pub(super) fn window(&mut self) -> &mut [Slot] {
        self.clear();
        self.slots
    }
}
