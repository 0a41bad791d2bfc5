//! How long the kernel's lists are while operations are performed, and what a move tells of what is
//! not known from before the recording.

use std::collections::HashMap;

use plimsoll_mm::page::ListState;

use super::lists::{LISTS, ListId, Place};
use super::op::{Action, Kind, Op};
use super::pair::Pair;

/// The kernel's lists, by zone and CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct Follow {
    lists: HashMap<(u8, u32), Followed>,
}

/// One CPU's lists in one zone.
#[derive(Clone, Debug, Default)]
struct Followed {
    lens: [u32; LISTS],
    batch: u32,
    /// The list on which pages are assumed to be that no event shows: one that is never seen empty.
    home: u8,
    /// Bounds of `alloc_factor` and `free_count`, of which no recording tells the start.
    alloc_factor: (u32, u32),
    free_count: (u32, u32),
    /// Whether a spill has told how many pages were there.
    counted: bool,
}

/// What a difference tells of the kernel's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Learnt {
    pub(super) high: Option<u32>,
    pub(super) alloc_factor: Option<u32>,
}

/// How often a refill may double (`CONFIG_PCP_BATCH_SCALE_MAX`).
const SCALE_MAX: u32 = 5;

impl Follow {
    /// Begins to follow the lists of a CPU, which are this long.
    pub(super) fn begin(
        &mut self,
        (zone, cpu): (u8, u32),
        lens: [u32; LISTS],
        batch: u32,
        home: ListId,
    ) {
        let followed = Followed {
            lens,
            batch,
            home: home.0,
            alloc_factor: (0, SCALE_MAX),
            free_count: (0, batch << SCALE_MAX),
            counted: false,
        };
        self.lists.insert((zone, cpu), followed);
    }

    /// Adds blocks that were on a list before the first operation.
    pub(super) fn add_before(&mut self, place: Place, blocks: usize) {
        let blocks = i64::try_from(blocks).unwrap_or(i64::MAX);
        self.add(place.zone, place.cpu, place.list, blocks);
    }

    /// How many blocks are on each list.
    pub(super) fn lens(&self, zone: u8, cpu: u32) -> [u32; LISTS] {
        self.lists
            .get(&(zone, cpu))
            .map_or([0; LISTS], |it| it.lens)
    }

    /// How many pages are on all lists.
    pub(super) fn count(&self, zone: u8, cpu: u32) -> u32 {
        pages(&self.lens(zone, cpu))
    }

    /// Follows one operation and what the kernel moved for it.
    pub(super) fn note(&mut self, op: &Op) {
        for it in op.moves.iter().filter(|it| it.kind == Kind::Refill) {
            for &(list, blocks) in &it.lists {
                self.add(it.zone, op.cpu, list, i64::from(blocks));
            }
        }
        match op.action {
            Action::Alloc { zone, list, .. } => {
                self.add(zone, op.cpu, list, -1);
                if let Some(it) = self.lists.get_mut(&(zone, op.cpu)) {
                    it.free_count = (it.free_count.0 >> 1, it.free_count.1 >> 1);
                }
            }
            Action::Bulk {
                zone,
                list,
                ref pfns,
            } => self.add(zone, op.cpu, list, -i64::try_from(pfns.len()).unwrap_or(0)),
            Action::Free { zone, list, .. } => {
                self.add(zone, op.cpu, list, 1);
                if let Some(it) = self.lists.get_mut(&(zone, op.cpu)) {
                    it.alloc_factor = (it.alloc_factor.0 >> 1, it.alloc_factor.1 >> 1);
                    let more = |count: u32| {
                        let full = count >= it.batch << SCALE_MAX;
                        if full { count } else { count + list.pages() }
                    };
                    it.free_count = (more(it.free_count.0), more(it.free_count.1));
                }
            }
            _ => {}
        }
        for it in op.moves.iter().filter(|it| it.kind != Kind::Refill) {
            for &(list, blocks) in &it.lists {
                self.add(it.zone, op.cpu, list, -i64::from(blocks));
            }
        }
    }

