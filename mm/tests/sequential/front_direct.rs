//! Tests of runs of pages that move directly between a front (a CPU's stack of free pages) and a
//! zone with bitmaps, past the page lists.

use plimsoll_mm::event::Event;
use plimsoll_mm::page::{Config, FreeError, Layout, ListState, ZoneView};
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn};

use crate::fronts::World;
use crate::machine::Plain;
use crate::watch::count;

pub(super) const PAGES: u32 = 1 << 15;
/// A batch of the page lists: one hold of the zone lock moves at most this number of pages.
pub(super) const BATCH: u32 = 63;
/// A word: the number of pages whose bits are one word of a bitmap. They may move as one block.
pub(super) const WORD: u32 = 64;
/// The number of pages that a front (a CPU's stack of free pages) holds at most.
pub(super) const LIMIT: u32 = 128;
/// The bounds of `high` in most tests.
const HIGH_MIN: u32 = 256;
const HIGH_MAX: u32 = 1024;

pub(super) fn config() -> Config<Plain> {
    Config::new(Layout::arena(Pages(PAGES)).with_bitmaps())
}

/// A machine with bitmaps, whose depot takes no runs. So a full front (a CPU's stack of free pages)
/// passes its pages on to the list or to the zone.
pub(super) fn world() -> World {
    let world = World::of(Topology::flat(2), config()).sized(HIGH_MIN, HIGH_MAX);
    world.depot.fill_up();
    world
}

pub(super) fn view(world: &World) -> ZoneView {
    world.manager.pages().view(&world.machine).remove(0)
}

/// Asserts that `held` pages are allocated, and that the number of free pages is counted exactly.
pub(super) fn is_exact(world: &World, held: usize) {
    let zone = view(world);
    let held = u32::try_from(held).expect("few pages");
    assert_eq!(zone.free.0 + zone.listed.0 + held, zone.managed.0);
    assert_eq!(zone.counted_free, u64::from(zone.free.0));
}

/// The state of the lists of a CPU that has freed no pages in a row, and has no pages on its lists.
pub(super) fn calm(high: u32) -> ListState {
    ListState {
        high: Pages(high),
        ..ListState::default()
    }
}

/// Allocates `pages` pages on CPU 0, and then empties the CPU's lists, whose `high` is then
/// `HIGH_MIN`. The pages do not begin with a word (a block of 64 pages), so that runs of 64 of them
/// are no words.
pub(super) fn held(world: &World, pages: u32) -> Vec<Pfn> {
    let mut held = world.held(pages as usize + 1);
    world.free(held.remove(0));
    world.manager.pages().drain_all_sync(&world.machine);
    let seeded = world.manager.pages();
    let seeded = seeded.seed_lists(&world.machine, 0, CpuId(0), &calm(HIGH_MIN));
    seeded.expect("there is a zone");
    held
}

/// The number of pages that each hold of the zone lock at `site` has moved.
pub(super) fn holds(events: &[Event], site: Site) -> Vec<u32> {
    let moved = events.iter().filter_map(|event| match *event {
        Event::ZoneHold {
            site: at, pages, ..
        } if at == site => Some(pages.0),
        _ => None,
    });
    moved.collect()
}

/// Whether each hold of the zone lock at `site` belongs to an operation that had an earlier hold.
pub(super) fn further(events: &[Event], site: Site) -> Vec<bool> {
    let further = events.iter().filter_map(|event| match *event {
        Event::ZoneHold {
            site: at, further, ..
        } if at == site => Some(further),
        _ => None,
    });
    further.collect()
}

/// The number of pages that went from the zone to a front (a CPU's stack of free pages), and from a
/// front to the zone, without being on a list. There is an event of its own for each block that moves
/// between the zone and a list.
pub(super) fn direct(events: &[Event]) -> (u32, u32) {
    let all = |site| holds(events, site).iter().sum::<u32>();
    let (mut taken, mut given) = (all(Site::Refill), all(Site::Spill));
    for event in events {
        match event {
            Event::ZoneLocked {
                order,
                listed: true,
                ..
            } => taken -= order.pages().0,
            Event::PcpuDrain { order, .. } => given -= order.pages().0,
            _ => {}
        }
    }
    (taken, given)
}

