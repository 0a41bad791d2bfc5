//! An allocation that finds no memory leads to an OOM kill, and then succeeds.

use crate::support;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_mm::event::Event;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::oom::{
    First, Kind, NoVictim, Patience, Rules, ScoreAdj, Selecting, State, Verdict,
};
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::page::{AllocError, NoKill, Relief, Request, ZoneKind};
use plimsoll_mm::space::budget::Budget;
use plimsoll_mm::space::{Access, FaultError};
use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::{Nanos, Order, ProcessId, Vpn};
use support::OomWorld;
use support::oom_world::{START, Setting};
use support::pressure::{grow, process, roomy};
use support::small::order;

const PAGES: u32 = 1 << 13;
const MS: u64 = 1_000_000;

fn pressed(exits_after: Option<Nanos>, rules: Rules) -> Rc<OomWorld> {
    let patience = Patience {
        delay: Nanos(50 * MS),
        ..Patience::LINUX
    };
    let setting = Setting {
        pages: PAGES,
        patience,
        rules,
        exits_after,
        ..Setting::default()
    };
    setting.world()
}

#[test]
fn the_largest_dies_and_the_allocation_that_failed_succeeds() {
    for selecting in Selecting::ALL {
        for exits_after in [None, Some(Nanos(MS))] {
            let rules = Rules {
                selecting,
                ..Rules::default()
            };
            let world = pressed(exits_after, rules);
            world.run(|sim, world| {
                process(sim, world, 1, 10);
                process(sim, world, 2, 5000);
                process(sim, world, 3, 100);
                // The process needs more pages than are left, but no more than the largest process
                // has.
                assert_eq!(grow(sim, world, 1, 10, 4000), 4000);
            });
            assert_eq!(world.killed(), [2], "{selecting:?}");
            let reports = world.reports.borrow().clone();
            assert_eq!(reports.len(), 1);
            let Verdict::Killed(row, done) = reports[0].verdict else {
                panic!("a process was killed");
            };
            assert_eq!((row.process, done.signalled), (ProcessId(2), 1));
            assert!(row.pages.anon >= 5000 && row.points >= Some(5000));
            assert_eq!(reports[0].rows.len(), 3, "all processes that have memory");
            world.ends();
        }
    }
}

#[test]
fn of_two_allocators_at_once_one_kills_and_the_other_one_waits() {
    let world = pressed(Some(Nanos(3 * MS)), Rules::default());
    world.run(|sim, world| {
        process(sim, world, 1, 1000);
        process(sim, world, 2, 1000);
        process(sim, world, 3, 4500);
    });
    let start = world.small.sim.stats().now;
    let done = Rc::new(Cell::new(0));
    for (cpu, id) in [(0, 1), (3, 2)] {
        let done = Rc::clone(&done);
        world.at(cpu, start, move |sim, world| {
            assert_eq!(grow(sim, world, id, 1000, 2000), 2000);
            done.set(done.get() + 1);
        });
    }
    world.small.sim.run();
    assert_eq!(done.get(), 2);
    assert_eq!(world.killed(), [3]);
    world.ends();
}

#[test]
fn without_anybody_to_kill_the_allocation_fails_and_the_report_has_the_table() {
    let world = pressed(None, Rules::default());
    world.run(|sim, world| {
        let space = roomy(sim, world, None, 50);
        world.enroll(sim, 1, Kind::Init, &space);
        process(sim, world, 2, 60);
        world.process(2).set_adj(ScoreAdj::NEVER);
        let memory = world.memory(sim);
        let far = Vpn(START.0 + 60);
        let populated = space.populate(memory, far..Vpn(START.0 + u64::from(PAGES)));
        let Err(FaultError::OutOfMemory(AllocError::OutOfMemory(tried))) = populated else {
            panic!("there is not so much: {populated:?}");
        };
        assert_eq!(tried.no_kill, NoKill::NobodyLeft);
        let text = AllocError::OutOfMemory(tried).to_string();
        assert!(text.ends_with("no process is left that may be killed and would help"));
    });
    assert_eq!(world.killed(), []);
    let reports = world.reports.borrow().clone();
    assert_eq!(
        reports.len(),
        1,
        "it fails once, at the first page that is not there"
    );
    let Verdict::Nobody(why) = reports[0].verdict else {
        panic!("no process was killed");
    };
    assert_eq!(why, NoVictim::NoneKillable);
    let adjustments: Vec<i16> = reports[0].rows.iter().map(|row| row.adj.get()).collect();
    assert_eq!(adjustments, [0, -1000]);
    assert!(reports[0].rows.iter().all(|row| row.points.is_none()));
    let text = &reports[0].text;
    assert!(text.starts_with("oom-kill:constraint=CONSTRAINT_NONE,total=8192 pages\n"));
    assert!(text.ends_with("Out of memory and no killable processes..."));
    world.ends();
}