    fn add(&mut self, zone: u8, cpu: u32, list: ListId, blocks: i64) {
        let len = &mut self.lists.entry((zone, cpu)).or_default().lens[list.index()];
        *len = u32::try_from((i64::from(*len) + blocks).max(0)).unwrap_or(u32::MAX);
    }

    /// Whether the size of a move depends on what the CPU did before the recording. To be asked
    /// before its operation is noted.
    pub(super) fn depends_on_before(&self, pair: &Pair) -> bool {
        self.lists
            .get(&(pair.zone, pair.cpu))
            .is_some_and(|it| match pair.kind {
                Kind::Refill => it.alloc_factor.0 != it.alloc_factor.1,
                Kind::Spill => it.free_count.0 != it.free_count.1 || !it.counted,
                Kind::Decay | Kind::Drain => !it.counted,
            })
    }

    /// Follows what a move tells.
    pub(super) fn note_move(&mut self, pair: &Pair) {
        let Some(it) = self.lists.get_mut(&(pair.zone, pair.cpu)) else {
            return;
        };
        match pair.kind {
            Kind::Refill if pair.kernel.pages == pair.kernel.blocks => {
                let (low, high) = it.alloc_factor;
                it.alloc_factor = ((low + 1).min(SCALE_MAX), (high + 1).min(SCALE_MAX));
            }
            Kind::Spill | Kind::Drain if pair.kernel.pages > 0 => it.counted = true,
            _ => {}
        }
    }

    /// Learns from a difference. The size of a refill shows its factor, or how much room there was below
    /// `high`; a spill shows that the lists were as long as `high`. `after` are the operations from that one on.
    pub(super) fn learn(&mut self, pair: &Pair, state: &ListState, after: &[Op]) -> Learnt {
        match pair.kind {
            Kind::Refill => self.learn_from_refill(pair, state),
            Kind::Spill if pair.ours.pages == 0 => {
                let before = self.count(pair.zone, pair.cpu) + pair.kernel.pages;
                self.lengthen(pair, i64::from(state.high.0) - i64::from(before));
                Learnt::default()
            }
            Kind::Spill | Kind::Decay if pair.kernel.pages == 0 => {
                let missing = self.missing_at_next_spill(pair, state, after);
                self.lengthen(pair, missing);
                Learnt::default()
            }
            Kind::Decay if pair.kernel.pages > 0 => {
                // A decay leaves as many as `high`.
                let after = self.count(pair.zone, pair.cpu);
                self.lengthen(pair, i64::from(state.high.0) - i64::from(after));
                Learnt::default()
            }
            _ => Learnt::default(),
        }
    }

    fn learn_from_refill(&self, pair: &Pair, state: &ListState) -> Learnt {
        let Some(it) = self.lists.get(&(pair.zone, pair.cpu)) else {
            return Learnt::default();
        };
        if pair.kernel.pages != pair.kernel.blocks || pair.kernel.pages < it.batch {
            return Learnt::default();
        }
        let factor = (0..=SCALE_MAX).find(|factor| it.batch << factor == pair.kernel.pages);
        let Some(factor) = factor else {
            // It was cut to the room below `high`, of which a batch is kept free.
            let after = self.count(pair.zone, pair.cpu) + 1;
            return Learnt {
                high: Some(after + it.batch),
                ..Learnt::default()
            };
        };
        // Each refill raises `high` by what it would take at most.
        let high = (state.high.0 + pair.kernel.pages).saturating_sub(pair.ours.pages);
        Learnt {
            high: Some(high),
            alloc_factor: Some((factor + 1).min(SCALE_MAX)),
        }
    }

