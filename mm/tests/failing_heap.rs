//! Tests of two laws, that is, contracts of the memory manager with the global allocator (the
//! heap). One law is about a heap that fails. The other, in `waiting/`, is about a heap that waits.
//!
//! The law of the failing heap says: whichever allocation of the global allocator is the first to
//! fail, nothing panics or aborts, errors report that there is no memory, and nothing leaks. Also,
//! the memory manager never uses the global allocator under a lock, except under the lock of the
//! mappings.
//!
//! The law does not cover:
//!
//! * making a machine, an allocator, a manager and the parts that its spaces share, which happens
//!   once;
//! * calls for observers and tests ([`PageAllocator::view`], `list_state`, `seed_…`);
//! * the `Arc`s and `Box`es that the caller makes.

mod resized;
mod support;
mod waiting;

use plimsoll_mm::counter::{
    Batch, Counters, Counting, InitError, Items, OneSidedTree, Plan, precise_totals,
};
use plimsoll_mm::design::Design;
use plimsoll_mm::machine::{Job, Machine};
use plimsoll_mm::oom::{ReleaseError, Selecting, State, release};
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::page::{BULK_PAGES_MAX, Grouping, Mobility, PageAllocator, Request};
use plimsoll_mm::reclaim::Next;
use plimsoll_mm::space::reap::Reaping;
use plimsoll_mm::space::{Access, Backing, Flag};
use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::{CpuId, Nanos, NodeId, Order, Pfn, Vpn};
use std::sync::atomic::Ordering::Relaxed;
use support::heap;
use support::lives::{change, fill, touch};
use support::machine::Plain;
use support::world::{CPUS, World};

/// Runs `scenario` again and again, each time on a new world (a small machine with a whole memory
/// manager). In each world one more allocation succeeds than in the world before. Stops at the
/// first world in which no allocation is refused. Returns the number of allocations in the last
/// world.
fn whichever_fails(
    cpus: u32,
    design: Design,
    grouping: Grouping,
    scenario: impl Fn(&World),
) -> u64 {
    whichever_fails_in(|| World::new(cpus, design, grouping), scenario)
}

/// Runs `scenario` on new worlds from `make`. In each world one more allocation succeeds than in
/// the world before. Stops at the first world in which no allocation is refused, and returns the
/// number of allocations in that world.
fn whichever_fails_in(make: impl Fn() -> World, scenario: impl Fn(&World)) -> u64 {
    for nth in 0.. {
        let world = make();
        heap::forget_uses();
        heap::panic_if_forbidden();
        let ((), refused) = heap::failing_from(nth, || scenario(&world));
        let (classes, uses) = heap::uses_under_locks();
        assert_eq!(
            (classes, uses),
            (Vec::new(), 0),
            "heap under a lock, failing from {nth}"
        );
        world.end_processes();
        world.assert_whole();
        if refused == 0 {
            return nth;
        }
    }
    unreachable!("there is memory in the end")
}

const GROUPED: Grouping = Grouping::Huge;

/// Allocates pages of every mobility, order and urgency, one by one and in bulk, and then frees all
/// of them on another CPU.
fn pages(world: &World) {
    let (machine, manager) = (&world.machine, &world.kept.manager);
    let pages = manager.pages();
    manager.start(machine);
    for (cpu, mobility) in (0..).zip(Mobility::ALL) {
        machine.on(cpu);
        let mut many = [Pfn(0); 300];
        let single = Request::new(Order::ZERO).of_mobility(mobility);
        let got = pages.alloc_bulk(machine, single, &mut many);
        assert!(got > 0, "nor do they in bulk");
        let mut all = [Pfn(0); 2 * BULK_PAGES_MAX];
        let owned = match pages.alloc_pages(machine, single, &mut all) {
            Ok(()) => all.len(),
            Err(error) => error.got,
        };
        let mut taken = [(Pfn(0), Order::ZERO); 64];
        let mut len = 0;
        for order in Order::all() {
            for urgency in [Urgency::Normal, Urgency::NoWait, Urgency::Reserve] {
                let request = Request::new(order).of_mobility(mobility).urgent(urgency);
                if let Ok(pfn) = pages.alloc(machine, request) {
                    taken[len] = (pfn, order);
                    len += 1;
                }
            }
        }
        assert!(len > 15, "pages do not come from the heap");
        machine.on(cpu + 7);
        for &(pfn, order) in &taken[..len] {
            if order == Order::HUGE {
                pages.split(machine, pfn, order).expect("it was handed out");
                for page in 0..512 {
                    pages
                        .free(machine, Pfn(pfn.0 + page), Order::ZERO)
                        .expect("a part");
                }
            } else {
                pages
                    .free_as(machine, pfn, order, mobility)
                    .expect("it was handed out");
            }
        }
        for held in [&many[..got], &all[..owned]] {
            pages
                .free_pages(machine, held)
                .expect("they were handed out");
        }
        manager.quiet(machine);
    }
    upkeep(world);
}

