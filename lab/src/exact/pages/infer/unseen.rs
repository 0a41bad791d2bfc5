//! Finds blocks that the kernel took from a page list, or put on one, although no event shows it.

use plimsoll_recording::event::What;

use super::super::lists::{Place, UNMOVABLE};
use super::super::op::{Action, Move};
use super::{BLOCK_SHIFT, GUESSES, Walk};

impl Walk<'_> {
    /// Handles a frame that is allocated from the list `place` although no event put it there. The
    /// frame was on this list before the recording, unless events have shown the list to be empty
    /// or have touched the frame. In these two cases, no event explains how the frame came to the
    /// list. The function then returns `None`, and puts the frame on none of the replay's lists.
    pub(super) fn appeared(&mut self, index: usize, pfn: u64, place: Place) -> Option<Place> {
        self.take_elsewhere(index, pfn);
        if self.emptied.contains(&place) || self.future.before(index).is_some() {
            self.tally.unexplained += 1;
            return None;
        }
        self.handed_out.entry(place).or_default().push(pfn);
        self.lists.push_cold(place, pfn);
        Some(place)
    }

    /// If a frame still seems to be on a list although an event shows the frame elsewhere, records
    /// that the frame was taken from the list without an event.
    pub(super) fn take_elsewhere(&mut self, index: usize, pfn: u64) {
        if let Some(place) = self.lists.place(pfn) {
            self.take_unseen(index, place, vec![pfn], Vec::new());
        }
    }

    /// Records that the frames above `pfn` on its list have already been allocated, although no
    /// event shows it. Leaves out frames that are allocated or returned to the zone by a later
    /// event.
    pub(super) fn take_above(&mut self, index: usize, place: Place, pfn: u64) {
        let above = self.lists.above(place, Some(pfn));
        let unseen: Vec<u64> = above
            .into_iter()
            .filter(|&pfn| self.is_taken_unseen(pfn))
            .collect();
        let unseen = self.without_misplaced(place, unseen);
        self.take_unseen(index, place, unseen, Vec::new());
    }

    /// Keeps the frames of `unseen` that have possibly left the list `place` without an event, and
    /// rules out the others. A frame is kept if a refill put it on `place`, or if a later event
    /// touches it. A frame is also kept if `place` is a list of unmovable pages and the type of the
    /// frame's page block is certain, because a bulk allocation may have taken the frame. (Bulk
    /// allocations take unmovable pages, and have no event.)
    pub(super) fn without_misplaced(&mut self, place: Place, mut unseen: Vec<u64>) -> Vec<u64> {
        let unmovable = place.list.mobility() == UNMOVABLE;
        unseen.retain(|&pfn| {
            let bulk = unmovable && !self.is_guessed(pfn);
            let keep = bulk || self.next_of(pfn).is_some() || self.came_by_refill(pfn);
            if !keep {
                self.rule_out(pfn);
            }
            keep
        });
        unseen
    }

    /// Returns whether a refill put a frame on its list. A refill shows for certain on which list
    /// the frame is.
    pub(super) fn came_by_refill(&self, pfn: u64) -> bool {
        let came = self.came.get(&pfn).map(|&came| &self.events[came].what);
        matches!(came, Some(What::ZoneLocked { .. } | What::ExtFrag { .. }))
    }

    /// Removes a block from a list on which it was wrongly assumed to be, and records the error. So
    /// the next pass over the events does not put the block on this list.
    pub(super) fn rule_out(&mut self, pfn: u64) {
        self.lists.remove(pfn);
        let Some(came) = self.came.remove(&pfn) else {
            return;
        };
        if self.is_guessed(pfn) {
            self.new_doubts.insert(pfn >> BLOCK_SHIFT);
        } else {
            self.doubts.misplaced.insert(came);
        }
    }

    /// Returns whether the migrate type of the frame's page block is only a guess, and at least one
    /// other type has not been ruled out.
    pub(super) fn is_guessed(&self, pfn: u64) -> bool {
        let block = pfn >> BLOCK_SHIFT;
        let ruled_out = self.doubts.ruled_out.get(&block).copied().unwrap_or(0);
        !self.blocks.contains_key(&block) && ruled_out + 1 < GUESSES.len()
    }

    /// Removes the frames `pfns` from their list. Records that a bulk allocation has taken them,
    /// which no event shows.
    pub(super) fn take_unseen(
        &mut self,
        index: usize,
        place: Place,
        pfns: Vec<u64>,
        moves: Vec<Move>,
    ) {
        if pfns.is_empty() && moves.is_empty() {
            return;
        }
        self.tally.bulk_inferred += pfns.len() as u64;
        for pfn in &pfns {
            self.lists.remove(*pfn);
            self.came.remove(pfn);
        }
        let action = Action::Bulk {
            zone: place.zone,
            list: place.list,
            pfns,
        };
        self.push_op(index, place.cpu, action, moves);
    }

    /// Returns whether a frame leaves its list without an event. This is so if no later event
    /// touches the frame, or if the next event that touches the frame is a free.
    pub(super) fn is_taken_unseen(&self, pfn: u64) -> bool {
        self.next_of(pfn)
            .is_none_or(|next| matches!(self.events[next].what, What::Free { .. }))
    }

    /// The index of the next event that touches the frame `pfn`, after the event that put the frame
    /// on its list.
    pub(super) fn next_of(&self, pfn: u64) -> Option<usize> {
        match self.came.get(&pfn) {
            Some(&came) => self.future.of_frame(came),
            None => self.future.first(pfn),
        }
    }
}
