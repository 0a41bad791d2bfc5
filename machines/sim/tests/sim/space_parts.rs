//! Tests the data structures that address spaces share (budgets, objects, slots of swap, lists of
//! used pages) on simulated CPUs. Checks their laws (contracts) with many seeds, and how long their
//! locks are held.

use crate::support;
use crate::support::law::run_law;

use std::ops::Range;

use plimsoll_mm::design::Design;
use plimsoll_mm::laws;
use plimsoll_mm::page::{Config, Layout, ZoneKind, ZoneLayout};
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::space::lru::Lru;
use plimsoll_mm::space::object::{Object, ObjectKind};
use plimsoll_mm::space::swap::SwapArea;
use plimsoll_mm::topology::{CpuPlace, Topology};
use plimsoll_mm::units::{Nanos, NodeId, Order, Pages, Pfn};
use plimsoll_sim::LockStats;
use plimsoll_sim::profile::Profile;
use support::small::{any, profile};
use support::{Small, seeds};

fn machine() -> Profile {
    profile(Topology::flat(2), 1000)
}

fn seeds() -> Range<u64> {
    seeds::chosen(500)
}

#[test]
fn budgets() {
    run_law(&laws::budget::charging_at_once(), &machine(), seeds());
    run_law(&laws::budget::refused_on_the_way_up(), &machine(), seeds());
    run_law(&laws::budget::following(), &machine(), seeds());
}

#[test]
fn objects() {
    run_law(&laws::parts::touching_at_once(), &machine(), seeds());
}

#[test]
fn swap_slots() {
    run_law(&laws::parts::slots_are_not_shared(), &machine(), seeds());
    run_law(&laws::parts::slot_given_back_twice(), &machine(), seeds());
}

#[test]
fn batches() {
    run_law(&laws::parts::batches_for_the_dying(), &machine(), seeds());
    run_law(&laws::parts::a_late_batch(), &machine(), seeds());
}

#[test]
fn lists_of_used_pages() {
    run_law(&laws::parts::aging_at_once(), &machine(), seeds());
}

/// The price of most kinds of work on these machines, in nanoseconds.
const PRICE_NS: u64 = 50;

fn at(small: &Small, class: LockClass, site: Site) -> LockStats {
    small.sim.stats().site(class, site).clone()
}

fn spent(small: &Small, work: Work) -> u64 {
    small.sim.stats().work_ns[work as usize]
}

/// Creates a machine of two CPUs, each near 1024 pages, and 1024 more pages that are near no CPU.
fn three_nodes() -> Small {
    let place = |nth| CpuPlace {
        core: nth,
        llc: nth,
        node: NodeId(nth),
        socket: nth,
    };
    let zone = |nth| ZoneLayout {
        kind: ZoneKind::Normal,
        node: NodeId(nth),
        start: Pfn(nth * 1024),
        spanned: Pages(1024),
        holes: Vec::new(),
    };
    let topology = Topology::new((0..2).map(place).collect());
    let config = Config::new(Layout::of((0..3).map(zone)));
    Small::new(&profile(topology, 1000), config)
}

#[test]
fn pages_join_and_leave_the_lists_by_batches_of_31() {
    let small = three_nodes();
    small.on(0, |sim, mm| {
        let lru = Lru::new(sim);
        for page in 0..100 {
            lru.add(sim, mm.pages(), Pfn(page));
        }
        lru.drain(sim, mm.pages());
        lru.drain(sim, mm.pages());
        let all: Vec<Pfn> = (0..100).map(Pfn).collect();
        lru.remove(sim, mm.pages(), &all);
        assert_eq!(lru.total(sim), 0);
    });
    let added = at(&small, LockClass::Lru, Site::LruAdd);
    assert_eq!(added.acquisitions, 3 + 1, "full batches, and the rest");
    let removed = at(&small, LockClass::Lru, Site::LruRemove);
    assert_eq!(removed.acquisitions, 4);
    // The lock is held while pages are removed, at most one batch of 31 pages in each hold.
    assert!(removed.hold_total >= Nanos(100 * PRICE_NS));
    assert!((31 * PRICE_NS..32 * PRICE_NS).contains(&removed.hold_max.0));
    assert_eq!(spent(&small, Work::LruRemove), 100 * PRICE_NS);
}

#[test]
fn every_node_has_lists_of_its_own_but_memory_near_nobody() {
    let small = three_nodes();
    small.on(0, |sim, mm| {
        let lru = Lru::new(sim);
        let of = |node: u32, len: u32| (0..len).map(move |page| Pfn(node * 1024 + page));
        for pfn in of(0, 31).chain(of(1, 20)).chain(of(2, 20)) {
            lru.add(sim, mm.pages(), pfn);
        }
        // Two batches were moved: 31 pages of node 0, and 31 pages of nodes 1 and 2, which share
        // one set of lists.
        let seen = sim.stats().site(LockClass::Lru, Site::LruAdd).acquisitions;
        assert_eq!(seen, 2);
        assert_eq!(lru.total(sim), 71);
        // The 40 pages of node 0 are removed in two batches, of 31 and 9 pages. The 20 pages of
        // node 1 and the 11 pages of node 2 are removed in one batch each.
        let gone: Vec<Pfn> = of(0, 40).chain(of(1, 20)).chain(of(2, 11)).collect();
        lru.remove(sim, mm.pages(), &gone);
        assert_eq!(lru.total(sim), 0);
    });
    let removed = at(&small, LockClass::Lru, Site::LruRemove);
    assert_eq!(removed.acquisitions, 2 + 1 + 1);
}

#[test]
fn slots_go_back_in_one_hold_and_their_work_is_done_outside() {
    let small = Small::flat(2, 1024, Design::OURS);
    small.on(0, |sim, _| {
        let area = SwapArea::new(sim, 500).expect("memory for 500 slots");
        let slots: Vec<_> = std::iter::from_fn(|| area.take(sim)).collect();
        assert_eq!(slots.len(), 500);
        area.give_back(sim, &slots).expect("all were taken");
    });
    let given = at(&small, LockClass::Swap, Site::SwapFree);
    assert_eq!(given.acquisitions, 1);
    assert!(given.hold_max < Nanos(PRICE_NS), "{:?}", given.hold_max);
    assert_eq!(spent(&small, Work::SwapFree), 500 * PRICE_NS);
}

#[test]
fn nothing_is_allocated_while_an_object_is_locked() {
    let small = Small::flat(2, 1024, Design::OURS);
    small.on(0, |sim, mm| {
        let object = Object::new(sim, ObjectKind::File);
        for _ in 0..3 {
            let page = object.page(sim, mm.pages(), 9, any(Order::ZERO));
            page.expect("there are pages");
        }
        object.empty(sim, mm.pages());
    });
    let looked = at(&small, LockClass::Object, Site::ObjectPage);
    assert_eq!(
        looked.acquisitions,
        2 + 1 + 1,
        "the first touch looks again"
    );
    assert!(looked.hold_max < Nanos(PRICE_NS), "{:?}", looked.hold_max);
    assert_eq!(spent(&small, Work::PcpAlloc), PRICE_NS, "one page");
    let emptied = at(&small, LockClass::Object, Site::ObjectEmpty);
    assert_eq!(emptied.acquisitions, 1);
    assert!(emptied.hold_max < Nanos(PRICE_NS), "{:?}", emptied.hold_max);
}