/// Runs periodic work, drains page lists, changes tunables, and takes CPUs offline and online.
fn upkeep(world: &World) {
    let (machine, manager) = (&world.machine, &world.kept.manager);
    let pages = manager.pages();
    for _ in 0..8 {
        machine.pass(Nanos::SECOND);
        if let Some((cpu, job)) = machine.take_job() {
            machine.on(cpu.0);
            manager.run(machine, job);
        }
    }
    manager.run(machine, Job::VmstatUpdate);
    manager.run(machine, Job::Shepherd);
    churn(machine, pages);
    pages.drain_cpu(machine, CpuId(1));
    pages
        .drain_lists(machine, 0, CpuId(2))
        .expect("there is such a list");
    pages
        .decay_lists(machine, 0, CpuId(3))
        .expect("there is such a list");
    for fraction in [8, 0] {
        pages
            .set_tunable(machine, Knob::HighFraction, fraction)
            .expect("in bounds");
        churn(machine, pages);
    }
    machine.on(0);
    for cpu in [1, 2, 3].map(CpuId) {
        manager.cpu_going(machine, cpu);
        manager.cpu_dead(machine, cpu);
        churn(machine, pages);
    }
    manager.cpu_online(machine, CpuId(2));
    churn(machine, pages);
    pages.drain_all(machine);
}

/// Takes and frees many single pages, so that the CPUs' page lists grow to their limits.
fn churn(machine: &Plain, pages: &PageAllocator<Plain>) {
    let mut taken = [Pfn(0); 600];
    for pfn in &mut taken {
        let page = pages.alloc(machine, Request::new(Order::ZERO));
        *pfn = page.expect("pages do not come from the heap");
    }
    for pfn in taken {
        pages
            .free(machine, pfn, Order::ZERO)
            .expect("it was handed out");
    }
}

#[test]
fn pages_need_no_heap() {
    for (design, grouping) in [
        (Design::LINUX, GROUPED),
        (Design::UNPATCHED, Grouping::Off),
        (Design::OURS, GROUPED),
    ] {
        let needed = whichever_fails(4, design, grouping, pages);
        assert!(
            needed < 100,
            "{needed} allocations, all of them to make lists longer"
        );
    }
}

fn lives(world: &World) {
    let Some(process) = world.process(1) else {
        return;
    };
    let space = process.space(&world.machine).expect("it has one");
    fill(world, space);
    change(world, space);
    drop(process);
    // Processes must end even if every allocation fails.
    world.end_processes();
}

#[test]
fn address_spaces_end_without_heap_however_they_lived() {
    for counting in Counting::ALL {
        let design = Design {
            counting,
            ..Design::OURS
        };
        let needed = whichever_fails(CPUS, design, Grouping::Off, lives);
        assert!(needed > 30, "{needed} allocations in a whole life");
    }
    for reaping in Reaping::ALL {
        let design = Design {
            reaping,
            ..Design::OURS
        };
        whichever_fails(CPUS, design, GROUPED, lives);
    }
}

