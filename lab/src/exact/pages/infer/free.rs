//! Frees and what follows them: pages to a list, and from lists to a zone.

use plimsoll_recording::event::What;

use super::super::lists::{ListId, MOVABLE, Place};
use super::super::op::{Action, Kind, Move};
use super::Walk;

impl Walk<'_> {
    /// A block is freed; one of a batch comes to its list later.
    pub(super) fn free(&mut self, index: usize, cpu: u32, (pfn, order): (u64, u8)) {
        let next = self.future.of_frame(index);
        let batched = next.is_some_and(
            |next| matches!(self.events[next].what, What::FreeBatched { pfn: it } if it == pfn),
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

    /// Whether a free in an interrupt finds the lists locked by what it interrupted. Those of a batch
    /// are, from its first block to its last, and those of a refill, until its allocation returns:
    /// but that may have unlocked them before.
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

    /// A freed block comes to its list, or to the zone.
    pub(super) fn commit(&mut self, index: usize, cpu: u32, (pfn, order): (u64, u8)) {
        let Some(zone) = self.zone(pfn) else { return };
        // If it is still on a list, it was handed out by nothing that is seen.
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

    /// The list a freed block comes to, told from what happens to it next; `None` for the zone.
    fn list_of_freed(&self, index: usize, (pfn, order): (u64, u8)) -> Option<ListId> {
        let by_block = || ListId::of(order, self.block_type(pfn));
        let Some(next) = self.future.of_frame(index) else {
            return by_block();
        };
        match self.events[next].what {
            What::Alloc {
                pfn: it,
                order: its,
                mobility,
                ..
            } if (it, its) == (pfn, order) => {
                mobility.map_or_else(by_block, |kind| ListId::of(order, kind))
            }
            // The type that it prints may be younger than the block's place on a list.
            What::PcpuDrain {
                pfn: it,
                order: its,
                ..
            } if (it, its) == (pfn, order) => by_block(),
            What::Free { .. } | What::FreeBatched { .. } => by_block(),
            _ => None,
        }
    }

    /// The blocks that the kernel gave back from lists of `cpu` because of event `index`: all that follow it, in the
    /// same thread, without anything else in between.
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

    /// Whether the block of event `at` was in its place already at event `index`: otherwise another CPU has
    /// freed it since, so that a drain of that CPU's lists gives it back.
    fn was_there(&self, index: usize, at: usize) -> bool {
        self.future.before(at).is_none_or(|before| before <= index)
    }

    /// Takes the block of one drain event off a list of `cpu`; `false` if it is no such event.
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
        let known = moves.iter().position(|it| it.zone == zone);
        let known = known.unwrap_or_else(|| {
            moves.push(Move::new(kind, zone));
            moves.len() - 1
        });
        moves[known].add(list);
        true
    }

    /// `pfn` is given back although it is not the coldest of its list: colder blocks of which nothing
    /// tells where they are never came to it.
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

    /// Blocks are given back, and the event before is no free: either an interrupt came between a free
    /// and its spill, or the lists of some CPU are emptied.
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
            // Linux empties the lists of one zone after the other, and they can be used meanwhile.
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

    /// The zone of a block that is given back.
    fn zone_of(&self, at: usize) -> Option<u8> {
        match self.events[at].what {
            What::PcpuDrain { pfn, .. } => self.zone(pfn),
            _ => None,
        }
    }

    /// Returns the CPU whose lists a run of drain events empties: the first frame whose list is known
    /// tells.
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

    /// The periodic work of a CPU: what its thread gives back until it ends.
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
