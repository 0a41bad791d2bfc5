//! One operation of a recording, and what it moved.

use super::lists::ListId;

/// Something that a CPU did with pages.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Op {
    /// The event that shows it.
    pub(crate) event: u32,
    /// The CPU on whose lists the operation works.
    pub(crate) cpu: u32,
    pub(crate) action: Action,
    /// What the kernel moved between lists and zones for it.
    pub(crate) moves: Vec<Move>,
}

/// What was done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// A block was taken from a list.
    Alloc { zone: u8, list: ListId, pfn: u64 },
    /// A block was taken from the zone itself.
    AllocDirect {
        zone: u8,
        order: u8,
        mobility: u8,
        pfn: u64,
    },
    /// Single pages were taken from a list at once, unseen.
    Bulk {
        zone: u8,
        list: ListId,
        pfns: Vec<u64>,
    },
    /// A block was put on a list.
    Free { zone: u8, list: ListId, pfn: u64 },
    /// A block was given to the zone itself.
    FreeDirect { zone: u8, order: u8, pfn: u64 },
    /// The periodic work of the CPU ran.
    Refresh,
    /// The lists of the CPU in one zone were emptied by a CPU.
    Drain { zone: u8, by: u32 },
    /// The CPU came or went.
    Online(bool),
    /// kswapd began a round of reclaim, or ended one, in zones up to this one, counted as the kernel
    /// does.
    Reclaim { highest: u8, active: bool },
    /// kswapd sleeps until an allocation wakes it.
    Sleep,
    /// The watermarks of a zone are this many pages higher than usual.
    Boost { zone: u8, pages: u64 },
    /// An allocation found all zones up to this one, counted as the kernel does, below their high
    /// watermarks, or without a block that is large enough.
    Shortage { highest: u8 },
}

/// Pages that went between lists and a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) kind: Kind,
    pub(crate) zone: u8,
    /// By list, how many blocks.
    pub(crate) lists: Vec<(ListId, u32)>,
}

/// Which way, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Refill,
    Spill,
    Decay,
    Drain,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Refill, Self::Spill, Self::Decay, Self::Drain];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Refill => "refill",
            Self::Spill => "spill",
            Self::Decay => "decay",
            Self::Drain => "drain",
        }
    }
}

impl Move {
    pub(crate) fn new(kind: Kind, zone: u8) -> Self {
        Self {
            kind,
            zone,
            lists: Vec::new(),
        }
    }

    /// Counts one more block.
    pub(crate) fn add(&mut self, list: ListId) {
        match self.lists.iter_mut().find(|(known, _)| *known == list) {
            Some((_, blocks)) => *blocks += 1,
            None => self.lists.push((list, 1)),
        }
    }

    pub(crate) fn pages(&self) -> u32 {
        let pages = |(list, blocks): &(ListId, u32)| list.pages() * blocks;
        self.lists.iter().map(pages).sum()
    }

    pub(crate) fn blocks(&self) -> u32 {
        self.lists.iter().map(|(_, blocks)| blocks).sum()
    }
}