#[test]
fn nobody_else_dies_while_a_victim_is_dying() {
    // The victim does not exit, and the reaper starts after 50 ms.
    let world = pressed(None, Rules::default());
    world.run(|sim, world| {
        process(sim, world, 1, 10);
        process(sim, world, 2, 4000);
        process(sim, world, 3, 3900);
        let before = sim.now();
        world.kill(sim, 2);
        assert_eq!(grow(sim, world, 1, 10, 2000), 2000);
        let waited = sim.now().0 - before.0;
        assert!((50 * MS..60 * MS).contains(&waited), "{waited} ns");
    });
    assert_eq!(world.killed(), [2]);
    assert!(world.reports.borrow().is_empty());
    world.ends();
}

/// Creates a world in which process 2 is a victim. It exits after the OOM code has looked for free
/// memory, and before the OOM code selects another victim.
fn late(others: &[u32]) -> Rc<OomWorld> {
    let world = pressed(None, Rules::default());
    let others = others.to_vec();
    world.run(move |sim, world| {
        process(sim, world, 1, 10);
        world.process(1).set_adj(ScoreAdj::NEVER);
        process(sim, world, 2, 4000);
        for id in others {
            process(sim, world, id, 3900);
        }
        world.kill(sim, 2);
        world.leaves.set(Some(2));
        let touched = grow(sim, world, 1, 10, 2000);
        assert_eq!(touched, 2000, "the victim's memory is back");
        assert_eq!(world.leaves.get(), None, "it was asked");
    });
    world
}

#[test]
fn who_leaves_after_the_look_and_before_the_selection_is_not_followed_by_another() {
    let world = late(&[3]);
    assert_eq!(world.killed(), [2]);
    world.ends();
}

#[test]
fn the_last_that_could_be_killed_may_leave_late_without_the_allocation_failing() {
    let world = pressed(None, Rules::default());
    world.small.tune(Knob::MinFree, 4096);
    world.run(|sim, world| {
        process(sim, world, 1, 10);
        world.process(1).set_adj(ScoreAdj::NEVER);
        process(sim, world, 2, 300);
        world.kill(sim, 2);
        let pages = world.small.mm.pages();
        let mut taken = Vec::new();
        // The victim frees too few pages for the high watermark, so the allocation fails at the
        // first attempt after the selection. Because no process is left to kill, the allocation
        // then tries again with the min watermark.
        while world.reports.borrow().is_empty() {
            let free = world.small.mm.pages().view(sim)[0].counted_free;
            if free < 1100 && !world.process(2).is(sim, State::Left) {
                world.leaves.set(Some(2));
            }
            let page = pages.alloc(sim, Request::new(Order::ZERO));
            taken.push(page.expect("the victim leaves in time"));
        }
        assert!(world.process(2).is(sim, State::Left));
        pages.free_pages(sim, &taken).expect("they were handed out");
    });
    world.ends();
}

/// Lets process `id` ask the OOM code for memory on CPU 3 while CPU 0 holds the OOM lock. Returns
/// the answer, and how long CPU 3 waits for it, in nanoseconds.
fn told_meanwhile(id: u32) -> (Relief, u64) {
    let world = pressed(None, Rules::default());
    world.run(|sim, world| {
        process(sim, world, 1, 10);
        process(sim, world, 2, 4000);
        process(sim, world, 3, 3000);
    });
    let start = world.small.sim.stats().now;
    let wants = Request::new(Order::ZERO);
    let taken = Rc::new(RefCell::new(Vec::new()));
    let all = Rc::clone(&taken);
    world.at(0, start, move |sim, world| {
        let pages = world.small.mm.pages();
        while let Ok(pfn) = pages.alloc(sim, wants.urgent(Urgency::Atomic)) {
            all.borrow_mut().push(pfn);
        }
        for victim in [2, 3] {
            world.kill(sim, victim);
        }
        // Process 2 exits during this call. Emptying its memory takes longer than CPU 3 needs to
        // ask for memory. So CPU 0 still holds the OOM lock when CPU 3 asks.
        world.leaves.set(Some(2));
        world.oom.relieve(sim, pages, wants);
    });
    let told = Rc::new(Cell::new(None));
    let out = Rc::clone(&told);
    world.at(3, start, move |sim, world| {
        world.becomes(sim, id);
        while !world.process(2).is(sim, State::Left) {
            sim.sleep(Nanos(1000));
            assert!(sim.now().0 < start.0 + 40 * MS, "it leaves");
        }
        let before = sim.now();
        let relief = world.oom.relieve(sim, world.small.mm.pages(), wants);
        out.set(Some((relief, sim.now().0 - before.0)));
    });
    world.small.sim.run();
    world.run(move |sim, world| {
        let pages = world.small.mm.pages();
        let freed = pages.free_pages(sim, &taken.borrow());
        freed.expect("they were handed out");
    });
    world.ends();
    told.get().expect("it was told")
}

