//! Every request to an address space either works or is refused with an error, whatever limits the
//! address space has. A refused request changes nothing, and all memory has been freed at the end.

use crate::support;

use std::ops::Range;

use plimsoll_mm::design::Design;
use plimsoll_mm::page::Request;
use plimsoll_mm::space::object::PageError;
use plimsoll_mm::space::reap::Reaping;
use plimsoll_mm::space::{Access, END, FaultError, Place};
use plimsoll_mm::units::{CpuId, Order, Vpn};
use proptest::prelude::*;
use proptest::{collection, sample};
use support::numbers::{any_u32, any_u64};
use support::world::{Sizes, What, World};

/// A page number: at the start, where most mappings are, near the end of the space, or anywhere.
fn page() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..3000u64,
        1 => (0..3000u64).prop_map(|below| END.0 - below),
        1 => (0..3000u64).prop_map(|above| END.0 + above),
        1 => any_u64(),
    ]
}

/// Generates the length of a range in pages: up to a few mappings long, nearly as long as the
/// address space, or any number.
fn pages() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..1500u64,
        1 => (0..3000u64).prop_map(|below| END.0 - below),
        1 => any_u64(),
    ]
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![
        Just(Place::Lowest),
        Just(Place::Highest),
        page().prop_map(|page| Place::Fixed(Vpn(page))),
        page().prop_map(|page| Place::Replace(Vpn(page & !511))),
        page().prop_map(|page| Place::Replace(Vpn(page))),
    ]
}

fn what() -> impl Strategy<Value = What> {
    prop_oneof![
        3 => any::<bool>().prop_map(|huge| What::Anonymous { huge }),
        1 => any_u64().prop_map(|offset| What::File { offset }),
        1 => any_u64().prop_map(|offset| What::Shared { offset }),
        1 => Just(What::Reserved),
        1 => any_u32().prop_map(|first| What::Frames { first }),
    ]
}

/// A random operation on an address space. Its arguments may be impossible.
#[derive(Clone, Debug)]
enum Step {
    Map(Place, u64, What),
    /// Maps a number of pages that is a multiple of 512, the number of pages of one page table.
    MapHuge(Place, u64, What),
    Unmap(u64, u64),
    Fault(u64, Access),
    Populate(u64, u64),
    SwapOut(u64, u64),
    Limit(usize, u64),
    Object(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let access = sample::select(vec![Access::Read, Access::Write]);
    prop_oneof![
        4 => (place(), pages(), what()).prop_map(|(at, pages, what)| Step::Map(at, pages, what)),
        1 => (place(), 0..3u64, what())
            .prop_map(|(at, tables, what)| Step::MapHuge(at, 512 * tables, what)),
        2 => (page(), pages()).prop_map(|(start, pages)| Step::Unmap(start, pages)),
        4 => (page(), access).prop_map(|(page, access)| Step::Fault(page, access)),
        2 => (page(), page()).prop_map(|(start, end)| Step::Populate(start, end)),
        1 => (page(), page()).prop_map(|(start, end)| Step::SwapOut(start, end)),
        1 => (0..3usize, any_u64()).prop_map(|(level, to)| Step::Limit(level, to)),
        1 => any_u64().prop_map(Step::Object),
    ]
}

/// Returns whether a mapping of `pages` pages may have the backing `what`.
fn is_possible(pages: u64, what: What) -> bool {
    match what {
        What::Anonymous { .. } => true,
        What::File { offset } | What::Shared { offset } => offset.checked_add(pages).is_some(),
        What::Reserved => pages.is_multiple_of(512),
        What::Frames { first } => u64::from(first) + pages <= 1 << 32,
    }
}

/// Touches the first and the last page of a mapping. Only a shortage of memory or budget may
/// prevent that.
fn touch_ends(world: &World, pages: Range<Vpn>) {
    assert!(pages.start < pages.end && pages.end <= END, "{pages:?}");
    for page in [pages.start, Vpn(pages.end.0 - 1)] {
        for access in [Access::Read, Access::Write] {
            let touched = world.space.fault(world.memory(), page, access);
            let is_full = matches!(
                touched,
                Err(FaultError::OutOfMemory(_) | FaultError::OverBudget(_))
            );
            assert!(touched.is_ok() || is_full, "{touched:?}");
        }
    }
}

fn take(world: &World, step: &Step) {
    let (memory, before) = (world.memory(), world.state());
    // A refused request changes nothing, with one exception: before a fault is refused, it can add
    // a page to a file or to shared memory. This page stays there.
    let is_refused = match *step {
        Step::Map(place, pages, what) | Step::MapHuge(place, pages, what) => {
            let mapped = world.map(place, pages, what);
            if let Ok(vma) = &mapped {
                assert!(is_possible(pages, what), "{step:?}");
                touch_ends(world, vma.start..vma.end);
            }
            mapped.is_err()
        }
        Step::Unmap(start, pages) => world.space.unmap(memory, Vpn(start), pages).is_err(),
        Step::Fault(page, access) => {
            let _frame = world.space.frame_of(&world.host, Vpn(page));
            let faulted = world.space.fault(memory, Vpn(page), access);
            faulted.is_err() && world.state().handed_out == before.handed_out
        }
        Step::Populate(start, end) => {
            let _filled = world.space.populate(memory, Vpn(start)..Vpn(end));
            false
        }
        Step::SwapOut(start, end) => {
            let went = world.space.swap_out(memory, Vpn(start)..Vpn(end));
            assert!(went <= before.rss[1]);
            went == 0
        }
        Step::Limit(level, to) => {
            world.budgets[level].set_limit(to);
            true
        }
        Step::Object(index) => {
            let request = Request::new(Order::ZERO);
            let page = world
                .file
                .page(&world.host, world.mm.pages(), index, request);
            match page {
                Ok(_) | Err(PageError::OutOfMemory(_)) => {}
                Err(PageError::NoMemory) => panic!("there is memory for an index"),
            }
            false
        }
    };
    if is_refused {
        assert_eq!(world.state(), before, "{step:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_asked_of_a_space_all_is_back_in_the_end(
        reaping in sample::select(Reaping::ALL.to_vec()),
        swap in prop_oneof![0..50u32, 1000..100_000u32],
        mappings in prop_oneof![any_u32(), 0..20u32],
        limits in [any_u64(), any_u64(), any_u64()],
        steps in collection::vec(step(), 0..60),
    ) {
        let design = Design { reaping, ..Design::OURS };
        let sizes = Sizes { memory: 4096, swap, mappings, limits, others: 0 };
        let world = World::new(design, sizes);
        let _entered = world.host.enter(CpuId(0));
        steps.iter().for_each(|step| take(&world, step));
        world.end();
    }
}
