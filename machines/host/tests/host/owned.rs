//! Tests of blocks that CPUs own, on real threads.

use plimsoll_host::Host;
use plimsoll_mm::page::owned::Owning;
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::page::{Config, Grouping, Layout, Mobility, PageAllocator, Request};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Order, Pages};

const PAGES: u32 = 64 * 1024;

/// Nearly all pages are in use, and all page blocks are movable. A request for an unmovable page then
/// gets a page of these blocks, until no page is left, whether or not blocks have owners.
#[test]
fn with_owners_too_a_request_falls_back_to_blocks_of_other_types() {
    for owning in Owning::ALL {
        let host = Host::with_topology(Topology::flat(2));
        let _entered = host.enter(CpuId(0));
        let mut config = Config::new(Layout::arena(Pages(PAGES)));
        config.grouping = Grouping::Huge;
        config.design.owning = owning;
        let pages = PageAllocator::new(&host, config).expect("an arena is a layout");
        let mut held = Vec::new();
        let mut take = |mobility, count| {
            let request = Request::new(Order::ZERO).of_mobility(mobility);
            let request = request.urgent(Urgency::Reserve);
            let taken = (0..count).map_while(|_| pages.alloc(&host, request).ok());
            let before = held.len();
            held.extend(taken);
            held.len() - before
        };
        let most = PAGES as usize - 600;
        assert_eq!(take(Mobility::Movable, most), most, "{owning:?}");
        assert!(
            take(Mobility::Unmovable, 600) > 590,
            "{owning:?}: they fall back"
        );
        held.sort_unstable();
        held.dedup();
        assert!(
            held.len() > PAGES as usize - 10,
            "{owning:?}: no page twice"
        );
        for pfn in held {
            pages.free(&host, pfn, Order::ZERO).expect("it is in use");
        }
        pages.drain_all_sync(&host);
        let zone = &pages.view(&host)[0];
        assert_eq!((zone.free, zone.listed), (Pages(PAGES), Pages::ZERO));
    }
}
