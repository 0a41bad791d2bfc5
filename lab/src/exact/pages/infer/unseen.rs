//! Pages that left a list, or came to one, without an event.

use plimsoll_recording::event::What;

use super::super::lists::{Place, UNMOVABLE};
use super::super::op::{Action, Move};
use super::{BLOCK_SHIFT, GUESSES, Walk};

impl Walk<'_> {
    /// A frame is handed out without having come to a list. It was there before the recording, unless its list
    /// has been seen empty or an earlier event touches the frame: then nothing tells how it came (`None`), and the lists
    /// that are derived from events never had it.
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

    /// If a frame is still on a list although an event shows it elsewhere, it was taken from there unseen.
    pub(super) fn take_elsewhere(&mut self, index: usize, pfn: u64) {
        if let Some(place) = self.lists.place(pfn) {
            self.take_unseen(index, place, vec![pfn], Vec::new());
        }
    }

    /// When a frame is handed out, the frames above it on its list were taken before it, unless an event shows
    /// them handed out or given back later.
    pub(super) fn take_above(&mut self, index: usize, place: Place, pfn: u64) {
        let above = self.lists.above(place, Some(pfn));
        let unseen: Vec<u64> = above
            .into_iter()
            .filter(|&it| self.is_taken_unseen(it))
            .collect();
        let unseen = self.without_misplaced(place, unseen);
        self.take_unseen(index, place, unseen, Vec::new());
    }

    /// Bulk allocations are of unmovable pages. A page of another type that left its list unseen, and
    /// never shows again, did not come to it.
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

    /// Whether a refill brought a listed frame, so that its list is certain.
    pub(super) fn came_by_refill(&self, pfn: u64) -> bool {
        let came = self.came.get(&pfn).map(|&came| &self.events[came].what);
        matches!(came, Some(What::ZoneLocked { .. } | What::ExtFrag { .. }))
    }

    /// A listed block is not where it was taken to be.
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

    /// Whether the type of the page block around a frame is a guess that another can replace.
    pub(super) fn is_guessed(&self, pfn: u64) -> bool {
        let block = pfn >> BLOCK_SHIFT;
        let ruled_out = self.doubts.ruled_out.get(&block).copied().unwrap_or(0);
        !self.blocks.contains_key(&block) && ruled_out + 1 < GUESSES.len()
    }

    /// Emits a bulk allocation of `pfns`.
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

    /// Whether a listed frame leaves its list without an event: the next one that touches it frees
    /// it, or there is none.
    pub(super) fn is_taken_unseen(&self, pfn: u64) -> bool {
        self.next_of(pfn)
            .is_none_or(|next| matches!(self.events[next].what, What::Free { .. }))
    }

    /// The next event that touches a listed frame.
    pub(super) fn next_of(&self, pfn: u64) -> Option<usize> {
        match self.came.get(&pfn) {
            Some(&came) => self.future.of_frame(came),
            None => self.future.first(pfn),
        }
    }
}
