//! The migrate type of each page block, derived from events.

use plimsoll_recording::event::{Event, What};

use super::{BLOCK_SHIFT, GUESSES, Walk};

impl Walk<'_> {
    /// Records for each page block the type that it had when the recording began. This is the type
    /// in the first event that shows the page block's type. If that event claims the page block for
    /// another type, the function records the type before the claim.
    pub(super) fn learn_beginnings(&mut self) {
        let mut claimed = None;
        for (index, event) in self.events.iter().enumerate().rev() {
            match event.what {
                What::ExtFrag {
                    pfn,
                    fallback,
                    fallback_order,
                    claimed: true,
                    ..
                } => {
                    self.set_type(pfn, fallback_order, fallback);
                    claimed = Some(pfn);
                }
                // A claimed block's `ZoneLocked` event precedes the event of the claim, but already
                // shows the new type. So `ZoneLocked` says nothing about the type before the claim.
                What::ZoneLocked { pfn, .. } if claimed.take() == Some(pfn) => {}
                ref what => self.learn(what),
            }
            self.learn_from_list(index, event);
        }
    }

    /// Records the type of a page block if the event `what` shows it.
    pub(super) fn learn(&mut self, what: &What) {
        match *what {
            What::PcpuDrain {
                pfn,
                mobility: Some(kind),
                ..
            } => self.set_type(pfn, 0, kind),
            What::ZoneLocked { pfn, mobility, .. } => self.set_type(pfn, 0, mobility),
            What::ExtFrag {
                pfn,
                mobility,
                fallback,
                fallback_order,
                claimed,
                ..
            } => {
                let kind = if claimed { mobility } else { fallback };
                self.set_type(pfn, fallback_order, kind);
            }
            _ => {}
        }
    }

    /// Records `kind` as the migrate type of all page blocks that the block of `order` at `pfn`
    /// touches.
    pub(super) fn set_type(&mut self, pfn: u64, order: u8, kind: u8) {
        let first = pfn >> BLOCK_SHIFT;
        let blocks = (1u64 << order.min(10)) >> BLOCK_SHIFT;
        for block in first..first + blocks.max(1) {
            self.blocks.insert(block, kind);
        }
    }

    /// Handles a freed page whose next event is its allocation. The type that the allocation
    /// requests is the type of the list that the page was on. Records this type as the type of the
    /// page block.
    pub(super) fn learn_from_list(&mut self, index: usize, event: &Event) {
        let (What::Free { pfn, order: 0 } | What::FreeBatched { pfn }) = event.what else {
            return;
        };
        let next = self
            .future
            .of_frame(index)
            .map(|next| &self.events[next].what);
        if let Some(&What::Alloc {
            pfn: next_pfn,
            order: 0,
            mobility: Some(kind),
            ..
        }) = next
            && next_pfn == pfn
        {
            self.blocks.insert(pfn >> BLOCK_SHIFT, kind);
        }
    }

    /// The type of the page block that contains a frame: the type that an event showed last, or a
    /// guess if no event shows one.
    pub(super) fn block_type(&self, pfn: u64) -> u8 {
        let block = pfn >> BLOCK_SHIFT;
        let known = self.blocks.get(&block).copied();
        known.unwrap_or_else(|| GUESSES[self.doubts.ruled_out.get(&block).copied().unwrap_or(0)])
    }
}
