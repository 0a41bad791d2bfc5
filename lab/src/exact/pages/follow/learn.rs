//! Derives parts of the kernel's state from a difference between Plimsoll's move and the kernel's
//! move. These parts are the lengths of lists, `high` and `alloc_factor`, which a recording does
//! not show at each moment. The replay learns nothing from an identical move. A spill returns pages
//! to the zone because the lists have reached `high`. If the replay has used a spill of the kernel
//! to correct the assumed lengths of the lists, an identical spill of Plimsoll proves nothing and
//! is not compared.

use plimsoll_mm::page::ListState;

use super::super::lists::{LISTS, ListId};
use super::super::op::{Action, Kind, Move, Op};
use super::super::pair::Pair;
use super::{Follow, Learnt, SCALE_MAX};

impl Follow {
    /// Learns from the difference between the kernel's move and Plimsoll's move in `pair`. The size
    /// of a refill by the kernel shows either the kernel's `alloc_factor`, or by how many pages the
    /// kernel's lists were below `high`. A spill (return of pages to the zone) by the kernel shows
    /// that its lists had `high` pages. `ops` are all operations of the recording.
    pub(in super::super) fn learn(&mut self, pair: &Pair, state: &ListState, ops: &[Op]) -> Learnt {
        match pair.kind {
            Kind::Refill => {
                self.empty_before_refill(pair, &ops[pair.op]);
                self.learn_from_refill(pair, state)
            }
            Kind::Spill
                if self.is_emptying(pair, pair.kernel.pages, self.count(pair.zone, pair.cpu)) =>
            {
                self.empty(pair);
                Learnt::default()
            }
            Kind::Spill if pair.ours.pages == 0 => {
                let before = self.count(pair.zone, pair.cpu) + pair.kernel.pages;
                self.lengthen(pair, i64::from(state.high.0) - i64::from(before));
                Learnt::default()
            }
            Kind::Decay if self.may_be_expiry(pair) => Learnt::default(),
            Kind::Spill | Kind::Decay if pair.kernel.pages == 0 => {
                let missing = self.missing_at_next_spill(pair, state, ops);
                self.hasten(pair, ops, -missing);
                let missing = self.missing_at_next_spill(pair, state, ops);
                self.lengthen(pair, missing);
                // The replay has just made the lists fit the kernel's next spill (return of pages
                // to the zone). So it proves nothing if Plimsoll makes the same spill.
                if let Some(lists) = self.lists.get_mut(&(pair.zone, pair.cpu)) {
                    lists.corrected = true;
                }
                Learnt::default()
            }
            Kind::Decay if pair.kernel.pages > 0 => {
                // A decay (return of pages by `vmstat_update`) leaves `high` pages on the lists. So
                // after the kernel's decay, the kernel's lists have `high` pages.
                let after = self.count(pair.zone, pair.cpu);
                self.lengthen(pair, i64::from(state.high.0) - i64::from(after));
                Learnt::default()
            }
            _ => Learnt::default(),
        }
    }

    /// Handles a refill that the kernel made and Plimsoll did not. The refill proves that the
    /// kernel's list was empty. If the replay still assumes blocks on that list, the kernel must
    /// have taken these blocks without an event.
    fn empty_before_refill(&mut self, pair: &Pair, op: &Op) {
        let Action::Alloc { zone, list, .. } = op.action else {
            return;
        };
        if zone != pair.zone || pair.ours.blocks > 0 {
            return;
        }
        if let Some(lists) = self.lists.get_mut(&(zone, op.cpu)) {
            lists.lens[list.index()] = pair.kernel.blocks.saturating_sub(1);
        }
    }