/// The holds of the zone lock by which 1984 frees in a row fill a list whose `high` is 256 at first.
///
/// After 256 frees the list has 256 pages, so `high` grows to 256 + 63, and all but a batch of the
/// old `high` return to the zone: 193. At 319 pages, 512 were freed in a row, so `high` grows to
/// 512 + 63, and 256 pages return; 63 stay. At 575 pages, 1024 were freed in a row, so `high` grows
/// to `high_max`, and 512 pages return. Then the list grows to 63 + 960 = 1023 pages.
const FILLING: [u32; 18] = [
    63, 63, 63, 4, 63, 63, 63, 63, 4, 63, 63, 63, 63, 63, 63, 63, 63, 8,
];

/// Frees pages until the list of CPU 0 has `high_max - 1` pages and cannot grow any more. 65 pages
/// are then in the front (the CPU's stack of free pages). Returns the pages that are left.
pub(super) fn filled(world: &World, held: &[Pfn]) -> Vec<Pfn> {
    let (first, rest) = held.split_at(1984 + 65);
    first.iter().for_each(|&pfn| world.free(pfn));
    assert_eq!(world.listed(0), HIGH_MAX - 1 + 65);
    rest.to_vec()
}

/// Takes 2048 pages, and frees all but one page of each word (64 pages). Until these pages are used
/// up, the zone gives single pages, and no words. Returns the pages that are held.
pub(super) fn without_words(world: &World) -> Vec<Pfn> {
    let (first, others): (Vec<_>, Vec<_>) =
        (world.held(2048).into_iter()).partition(|pfn| pfn.0 % WORD == 0);
    others.into_iter().for_each(|pfn| world.free(pfn));
    world.manager.pages().drain_all_sync(&world.machine);
    first
}

/// Allocated pages come straight from the zone, in ascending order. Each hold of the zone lock moves
/// one word, a block of 64 pages. The lists stay empty, and `high` grows as if the words had been on
/// them.
#[test]
fn many_allocations_in_a_row_take_ascending_pages_past_the_list() {
    let world = world();
    let mut users = Vec::new();
    let take = || {
        for nth in 0..5 * WORD {
            users.push(world.take());
            is_exact(&world, users.len());
            let left = WORD - 1 - nth % WORD;
            assert_eq!(world.listed(0), left, "they are in the front");
        }
    };
    let ((), locks, events) = world.watch.during(take);
    assert_eq!(holds(&events, Site::Refill), [WORD; 5]);
    assert_eq!(direct(&events), (5 * WORD, 0));
    assert_eq!(count(&locks, LockClass::Zone, Site::Refill), 5);
    // The first of two locks finds the list empty. The second one is held while the word is taken, and
    // tunes the list.
    assert_eq!(count(&locks, LockClass::Pcp, Site::PcpAlloc), 10);
    let expected: Vec<Pfn> = (0..5 * WORD).map(Pfn).collect();
    assert_eq!(users, expected);
    let pages = world.manager.pages();
    let state = pages.list_state(&world.machine, 0, CpuId(0));
    assert_eq!(state, Some(calm(HIGH_MIN + 5 * WORD)));
    users.into_iter().for_each(|pfn| world.free(pfn));
    world.is_whole();
}

/// Allocated pages come once each, also if they were freed in another order before.
#[test]
fn pages_that_were_freed_in_any_order_are_allocated_once_each() {
    let world = world();
    let mut users = held(&world, 3000);
    (0..users.len()).for_each(|at| users.swap(at, at * 7919 % 3000));
    users.drain(..).for_each(|pfn| world.free(pfn));
    let take = || (0..3000).map(|_| world.take()).collect::<Vec<_>>();
    let (mut users, _, events) = world.watch.during(take);
    assert!(direct(&events).0 > 1500);
    users.sort_unstable();
    users.dedup();
    assert_eq!(users.len(), 3000);
    is_exact(&world, 3000);
    users.into_iter().for_each(|pfn| world.free(pfn));
    world.is_whole();
}

