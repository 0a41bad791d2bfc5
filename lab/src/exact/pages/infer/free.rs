//! Derives operations from events that free a block, and from events that return blocks from lists
//! to a zone.

use plimsoll_recording::event::What;

use super::super::lists::{ListId, MOVABLE, Place};
use super::super::op::{Action, Kind, Move};
use super::Walk;

impl Walk<'_> {
    /// Handles the free of a block. If the block belongs to a batch of frees, the kernel puts the
    /// block on its list only at the block's later `mm_page_free_batched` event. So for such a
    /// block, this method only notes the batch.
    pub(super) fn free(&mut self, index: usize, cpu: u32, (pfn, order): (u64, u8)) {
        let next = self.future.of_frame(index);
        let batched = next.is_some_and(
            |next| matches!(self.events[next].what, What::FreeBatched { pfn: freed } if freed == pfn),
        );
        if batched {
            self.batched.insert(pfn, order);
            let batch = self.batches.entry(cpu).or_default();
            if batch.locked.take().is_some() {
                batch.left = 0;
            }
            batch.left += 1;
        } else {
            self.commit(index, cpu, (pfn, order));
        }
    }

    /// Returns whether a free runs in an interrupt that found the lists of its CPU locked.
    ///
    /// Two operations can hold the lock of a zone's lists when an interrupt frees a block:
    ///
    /// - A batch of frees holds the lock from the zone's first block to its last. A block of the
    ///   zone that an interrupt frees during this time bypasses the lists.
    /// - An allocation that refills also holds the lock, but can release it before its event is
    ///   printed. So a block that is freed between the refill and that event may still have been
    ///   put on a list. The replay assumes that the block bypassed the lists only if no later event
    ///   shows it on a list.
    ///
    /// A block also counts as having bypassed the lists if an earlier pass over the events has
    /// found that the block was on no list.
    fn finds_lists_locked(&self, index: usize, cpu: u32, pfn: u64) -> bool {
        if matches!(self.events[index].what, What::FreeBatched { .. }) {
            return self.doubts.misplaced.contains(&index);
        }
        let zone = self.zone(pfn);
        let in_batch = self.batches.get(&cpu).and_then(|batch| batch.locked);
        let refilling = self.refilling.get(&cpu).filter(|(_, until)| index < *until);
        let unclear = || {
            let next = self.future.of_frame(index);
            next.is_none_or(|next| matches!(self.events[next].what, What::Free { .. }))
        };
        self.doubts.misplaced.contains(&index)
            || (in_batch.is_some() && in_batch == zone)
            || (refilling.is_some_and(|(of, _)| Some(*of) == zone) && unclear())
    }

    /// Puts a freed block on its list or, if it bypasses the lists, in its zone.
    pub(super) fn commit(&mut self, index: usize, cpu: u32, (pfn, order): (u64, u8)) {
        let Some(zone) = self.zone(pfn) else { return };
        // If the block still seems to be on a list, an earlier allocation without an event took the
        // block from the list.
        self.take_elsewhere(index, pfn);
        let list = self.list_of_freed(index, (pfn, order));
        let Some(list) = list.filter(|_| !self.finds_lists_locked(index, cpu, pfn)) else {
            self.tally.direct_frees += 1;
            self.push_op(
                index,
                cpu,
                Action::FreeDirect { zone, order, pfn },
                Vec::new(),
            );
            return;
        };
        self.lists.push(Place { cpu, zone, list }, pfn);
        self.came.insert(pfn, index);
        let moves = self.given_back(index, cpu, Kind::Spill);
        let pid = self.events[index].pid;
        self.freeing.insert(cpu, (self.ops.len(), pid));
        self.push_op(index, cpu, Action::Free { zone, list, pfn }, moves);
    }

    /// The list on which the kernel puts a freed block, derived from the next event of the block's
    /// first frame. `None` if the block returns to the zone.
    fn list_of_freed(&self, index: usize, (pfn, order): (u64, u8)) -> Option<ListId> {
        let by_block = || ListId::of(order, self.block_type(pfn));
        let Some(next) = self.future.of_frame(index) else {
            return by_block();
        };
        match self.events[next].what {
            What::Alloc {
                pfn: next_pfn,
                order: next_order,
                mobility,
                ..
            } if (next_pfn, next_order) == (pfn, order) => {
                mobility.map_or_else(by_block, |kind| ListId::of(order, kind))
            }
            // The drain's event prints the type that the page block has at the time of the drain.
            // The kernel may have chosen the list by an earlier type of the page block.
            What::PcpuDrain {
                pfn: next_pfn,
                order: next_order,
                ..
            } if (next_pfn, next_order) == (pfn, order) => by_block(),
            What::Free { .. } | What::FreeBatched { .. } => by_block(),
            _ => None,
        }
    }

    /// Removes from the lists of `cpu` the blocks that the kernel returned to zones because of
    /// event `index`, and returns these blocks as moves of `kind`. The blocks are named by the
    /// drain events that directly follow event `index` on the same CPU and in the same thread.
    pub(super) fn given_back(&mut self, index: usize, cpu: u32, kind: Kind) -> Vec<Move> {
        let mut moves = Vec::new();
        let pid = self.events[index].pid;
        let mut next = self.future.of_cpu(index);
        while let Some(at) = next {
            let goes_on = self.events[at].pid == pid && self.was_there(index, at);
            if self.done[at] || !goes_on || !self.give_back(at, cpu, kind, &mut moves) {
                break;
            }
            next = self.future.of_cpu(at);
        }
        moves
    }

    /// Returns whether the block of event `at` was already on its list at event `index`. If it was
    /// not, another CPU has freed the block between the two events, and event `at` belongs to a
    /// drain of that CPU's lists.
    fn was_there(&self, index: usize, at: usize) -> bool {
        self.future.before(at).is_none_or(|before| before <= index)
    }

    /// Removes the block of drain event `at` from a list of `cpu` and adds it to `moves`. Returns
    /// `false` if `at` is not a drain event, or if the block is on a list of another CPU.
    pub(super) fn give_back(
        &mut self,
        at: usize,
        cpu: u32,
        kind: Kind,
        moves: &mut Vec<Move>,
    ) -> bool {
        let What::PcpuDrain {
            pfn,
            order,
            mobility,
        } = self.events[at].what
        else {
            return false;
        };
        let found = self.lists.place(pfn);
        if found.is_some_and(|place| place.cpu != cpu) {
            return false;
        }
        self.done[at] = true;
        let Some(zone) = self.zone(pfn) else {
            return true;
        };
        self.tally.drained += 1;
        let list = match found {
            Some(place) => {
                self.pass_over(place, pfn);
                self.tally.drained_elsewhere += u64::from(!self.lists.is_coldest(pfn));
                self.lists.remove(pfn);
                self.came.remove(&pfn);
                place.list
            }
            None => {
                let Some(list) = ListId::of(order, mobility.unwrap_or(MOVABLE)) else {
                    return true;
                };
                let place = Place { cpu, zone, list };
                if self.future.before(at).is_none() {
                    self.given_back.entry(place).or_default().push(pfn);
                }
                list
            }
        };
        let known = moves.iter().position(|transfer| transfer.zone == zone);
        let known = known.unwrap_or_else(|| {
            moves.push(Move::new(kind, zone));
            moves.len() - 1
        });
        moves[known].add(list);
        true
    }

    /// Corrects the list `place` when the kernel returns `pfn` to the zone although colder blocks
    /// seem to be on the list. The kernel returns the coldest block (the one that has been listed
    /// longest) first. So the colder blocks are not on the list. If no event shows that such a
    /// block left the list, it was never on the list.
    fn pass_over(&mut self, place: Place, pfn: u64) {
        if self.lists.is_coldest(pfn) {
            return;
        }
        for colder in self.lists.below(place, pfn) {
            if self.is_taken_unseen(colder) {
                self.rule_out(colder);
            }
        }
    }

    /// Handles successive drain events (`mm_page_pcpu_drain`) that do not directly follow a free in
    /// the same thread. There are two possible causes. Either an interrupt came between a free and
    /// the spill (return of pages to the zone) that the free caused, or CPU `actor` drains its own
    /// lists or the lists of another CPU.
    pub(super) fn drain(&mut self, index: usize, actor: u32) {
        let owner = self.owner(index).unwrap_or(actor);
        let freeing = self.freeing.get(&actor).copied();
        let interrupted =
            freeing.filter(|(_, pid)| owner == actor && *pid == self.events[index].pid);
        let kind = if interrupted.is_some() {
            Kind::Spill
        } else {
            Kind::Drain
        };
        let mut moves = Vec::new();
        let zone = self.zone_of(index);
        let mut next = Some(index);
        while let Some(at) = next {
            // Linux drains one zone after another, and the CPU can use its lists in between. So the
            // drain of each zone is a separate operation.
            let goes_on = self.was_there(index, at) && self.zone_of(at) == zone;
            if self.done[at] || !goes_on || !self.give_back(at, owner, kind, &mut moves) {
                break;
            }
            next = self.future.of_cpu(at);
        }
        match (interrupted, zone) {
            (Some((op, _)), _) => self.ops[op].moves.extend(moves),
            (None, Some(zone)) => {
                let action = Action::Drain { zone, by: actor };
                self.push_op(index, owner, action, moves);
            }
            (None, None) => {}
        }
    }

    /// The zone to which the drain event with the index `at` returns a block.
    fn zone_of(&self, at: usize) -> Option<u8> {
        match self.events[at].what {
            What::PcpuDrain { pfn, .. } => self.zone(pfn),
            _ => None,
        }
    }

    /// Returns the CPU whose lists are emptied by the successive drain events that start at
    /// `index`. This function goes through the events until the block of an event is on a derived
    /// list, and returns the CPU of that list.
    fn owner(&self, index: usize) -> Option<u32> {
        let mut next = Some(index);
        while let Some(at) = next {
            let What::PcpuDrain { pfn, .. } = self.events[at].what else {
                return None;
            };
            if let Some(place) = self.lists.place(pfn) {
                return Some(place.cpu);
            }
            next = self.future.of_cpu(at);
        }
        None
    }

    /// Handles the periodic work of a CPU. Until the work ends, its thread returns blocks to zones.
    /// These blocks are recorded as one move, a decay.
    pub(super) fn refresh(&mut self, index: usize, cpu: u32) {
        let pid = self.events[index].pid;
        let mut moves = Vec::new();
        let mut next = self.future.of_cpu(index);
        while let Some(at) = next {
            let event = &self.events[at];
            match event.what {
                What::WorkEnd { .. } | What::WorkStart { .. } if event.pid == pid => break,
                What::PcpuDrain { .. } if event.pid == pid => {
                    self.give_back(at, cpu, Kind::Decay, &mut moves);
                }
                _ => {}
            }
            next = self.future.of_cpu(at);
        }
        self.push_op(index, cpu, Action::Refresh, moves);
    }
}
