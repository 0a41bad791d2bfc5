//! An operation of a recording, and the pages that the kernel moved because of the operation.

use super::lists::ListId;

/// An operation of the recorded kernel on pages or page lists, such as an allocation or a drain.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Op {
    /// The index of the event that shows the operation.
    pub(crate) event: u32,
    /// The CPU whose page lists the operation uses.
    pub(crate) cpu: u32,
    pub(crate) action: Action,
    /// The kernel's moves between lists and zones for this operation.
    pub(crate) moves: Vec<Move>,
}

/// The effect of an operation. A `zone` is an index into the zones of `/proc/zoneinfo` that have
/// memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// An allocation took a block from a list.
    Alloc { zone: u8, list: ListId, pfn: u64 },
    /// An allocation took a block directly from the zone, bypassing the lists.
    AllocDirect {
        zone: u8,
        order: u8,
        mobility: u8,
        pfn: u64,
    },
    /// Blocks left a list without an event, as single pages do in a bulk allocation (Linux:
    /// `alloc_pages_bulk`).
    Bulk {
        zone: u8,
        list: ListId,
        pfns: Vec<u64>,
    },
    /// A bulk allocation took `pages` single pages that were on the CPU's lists before the
    /// recording and that no event shows. If fewer than `pages` such pages were left, the bulk
    /// allocation took all of them.
    BulkNeverSeen { zone: u8, pages: u32 },
    /// A free put a block on a list.
    Free { zone: u8, list: ListId, pfn: u64 },
    /// A free returned a block directly to the zone, bypassing the lists.
    FreeDirect { zone: u8, order: u8, pfn: u64 },
    /// The periodic work of the CPU ran (Linux: `vmstat_update`).
    Refresh,
    /// CPU `by` emptied the lists of the operation's CPU in one zone.
    Drain { zone: u8, by: u32 },
    /// The CPU came online (`true`) or went offline (`false`).
    Online(bool),
    /// The kswapd of `node` began (if `active`) or ended a round of reclaim in the node's zones up
    /// to the zone with the index `highest`. As in the kernel, index 0 is DMA.
    Reclaim {
        node: u32,
        highest: u8,
        active: bool,
    },
    /// The kswapd of `node` went to sleep until an allocation wakes it.
    Sleep { node: u32 },
    /// From this operation on, the watermarks of a zone are `pages` pages above their values
    /// without a boost.
    Boost { zone: u8, pages: u64 },
    /// An allocation found no usable zone among the zones of `node` up to `highest`, which is an
    /// index as in [`Action::Reclaim`]. Each of these zones was below its high watermark or had no
    /// block that was large enough. If `node` is `None`, this is true of all nodes whose memory the
    /// allocation was allowed to use. No event shows which nodes these are.
    Shortage { node: Option<u32>, highest: u8 },
}

/// The blocks that one operation moved between a zone and the lists of a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) kind: Kind,
    pub(crate) zone: u8,
    /// The number of blocks moved, for each list.
    pub(crate) lists: Vec<(ListId, u32)>,
}

/// The direction and the cause of a move, for example a refill.
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

    /// Records that one more block of `list` belongs to this transfer of blocks.
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
