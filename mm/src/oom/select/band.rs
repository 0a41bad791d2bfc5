//! The candidates that may still have the most points, in slots that the caller supplies.
//!
//! A candidate is in the *band* if it may have more points than the *floor*. Each candidate seen
//! has a minimum of points, and the floor is the largest of these minimums. A candidate outside the
//! band is known only to have fewer points than the floor. If candidates of the band got no slot,
//! `rest` is the largest maximum of any of them.
//!
//! ```text
//! slots: [ settled .. | sorted, largest maximum first .. | not sorted, all below those | unused ]
//!                     ^ next                             ^ sorted                      ^ used
//! ```

use core::cmp::Reverse;
use core::mem;

use super::key::Key;
use super::slot::Slot;
use crate::site::sort_comparisons;
use crate::units::count_of;

/// The number of slots (memory for one candidate each) that the first sort puts in order.
const SORTED_FIRST: usize = 32;

/// The candidates in the caller's slots, each of which has room for one candidate. The candidates
/// that may have the most points come first.
pub(super) struct Band<'a> {
    slots: &'a mut [Slot],
    next: usize,
    sorted: usize,
    used: usize,
    floor: Option<Key>,
    rest: Option<Key>,
    /// True if some candidate that may have the most points got no slot, because the slots were
    /// full.
    is_short: bool,
    /// The number of comparisons made to sort candidates since the last call of
    /// [`Band::take_comparisons`].
    comparisons: u32,
}

impl<'a> Band<'a> {
    /// Makes a band without candidates. There must be at least one slot before a candidate is
    /// offered.
    pub(super) fn new(slots: &'a mut [Slot]) -> Self {
        Self {
            slots,
            next: 0,
            sorted: 0,
            used: 0,
            floor: None,
            rest: None,
            is_short: false,
            comparisons: 0,
        }
    }

    /// Drops all candidates, and all that is known about candidates without a slot (`floor` and
    /// `rest`).
    pub(super) fn clear(&mut self) {
        (self.next, self.sorted, self.used) = (0, 0, 0);
        (self.floor, self.rest, self.is_short) = (None, None, false);
    }

    /// Returns the floor. Each candidate seen has a smallest possible key (points, then index),
    /// and the floor is the largest of these. The key of a candidate without a slot is smaller than
    /// the floor, or is at most the key that [`Band::rest`] returns.
    pub(super) fn floor(&self) -> Option<Key> {
        self.floor
    }

    /// Returns the largest possible key (points, then index) of the candidates that are in the
    /// band but got no slot. The band has the candidates that may have the most points.
    pub(super) fn rest(&self) -> Option<Key> {
        self.rest
    }

    /// Returns whether some candidate that may have the most points got no slot.
    pub(super) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Records that a candidate that may have the most points got no slot. The candidate's key
    /// (points, then index) is at most `high`.
    pub(super) fn leave_out(&mut self, high: Key) {
        self.rest = self.rest.max(Some(high));
    }

    /// Adds a candidate if it is in the band, that is, if it may have the most points. This method
    /// must not be called after a candidate was taken out.
    #[inline]
    pub(super) fn offer(&mut self, slot: Slot) {
        if Some(slot.high()) >= self.floor {
            self.offer_slow(slot);
        }
    }

    fn offer_slow(&mut self, slot: Slot) {
        debug_assert!(self.next == 0 && self.sorted == 0, "the first pass is over");
        self.floor = self.floor.max(Some(slot.low()));
        // The keys of candidates that got no slot are at most `rest`. A candidate gets a slot only
        // if its key may be larger than all of those.
        let is_out = Some(slot.high()) < self.rest;
        if is_out || (self.used == self.slots.len() && !self.make_room(slot.high())) {
            return self.leave_out(slot.high());
        }
        self.slots[self.used] = slot;
        self.used += 1;
    }

    /// Drops the candidates that are below the current floor (the largest of all smallest possible
    /// keys), because another candidate surely has a larger key.
    pub(super) fn drop_below_floor(&mut self) {
        self.used = self.retain_from(0, self.floor);
    }

