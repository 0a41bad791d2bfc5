//! Derives operations from events. The derivation finds the list that each page was put on or taken
//! from, and the operations that have no event.
//!
//! The module tracks the lists of the recorded kernel frame by frame. The tracked lists are called
//! *derived*. An allocation shows which page was on top of a list. Two rules find most operations
//! that have no event:
//!
//! - If the derived list has pages above the allocated page, and no event shows the allocation of
//!   these pages, a bulk allocation took them.
//! - If a page is allocated from a list and no event put the page there, it was on that list before
//!   the recording.
//!
//! docs/exact-replay.md lists all rules.

mod free;
mod reclaim;
mod refill;
mod tally;
#[cfg(test)]
mod tests;
mod types;
mod unseen;

use std::collections::{HashMap, HashSet};

use plimsoll_recording::Recording;
use plimsoll_recording::event::{Event, What};

pub(super) use self::tally::Tally;
use super::boost::{self, Boosts};
use super::future::Future;
use super::lists::{ListId, Lists, MOVABLE, Place, RECLAIMABLE, UNMOVABLE};
use super::marks::note;
use super::op::{Action, Move, Op};
use super::rounds::Rounds;
use super::zoneinfo::ZoneInfo;

/// The operations that are derived from a recording's events.
pub(super) struct Inferred {
    /// The operations in recorded order.
    pub(super) ops: Vec<Op>,
    /// The frames on each list at the first event, if a later event shows that they are allocated
    /// or returned to the zone. The frame to be allocated next comes first.
    pub(super) before: HashMap<Place, Vec<u64>>,
    pub(super) tally: Tally,
}

impl Inferred {
    /// Derives the operations of a recording. The recorder read `zones` from `/proc/zoneinfo` just
    /// before event `read_at`.
    pub(super) fn of(recording: &Recording, zones: &[ZoneInfo], read_at: usize) -> Self {
        let future = Future::of(&recording.events);
        let rounds = Rounds::of(&recording.events);
        let mut before = HashMap::new();
        let mut doubts = Doubts::default();
        let boosts = Boosts::new(zones, boost_factor(recording), read_at);
        let new = || Walk::new(recording, zones, &future, (&rounds, &boosts));
        let mut walk = new();
        for _pass in 0..PASSES_MAX {
            walk = new();
            walk.seed(&before);
            walk.doubts = doubts.clone();
            walk.run();
            let found = walk.before(&before);
            if found == before && walk.doubts == doubts {
                break;
            }
            before = found;
            doubts = walk.doubts.clone();
        }
        Self {
            ops: walk.ops,
            before,
            tally: walk.tally,
        }
    }
}

/// The maximum number of passes over the events. Each pass uses the results of the previous pass.
/// Most recordings take three passes.
const PASSES_MAX: u32 = 8;

/// Corrections of wrong assumptions. If no event states on which list a freed block is, this module
/// assumes a list, and corrects the assumption if later events contradict it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Doubts {
    /// For each page block whose type no event states, the number of [`GUESSES`] that are ruled
    /// out.
    ruled_out: HashMap<u64, usize>,
    /// The indices of events that free a block without putting it on a list.
    misplaced: HashSet<usize>,
}

/// The types to try, in this order, for a page block whose type no event states. The last type is
/// never ruled out. It comes last because the kernel uses the lists of this type least.
const GUESSES: [u8; 3] = [MOVABLE, UNMOVABLE, RECLAIMABLE];

