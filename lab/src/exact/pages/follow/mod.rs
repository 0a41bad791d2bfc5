//! Tracks the lengths of the kernel's lists while the replay performs operations. Each move of the
//! kernel also reveals facts about the kernel's state before the recording, and this module keeps
//! these facts.

mod learn;

use std::collections::{HashMap, HashSet};

use super::lists::{LISTS, ListId, Place};
use super::op::{Action, Kind, Op};
use super::pair::Pair;

/// The lengths of the kernel's lists, by zone and CPU, as derived from events.
#[derive(Clone, Debug, Default)]
pub(super) struct Follow {
    lists: HashMap<(u8, u32), Followed>,
    /// The indices of bulk allocations that the replay has *hastened*: it counted each of them
    /// earlier than its place in the recording, because the allocation explains why the kernel's
    /// lists had fewer pages than assumed. At the recorded place, the replay does not perform the
    /// allocation again.
    hastened: HashSet<usize>,
}

/// The known state of one CPU's lists in one zone.
#[derive(Clone, Debug, Default)]
struct Followed {
    lens: [u32; LISTS],
    batch: u32,
    /// The upper bound of `high`, the number of pages at which the lists return pages to the zone.
    high_max: u32,
    /// The index of the list to which the replay assigns all pages that were listed before the
    /// recording but that no event shows. If possible, this is a list for which no event shows that
    /// it was ever empty.
    home: u8,
    /// The least and the greatest possible value of `alloc_factor`. (In Linux, a refill doubles the
    /// batch up to this number of times.) No recording states the value of `alloc_factor` at the
    /// start.
    alloc_factor: (u32, u32),
    /// The least and the greatest possible value of `free_count`. (In Linux, this is the count of
    /// recently freed pages. If a page list is too long, the count decides how many pages return to
    /// the zone.) No recording states the value of `free_count` at the start.
    free_count: (u32, u32),
    /// The number of pages on the list `home` that were listed before the recording and that no
    /// event shows. A later bulk allocation can take these pages.
    never_seen: u32,
    /// True if the zone belongs to another node than the CPU. The CPU's periodic work then also
    /// returns a batch to the zone if the lists were not used for some time.
    remote: bool,
    /// True once a move has shown how many pages were on the lists. A drain shows this, and so does
    /// a spill, which returns pages because the lists have reached `high`.
    counted: bool,
    /// True if the replay used the kernel's next spill (return of pages to the zone) to correct the
    /// lengths of the lists. In this case, Plimsoll's next spill necessarily equals the kernel's.
    corrected: bool,
}

/// The values of the kernel's lists that a difference between Plimsoll's move and the kernel's move
/// reveals. Each is `None` if the difference does not reveal it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Learnt {
    pub(super) high: Option<u32>,
    pub(super) alloc_factor: Option<u32>,
}

/// The maximum number of times that a refill doubles the batch (Linux:
/// `CONFIG_PCP_BATCH_SCALE_MAX`).
const SCALE_MAX: u32 = 5;

impl Follow {
    /// Starts to follow the lists of a CPU in a zone. `lens` has the number of blocks on each list.
    pub(super) fn begin(
        &mut self,
        (zone, cpu): (u8, u32),
        lens: [u32; LISTS],
        (batch, high_max): (u32, u32),
        home: ListId,
    ) {
        let followed = Followed {
            lens,
            batch,
            high_max,
            home: home.0,
            alloc_factor: (0, SCALE_MAX),
            free_count: (0, batch << SCALE_MAX),
            never_seen: 0,
            remote: false,
            counted: false,
            corrected: false,
        };
        self.lists.insert((zone, cpu), followed);
    }

    /// Records that `pages` pages were on the lists before the recording and that no event shows
    /// them.
    pub(super) fn set_never_seen(&mut self, place: (u8, u32), pages: u32) {
        if let Some(lists) = self.lists.get_mut(&place) {
            lists.never_seen = pages;
        }
    }

    /// Records that the zone of `place` belongs to another node than the CPU of `place`.
    pub(super) fn set_remote(&mut self, place: (u8, u32)) {
        if let Some(lists) = self.lists.get_mut(&place) {
            lists.remote = true;
        }
    }

    /// Adds `blocks` blocks that were on the list `place` before the first operation.
    pub(super) fn add_before(&mut self, place: Place, blocks: usize) {
        let blocks = i64::try_from(blocks).unwrap_or(i64::MAX);
        self.add(place.zone, place.cpu, place.list, blocks);
    }

    /// The number of blocks on each list of `cpu` in `zone`.
    pub(super) fn lens(&self, zone: u8, cpu: u32) -> [u32; LISTS] {
        self.lists
            .get(&(zone, cpu))
            .map_or([0; LISTS], |lists| lists.lens)
    }

    /// The number of pages on all lists of `cpu` in `zone`.
    pub(super) fn count(&self, zone: u8, cpu: u32) -> u32 {
        pages(&self.lens(zone, cpu))
    }

