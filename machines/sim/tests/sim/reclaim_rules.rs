//! Tests the rules of reclaim, one by one. Memory is short because each test sets high watermarks.
//! The tests run the steps of kswapd themselves.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::{Request, ZoneKind};
use plimsoll_mm::reclaim::Next;
use plimsoll_mm::site::Work;
use plimsoll_mm::space::lru::List;
use plimsoll_mm::space::{AddressSpace, EnlistError, Notified, Refused};
use plimsoll_mm::units::{CpuId, Nanos, NodeId, Order, Pages, Vpn};
use plimsoll_mm::vmstat::counters::NodeItem;
use plimsoll_sim::Sim;

use crate::support::reclaim_world::{NODE, PAGES, START, World};

#[test]
fn kswapd_dozes_for_a_tenth_of_a_second_before_it_falls_asleep() {
    let world = World::new(1, 100, 1);
    world.press();
    world.ask(ZoneKind::Normal);
    assert_eq!(*world.asks().woken.borrow(), [NODE]);
    (0..2).for_each(|zone| world.mark(zone, 0, 0));
    let tenth = Nanos(world.sim.now().0 + 100_000_000);
    assert_eq!(world.step(), Next::At(tenth));
    assert_eq!(world.step(), Next::Woken);
}

#[test]
fn kswapd_gives_up_after_sixteen_rounds_in_a_row_and_hopes_again_after_progress() {
    let world = World::new(1, 1000, 2);
    world.press();
    world.ask(ZoneKind::Normal);
    world.fail(14);
    let space = world.filled(64);
    // The first round of reclaim only finds that the pages were touched.
    world.fail(1);
    assert_eq!(world.swapped(), 0);
    world.fail(1);
    assert!(world.swapped() > 0, "one round made progress");
    // Kswapd looks at half of a list at most, so some pages stay. The loop runs until a round moves
    // no page to swap.
    let mut before = 0;
    while world.swapped() > before {
        before = world.swapped();
        world.fail(1);
    }
    world.fail(14);
    assert!(
        !world.is_hopeless(),
        "the rounds before the progress do not count"
    );
    assert!(world.is_hopeless());
    world.ask(ZoneKind::Normal);
    assert_eq!(world.asks().woken.borrow().len(), 1, "it would not help");
    // After direct reclaim has made progress, a kswapd that had given up tries again.
    world.touch(&space, START..START + 64);
    world.spaces.lru().drain(&world.sim, world.mm.pages());
    assert!(world.direct() > Pages::ZERO);
    world.ask(ZoneKind::Normal);
    assert_eq!(world.asks().woken.borrow().len(), 2);
    assert!(!world.is_hopeless());
}

#[test]
fn a_node_is_balanced_if_one_of_the_zones_that_were_asked_for_is() {
    let world = World::new(1, 1000, 1);
    let _space = world.filled(64);
    world.mark(0, 0, 2 * PAGES);
    world.ask(ZoneKind::Normal);
    assert!(
        world.asks().woken.borrow().is_empty(),
        "the upper zone has plenty"
    );
    world.ask(ZoneKind::Dma32);
    assert_eq!(*world.asks().woken.borrow(), [NODE]);
    let now = world.sim.now();
    assert_eq!(world.step(), Next::At(now), "the lower zone is short");
    assert!(!world.looks.borrow().is_empty());
}

/// Kswapd is asked to reclaim for the upper zone, falls asleep, and is then asked for the lower
/// zone. It must reclaim for the lower zone, although the upper zone has enough free pages.
#[test]
fn kswapd_forgets_for_which_zone_it_was_asked_when_it_falls_asleep() {
    let world = World::new(1, 1000, 1);
    world.press();
    world.ask(ZoneKind::Normal);
    (0..2).for_each(|zone| world.mark(zone, 0, 0));
    while world.step() != Next::Woken {}
    let _space = world.filled(64);
    world.mark(0, 0, 2 * PAGES);
    world.ask(ZoneKind::Dma32);
    assert_eq!(world.step(), Next::At(world.sim.now()));
    assert!(!world.looks.borrow().is_empty());
}