/// The state of one pass over the recording's events. The pass derives the operations from the
/// events.
struct Walk<'a> {
    events: &'a [Event],
    symbols: &'a [String],
    zones: &'a [ZoneInfo],
    future: &'a Future,
    rounds: &'a Rounds,
    boosts: Boosts,
    /// The node of each kswapd that has begun a round of reclaim, keyed by kswapd's thread id.
    kswapds: HashMap<u32, u32>,
    lists: Lists,
    ops: Vec<Op>,
    /// For each event, true if an earlier event's operation includes it. Such an event is skipped.
    done: Vec<bool>,
    /// For each frame on a list, the index of the event that put the frame there.
    came: HashMap<u64, usize>,
    /// The orders of the blocks that are being freed in a batch, keyed by a block's first frame.
    batched: HashMap<u64, u8>,
    /// For each CPU that is freeing a batch of blocks, this batch.
    batches: HashMap<u32, Batch>,
    /// For each CPU, the index in `ops` of the last operation that freed a block to a list, and the
    /// id of the thread that freed the block.
    freeing: HashMap<u32, (usize, u32)>,
    /// For each CPU, the zone of its last refill, and the event of the allocation that caused the
    /// refill.
    refilling: HashMap<u32, (u8, usize)>,
    /// Blocks that left a zone directly for a caller, and for which no allocation event has
    /// followed yet.
    direct: HashSet<u64>,
    /// The migrate type of each page block, as last shown by an event.
    blocks: HashMap<u64, u8>,
    /// For each list, the frames that were allocated from the list although no event had put them
    /// there, in the order of their allocation.
    handed_out: HashMap<Place, Vec<u64>>,
    /// For each list, the frames that were returned from the list to the zone although no event had
    /// put them there, in the order of their return.
    given_back: HashMap<Place, Vec<u64>>,
    /// The lists that were empty at some time. A refill shows that its list was empty.
    emptied: HashSet<Place>,
    /// The corrections of wrong assumptions, from this pass and earlier passes over the recording.
    doubts: Doubts,
    /// Page blocks whose guessed type proves to be wrong in this pass over the recording. At the
    /// end of the pass, they are added to `doubts`.
    new_doubts: HashSet<u64>,
    tally: Tally,
}

/// A batch of blocks that a CPU is freeing.
#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    /// The number of blocks of the batch that have yet to be put on their lists.
    left: u32,
    /// The zone whose page lists the CPU has locked, from the first block of the batch to its last.
    /// `None` if the CPU holds no such lock.
    locked: Option<u8>,
}

/// The base-2 logarithm of the number of pages in a page block.
const BLOCK_SHIFT: u64 = 9;

