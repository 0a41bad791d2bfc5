//! A property test of fronts (the CPUs' stacks of free pages) in front of a zone with bitmaps: random
//! steps of two CPUs, against a plain set of the pages that are allocated.

use std::collections::BTreeSet;

use plimsoll_mm::page::{Reclaiming, Request, ZoneKind};
use plimsoll_mm::units::{CpuId, NodeId, Order, Pages, Pfn};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::front_direct::{is_exact, world};
use crate::fronts::{ONE, World};

/// A step of the CPU that runs.
#[derive(Clone, Debug)]
enum Step {
    /// Go on with this CPU.
    On(u32),
    /// Allocate this number of pages.
    Alloc(u32),
    /// Free this number of pages: those that were allocated first, or those allocated last.
    Free(usize, bool),
    /// Allocate this number of huge blocks.
    AllocHuge(u32),
    /// Free this number of huge blocks: those that were allocated last.
    FreeHuge(usize),
    /// Free a page. Then free it again on a CPU, as if the frees had raced.
    FreeTwice(Index, u32),
    Drain(u32),
    Decay(u32),
    /// Let the zone count as below its high watermark.
    BelowHigh,
    Reclaiming(bool),
    /// Allocate and free pages while only this number of pushes to fronts succeed.
    LosesFront(u32),
    /// Allocate and free pages while this number of attempts to lock the CPU's lists fail.
    Refuse(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0_u32..2).prop_map(Step::On),
        6 => (1_u32..1500).prop_map(Step::Alloc),
        6 => (1_usize..1500, any::<bool>()).prop_map(|(pages, old)| Step::Free(pages, old)),
        2 => (1_u32..12).prop_map(Step::AllocHuge),
        2 => (1_usize..12).prop_map(Step::FreeHuge),
        2 => (any::<Index>(), 0_u32..2).prop_map(|(page, cpu)| Step::FreeTwice(page, cpu)),
        1 => (0_u32..2).prop_map(Step::Drain),
        1 => (0_u32..2).prop_map(Step::Decay),
        1 => Just(Step::BelowHigh),
        1 => any::<bool>().prop_map(Step::Reclaiming),
        1 => (0_u32..70).prop_map(Step::LosesFront),
        1 => (1_u32..4).prop_map(Step::Refuse),
    ]
}

/// The pages that the test has allocated, in the order of the allocations.
#[derive(Default)]
struct Users {
    pages: Vec<Pfn>,
    /// The huge blocks that the test has allocated.
    huge: Vec<Pfn>,
    /// All pages that are allocated, also those of huge blocks.
    set: BTreeSet<Pfn>,
    /// The number of entries of pages that were freed twice.
    twice: u64,
}

impl Users {
    fn take(&mut self, world: &World) {
        if let Ok(pfn) = world.manager.pages().alloc(&world.machine, ONE) {
            assert!(self.set.insert(pfn), "{pfn:?} has two users");
            self.pages.push(pfn);
        }
    }

    fn free(&mut self, world: &World, at: usize) -> Pfn {
        let pfn = self.pages.remove(at);
        self.set.remove(&pfn);
        world.free(pfn);
        pfn
    }

    fn take_huge(&mut self, world: &World) {
        let request = Request::new(Order::HUGE);
        if let Ok(pfn) = world.manager.pages().alloc(&world.machine, request) {
            let is_new = |page| self.set.insert(page);
            assert!(pages_of(pfn).all(is_new), "{pfn:?} has two users");
            self.huge.push(pfn);
        }
    }

    fn free_huge(&mut self, world: &World, count: usize) {
        for pfn in self.huge.drain(self.huge.len().saturating_sub(count)..) {
            pages_of(pfn).for_each(|page| assert!(self.set.remove(&page)));
            let freed = world.manager.pages().free(&world.machine, pfn, Order::HUGE);
            freed.expect("it is allocated");
        }
    }

    /// Frees up to `count` of the pages that were allocated first.
    fn free_oldest(&mut self, world: &World, count: usize) {
        for pfn in self.pages.drain(..count.min(self.pages.len())) {
            self.set.remove(&pfn);
            world.free(pfn);
        }
    }

    fn run(&mut self, world: &World, step: &Step) {
        let (machine, pages) = (&world.machine, world.manager.pages());
        match *step {
            Step::On(cpu) => machine.on(cpu),
            Step::Alloc(count) => (0..count).for_each(|_| self.take(world)),
            Step::Free(count, from_first) => {
                if from_first {
                    self.free_oldest(world, count);
                } else {
                    for at in (0..self.pages.len()).rev().take(count) {
                        self.free(world, at);
                    }
                }
            }
            Step::AllocHuge(count) => (0..count).for_each(|_| self.take_huge(world)),
            Step::FreeHuge(count) => self.free_huge(world, count),
            Step::FreeTwice(ref page, cpu) if !self.pages.is_empty() => {
                let pfn = self.free(world, page.index(self.pages.len()));
                machine.on(cpu);
                world.depot.let_the_next_free_be_late();
                // The second free returns an error if it finds the page on a list or in the zone. It
                // has dropped an entry then, too.
                let _second = pages.free(machine, pfn, Order::ZERO);
                self.twice += 1;
            }
            Step::FreeTwice(..) => {}
            Step::Drain(cpu) => drop(pages.drain_cpu(machine, CpuId(cpu))),
            Step::Decay(cpu) => drop(pages.decay_lists(machine, 0, CpuId(cpu))),
            Step::BelowHigh => pages.set_below_high(machine, 0).expect("there is a zone"),
            Step::Reclaiming(is_active) => {
                let active = if is_active {
                    Reclaiming::Yes
                } else {
                    Reclaiming::No
                };
                pages.set_reclaiming(machine, NodeId(0), ZoneKind::Normal, active);
            }
            Step::LosesFront(pushes) => {
                world.depot.limit_pushes(Some(pushes));
                (0..100).for_each(|_| self.take(world));
                self.free_oldest(world, 100);
                world.depot.limit_pushes(None);
            }
            Step::Refuse(attempts) => {
                world.watch.refuse(attempts);
                (0..150).for_each(|_| self.take(world));
                self.free_oldest(world, 300);
                world.watch.refuse(0);
            }
        }
    }
}

/// The pages of a huge block.
fn pages_of(huge: Pfn) -> impl Iterator<Item = Pfn> {
    (0..Order::HUGE.pages().0).map(move |page| huge.plus(Pages(page)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn each_page_has_one_user_and_every_count_is_exact(
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let world = world();
        let mut users = Users::default();
        for step in steps {
            users.run(&world, &step);
            if users.twice == 0 {
                is_exact(&world, users.set.len());
            }
        }
        users.free_oldest(&world, usize::MAX);
        users.free_huge(&world, usize::MAX);
        world.manager.pages().drain_all_sync(&world.machine);
        world.is_whole();
        prop_assert_eq!(world.manager.pages().double_frees(), users.twice);
    }
}
