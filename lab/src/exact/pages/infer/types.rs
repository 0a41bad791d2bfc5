//! The migrate type of each page block, as events tell it.

use plimsoll_recording::event::{Event, What};

use super::{BLOCK_SHIFT, GUESSES, Walk};

impl Walk<'_> {
    /// Notes which type each page block has at the beginning: what it is when it is first seen, or, if
    /// it is then claimed for another type, what it was before.
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
                // The block was taken once it was claimed.
                What::ZoneLocked { pfn, .. } if claimed.take() == Some(pfn) => {}
                ref what => self.learn(what),
            }
            self.learn_from_list(index, event);
        }
    }

    /// Notes what an event says of a page block's type.
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

    /// A block of `order` at `pfn` is in page blocks of one type.
    pub(super) fn set_type(&mut self, pfn: u64, order: u8, kind: u8) {
        let first = pfn >> BLOCK_SHIFT;
        let blocks = (1u64 << order.min(10)) >> BLOCK_SHIFT;
        for block in first..first + blocks.max(1) {
            self.blocks.insert(block, kind);
        }
    }

    /// Notes the type of the block around a freed page whose list is known from what follows.
    pub(super) fn learn_from_list(&mut self, index: usize, event: &Event) {
        let (What::Free { pfn, order: 0 } | What::FreeBatched { pfn }) = event.what else {
            return;
        };
        let next = self
            .future
            .of_frame(index)
            .map(|next| &self.events[next].what);
        if let Some(&What::Alloc {
            pfn: it,
            order: 0,
            mobility: Some(kind),
            ..
        }) = next
            && it == pfn
        {
            self.blocks.insert(pfn >> BLOCK_SHIFT, kind);
        }
    }

    /// The type of the page block around a frame, as far as events tell.
    pub(super) fn block_type(&self, pfn: u64) -> u8 {
        let block = pfn >> BLOCK_SHIFT;
        let known = self.blocks.get(&block).copied();
        known.unwrap_or_else(|| GUESSES[self.doubts.ruled_out.get(&block).copied().unwrap_or(0)])
    }
}