impl<'a> Walk<'a> {
    fn new(
        recording: &'a Recording,
        zones: &'a [ZoneInfo],
        future: &'a Future,
        (rounds, boosts): (&'a Rounds, &Boosts),
    ) -> Self {
        let mut walk = Self {
            events: &recording.events,
            symbols: &recording.header.symbols,
            zones,
            future,
            rounds,
            boosts: boosts.clone(),
            kswapds: HashMap::new(),
            lists: Lists::default(),
            ops: Vec::new(),
            done: vec![false; recording.events.len()],
            came: HashMap::new(),
            batched: HashMap::new(),
            batches: HashMap::new(),
            freeing: HashMap::new(),
            refilling: HashMap::new(),
            direct: HashSet::new(),
            blocks: HashMap::new(),
            handed_out: HashMap::new(),
            given_back: HashMap::new(),
            emptied: HashSet::new(),
            doubts: Doubts::default(),
            new_doubts: HashSet::new(),
            tally: Tally::default(),
        };
        walk.learn_beginnings();
        walk
    }

    /// Returns the frames on each list at the first event. If an earlier pass has found these
    /// frames, they are in `seeded`. If `seeded` is empty, they are the frames that this pass has
    /// found. In each list, the frame to be allocated next comes first.
    fn before(&self, seeded: &HashMap<Place, Vec<u64>>) -> HashMap<Place, Vec<u64>> {
        if !seeded.is_empty() {
            return seeded.clone();
        }
        let mut before = self.handed_out.clone();
        for (place, frames) in &self.given_back {
            let list = before.entry(*place).or_default();
            list.extend(frames.iter().rev());
        }
        before
    }

    fn seed(&mut self, before: &HashMap<Place, Vec<u64>>) {
        for (place, frames) in before {
            for &pfn in frames {
                self.lists.push_cold(*place, pfn);
            }
        }
    }

    fn run(&mut self) {
        for index in 0..self.events.len() {
            let event = &self.events[index];
            self.read_boosts(index, event.cpu);
            self.learn(&event.what);
            self.learn_from_list(index, event);
            if !self.done[index] {
                self.step(index, event);
            }
            self.boost(index, event);
            if self.rounds.ends_after(index) {
                self.reclaim_ends(index, event.cpu);
            }
        }
        for block in &self.new_doubts {
            *self.doubts.ruled_out.entry(*block).or_default() += 1;
        }
    }

    fn step(&mut self, index: usize, event: &Event) {
        let cpu = event.cpu;
        match event.what {
            What::Alloc {
                pfn,
                order,
                mobility,
                ..
            } => {
                let mobility = mobility.unwrap_or(MOVABLE);
                self.alloc(index, cpu, (pfn, order, mobility));
            }
            What::Free { pfn, order } => self.free(index, cpu, (pfn, order)),
            What::FreeBatched { pfn } => {
                let order = self.batched.remove(&pfn).unwrap_or(0);
                let zone = self.zone(pfn);
                let batch = self.batches.entry(cpu).or_default();
                batch.left = batch.left.saturating_sub(1);
                batch.locked = zone.filter(|_| batch.left > 0);
                self.commit(index, cpu, (pfn, order));
            }
            What::PcpuDrain { .. } => self.drain(index, cpu),
            What::ZoneLocked { .. } | What::ExtFrag { .. } => self.taken(index, cpu),
            What::BulkAlloc { pages } => self.bulk(index, cpu, pages),
            What::WorkStart { function, .. } => {
                let name = self.symbols.get(function.0 as usize);
                if name.is_some_and(|name| REFRESHES.contains(&name.as_str())) {
                    self.refresh(index, cpu);
                }
            }
            What::Mark(ref text) => self.mark(index, text),
            ref what => self.reclaim(index, cpu, what),
        }
    }

    fn alloc(&mut self, index: usize, cpu: u32, (pfn, order, mobility): (u64, u8, u8)) {
        let Some(zone) = self.zone(pfn) else { return };
        let direct = self.direct.remove(&pfn);
        let list = ListId::of(order, mobility).filter(|_| !direct);
        let Some(list) = list else {
            self.tally.direct_allocs += 1;
            return self.push_direct(index, cpu, (zone, order, mobility, pfn));
        };
        self.tally.allocs += 1;
        let place = match self.lists.place(pfn) {
            Some(place) if place.list.order() == order => place,
            _ => match self.appeared(index, pfn, Place { cpu, zone, list }) {
                Some(place) => place,
                None => return self.push_direct(index, cpu, (zone, order, mobility, pfn)),
            },
        };
        self.take_above(index, place, pfn);
        let above = self.lists.above(place, Some(pfn)).len();
        // Count only frames that an event put on the list. The position of a frame that was on its
        // list before the recording cannot be predicted.
        if self.came.contains_key(&pfn) {
            self.tally.predictable += 1;
            self.tally.predicted += u64::from(above == 0);
        }
        self.lists.remove(pfn);
        self.came.remove(&pfn);
        let action = Action::Alloc {
            zone: place.zone,
            list: place.list,
            pfn,
        };
        self.push_op(index, place.cpu, action, Vec::new());
    }

    /// Records an allocation that takes a block from a zone and bypasses the lists.
    fn push_direct(&mut self, index: usize, cpu: u32, block: (u8, u8, u8, u64)) {
        let (zone, order, mobility, pfn) = block;
        let action = Action::AllocDirect {
            zone,
            order,
            mobility,
            pfn,
        };
        self.push_op(index, cpu, action, Vec::new());
    }

    fn zone(&self, pfn: u64) -> Option<u8> {
        let zone = self.zones.iter().position(|zone| zone.contains(pfn))?;
        u8::try_from(zone).ok()
    }

    fn push_op(&mut self, index: usize, cpu: u32, action: Action, moves: Vec<Move>) {
        let event = u32::try_from(index).unwrap_or(u32::MAX);
        self.ops.push(Op {
            event,
            cpu,
            action,
            moves,
        });
    }

    /// Handles a note by the recorder which says that a CPU came online or went offline.
    fn mark(&mut self, index: usize, text: &str) {
        let words: Vec<&str> = note(text).split_whitespace().collect();
        let ["cpu", cpu, "is", state] = words[..] else {
            return;
        };
        let Ok(cpu) = cpu.parse() else { return };
        match state {
            "on" => self.push_op(index, cpu, Action::Online(true), Vec::new()),
            "off" => self.push_op(index, cpu, Action::Online(false), Vec::new()),
            _ => {}
        }
    }
}

/// The recorded `watermark_boost_factor`, or Linux's default if it was not recorded.
fn boost_factor(recording: &Recording) -> u64 {
    let text = recording.header.text("watermark_boost_factor");
    let factor = text.and_then(|text| text.trim().parse().ok());
    factor.unwrap_or(boost::FACTOR)
}

/// The kernel's work functions that lower `high` and return the pages above it to the zone.
const REFRESHES: [&str; 2] = ["vmstat_update", "refresh_vm_stats"];