    fn learn_from_refill(&mut self, pair: &Pair, state: &ListState) -> Learnt {
        let Some(lists) = self.lists.get(&(pair.zone, pair.cpu)) else {
            return Learnt::default();
        };
        let (batch, high_max) = (lists.batch, lists.high_max);
        if pair.kernel.pages != pair.kernel.blocks || pair.kernel.pages < batch {
            return Learnt::default();
        }
        let factor = (0..=SCALE_MAX).find(|factor| batch << factor == pair.kernel.pages);
        let Some(factor) = factor else {
            // The refill is not a batch times a power of two, so `high` limited the refill. The
            // refill filled the lists up to `high - batch` pages, and one of these pages was
            // allocated at once. So `high` is the number of pages that are now on the lists, plus
            // 1, plus a batch. If this sum exceeds `high_max`, the lists had fewer pages than the
            // replay assumed.
            let high = self.count(pair.zone, pair.cpu) + 1 + batch;
            let missing = high.saturating_sub(high_max);
            self.lengthen(pair, -i64::from(missing));
            return Learnt {
                high: Some(high - missing),
                ..Learnt::default()
            };
        };
        // At each refill, both Linux and Plimsoll raise `high` by the size of the refill. So the
        // kernel's `high` minus Plimsoll's `high` now equals the kernel's refill minus Plimsoll's
        // refill.
        let high = (state.high.0 + pair.kernel.pages).saturating_sub(pair.ours.pages);
        Learnt {
            high: Some(high),
            alloc_factor: Some((factor + 1).min(SCALE_MAX)),
        }
    }

    /// Returns whether the kernel meant to empty its lists by a spill (return of pages to the zone)
    /// of `pages` pages. The lists that the replay derives still have `left` pages after the spill.
    /// The kernel makes such a spill at two successive frees of blocks of 2 to 8 pages. Any other
    /// spill leaves at least a batch.
    fn is_emptying(&self, pair: &Pair, pages: u32, left: u32) -> bool {
        let batch = self
            .lists
            .get(&(pair.zone, pair.cpu))
            .map_or(0, |lists| lists.batch);
        pages > 0 && left < batch && pages < batch << SCALE_MAX
    }

    /// Returns whether the pages of `pair` are possibly a batch that the periodic work
    /// (`vmstat_update`) returned to a zone of another node. The work returns such a batch if the
    /// CPU's lists for that zone were not used for some time. The batch says nothing about the
    /// lengths of the lists. If the last block of the batch is large, the batch has a few more
    /// pages than usual.
    fn may_be_expiry(&self, pair: &Pair) -> bool {
        let lists = self.lists.get(&(pair.zone, pair.cpu));
        let pages = pair.kernel.pages.max(pair.ours.pages);
        lists.is_some_and(|lists| lists.remote && pages < 2 * lists.batch)
    }

    /// Records that all page lists which the pair's CPU has for the pair's zone are empty.
    fn empty(&mut self, pair: &Pair) {
        if let Some(lists) = self.lists.get_mut(&(pair.zone, pair.cpu)) {
            lists.lens = [0; LISTS];
        }
    }

    /// Handles a move of `pair` in which Plimsoll returned pages to the zone and the kernel did
    /// not. Returns the number of pages to add to the derived lists (our picture of the kernel's
    /// lists). If the number is negative, pages must be removed. This correction keeps the lists
    /// below `high` until the kernel's next move. If the next move is a spill (a return of pages
    /// because the lists reached `high`), it also shows how many pages were on the lists.
    fn missing_at_next_spill(&self, pair: &Pair, state: &ListState, ops: &[Op]) -> i64 {
        let key = (pair.zone, pair.cpu);
        let mut ahead = Self::default();
        let Some(lists) = self.lists.get(&key) else {
            return 0;
        };
        ahead.lists.insert(key, lists.clone());
        let high = i64::from(state.high.0);
        let mut longest = i64::from(self.count(pair.zone, pair.cpu));
        for (index, op) in (0..).zip(ops).skip(pair.op + 1) {
            if op.cpu != pair.cpu || self.is_hastened(index) {
                continue;
            }
            let moves = op.moves.iter().any(|transfer| transfer.zone == pair.zone);
            let mut without_spill = op.clone();
            without_spill
                .moves
                .retain(|transfer| transfer.kind != Kind::Spill);
            ahead.note(&without_spill);
            let count = i64::from(ahead.count(pair.zone, pair.cpu));
            if moves {
                let spilled = op
                    .moves
                    .iter()
                    .filter(|transfer| transfer.kind == Kind::Spill);
                let spilled: u32 = spilled.map(Move::pages).sum();
                let left = ahead.count(pair.zone, pair.cpu).saturating_sub(spilled);
                let missing = if self.is_emptying(pair, spilled, left) {
                    -i64::from(left)
                } else if without_spill.moves.len() < op.moves.len() {
                    high - count
                } else {
                    high
                };
                return missing.min(high - 1 - longest);
            }
            longest = longest.max(count);
        }
        high - 1 - longest
    }

