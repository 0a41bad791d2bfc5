//! Compares the data structures that address spaces share with models. These are swap slots, the
//! pages of objects (files and shared memory), and the lists of used pages (LRU).

use std::collections::BTreeMap;
use std::env;
use std::process::Command;

use plimsoll_host::Host;
use plimsoll_mm::laws;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::page::{AllocError, Config, FreeError, Layout, PageAllocator, Request};
use plimsoll_mm::space::lru::Lru;
use plimsoll_mm::space::object::{Object, ObjectKind, PageError};
use plimsoll_mm::space::swap::{BadSlot, SwapArea, SwapSlot};
use plimsoll_mm::space::vma_tree::NoMemory;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn};
use proptest::prelude::*;

use crate::support::law::run_law;

const ROUNDS: u32 = 2000;
const PAGES: u32 = 1024;

fn host() -> Host {
    Host::with_topology(Topology::flat(2))
}

fn allocator(host: &Host) -> PageAllocator<Host> {
    let config = Config::new(Layout::arena(Pages(PAGES)));
    PageAllocator::new(host, config).expect("an arena is a layout")
}

fn single() -> Request {
    Request::new(Order::ZERO).urgent(Urgency::Reserve)
}

/// Drains all page lists. Returns the number of free pages.
fn free(host: &Host, pages: &PageAllocator<Host>) -> u32 {
    pages.drain_all_sync(host);
    pages.view(host)[0].free.0
}

#[derive(Clone, Debug)]
enum Op {
    Take,
    /// Frees the swap slots with these numbers. Some of them may not be in use.
    Give(Vec<u32>),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => Just(Op::Take),
        1 => prop::collection::vec(0..12_u32, 0..5).prop_map(Op::Give),
    ]
}

proptest! {
    #[test]
    fn a_swap_area_is_a_set_of_slots(
        slots in 0..10_u32,
        ops in prop::collection::vec(op(), 0..100),
    ) {
        let host = host();
        let _entered = host.enter(CpuId(0));
        let area = SwapArea::new(&host, slots).expect("memory for a few slots");
        prop_assert_eq!(area.slots(), slots);
        let mut taken = [false; 12];
        for op in ops {
            match op {
                Op::Take => {
                    let full = taken.iter().filter(|&&is_taken| is_taken).count() == slots as usize;
                    let slot = area.take(&host);
                    prop_assert_eq!(slot.is_none(), full);
                    if let Some(SwapSlot(slot)) = slot {
                        prop_assert!(slot < slots);
                        prop_assert!(!taken[slot as usize], "slot {} is taken twice", slot);
                        taken[slot as usize] = true;
                    }
                }
                Op::Give(wanted) => {
                    let mut expected = Ok(());
                    for &slot in &wanted {
                        if !taken[slot as usize] {
                            let slot = SwapSlot(slot);
                            expected = Err(BadSlot { slot });
                            break;
                        }
                        taken[slot as usize] = false;
                    }
                    let wanted: Vec<SwapSlot> = wanted.into_iter().map(SwapSlot).collect();
                    prop_assert_eq!(area.give_back(&host, &wanted), expected);
                }
            }
            let used = taken.iter().filter(|&&is_taken| is_taken).count();
            prop_assert_eq!(area.used(&host) as usize, used);
        }
    }
}

#[test]
fn no_number_that_is_no_slot_is_given_back() {
    let host = host();
    let _entered = host.enter(CpuId(0));
    let area = SwapArea::new(&host, 3).expect("memory for three slots");
    let first = area.take(&host).expect("all are free");
    let never = (0..3).map(SwapSlot).find(|&slot| slot != first);
    for slot in [
        never.expect("one of three"),
        SwapSlot(3),
        SwapSlot(u32::MAX),
    ] {
        let why = BadSlot { slot };
        assert_eq!(area.give_back(&host, &[slot, first]), Err(why));
        assert!(why.to_string().contains(&slot.0.to_string()));
        assert_eq!(area.used(&host), 1, "nothing after it is done");
    }
    assert_eq!(area.give_back(&host, &[first]), Ok(()));
    assert_eq!(area.give_back(&host, &[]), Ok(()));
}

#[test]
#[ignore = "run by the test below, in a process with little memory"]
fn a_large_area_is_refused() {
    let made = SwapArea::new(&host(), u32::MAX);
    assert_eq!(made.err(), Some(NoMemory));
}

#[test]
fn without_memory_for_its_slots_there_is_no_area() {
    let itself = env::current_exe().expect("a test is a program");
    let limited =
        "ulimit -v 8000000 && exec \"$0\" --exact space_parts::a_large_area_is_refused --ignored";
    let run = Command::new("sh")
        .arg("-c")
        .arg(limited)
        .arg(itself)
        .output();
    let run = run.expect("there is a shell");
    let told = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && told.contains("1 passed"), "{told}");
}