fn reaped(world: &World) {
    let (Some(one), Some(other)) = (world.process(1), world.process(2)) else {
        return;
    };
    let machine = &world.machine;
    for process in [&one, &other] {
        fill(world, process.space(machine).expect("it has one"));
    }
    let all = [one.clone(), other.clone()];
    world
        .oom
        .killer()
        .kill(world.memory(), &one, &all.iter(), None);
    for _ in 0..4 {
        machine.pass(Nanos::SECOND);
        world.oom.killer().reaper().step(world.memory());
    }
    let space = other.space(machine).expect("it has one");
    other.set(machine, State::Killed);
    let released = release(world.memory(), Some(&*other), all.iter(), 0, || false);
    let refused = matches!(released, Err(ReleaseError::Again));
    assert!(released.is_ok() || refused, "it is dying: {released:?}");
    assert!(space.has(machine, Flag::Unstable));
}

#[test]
fn reaping_needs_no_heap() {
    for reaping in Reaping::ALL {
        let design = Design {
            reaping,
            ..Design::OURS
        };
        whichever_fails(CPUS, design, Grouping::Off, reaped);
    }
}

/// Runs two processes: the first uses nearly all memory, and then the second needs memory, too.
fn shortage(world: &World, dies: bool) {
    let (machine, memory) = (&world.machine, world.memory());
    world.oom.owner().die.store(dies, Relaxed);
    let (Some(greedy), Some(modest)) = (world.process(1), world.process(2)) else {
        return;
    };
    let _slots = world.oom.reserve(machine, 2);
    let spaces = [&greedy, &modest].map(|process| process.space(machine).expect("it has one"));
    let anonymous = || Backing::Anonymous { huge: false };
    if !spaces
        .iter()
        .all(|space| world.map(space, 0, 1 << 16, anonymous()))
    {
        return;
    }
    for page in 0..3300 {
        machine.on(u32::try_from(page / 64 % 4).expect("small"));
        touch(world, spaces[0], page, Access::Write);
    }
    let before = world.oom.killer().kills(machine);
    let usage = spaces[0].rss().resident_precise(machine);
    let _filled = spaces[1].populate(memory, Vpn(0)..Vpn(1500));
    if usage == 3300 && spaces[1].rss().resident_precise(machine) == 1500 {
        assert_eq!(
            world.oom.killer().kills(machine),
            before + 1,
            "one was enough"
        );
        assert!(greedy.is(machine, State::Victim));
    }
}

#[test]
fn a_shortage_is_over_without_heap_however_the_victim_is_chosen() {
    for selecting in Selecting::ALL {
        let design = Design {
            selecting,
            ..Design::OURS
        };
        for dies in [true, false] {
            let needed =
                whichever_fails(CPUS, design, Grouping::Off, |world| shortage(world, dies));
            assert!(
                needed > 10,
                "{needed} allocations until there is a shortage"
            );
        }
    }
}

/// Makes groups of counters, adds to them, sums them and destroys them.
fn count(world: &World, plan: &Plan<Plain>) -> Result<(), InitError> {
    let machine = &world.machine;
    let (mut groups, mut len) = ([const { None }; 100], 0);
    let mut outcome = Ok(());
    while len < groups.len() && outcome.is_ok() {
        match plan.init_many(machine) {
            Ok(group) => {
                groups[len] = Some(group);
                len += 1;
            }
            Err(error) => outcome = Err(error),
        }
    }
    for (nth, group) in (0..).zip(groups[..len].iter().flatten()) {
        for turn in 0..200_u32 {
            machine.on(turn * 7 % CPUS);
            let counter = (turn % 4) as usize;
            if turn % 2 == 0 {
                group.add(machine, counter, nth + 1);
            } else {
                group.add_growing(machine, counter, nth + 1);
            }
        }
        assert_eq!(group.precise_total(machine), 200 * (nth + 1));
        group.set(machine, 1, 0);
        let range = group.min_max(machine, 1);
        assert!(range.contains(0), "{range:?}");
    }
    let mut totals = [(0, 0_i64); 100];
    (0..)
        .zip(&mut totals)
        .for_each(|(nth, total)| total.0 = nth);
    precise_totals(
        machine,
        &mut totals[..len],
        |&(nth, _)| groups[nth].as_ref(),
        |total, more| total.1 += more,
    );
    for (nth, total) in (0..).zip(&totals[..len]) {
        assert_eq!(total.1, 150 * (nth + 1));
    }
    for group in groups.into_iter().flatten() {
        group.destroy_many(machine);
    }
    outcome
}