/// If one pass of kswapd over the lists looks at too few pages, the next pass looks at twice as
/// large a part of the lists. Otherwise kswapd would make thousands of passes over a node with few
/// used pages, and look at two pages in each.
#[test]
fn kswapd_looks_at_a_larger_part_of_the_lists_if_a_pass_looked_at_too_few_pages() {
    let world = World::new(1, PAGES, 1);
    let _space = world.filled(8192);
    world.press();
    world.ask(ZoneKind::Normal);
    // In the first round kswapd finds that each page was touched, so it evicts none.
    world.step();
    world.looks.borrow_mut().clear();
    world.step();
    let looks = world.looks.borrow();
    let of_two = looks.iter().filter(|(scanned, _)| *scanned <= 2).count();
    assert!((1..10).contains(&of_two), "{of_two} of {}", looks.len());
}

/// 40 slots of swap are free. All 32 pages of the first batch go to swap, but only 8 pages of the
/// second batch. The other 24 pages become active, so reclaim does not look at them repeatedly.
#[test]
fn pages_for_which_there_is_no_swap_become_active_and_full_swap_ends_reclaim() {
    let world = World::new(1, 40, 1);
    let _space = world.filled(400);
    world.press();
    world.ask(ZoneKind::Normal);
    let node = world.mm.counted_on_nodes(&world.sim, NodeItem::AnonMapped);
    assert_eq!(node, 400);
    assert_eq!(world.reclaim.reclaimable(&world.sim, NODE), 400);
    while world.spaces.swap().free() > 0 {
        world.step();
    }
    assert!(world.len(List::Active) > 0, "they cannot leave");
    assert_eq!(world.reclaim.reclaimable(&world.sim, NODE), 0);
    let node = world.mm.counted_on_nodes(&world.sim, NodeItem::AnonMapped);
    assert_eq!(node, 360, "those in swap are not mapped");
    let looks = world.looks.borrow().len();
    world.step();
    world.direct();
    assert_eq!(
        world.looks.borrow().len(),
        looks,
        "there is nothing to gain"
    );
}

#[test]
fn each_batch_that_leaves_flushes_translations_once() {
    let world = World::new(1, 1000, 1);
    let _space = world.filled(64);
    world.press();
    let before = world.sim.stats().work_ns;
    let mut freed = world.direct();
    while freed == Pages::ZERO {
        freed = world.direct();
    }
    let after = world.sim.stats().work_ns;
    let units = |work: Work| (after[work as usize] - before[work as usize]) / 50;
    assert_eq!(units(Work::SwapOut), u64::from(freed.0));
    let batches = world.looks.borrow().len() as u64;
    assert!((1..=batches).contains(&units(Work::TlbFlush)));
}

#[test]
fn reclaimable_pages_are_those_of_the_node() {
    let world = World::new(2, 1000, 1);
    let _space = world.filled(64);
    assert_eq!(world.reclaim.reclaimable(&world.sim, NODE), 64);
    assert_eq!(world.reclaim.reclaimable(&world.sim, NodeId(1)), 0);
}

#[test]
fn pages_of_a_space_that_was_not_enlisted_are_not_reclaimed() {
    let world = World::new(1, 1000, 1);
    world.fill(&world.space(), 64);
    assert_eq!(
        [List::Unevictable, List::Inactive].map(|list| world.len(list)),
        [64, 0]
    );
    assert_eq!(world.reclaim.reclaimable(&world.sim, NODE), 0);
}