#[test]
fn an_object_has_one_page_for_each_index_that_was_touched() {
    let host = host();
    let _entered = host.enter(CpuId(0));
    let pages = allocator(&host);
    for kind in [ObjectKind::File, ObjectKind::Shared] {
        let object = Object::new(&host, kind);
        assert_eq!(object.kind(), kind);
        let mut model: BTreeMap<u64, Pfn> = BTreeMap::new();
        // There are more indexes than the pages that `empty` frees in one batch. They are not
        // sorted, many are repeated, and the smallest and the largest possible index are among
        // them.
        let indexes = (0..100)
            .map(|nth| nth * 37 % 71)
            .chain([u64::MAX, 0, u64::MAX]);
        for index in indexes {
            // An object (a file or shared memory) has only single pages, whatever the order of the
            // request.
            let request = Request::new(Order::HUGE).urgent(Urgency::Reserve);
            let pfn = object.page(&host, &pages, index, request);
            let pfn = pfn.expect("there are more pages than that");
            let before = model.insert(index, pfn);
            assert!(before.is_none_or(|before| before == pfn), "index {index}");
            assert_eq!(object.present(&host), model.len() as u64);
        }
        let mut frames: Vec<Pfn> = model.values().copied().collect();
        frames.sort_unstable();
        frames.dedup();
        assert_eq!(frames.len(), model.len(), "no two have the same page");
        let taken = u32::try_from(model.len()).expect("few");
        assert_eq!(free(&host, &pages), PAGES - taken);
        object.empty(&host, &pages);
        assert_eq!((object.present(&host), free(&host, &pages)), (0, PAGES));
        object.empty(&host, &pages);
        object
            .page(&host, &pages, 1, single())
            .expect("it can be used again");
        object.empty(&host, &pages);
    }
    assert_eq!(free(&host, &pages), PAGES);
}

#[test]
fn an_object_that_gets_no_page_is_as_it_was() {
    let host = host();
    let _entered = host.enter(CpuId(0));
    let pages = allocator(&host);
    let object = Object::new(&host, ObjectKind::File);
    let there = object
        .page(&host, &pages, 5, single())
        .expect("a first page");
    let rest: Vec<Pfn> = std::iter::from_fn(|| pages.alloc(&host, single()).ok()).collect();
    assert_eq!(rest.len(), Pages(PAGES - 1).index());
    let refused = object.page(&host, &pages, 6, single());
    assert!(
        matches!(
            refused,
            Err(PageError::OutOfMemory(AllocError::OutOfMemory(_)))
        ),
        "{refused:?}"
    );
    assert_eq!(object.present(&host), 1);
    assert_eq!(
        object.page(&host, &pages, 5, single()),
        Ok(there),
        "it is there already"
    );
    pages.free_pages(&host, &rest).expect("all were handed out");
    object
        .page(&host, &pages, 6, single())
        .expect("now there is one");
    object.empty(&host, &pages);
    assert_eq!(free(&host, &pages), PAGES);
    let again = pages.free(&host, there, Order::ZERO);
    assert_eq!(again, Err(FreeError::NotAllocated(there)));
}

#[test]
fn lists_of_used_pages_count_what_was_added_less_what_was_removed() {
    let host = host();
    let pages = allocator(&host);
    let lru = Lru::new(&host);
    let mut expected = 0;
    for round in 0..200_i64 {
        let cpu = CpuId(u32::try_from(round % 2).expect("small"));
        let _entered = host.enter(cpu);
        assert_eq!(host.this_cpu(), cpu);
        // A frame outside all zones is not counted.
        for pfn in [Pfn(0), Pfn(PAGES - 1), Pfn(PAGES)] {
            lru.add(&host, &pages, pfn);
        }
        expected += 2;
        if round % 5 == 0 {
            let gone: Vec<Pfn> = (0..67).chain([PAGES, PAGES + 9]).map(Pfn).collect();
            lru.remove(&host, &pages, &gone);
            expected -= 67;
        }
        if round % 11 == 0 {
            lru.drain(&host, &pages);
        }
        assert_eq!(lru.total(&host), expected, "after {round} rounds");
    }
    lru.remove(&host, &pages, &[]);
    assert_eq!(lru.total(&host), expected);
}

#[test]
fn the_laws_of_what_is_shared() {
    run_law(&laws::parts::touching_at_once(), 2, ROUNDS);
    run_law(&laws::contents::moving_while_writing(), 3, ROUNDS);
    run_law(&laws::parts::slots_are_not_shared(), 2, ROUNDS);
    run_law(&laws::parts::slot_given_back_twice(), 2, ROUNDS);
    run_law(&laws::parts::batches_for_the_dying(), 2, ROUNDS);
    run_law(&laws::parts::a_late_batch(), 1, ROUNDS);
    run_law(&laws::parts::aging_at_once(), 2, ROUNDS);
}