#[test]
fn counters_are_right_without_heap_and_ending_them_needs_none() {
    for counting in Counting::ALL {
        let mut failed = 0;
        for nth in 0.. {
            let world = World::new(CPUS, Design::OURS, Grouping::Off);
            let plan = Plan::new(&world.machine, counting, 4, Batch::RSS).expect("it can be made");
            heap::forget_uses();
            heap::panic_if_forbidden();
            let (outcome, refused) = heap::failing_from(nth, || count(&world, &plan));
            assert_eq!(
                heap::uses_under_locks(),
                (Vec::new(), 0),
                "{counting:?}, from {nth}"
            );
            match outcome {
                Ok(()) => {}
                Err(InitError::OutOfMemory) => failed += 1,
                Err(other) => panic!("{other}"),
            }
            assert_eq!(
                plan.area().groups(&world.machine),
                0,
                "{counting:?}, from {nth}"
            );
            if refused == 0 {
                break;
            }
        }
        assert_eq!(
            failed > 0,
            counting != Counting::Shared && counting != Counting::OneSided
        );
    }
}

#[test]
fn a_tree_that_is_made_at_once_is_made_or_refused() {
    let world = World::new(CPUS, Design::OURS, Grouping::Off);
    let machine = &world.machine;
    let plan = Plan::new(machine, Counting::OneSided, 4, Batch::RSS).expect("it can be made");
    let make = || {
        let items = Items::new(machine, OneSidedTree::<Plain>::items_lines(plan.shape()))?;
        OneSidedTree::init_many_grown(machine, plan.area(), plan.shape(), items)
    };
    for nth in 0.. {
        let (made, refused) = heap::failing_from(nth, make);
        match made {
            Err(error) => assert_eq!(error, InitError::OutOfMemory),
            Ok(tree) => {
                drop(tree.destroy_many(machine));
                if refused == 0 {
                    break;
                }
            }
        }
    }
    assert_eq!(plan.area().groups(machine), 0);
}

/// A process that is dropped without being retired leaks nothing, and neither do its counters.
#[test]
fn what_is_dropped_and_not_retired_is_found_again() {
    let world = World::new(CPUS, Design::OURS, Grouping::Off);
    let plan = world.kept.spaces.plan();
    for round in 0..300 {
        let process = world.process(1).expect("there is memory");
        let space = process.space(&world.machine).expect("it has one");
        fill(&world, space);
        assert!(plan.area().groups(&world.machine) <= 1, "in round {round}");
        world
            .oom
            .killer()
            .exit(world.memory(), &process)
            .expect("it had not left");
        world.oom.owner().all.lock().expect("one thread").clear();
        drop(process);
    }
    world.assert_whole();
}

/// Touches more pages than there is memory, so that pages move to swap and come back, and lets
/// kswapd run whenever it was woken.
fn pressed(world: &World) {
    let reclaim = world.kept.reclaim.as_ref().expect("the world is pressed");
    for (id, start) in [(1, 1000), (2, 9000)] {
        let Some(process) = world.process(id) else {
            continue;
        };
        let space = process.space(&world.machine).expect("it lives").clone();
        if !world.map(&space, start, 2080, Backing::Anonymous { huge: false }) {
            continue;
        }
        for page in (start..start + 2080).chain(start..start + 100) {
            world.machine.on(u32::try_from(page % 3).expect("small"));
            touch(world, &space, page, Access::Write);
            if reclaim.embedder().woken.swap(false, Relaxed) {
                while let Next::At(at) = reclaim.kswapd(&world.machine, NodeId(0)) {
                    world.machine.pass(at.since(world.machine.now()));
                }
            }
        }
    }
}

#[test]
fn reclaim_needs_no_heap() {
    let most = whichever_fails_in(
        || {
            let world = World::pressed(4, Design::OURS, Grouping::Off);
            world.oom.owner().die.store(false, Relaxed);
            world
        },
        pressed,
    );
    assert!(most > 10, "address spaces do need the heap: {most}");
    let world = World::pressed(4, Design::OURS, Grouping::Off);
    pressed(&world);
    let swapped = world.kept.spaces.swap().used(&world.machine);
    assert!(swapped > 100, "pages were moved to swap: {swapped}");
    world.end_processes();
    world.assert_whole();
}