    /// We give pages back and the kernel does not: by how many pages the kernel's lists must be shorter
    /// for it to give none back before its next move. A next move that is a spill tells how long they are.
    fn missing_at_next_spill(&self, pair: &Pair, state: &ListState, after: &[Op]) -> i64 {
        let key = (pair.zone, pair.cpu);
        let mut ahead = Self::default();
        let Some(it) = self.lists.get(&key) else {
            return 0;
        };
        ahead.lists.insert(key, it.clone());
        let high = i64::from(state.high.0);
        let mut longest = i64::from(self.count(pair.zone, pair.cpu));
        for op in after.iter().skip(1).filter(|op| op.cpu == pair.cpu) {
            let moves = op.moves.iter().any(|it| it.zone == pair.zone);
            let mut without_spill = op.clone();
            without_spill.moves.retain(|it| it.kind != Kind::Spill);
            ahead.note(&without_spill);
            let count = i64::from(ahead.count(pair.zone, pair.cpu));
            if moves {
                let spilled = without_spill.moves.len() < op.moves.len();
                let missing = if spilled { high - count } else { high };
                return missing.min(high - 1 - longest);
            }
            longest = longest.max(count);
        }
        high - 1 - longest
    }

    /// Corrects how many pages are there.
    fn lengthen(&mut self, pair: &Pair, pages: i64) {
        let key = (pair.zone, pair.cpu);
        if let Some(home) = self.lists.get(&key).map(|it| it.home) {
            let home = ListId(home);
            self.add(pair.zone, pair.cpu, home, pages / i64::from(home.pages()));
        }
    }
}

/// Pages on lists of these lengths.
pub(super) fn pages(lens: &[u32; LISTS]) -> u32 {
    let lists = (0..).map(ListId).zip(lens);
    lists.map(|(list, blocks)| list.pages() * blocks).sum()
}

#[cfg(test)]
mod tests {
    use super::super::op::Move;
    use super::super::pair::Amount;
    use super::*;

    const LIST: ListId = ListId(1);

    fn op(action: Action, spills: bool) -> Op {
        let spill = Move {
            kind: Kind::Spill,
            zone: 0,
            lists: Vec::new(),
        };
        Op {
            event: 0,
            cpu: 0,
            action,
            moves: spills.then_some(spill).into_iter().collect(),
        }
    }

    /// Plimsoll spills with 50 pages at a `high` of 100, and the kernel does not.
    fn learnt_length(after: &[Op]) -> u32 {
        let mut follow = Follow::default();
        let mut lens = [0; LISTS];
        lens[LIST.index()] = 50;
        follow.begin((0, 0), lens, 63, LIST);
        let pair = Pair {
            op: 0,
            cpu: 0,
            zone: 0,
            kind: Kind::Spill,
            kernel: Amount::default(),
            ours: Amount {
                pages: 10,
                blocks: 10,
            },
            unknown: false,
        };
        let state = ListState {
            high: plimsoll_mm::units::Pages(100),
            ..ListState::default()
        };
        assert_eq!(follow.learn(&pair, &state, after), Learnt::default());
        follow.count(0, 0)
    }

    fn free(spills: bool) -> Op {
        let (zone, list, pfn) = (0, LIST, 7);
        op(Action::Free { zone, list, pfn }, spills)
    }

    #[test]
    fn the_next_spill_tells_how_long_lists_are() {
        let after = [free(false), free(false), free(true)];
        assert_eq!(learnt_length(&after), 98, "two more are freed until 100");
        assert_eq!(learnt_length(&[free(false)]), 99, "one more would spill");
    }

    #[test]
    fn lists_that_were_longer_and_did_not_spill_were_below_high_then() {
        let (zone, list, pfn) = (0, LIST, 7);
        let taken = || op(Action::Alloc { zone, list, pfn }, false);
        let mut after = vec![free(false)];
        after.extend((0..40).map(|_| free(false)));
        after.extend((0..40).map(|_| taken()));
        after.push(free(true));
        assert_eq!(learnt_length(&after), 59, "40 more are 99");
    }
}