/// If a CPU frees many pages, its list grows and returns pages to the zone as without a front, until
/// the list cannot grow any more. Then the runs go to the zone, a batch under each hold of the zone
/// lock, and the list stays as it is.
#[test]
fn many_frees_in_a_row_fill_the_list_and_then_pass_it() {
    let world = world();
    let mut held = held(&world, 4000);
    held.reverse();
    let mut left = held.len();
    let free = |count: usize, left: &mut usize| {
        for _ in 0..count {
            world.free(held[held.len() - *left]);
            *left -= 1;
            is_exact(&world, *left);
        }
    };
    let ((), _, events) = world.watch.during(|| free(1984 + 65, &mut left));
    assert_eq!(holds(&events, Site::Spill), FILLING);
    assert_eq!(direct(&events), (0, 0));
    assert_eq!(world.listed(0), HIGH_MAX - 1 + 65);

    // The front has room for 63 pages. Then each 63 frees pass a batch on.
    let ((), locks, events) = world.watch.during(|| free(64 + 9 * 63, &mut left));
    assert_eq!(holds(&events, Site::Spill), [BATCH; 10]);
    assert_eq!(direct(&events), (0, 10 * BATCH));
    assert_eq!(count(&locks, LockClass::Zone, Site::Spill), 10);
    assert_eq!(count(&locks, LockClass::Pcp, Site::PcpFree), 10);
    assert_eq!(world.listed(0), HIGH_MAX - 1 + 66);

    free(left, &mut left);
    let pages = world.manager.pages();
    let state = pages.list_state(&world.machine, 0, CpuId(0));
    let state = state.expect("there is a zone");
    assert_eq!((state.high, state.free_count), (Pages(1024), Pages(2016)));
    assert_eq!(state.alloc_factor, 0);
    world.is_whole();
    assert_eq!(view(&world).blocks[Order::MAX.index()], PAGES / 1024);
}

/// Until the first run passes the list, the list has the pages and the state that it has without a
/// front, if the same pages are freed to it one by one.
#[test]
fn lists_grow_as_without_fronts() {
    for runs in [1, 3, 4, 5, 8, 9, 16, 17, 31] {
        let (world, twin) = (world(), World::without_fronts(Topology::flat(2), config()));
        let twin = twin.sized(HIGH_MIN, HIGH_MAX);
        let pages = held(&world, 3000);
        assert_eq!(pages, held(&twin, 3000));
        // Of the first 128 pages, the newer half goes to the list, then each run of 64.
        pages[..64 * runs + 65]
            .iter()
            .for_each(|&pfn| world.free(pfn));
        pages[64..64 * runs + 64]
            .iter()
            .for_each(|&pfn| twin.free(pfn));
        let state = |world: &World| {
            let pages = world.manager.pages();
            let state = pages.list_state(&world.machine, 0, CpuId(0));
            state.expect("there is a zone")
        };
        let (mut state, expected) = (state(&world), state(&twin));
        let in_front = state.blocks.split_off(expected.blocks.len());
        assert_eq!((state, in_front.len()), (expected, 65), "{runs} runs");
    }
}

/// The newest pages of the front (the CPU's stack of free pages) go to the zone. Of the others, the
/// page that was freed last is allocated first.
#[test]
fn the_pages_that_stay_in_a_front_keep_their_order() {
    let world = world();
    let pages = held(&world, 2300);
    let rest = filled(&world, &pages);
    rest[..64].iter().for_each(|&pfn| world.free(pfn));
    // The first 64 pages have been at the bottom of the front all the time. Of the 64 pages above
    // them, the oldest one did not go to the zone.
    let stayed = pages[..64].iter().rev();
    let expected = [rest[63], pages[1984 + 64]].into_iter();
    let expected: Vec<Pfn> = expected.chain(stayed.copied()).collect();
    let take = || (0..66).map(|_| world.take()).collect::<Vec<_>>();
    let (taken, locks, _) = world.watch.during(take);
    assert_eq!((taken, locks.len()), (expected, 0));
}