    /// Applies one operation, and the kernel's moves in this operation, to the lengths that the
    /// replay has derived for the kernel's lists.
    pub(super) fn note(&mut self, op: &Op) {
        for transfer in op
            .moves
            .iter()
            .filter(|transfer| transfer.kind == Kind::Refill)
        {
            for &(list, blocks) in &transfer.lists {
                self.add(transfer.zone, op.cpu, list, i64::from(blocks));
            }
        }
        match op.action {
            Action::Alloc { zone, list, .. } => {
                self.add(zone, op.cpu, list, -1);
                if let Some(lists) = self.lists.get_mut(&(zone, op.cpu)) {
                    lists.free_count = (lists.free_count.0 >> 1, lists.free_count.1 >> 1);
                }
            }
            Action::Bulk {
                zone,
                list,
                ref pfns,
            } => self.add(zone, op.cpu, list, -i64::try_from(pfns.len()).unwrap_or(0)),
            Action::BulkNeverSeen { zone, pages } => self.take_never_seen((zone, op.cpu), pages),
            Action::Free { zone, list, .. } => {
                self.add(zone, op.cpu, list, 1);
                if let Some(lists) = self.lists.get_mut(&(zone, op.cpu)) {
                    lists.alloc_factor = (lists.alloc_factor.0 >> 1, lists.alloc_factor.1 >> 1);
                    let more = |count: u32| {
                        let full = count >= lists.batch << SCALE_MAX;
                        if full { count } else { count + list.pages() }
                    };
                    lists.free_count = (more(lists.free_count.0), more(lists.free_count.1));
                }
            }
            _ => {}
        }
        for transfer in op
            .moves
            .iter()
            .filter(|transfer| transfer.kind != Kind::Refill)
        {
            for &(list, blocks) in &transfer.lists {
                self.add(transfer.zone, op.cpu, list, -i64::from(blocks));
            }
        }
    }

    fn take_never_seen(&mut self, place: (u8, u32), pages: u32) {
        if let Some(lists) = self.lists.get_mut(&place) {
            let home = ListId(lists.home);
            let len = &mut lists.lens[home.index()];
            let blocks = pages.min(lists.never_seen).div_ceil(home.pages()).min(*len);
            *len -= blocks;
            lists.never_seen = lists.never_seen.saturating_sub(blocks * home.pages());
        }
    }

    fn add(&mut self, zone: u8, cpu: u32, list: ListId, blocks: i64) {
        let len = &mut self.lists.entry((zone, cpu)).or_default().lens[list.index()];
        *len = u32::try_from((i64::from(*len) + blocks).max(0)).unwrap_or(u32::MAX);
    }

    /// Returns whether the size of a move (between page lists and a zone) depends on what the CPU
    /// did before the recording. Call this method before [`Follow::note`] for the operation.
    pub(super) fn depends_on_before(&self, pair: &Pair) -> bool {
        self.lists
            .get(&(pair.zone, pair.cpu))
            .is_some_and(|lists| match pair.kind {
                Kind::Refill => lists.alloc_factor.0 != lists.alloc_factor.1,
                Kind::Spill => lists.free_count.0 != lists.free_count.1 || !lists.counted,
                Kind::Decay | Kind::Drain => !lists.counted,
            })
    }

    /// Returns whether the kernel and Plimsoll made identical spills (returns of pages to the
    /// zone), and the replay used the kernel's spill to correct the lengths of the lists. In this
    /// case, the identity of the spills proves nothing. Call this method before
    /// [`Follow::note_move`].
    pub(super) fn was_used(&self, pair: &Pair) -> bool {
        let lists = self.lists.get(&(pair.zone, pair.cpu));
        pair.is_same() && pair.kind == Kind::Spill && lists.is_some_and(|lists| lists.corrected)
    }

    /// Learns from the kernel's move: a refill of single pages raises `alloc_factor`, and a spill
    /// (return of pages to the zone) or drain shows how many pages were on the lists.
    pub(super) fn note_move(&mut self, pair: &Pair) {
        let Some(lists) = self.lists.get_mut(&(pair.zone, pair.cpu)) else {
            return;
        };
        match pair.kind {
            // A refill that only Plimsoll made proves nothing about the kernel's `alloc_factor`.
            Kind::Refill if pair.kernel.pages == pair.kernel.blocks && pair.kernel.pages > 0 => {
                let (low, high) = lists.alloc_factor;
                lists.alloc_factor = ((low + 1).min(SCALE_MAX), (high + 1).min(SCALE_MAX));
            }
            Kind::Spill | Kind::Drain if pair.kernel.pages > 0 => {
                lists.counted = true;
                lists.corrected = false;
            }
            _ => {}
        }
    }
}

/// The number of pages on a CPU's lists, if `lens` has the number of blocks on each list.
pub(super) fn pages(lens: &[u32; LISTS]) -> u32 {
    let lists = (0..).map(ListId).zip(lens);
    lists.map(|(list, blocks)| list.pages() * blocks).sum()
}

#[cfg(test)]
mod tests;
