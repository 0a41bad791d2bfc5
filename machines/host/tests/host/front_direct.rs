//! Tests of runs of pages that move directly between a front (a CPU's stack of free pages) and a
//! zone with bitmaps, by threads that run at the same time.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::thread;

use plimsoll_host::fronts::Fronts;
use plimsoll_host::{Host, OwnerLocks};
use plimsoll_mm::Manager;
use plimsoll_mm::page::{Config, Layout, Request};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn};

use crate::fronts::free_at_once;

/// The number of pages of the zone: 1 GiB, so that a batch has 63 pages.
const PAGES: u32 = 1 << 18;
/// The number of pages that a thread has at once. This is far more than a CPU's lists may hold.
const EACH: usize = 60_000;
const ROUNDS: usize = 6;
const ONE: Request = Request::new(Order::ZERO);

/// The kinds of fronts (stacks of free pages) that this computer supports.
fn kinds() -> impl Iterator<Item = Fronts> {
    let all = [Fronts::Restartable, Fronts::Owned];
    all.into_iter().filter(|fronts| fronts.is_available())
}

fn machine(fronts: Fronts) -> (Host, Manager<Host>) {
    let host = Host::with_fronts(Topology::flat(2), fronts, OwnerLocks::Exchanged);
    let layout = Layout::arena(Pages(PAGES)).with_bitmaps();
    let manager = Manager::new(&host, Config::new(layout)).expect("a layout");
    (host, manager)
}

/// Asserts that every page is free, and that all pages are merged after a drain.
fn assert_whole(host: &Host, manager: &Manager<Host>) {
    let pages = manager.pages();
    let zone = &pages.view(host)[0];
    assert_eq!(zone.free + zone.listed, Pages(PAGES));
    pages.drain_all_sync(host);
    let zone = &pages.view(host)[0];
    assert_eq!((zone.free, zone.listed), (Pages(PAGES), Pages(0)));
    assert_eq!(zone.counted_free, u64::from(PAGES));
    assert_eq!(zone.blocks[Order::MAX.index()], PAGES / 1024);
}

/// Two CPUs allocate and free many pages in a row, while a third thread drains all lists now and
/// then. No page has two users at a time, and no page is lost.
#[test]
fn cpus_that_pass_their_lists_share_no_page() {
    for fronts in kinds() {
        let (host, manager) = machine(fronts);
        let has_user: Vec<AtomicBool> = (0..PAGES).map(|_| AtomicBool::new(false)).collect();
        let busy = AtomicU32::new(2);
        thread::scope(|scope| {
            for cpu in [0, 1] {
                let (host, manager, has_user, busy) = (&host, &manager, &has_user, &busy);
                scope.spawn(move || {
                    let _entered = host.enter(CpuId(cpu));
                    let local = manager.pages().local(host, CpuId(cpu));
                    for round in 0..ROUNDS {
                        let mut held: Vec<Pfn> = Vec::with_capacity(EACH);
                        for _ in 0..EACH {
                            let pfn = local.alloc(host, ONE).expect("there is memory");
                            let had = has_user[pfn.0 as usize].swap(true, Relaxed);
                            assert!(!had, "{fronts}: {pfn:?} has two users");
                            held.push(pfn);
                        }
                        // In some rounds the pages are not freed in the order of their addresses.
                        let step = [1, 7919][round % 2];
                        for at in 0..EACH {
                            let pfn = held[at * step % EACH];
                            has_user[pfn.0 as usize].store(false, Relaxed);
                            let freed = local.free(host, pfn, Order::ZERO);
                            freed.expect("the thread alone has the page");
                        }
                    }
                    busy.fetch_sub(1, Relaxed);
                });
            }
            while busy.load(Relaxed) > 0 {
                manager.pages().drain_all_sync(&host);
                thread::yield_now();
            }
        });
        assert_eq!(manager.pages().double_frees(), 0, "{fronts}");
        assert_whole(&host, &manager);
    }
}

/// One CPU only allocates pages and another CPU only frees them. If the depot is full, the runs of
/// the second CPU pass its lists.
#[test]
fn a_cpu_that_only_frees_pages_returns_them_to_the_zone() {
    for fronts in kinds() {
        let (host, manager) = machine(fronts);
        let pages = manager.pages();
        for _ in 0..ROUNDS {
            let held: Vec<Pfn> = {
                let _entered = host.enter(CpuId(0));
                let alloc = |_| pages.alloc(&host, ONE).expect("there is memory");
                (0..EACH).map(alloc).collect()
            };
            let _entered = host.enter(CpuId(1));
            for pfn in held {
                let freed = pages.free(&host, pfn, Order::ZERO);
                freed.expect("it is allocated");
            }
        }
        // The lists of a CPU may hold a sixteenth of the zone, and its front an eighth of that.
        let listed = pages.listed(&host, CpuId(1));
        assert!(listed <= Pages(PAGES / 16 + PAGES / 128), "{listed:?}");
        assert_whole(&host, &manager);
    }
}

/// Two threads free the same pages at the same time. If both frees of a page succeed, the page is in
/// two fronts (stacks of free pages), but it returns to the zone once.
#[test]
fn runs_with_pages_that_were_freed_twice_return_each_page_once() {
    for fronts in kinds() {
        let (host, manager) = machine(fronts);
        let (pages, mut twice) = (manager.pages(), 0);
        for _ in 0..ROUNDS {
            let held: Vec<Pfn> = {
                let _entered = host.enter(CpuId(0));
                let alloc = |_| pages.alloc(&host, ONE).expect("there is memory");
                (0..EACH).map(alloc).collect()
            };
            let freed = free_at_once(&host, &manager, &held);
            assert!(freed >= held.len(), "{fronts}: each page is freed");
            twice += (freed - held.len()) as u64;
            pages.drain_all_sync(&host);
            assert_eq!(pages.double_frees(), twice, "{fronts}: each is found");
            assert_whole(&host, &manager);
        }
    }
}