#[test]
fn a_victim_does_not_wait_for_the_lock_of_those_who_wait_for_it() {
    let (relief, waited) = told_meanwhile(3);
    assert_eq!(relief, Relief::Reserves);
    assert!(waited < MS / 10, "{waited} ns");
    let (relief, waited) = told_meanwhile(1);
    assert_eq!(relief, Relief::Retry);
    assert!(
        waited >= MS,
        "another CPU handles the shortage: {waited} ns"
    );
}

#[test]
fn who_asks_and_is_dying_gets_the_reserves_and_kills_nobody() {
    let world = pressed(None, Rules::default());
    world.small.tune(Knob::MinFree, 4096);
    world.run(|sim, world| {
        process(sim, world, 1, 10);
        process(sim, world, 2, 100);
        world.becomes(sim, 1);
        let pages = world.small.mm.pages();
        let mut taken = Vec::new();
        let wants = Request::new(Order::ZERO).urgent(Urgency::Atomic);
        // Use up all memory. These allocations cannot wait, so they do not lead to kills.
        while let Ok(pfn) = pages.alloc(sim, wants) {
            taken.push(pfn);
        }
        world.process(1).set(sim, State::Exiting);
        let reserves = pages.alloc(sim, Request::new(Order::ZERO));
        let Err(AllocError::OutOfMemory(tried)) = reserves else {
            panic!("Atomic goes deeper than a victim: {reserves:?}");
        };
        assert_eq!(tried.no_kill, NoKill::Dying);
        assert!(world.process(1).is(sim, State::Victim));
        pages
            .free_pages(sim, &taken[..400])
            .expect("they were handed out");
        let served = pages.alloc(sim, Request::new(Order::ZERO));
        taken.push(served.expect("below the min mark, above half of it"));
        pages
            .free_pages(sim, &taken[400..])
            .expect("they were handed out");
    });
    assert_eq!(world.killed(), []);
    world.ends();
}

#[test]
fn what_is_not_worth_a_process_kills_nobody() {
    let world = pressed(None, Rules::default());
    world.run(|sim, world| {
        process(sim, world, 1, 1000);
        let pages = world.small.mm.pages();
        let fails = |request| match pages.alloc(sim, request) {
            Err(AllocError::OutOfMemory(tried)) => Err(tried.no_kill),
            other => Ok(other),
        };
        let mut large = Vec::new();
        let costly = order(4);
        while let Ok(Ok(pfn)) = fails(Request::new(costly)) {
            large.push(pfn);
        }
        assert_eq!(fails(Request::new(costly)), Err(NoKill::Costly));
        let mut single = Vec::new();
        let reserve = Request::new(Order::ZERO).urgent(Urgency::Reserve);
        while let Ok(Ok(pfn)) = fails(reserve) {
            single.push(pfn);
        }
        assert_eq!(fails(reserve), Err(NoKill::Dying));
        for urgency in [Urgency::Atomic, Urgency::NoWait] {
            let request = Request::new(Order::ZERO).urgent(urgency);
            assert_eq!(fails(request), Err(NoKill::NotAsked));
        }
        let low = Request::new(Order::ZERO).of_class(ZoneKind::Dma32);
        assert_eq!(pages.alloc(sim, low), Err(AllocError::NoSuchZone));
        pages
            .free_pages(sim, &single)
            .expect("they were handed out");
        for pfn in large {
            pages.free(sim, pfn, costly).expect("it was handed out");
        }
    });
    assert_eq!(world.killed(), []);
    world.ends();
}

