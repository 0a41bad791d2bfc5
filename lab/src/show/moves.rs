//! Page moves between zones and per-CPU lists: which events form one move, and which path the pages
//! of a move took.
//!
//! The kernel prints an event for each block, but it prints no event at the beginning or end of a
//! hold of the zone lock. Blocks that moved in succession on one CPU, in one thread and one zone,
//! form one *move*. The event before a move to the zone shows the path of the move: a spill
//! directly follows the free that filled the list, and a decay occurs inside `vmstat_update`. All
//! other moves to the zone are drains. A move is also a drain if the blocks were put on the list by
//! another CPU than the one that moves them.

use std::collections::HashMap;

pub use plimsoll_recording::event::HOLD_ENDS;
use plimsoll_recording::{Event, Recording, What};

use super::zones::Zones;

/// The path of pages between a zone, a list and a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Path {
    /// The pages move from the zone to an empty list.
    Refill,
    /// The pages move from the zone directly to the caller, not through a list.
    Direct,
    /// The pages move from a list to the zone, because a free made the list too long.
    Spill,
    /// The CPU's periodic work moves the pages from a list to the zone.
    Decay,
    /// The pages move from a list to the zone until the list is empty.
    Drain,
}

impl Path {
    /// Every code path that moves pages, in declaration order.
    pub const ALL: [Self; 5] = [
        Self::Refill,
        Self::Direct,
        Self::Spill,
        Self::Decay,
        Self::Drain,
    ];

    /// The name of the path in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refill => "refill",
            Self::Direct => "direct",
            Self::Spill => "spill",
            Self::Decay => "decay",
            Self::Drain => "drain",
        }
    }
}

/// A move: blocks that moved in succession by one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The time at which the first block moved, in nanoseconds.
    pub time_ns: u64,
    /// The CPU that moved the blocks.
    pub cpu: u32,
    /// The code path by which the blocks moved, such as a refill or a drain.
    pub path: Path,
    /// The number of pages in all of the blocks.
    pub pages: u64,
    /// How many pages each hold (critical section) of the zone lock moved. Empty if the recording
    /// does not show where holds end.
    pub holds: Vec<u64>,
}

/// Every move of a recording, in the order in which the moves ended.
#[must_use]
pub fn moves(recording: &Recording) -> Vec<Move> {
    let mut finder = Finder {
        zones: Zones::of(&recording.header),
        update: recording
            .header
            .symbols
            .iter()
            .position(|name| name == "vmstat_update"),
        lists: HashMap::new(),
        cpus: HashMap::new(),
        moves: Vec::new(),
    };
    for event in &recording.events {
        finder.note(event);
    }
    finder.finish()
}

struct Finder {
    zones: Zones,
    /// The symbol of the function `vmstat_update`. `None` if the recording does not have this
    /// symbol.
    update: Option<usize>,
    /// For each page that is on a list, keyed by the page's frame number, the CPU that has the
    /// list. The map has only pages for which the recording has shown the list.
    lists: HashMap<u64, u32>,
    cpus: HashMap<u32, Cpu>,
    moves: Vec<Move>,
}

/// The state of one CPU, as far as the events so far show it.
#[derive(Default)]
struct Cpu {
    /// The move that is in progress on this CPU, if any.
    open: Option<Open>,
    /// The thread that freed a block, if this free is the last event on the CPU.
    freed: Option<u32>,
    /// The thread that is inside `vmstat_update` on the CPU.
    updates: Option<u32>,
}

struct Open {
    so_far: Move,
    pid: u32,
    zone: Option<usize>,
    /// The CPU whose list the move empties. `None` if no event has shown this CPU.
    list: Option<u32>,
    order: u8,
    last_pfn: u64,
    blocks: u32,
    /// The number of pages moved since the last hold of the zone lock ended.
    since_hold: u64,
}

impl Finder {
    fn note(&mut self, event: &Event) {
        let Event { cpu, pid, .. } = *event;
        match event.what {
            What::ZoneLocked {
                pfn,
                order,
                percpu_refill,
                ..
            } => {
                let path = if percpu_refill {
                    Path::Refill
                } else {
                    Path::Direct
                };
                self.taken(event, pfn, order, path);
            }
            What::ExtFrag { pfn, order, .. } => {
                let listed = order <= 3 || order == 9;
                let path = if listed { Path::Refill } else { Path::Direct };
                self.taken(event, pfn, order, path);
            }
            What::PcpuDrain { pfn, order, .. } => self.given(event, pfn, order),
            What::Mark(ref text) if text == HOLD_ENDS => {
                if let Some(open) = &mut self.cpu(cpu).open {
                    open.end_hold();
                }
            }
            // An interrupt can emit these events between a free and the hold of the zone lock that
            // the free causes. So these events do not end a move.
            What::ContentionBegin { .. }
            | What::ContentionEnd { .. }
            | What::TimerStart { .. }
            | What::TimerExpire { .. }
            | What::WorkQueued { .. }
            | What::Mark(_) => {}
            What::Alloc { pfn, order, .. } => {
                self.close(cpu, Some((pfn, order)));
                self.cpu(cpu).freed = None;
                self.lists.remove(&pfn);
            }
            What::Free { pfn, .. } | What::FreeBatched { pfn } => {
                self.close(cpu, None);
                self.cpu(cpu).freed = Some(pid);
                self.lists.insert(pfn, cpu);
            }
            What::WorkStart { function, .. } | What::WorkEnd { function, .. } => {
                let begins = matches!(event.what, What::WorkStart { .. });
                let is_update = Some(function.0 as usize) == self.update;
                self.close(cpu, None);
                let cpu = self.cpu(cpu);
                cpu.freed = None;
                if is_update {
                    cpu.updates = begins.then_some(pid);
                }
            }
            _ => {
                self.close(cpu, None);
                self.cpu(cpu).freed = None;
            }
        }
    }