/// While less than half of the min watermark is free, an allocation waits for kswapd, tick by tick,
/// for a second at most. It does not wait for a kswapd that has given up. A task that is killed
/// while it waits does not reclaim. A task that was killed before it would have to wait does
/// reclaim.
#[test]
fn an_allocation_waits_for_kswapd_while_even_half_of_the_reserve_is_missing() {
    let pauses = |min: u32, killed_after: Option<usize>, hopeless: bool| {
        let world = World::new(1, 1000, 1);
        (0..2).for_each(|zone| world.mark(zone, 0, 4 * PAGES));
        if hopeless {
            world.ask(ZoneKind::Normal);
            world.fail(16);
        }
        let _space = world.filled(64);
        (0..2).for_each(|zone| world.mark(zone, min, 4 * PAGES));
        world.asks().killed_after.set(killed_after);
        world.direct();
        let pauses = world.asks().pauses.borrow();
        assert!(pauses.iter().all(|span| *span == Nanos(1_000_000)));
        (pauses.len(), !world.looks.borrow().is_empty())
    };
    // Nearly all `PAGES` pages of each zone are free: more than half of `enough`, but less than
    // half of `too_much`.
    let (enough, too_much) = (PAGES + PAGES / 2, 2 * PAGES);
    assert_eq!(pauses(enough, None, false), (0, true));
    let (waited, reclaimed) = pauses(too_much, None, false);
    assert!((990..=1000).contains(&waited) && reclaimed, "{waited}");
    assert_eq!(pauses(too_much, Some(2), false), (3, false));
    assert_eq!(pauses(too_much, Some(0), false), (1, true));
    assert_eq!(pauses(too_much, None, true), (0, true));
}

/// Six CPUs reclaim from 200 pages at once, so more than an eighth of the inactive pages are
/// *isolated*: off their lists while reclaim looks at them. The CPUs that come later wait in steps
/// of one tick.
#[test]
fn an_allocation_waits_while_other_cpus_have_isolated_too_many_pages() {
    let world = World::new(6, 1000, 1);
    let _space = world.filled(200);
    world.direct();
    for cpu in 0..6 {
        let world = Rc::clone(&world);
        let reclaimer = Rc::clone(&world);
        world.sim.spawn(CpuId(cpu), move |sim| {
            let request = Request::new(Order::ZERO).from_node(NODE);
            reclaimer.reclaim.reclaim(sim, request);
        });
    }
    world.sim.run();
    let pauses = world.asks().pauses.borrow();
    assert!(!pauses.is_empty());
    assert!(
        pauses.iter().all(|span| *span == Nanos(1_000_000)),
        "{pauses:?}"
    );
}

#[test]
fn a_number_is_free_again_after_its_space_has_ended_or_was_enlisted_before() {
    let world = World::new(1, 100, 2);
    let memory = || world.memory(&world.sim);
    let one = world.filled(4);
    let twice = memory().enlist(&one).expect_err("it is enlisted");
    assert_eq!(twice, EnlistError::Twice);
    assert!(twice.to_string().contains("only once"), "{twice}");
    for _ in 0..3 {
        let other = world.filled(4);
        assert_eq!(memory().enlist(&world.space()), Err(EnlistError::TooMany));
        other.exit(memory()).expect("it ends once");
    }
}

/// A listener (Linux: MMU notifier) that counts beginnings and ends of notifications.
#[derive(Clone, Default)]
struct Told(Arc<[AtomicU32; 2]>);

impl Notified<Sim> for Told {
    fn start(&self, _: &Sim, _: &std::ops::Range<Vpn>, _: bool) -> Result<(), Refused> {
        self.0[0].fetch_add(1, Relaxed);
        Ok(())
    }

    fn end(&self, _: &Sim, _: &std::ops::Range<Vpn>) {
        self.0[1].fetch_add(1, Relaxed);
    }

    fn release(&self, _: &Sim) {}
}

#[test]
#[expect(
    clippy::arc_with_non_send_sync,
    reason = "on real machines it is both; a simulated one has one thread"
)]
fn each_page_is_announced_before_reclaim_unmaps_it() {
    let world = World::new(1, 1000, 1);
    let told = Told::default();
    let space = AddressSpace::new(world.memory(&world.sim)).expect("there is memory");
    let space = Arc::new(space.notifying(told.clone()));
    let enlisted = world.memory(&world.sim).enlist(&space);
    enlisted.expect("there is a number for it");
    world.fill(&space, 64);
    let before = [0, 1].map(|nth: usize| told.0[nth].load(Relaxed));
    world.press();
    world.ask(ZoneKind::Normal);
    // This takes several steps, because kswapd looks at half of a list at most.
    while world.swapped() < 48 {
        world.step();
    }
    let after = [0, 1].map(|nth: usize| told.0[nth].load(Relaxed));
    assert!(after[0] >= before[0] + 48 && after[1] >= before[1] + 48);
}