    /// Makes room for a candidate whose largest possible key (points, then index) is `high`, and
    /// returns whether this candidate gets a slot. The candidate gets none if another candidate
    /// without a slot may have a larger key than `high`.
    ///
    /// Frees at least half of the slots, so that offers take constant time on average. If there is
    /// only one slot, frees it only if the key of the candidate in it cannot be larger than `high`;
    /// otherwise returns false.
    #[cold]
    fn make_room(&mut self, high: Key) -> bool {
        self.drop_below_floor();
        let keep = self.slots.len() / 2;
        if self.used > keep {
            self.is_short = true;
            let used = &mut self.slots[..self.used];
            used.select_nth_unstable_by_key(keep, |slot| Reverse(slot.high()));
            // All keys are distinct. So the slots from `keep` on have smaller keys than those
            // before, and slot `keep` has the largest of these smaller keys.
            let out = used[keep].high();
            if keep == 0 && high < out {
                return false;
            }
            self.leave_out(out);
            self.used = keep;
        }
        Some(high) > self.rest
    }

    /// Returns the slot of the candidate that may have the most points, and the largest key
    /// (points, then number) that a candidate in any other slot may have.
    pub(super) fn top(&mut self) -> Option<(Slot, Option<Key>)> {
        if self.next == self.used {
            return None;
        }
        self.sort(2);
        let second = (self.next + 1 < self.used).then(|| self.slots[self.next + 1].high());
        Some((self.slots[self.next], second))
    }

    /// Of the candidates still in the slots, returns the one with the largest lower bound of its
    /// key (points, then index).
    pub(super) fn surest(&self) -> Option<Slot> {
        let left = &self.slots[self.next..self.used];
        left.iter().copied().max_by_key(Slot::low)
    }

    /// Returns the number of candidates whose key (points, then index) may be larger than `bar`.
    /// Counts only the candidates that are still in the slots.
    pub(super) fn reaching(&self, bar: Option<Key>) -> usize {
        let left = &self.slots[self.next..self.used];
        left.iter().filter(|slot| Some(slot.high()) > bar).count()
    }

    /// Takes out the candidate that may have the most points, and returns its slot as a slice of
    /// one element. The band must not be empty.
    pub(super) fn take_first(&mut self) -> &mut [Slot] {
        self.sort(1);
        self.next += 1;
        &mut self.slots[self.next - 1..self.next]
    }

    /// Takes out all candidates whose key (points, then index) may be larger than `bar`, and drops
    /// the others.
    pub(super) fn take_all(&mut self, bar: Option<Key>) -> &mut [Slot] {
        let first = self.next;
        let end = self.retain_from(first, bar);
        (self.next, self.sorted, self.used) = (end, end, end);
        &mut self.slots[first..end]
    }

    /// Keeps those candidates from slot `first` on whose key (points, then index) may reach `bar`.
    /// Returns the end of the kept slots.
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

    /// Sorts until the next `wanted` candidates are in order. The sorted part at least doubles each
    /// time, so all calls together cost little more than sorting all candidates once.
    fn sort(&mut self, wanted: usize) {
        if self.next + wanted <= self.sorted || self.sorted == self.used {
            return;
        }
        let end = (self.next + wanted).max(2 * self.sorted).max(SORTED_FIRST);
        let rest = &mut self.slots[self.sorted..self.used];
        let count = (end - self.sorted).min(rest.len());
        let all = count_of(rest.len());
        self.comparisons = self
            .comparisons
            .saturating_add(sort_comparisons(count_of(count), false));
        if count < rest.len() {
            // `select_nth_unstable_by_key` looks at each slot about twice.
            self.comparisons = self.comparisons.saturating_add(all.saturating_mul(2));
            rest.select_nth_unstable_by_key(count, |slot| Reverse(slot.high()));
        }
        rest[..count].sort_unstable_by_key(|slot| Reverse(slot.high()));
        self.sorted += count;
    }

    /// Returns the number of comparisons made to sort candidates since the last call.
    pub(super) fn take_comparisons(&mut self) -> u32 {
        mem::take(&mut self.comparisons)
    }

    /// Drops all candidates, and returns all slots, for a pass that does not sort the slots.
    pub(super) fn window(&mut self) -> &mut [Slot] {
        self.clear();
        self.slots
    }
}