    /// Notes that a block was taken from the zone.
    fn taken(&mut self, event: &Event, pfn: u64, order: u8, path: Path) {
        let (cpu, zone) = (event.cpu, self.zones.zone(pfn));
        // The blocks of one move can have different orders, because a refill by whole blocks takes
        // free blocks of any order.
        let same =
            |open: &Open| open.so_far.path == path && open.pid == event.pid && open.zone == zone;
        if !self.cpu(cpu).open.as_ref().is_some_and(same) {
            self.close(cpu, None);
            self.open(event, path, (zone, None), order);
        }
        if path == Path::Refill {
            self.lists.insert(pfn, cpu);
        }
        // If the migrate type of a block's page block changes, Linux prints two events for the
        // block. Add the block only once.
        let open = self.cpu(cpu).open.as_ref();
        if open.is_none_or(|open| open.last_pfn != pfn) {
            self.add(cpu, pfn, order);
        }
    }

    /// Notes that a block was returned from a list to the zone.
    fn given(&mut self, event: &Event, pfn: u64, order: u8) {
        let (cpu, pid) = (event.cpu, event.pid);
        let (zone, list) = (self.zones.zone(pfn), self.lists.remove(&pfn));
        let (after_free, in_update) = {
            let here = self.cpu(cpu);
            (here.freed == Some(pid), here.updates == Some(pid))
        };
        let of_another = list.is_some_and(|list| list != cpu);
        let gives = |open: &&Open| {
            let path = open.so_far.path;
            open.pid == pid && !matches!(path, Path::Refill | Path::Direct)
        };
        let path = match self.cpu(cpu).open.as_ref().filter(gives) {
            Some(open) => {
                let other_list = open.list.zip(list).is_some_and(|(one, other)| one != other);
                if open.zone == zone && !other_list {
                    let open = self.cpu(cpu).open.as_mut().expect("it was just seen");
                    open.list = open.list.or(list);
                    return self.add(cpu, pfn, order);
                }
                // A spill empties only one list. So if a block of another list follows, and there
                // is no free in between, the move is a drain.
                match open.so_far.path {
                    Path::Spill => Path::Drain,
                    path => path,
                }
            }
            None if of_another => Path::Drain,
            None if after_free => Path::Spill,
            None if in_update => Path::Decay,
            None => Path::Drain,
        };
        self.close(cpu, None);
        self.cpu(cpu).freed = None;
        self.open(event, path, (zone, list), order);
        self.add(cpu, pfn, order);
    }

    fn open(
        &mut self,
        event: &Event,
        path: Path,
        (zone, list): (Option<usize>, Option<u32>),
        order: u8,
    ) {
        let so_far = Move {
            time_ns: event.time_ns,
            cpu: event.cpu,
            path,
            pages: 0,
            holds: Vec::new(),
        };
        self.cpu(event.cpu).open = Some(Open {
            so_far,
            pid: event.pid,
            zone,
            list,
            order,
            last_pfn: u64::MAX,
            blocks: 0,
            since_hold: 0,
        });
    }

    /// Adds a block to the current move of `cpu`. A move consists of blocks that move in succession
    /// between a zone and the CPU's page lists.
    fn add(&mut self, cpu: u32, pfn: u64, order: u8) {
        let open = self.cpu(cpu).open.as_mut().expect("a move was opened");
        let pages = 1 << order.min(63);
        open.last_pfn = pfn;
        open.blocks += 1;
        open.so_far.pages += pages;
        open.since_hold += pages;
    }

    /// Ends the move that is in progress on `cpu`. `alloc` is the block that is allocated right
    /// after the move, if there is one.
    fn close(&mut self, cpu: u32, alloc: Option<(u64, u8)>) {
        let Some(mut open) = self.cpu(cpu).open.take() else {
            return;
        };
        // If the move is a single block that is allocated right after it left the zone, the block
        // did not go through the lists. Linux bypasses the lists while another context uses them.
        let single = open.blocks == 1 && alloc == Some((open.last_pfn, open.order));
        if single && open.so_far.path == Path::Refill {
            open.so_far.path = Path::Direct;
        }
        if !open.so_far.holds.is_empty() {
            open.end_hold();
        }
        self.moves.push(open.so_far);
    }

    fn finish(mut self) -> Vec<Move> {
        let mut cpus: Vec<u32> = self.cpus.keys().copied().collect();
        cpus.sort_unstable();
        for cpu in cpus {
            self.close(cpu, None);
        }
        self.moves
    }

    fn cpu(&mut self, cpu: u32) -> &mut Cpu {
        self.cpus.entry(cpu).or_default()
    }
}

impl Open {
    fn end_hold(&mut self) {
        // Record only holds of the zone lock in which this transfer moved pages to or from a list.
        if self.since_hold > 0 {
            self.so_far.holds.push(self.since_hold);
            self.since_hold = 0;
        }
    }
}