    /// Corrects the derived lists (our picture of the kernel's lists), which have `missing` pages
    /// too many at operation `pair.op`. Bulk allocations may have taken these pages before
    /// `pair.op`, although the recording shows a bulk allocation only by later events. So this
    /// function moves the next bulk allocations before `pair.op`, until they account for `missing`
    /// pages. It does not move a bulk allocation if a refill of the same list lies between
    /// `pair.op` and this bulk allocation.
    fn hasten(&mut self, pair: &Pair, ops: &[Op], mut missing: i64) {
        let mut refilled = [false; LISTS];
        let mut moved = false;
        for (index, op) in (0..).zip(ops).skip(pair.op + 1) {
            if missing <= 0 {
                break;
            }
            if op.cpu != pair.cpu {
                continue;
            }
            for transfer in op
                .moves
                .iter()
                .filter(|transfer| transfer.zone == pair.zone)
            {
                moved |= transfer.kind != Kind::Refill;
                for (list, _) in &transfer.lists {
                    refilled[list.index()] |= transfer.kind == Kind::Refill;
                }
            }
            if refilled[..3].iter().all(|refilled| *refilled) {
                break;
            }
            let Action::Bulk {
                zone,
                list,
                ref pfns,
            } = op.action
            else {
                continue;
            };
            let pages = i64::try_from(pfns.len()).unwrap_or(0);
            let there = i64::from(self.lens(zone, op.cpu)[list.index()]);
            let possible = zone == pair.zone
                && list.order() == 0
                && !refilled[list.index()]
                && op.moves.is_empty()
                && pages <= there
                && (pages <= missing || !moved)
                && !self.is_hastened(index);
            if possible {
                self.add(zone, op.cpu, list, -pages);
                self.hastened.insert(index);
                missing -= pages;
            }
        }
    }

    /// Returns whether the replay performs the bulk allocation with the index `op` earlier than it
    /// was recorded.
    pub(in super::super) fn is_hastened(&self, op: usize) -> bool {
        self.hastened.contains(&op)
    }

    /// Adds `pages` pages to the derived lengths of the lists of the pair's CPU, or removes them if
    /// `pages` is negative.
    pub(super) fn lengthen(&mut self, pair: &Pair, pages: i64) {
        let key = (pair.zone, pair.cpu);
        let Some(lists) = self.lists.get(&key) else {
            return;
        };
        let home = ListId(lists.home);
        let before = self.count(pair.zone, pair.cpu);
        self.add(pair.zone, pair.cpu, home, pages / i64::from(home.pages()));
        // `home`, the list on which the replay assumes the pages that no event shows, can have
        // fewer pages than must be removed. It is also possible that `pages` is not a multiple of
        // the block size of `home`. The loop adds the remaining pages to the longest list of single
        // pages, or removes them from this list.
        let mut left = pages + i64::from(before) - i64::from(self.count(pair.zone, pair.cpu));
        while left != 0 {
            let lens = self.lens(pair.zone, pair.cpu);
            let single = (0..3).map(ListId).max_by_key(|list| lens[list.index()]);
            let Some(list) = single.filter(|list| left > 0 || lens[list.index()] > 0) else {
                return;
            };
            let moved = left.max(-i64::from(lens[list.index()]));
            self.add(pair.zone, pair.cpu, list, moved);
            left -= moved;
        }
    }
}