#[test]
fn init_and_who_must_never_be_killed_are_spared_whatever_they_have() {
    let world = pressed(Some(Nanos(MS)), Rules::default());
    world.run(|sim, world| {
        let init = roomy(sim, world, None, 3000);
        world.enroll(sim, 1, Kind::Init, &init);
        process(sim, world, 2, 3000);
        world.process(2).set_adj(ScoreAdj::NEVER);
        process(sim, world, 3, 10);
        process(sim, world, 4, 1500);
        assert_eq!(grow(sim, world, 3, 10, 1500), 1500);
    });
    assert_eq!(world.killed(), [4]);
    world.ends();
}

#[test]
fn whoever_asks_may_be_killed_first_if_that_is_the_rule() {
    let rules = Rules {
        first: First::Requester,
        ..Rules::default()
    };
    let world = pressed(Some(Nanos(MS)), rules);
    world.run(|sim, world| {
        process(sim, world, 1, 10);
        process(sim, world, 2, 7000);
        assert!(grow(sim, world, 1, 10, 3000) < 3000);
    });
    assert_eq!(world.killed(), [1]);
    world.ends();
}

#[test]
#[expect(
    clippy::arc_with_non_send_sync,
    reason = "on real machines they are both; a simulated one has one thread"
)]
fn a_group_over_its_budget_kills_within_the_group_only() {
    let world = pressed(Some(Nanos(MS)), Rules::default());
    world.run(|sim, world| {
        let group = Arc::new(Budget::new(sim, 1000));
        let member = Arc::new(Budget::under(sim, u64::MAX, Arc::clone(&group)));
        let enroll = |id, budget, pages| {
            let space = roomy(sim, world, budget, pages);
            world.enroll(sim, id, Kind::Process, &space);
            space
        };
        enroll(1, None, 5000);
        enroll(2, Some(&group), 600);
        let grows = enroll(3, Some(&member), 100);
        world.becomes(sim, 3);
        let memory = world.memory(sim);
        for page in 100..700 {
            let page = Vpn(START.0 + page);
            let touched = world.oom.fault_or_kill(memory, &grows, page, Access::Write);
            assert!(touched.is_ok(), "{touched:?}");
        }
        assert_eq!(world.killed(), [2]);
        // Process 3 is now the only process under the budget `group`, so it is the next victim
        // itself.
        let mut page = START.0 + 700;
        let end = loop {
            let touched = world
                .oom
                .fault_or_kill(memory, &grows, Vpn(page), Access::Write);
            match touched {
                Ok(_) => page += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(end, FaultError::Killed);
        assert_eq!(page - START.0, 1000, "its budget");
        world.exit(sim, &world.process(3));
        // For a process that must not be killed, `fault_or_kill` returns an error, just as `fault`
        // does.
        let spared = enroll(4, Some(&group), 1000);
        world.process(4).set_adj(ScoreAdj::NEVER);
        world.becomes(sim, 4);
        let page = Vpn(START.0 + 1000);
        let refused = world
            .oom
            .fault_or_kill(memory, &spared, page, Access::Write);
        assert!(
            matches!(refused, Err(FaultError::OverBudget(_))),
            "{refused:?}"
        );
    });
    assert_eq!(world.killed(), [2, 3]);
    let reports = world.reports.borrow().clone();
    let ids = |nth: usize| -> Vec<u32> {
        let rows = reports[nth].rows.iter();
        rows.map(|row| row.process.0).collect()
    };
    assert_eq!(ids(0), [2, 3], "the largest is not in the group");
    assert!(
        reports[0]
            .text
            .contains("Memory cgroup out of memory: Killed process 2")
    );
    world.ends();
}

#[test]
fn the_same_press_gives_the_same_run() {
    let run = || {
        let world = pressed(Some(Nanos(2 * MS)), Rules::default());
        world.run(|sim, world| {
            (1..6).for_each(|id| process(sim, world, id, 1000 + u64::from(id)));
        });
        let start = world.small.sim.stats().now;
        for (cpu, id) in [(0, 1), (3, 2)] {
            world.at(cpu, start, move |sim, world| {
                grow(sim, world, id, 1100, 2000);
            });
        }
        world.small.sim.run();
        let out = |event: &Event| matches!(event, Event::OomKill(_));
        let events = world.events();
        let kills: Vec<_> = events.into_iter().filter(|(_, event)| out(event)).collect();
        assert!(!kills.is_empty());
        let stats = world.small.sim.stats();
        let end = (kills, stats.now, stats.hash);
        world.ends();
        end
    };
    assert_eq!(run(), run());
}
