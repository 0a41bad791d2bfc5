//! Promise: a page has at most one owner, and only its owner frees it.
//!
//! The check keeps an entry for each page, and updates the entries according to the events of
//! single pages. The manager emits these events in the order in which its state changes, so the
//! times of the events do not matter. If the CPUs have fronts (stacks of free pages), most allocations
//! and frees emit no events, so the tasks update the entries.

use std::collections::BTreeMap;

use plimsoll_mm::event::Event;
use plimsoll_mm::page::{Layout, ZoneLayout};
use plimsoll_mm::units::{Order, Pfn};

/// The pages and blocks that are handed out, according to the events.
#[derive(Clone, Debug)]
pub(crate) struct Owners {
    layout: Layout,
    /// The first page of each block that is handed out, and the block's order.
    blocks: BTreeMap<u32, Order>,
    /// For each page, whether it is in a block that is handed out.
    pages: Vec<bool>,
}

impl Owners {
    pub(crate) fn new(layout: &Layout) -> Self {
        let end = layout.zones.iter().map(|zone| zone.span().end).max();
        Self {
            layout: layout.clone(),
            blocks: BTreeMap::new(),
            pages: vec![false; end.unwrap_or(0) as usize],
        }
    }

    pub(crate) fn note(&mut self, event: &Event) {
        match *event {
            Event::PageAlloc { pfn, order } => self.takes(pfn, order),
            Event::PageFree { pfn, order } => self.gives(pfn, order),
            Event::PageSplit { pfn, order } => {
                self.gives(pfn, order);
                let all = pfn.0..pfn.0 + order.pages().0;
                all.for_each(|page| self.takes(Pfn(page), Order::ZERO));
            }
            _ => {}
        }
    }

    pub(crate) fn takes(&mut self, pfn: Pfn, order: Order) {
        assert!(
            pfn.is_aligned(order),
            "{pfn:?} heads no block of order {order}"
        );
        let end = pfn.0 + order.pages().0;
        for page in pfn.0..end {
            assert!(
                self.is_memory(page),
                "page {page} is handed out but is no memory"
            );
            let taken = &mut self.pages[page as usize];
            assert!(!*taken, "page {page} is handed out twice");
            *taken = true;
        }
        self.blocks.insert(pfn.0, order);
    }

    pub(crate) fn gives(&mut self, pfn: Pfn, order: Order) {
        let had = self.blocks.remove(&pfn.0);
        assert_eq!(
            had,
            Some(order),
            "{pfn:?} is taken back with order {order}, owned {had:?}"
        );
        self.pages[pfn.0 as usize..][..order.pages().index()].fill(false);
    }

    fn is_memory(&self, page: u32) -> bool {
        self.layout.zones.iter().any(|zone| holds(zone, page))
    }

    /// Returns whether `page` is handed out.
    pub(crate) fn has(&self, page: u32) -> bool {
        self.pages[page as usize]
    }

    /// Returns the number of pages of `zone` that are handed out.
    pub(crate) fn owned(&self, zone: &ZoneLayout) -> u32 {
        let owned = zone.span().filter(|&page| self.has(page)).count();
        u32::try_from(owned).expect("a zone's pages")
    }

    /// Returns every block that is handed out.
    pub(crate) fn blocks(&self) -> Vec<(Pfn, Order)> {
        let block = |(&pfn, &order)| (Pfn(pfn), order);
        self.blocks.iter().map(block).collect()
    }
}

/// Returns whether `page` is memory of `zone`.
pub(crate) fn holds(zone: &ZoneLayout, page: u32) -> bool {
    zone.span().contains(&page) && !zone.holes.iter().any(|hole| hole.contains(&page))
}