/// If a batch is much smaller than a run of 64 pages, several holds of the zone lock move the run,
/// unless it is a block. If a batch is less than an eighth of a run, or more than a run, all pages
/// pass the list.
#[test]
fn a_hold_moves_at_most_a_batch_past_the_list() {
    let long = &[15, 15, 15, 15, 3][..];
    let of_eight = &[8, 8, 8, 8, 8, 8, 8, 7][..];
    for (batch, holds_of_a_word, holds_of_a_run) in [
        (64, &[63][..], 1),
        (63, &[63], 1),
        (32, &[32, 31], 2),
        (31, &[31, 31, 1], 2),
        (15, long, 4),
        (8, of_eight, 8),
    ] {
        let world = World::of(Topology::flat(2), config()).batched(batch, 512, 512);
        world.depot.fill_up();
        let kept = without_words(&world);
        let (users, _, events) = world.watch.during(|| world.held(3 * 63));
        assert_eq!(holds(&events, Site::Refill), holds_of_a_word.repeat(3));
        assert_eq!(direct(&events), (3 * 63, 0));
        let of_a_run = (0..holds_of_a_word.len()).map(|nth| nth % holds_of_a_run > 0);
        let of_a_run: Vec<bool> = of_a_run.collect();
        assert_eq!(further(&events, Site::Refill), of_a_run.repeat(3));
        users.into_iter().for_each(|pfn| world.free(pfn));

        let run = batch * u32::try_from(holds_of_a_run).expect("few");
        let users = world.held(1500);
        let free = || users.into_iter().for_each(|pfn| world.free(pfn));
        let ((), _, events) = world.watch.during(free);
        let spills = holds(&events, Site::Spill);
        assert!(spills.iter().all(|&pages| pages <= batch));
        let (_, passed) = direct(&events);
        assert_eq!((passed > 0, passed % run), (true, 0), "{batch}");
        let of_a_run: Vec<bool> = (0..holds_of_a_run).map(|nth| nth > 0).collect();
        assert!(
            further(&events, Site::Spill).ends_with(&of_a_run),
            "{batch}"
        );
        kept.into_iter().for_each(|pfn| world.free(pfn));
        world.is_whole();
    }
    for batch in [1, 7, 65] {
        let world = World::of(Topology::flat(2), config()).batched(batch, 512, 512);
        world.depot.fill_up();
        let both = || {
            let users: Vec<Pfn> = (0..1000).map(|_| world.take()).collect();
            users.into_iter().for_each(|pfn| world.free(pfn));
        };
        let ((), _, events) = world.watch.during(both);
        assert_eq!(direct(&events), (0, 0), "{batch}");
        world.is_whole();
    }
}

/// If the lists may hold less than a batch, a refill takes one page. So does a run, and it ends then.
#[test]
fn lists_of_less_than_a_batch_take_one_page_at_a_time() {
    for batch in [63, 15] {
        let world = World::of(Topology::flat(2), config()).batched(batch, 8, 8);
        world.depot.fill_up();
        let take = || (0..100).map(|_| world.take()).collect::<Vec<_>>();
        let (users, _, events) = world.watch.during(take);
        assert_eq!(holds(&events, Site::Refill), [1; 100]);
        assert_eq!(direct(&events), (100, 0));
        assert!(users.iter().copied().eq((0..100).map(Pfn)));
        users.into_iter().for_each(|pfn| world.free(pfn));
        world.is_whole();
    }
}

/// A run from another CPU's front (its stack of free pages) is better than one from the zone. The
/// depot takes a full front's run even if the list is full.
#[test]
fn a_run_in_the_depot_saves_the_zone_two_transfers() {
    let world = World::of(Topology::flat(2), config()).sized(64, 64);
    let users = held(&world, LIMIT + 1);
    let pass = || {
        users.iter().for_each(|&pfn| world.free(pfn));
        world.machine.on(1);
        (0..64).map(|_| world.take()).collect::<Vec<_>>()
    };
    let (taken, _, events) = world.watch.during(pass);
    assert!(taken.iter().rev().eq(&users[64..128]));
    assert_eq!(
        holds(&events, Site::Refill).len() + holds(&events, Site::Spill).len(),
        0
    );
}

/// A page that has gone past the list to the zone is not allocated, so a further free is an error.
#[test]
fn a_free_of_a_page_in_the_zone_is_an_error() {
    let world = world();
    let pages = held(&world, 2300);
    let rest = filled(&world, &pages);
    rest[..64].iter().for_each(|&pfn| world.free(pfn));
    for pfn in [rest[0], rest[62], pages[0], rest[63]] {
        let again = world.manager.pages().free(&world.machine, pfn, Order::ZERO);
        assert_eq!(again, Err(FreeError::NotAllocated(pfn)));
    }
    is_exact(&world, 2300 - 2113);
    assert_eq!(world.manager.pages().double_frees(), 0);
}
