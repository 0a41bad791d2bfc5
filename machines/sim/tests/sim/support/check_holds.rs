//! Promise: no hold of a zone lock moves more pages than the hold policy of the run allows. A hold
//! policy is a rule that limits how many pages one hold moves. If the zones keep their free pages in
//! bitmaps, it limits how many blocks one hold moves.

use plimsoll_mm::event::Event;
use plimsoll_mm::page::FreeIndex;
use plimsoll_mm::page::holds::Holds;
use plimsoll_mm::site::Site;
use plimsoll_mm::units::{Order, Pages};

/// The number of pages in the largest block on a page list.
const LISTED_MAX: u32 = Order::HUGE.pages().0;

/// Checks that no hold of a zone lock moves more pages than the rule with the name `policy` allows.
#[derive(Debug)]
pub(crate) struct HoldLimit {
    policy: &'static str,
    index: FreeIndex,
}

impl HoldLimit {
    pub(crate) fn new(holds: &dyn Holds, index: FreeIndex) -> Self {
        Self {
            policy: holds.name(),
            index,
        }
    }

    pub(crate) fn note(&self, event: &Event) {
        let Event::ZoneHold {
            site,
            pages: Pages(pages),
            blocks,
            batch: Pages(batch),
            ..
        } = *event
        else {
            return;
        };
        let what = format!("{pages} pages in {blocks} blocks at {site:?}, batch {batch}");
        assert!(
            blocks > 0 && pages >= blocks,
            "a hold that moves nothing: {what}"
        );
        let counted = match self.index {
            FreeIndex::Lists => pages,
            FreeIndex::Bitmaps => blocks,
        };
        // A CPU that holds the zone lock takes another block as long as it has moved fewer pages
        // than the limit. So with the last block, the CPU may move more pages than the limit.
        let about = |limit: u32| counted < limit + LISTED_MAX;
        let ok = match (self.policy, site) {
            (_, Site::AllocDirect | Site::FreeDirect) => blocks == 1,
            ("bounded" | "bounded-pages" | "bounded-one-drain", _) => {
                counted <= batch || blocks == 1
            }
            ("batched" | "batched-zone-lock", Site::Spill | Site::Decay) => about(batch),
            ("batched-drains" | "batched-zone-lock", Site::Drain) => about(batch),
            ("lists-6.12" | "lists-6.18", Site::Decay) => about(batch),
            (_, Site::Drain) => about(batch << 5),
            (_, Site::DrainRemoteNode) => about(batch),
            _ => true,
        };
        assert!(ok, "too much for {}: {what}", self.policy);
    }
}
