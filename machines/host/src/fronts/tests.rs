//! Tests of the rules by which threads share a stack of free pages, a depot and a home of counters.

use std::iter;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8};
use std::thread;
use std::time::Duration;

use plimsoll_mm::machine::{Freed, Front, Machine, Tags};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Order, Pages};

use super::front::HostFront;
use super::homes::Homes;
use super::kinds::Fronts;
use super::rseq;
use super::stack::{OPERATION, Stack};
use super::sync::STRANGE_MAX;
use crate::affinity::{self, CpuMask};
use crate::locks::{self, Sitter};
use crate::{Host, OwnerLocks};

/// A stack with room for two pages, whose user is the calling thread.
fn stack() -> Option<(Stack, Sitter<'static>)> {
    locks::sit_down();
    let me = locks::mine()?;
    let stack = Stack::new();
    stack.limit.store(2, Relaxed);
    assert!(stack.admit(me.number(), 3, |_| panic!("it had no user")));
    Some((stack, me))
}

/// A stack changes its user only after a number of calls by other threads during which the user did
/// not use it.
#[test]
fn a_stack_stays_with_a_user_that_uses_it() {
    let Some((stack, me)) = stack() else { return };
    let other = me.number() + 1;
    let asks = || stack.admit(other, 3, |home| assert_eq!(home, me.number()));
    assert!(stack.push_at(me, 7));
    assert_eq!([asks(), asks()], [false; 2]);
    assert!(
        stack.push_at(me, 8),
        "the user uses it, so the others wait again"
    );
    assert_eq!([asks(), asks()], [false; 2]);
    assert!(stack.is_home(me));
    assert!(asks(), "the third call in a row");
    assert!(!stack.is_home(me) && !stack.push_at(me, 9));
    assert_eq!(stack.pop_at(me), None);
    assert_eq!(stack.len(), 2);
}

#[test]
fn a_stack_takes_no_more_pages_than_its_limit() {
    let Some((stack, me)) = stack() else { return };
    assert_eq!(
        [1, 2, 3].map(|page| stack.push_at(me, page)),
        [true, true, false]
    );
    assert_eq!(
        iter::from_fn(|| stack.pop_at(me)).collect::<Vec<_>>(),
        [2, 1]
    );
}

#[test]
fn a_run_is_pushed_whole_or_not_at_all() {
    let Some((stack, me)) = stack() else { return };
    stack.limit.store(5, Relaxed);
    assert!(stack.push_run_at(me, &[1, 2, 3, 4]));
    assert!(!stack.push_run_at(me, &[5, 6]), "there is room for one");
    let mut run = [0; 3];
    assert_eq!((stack.pop_run_at(me, &mut run), run), (3, [4, 3, 2]));
    assert_eq!((stack.pop_run_at(me, &mut run), run[0]), (1, 1));
    assert_eq!(stack.pop_run_at(me, &mut run), 0, "it is empty");
    let operations = stack.state.load(Relaxed) / OPERATION;
    assert_eq!(operations, 3, "one run pushed, and two popped");
}

/// A front of each kind pushes and pops runs, and says how many pages it has pushed.
#[test]
fn a_front_pushes_all_pages_of_a_run_or_none() {
    for kind in [Fronts::Restartable, Fronts::Owned] {
        let host = Host::with_fronts(Topology::flat(1), kind, OwnerLocks::Exchanged);
        let front = HostFront::of_a_zone(1, Order::ZERO, Fronts::Owned)
            .next()
            .expect("one CPU has a front");
        front.set_limit(4);
        host.fronts().prepare_thread();
        if !front.admits(&host) {
            continue;
        }
        // The kernel can move this thread to a real CPU whose threads may not use the front.
        let at_home = |use_front: &mut dyn FnMut() -> usize, wanted| {
            let mut turns = iter::repeat_with(|| {
                front.admits(&host);
                use_front()
            });
            assert!(
                turns.by_ref().take(5000).any(|pages| pages == wanted),
                "{kind}"
            );
        };
        at_home(&mut || front.push_run(&host, &[1, 2, 3]), 3);
        assert_eq!(front.push_run(&host, &[4, 5]), 0, "{kind}: no room for two");
        assert_eq!(front.blocks(), 3);
        let mut run = [0; 4];
        at_home(&mut || front.pop_run(&host, &mut run), 3);
        assert_eq!((&run[..3], front.blocks()), (&[3, 2, 1][..], 0));
    }
}

#[test]
fn a_stack_is_idle_until_it_is_used_again() {
    let Some((stack, me)) = stack() else { return };
    assert!(stack.push_at(me, 7));
    assert_eq!(
        [stack.is_idle(), stack.is_idle(), stack.is_idle()],
        [false, true, true]
    );
    assert_eq!(stack.pop_at(me), Some(7));
    assert_eq!([stack.is_idle(), stack.is_idle()], [false, true]);
}

/// A signal handler can interrupt its thread inside a push or a pop. The handler must not use a
/// stack then.
#[test]
fn a_thread_inside_a_stack_uses_no_second_one() {
    let Some((stack, me)) = stack() else { return };
    assert!(stack.push_at(me, 7));
    me.holding().store(1, Relaxed);
    assert!(!stack.push_at(me, 8));
    assert_eq!(stack.pop_at(me), None);
    me.holding().store(0, Relaxed);
    assert_eq!(stack.pop_at(me), Some(7));
}

/// If the threads of a machine use no fronts, a front has no room, so that allocations and frees do
/// not try to use it.
#[test]
fn a_front_has_no_larger_limit_than_its_capacity() {
    let all = [Fronts::Restartable, Fronts::Owned, Fronts::Off];
    let limits = all.map(|kind| {
        let front = HostFront::of_a_zone(1, Order::HUGE, kind).next();
        let front = front.expect("one CPU has a front");
        front.set_limit(u32::MAX);
        front.limit()
    });
    assert_eq!(limits, [HostFront::CAPACITY, HostFront::CAPACITY, 0]);
}

#[test]
fn a_run_in_the_depot_counts_for_the_front_that_gave_it() {
    let host = Host::with_topology(Topology::flat(2));
    let fronts: Vec<HostFront> = HostFront::of_a_zone(2, Order::ZERO, Fronts::Owned).collect();
    assert!(fronts[1].give_run(&host, &[7; 64]));
    assert_eq!([0, 1].map(|cpu| fronts[cpu].blocks()), [0, 64]);
    fronts[0].empty(&host, |_| panic!("the run is not its own"));
    let mut pages = 0;
    fronts[1].empty(&host, |run| pages += run.len());
    assert_eq!((pages, fronts[1].blocks()), (64, 0));
}

/// The home of a CPU's counters is a real CPU. It moves to another real CPU only after many
/// additions by threads there, and each time after as many.
#[test]
fn a_home_of_counters_moves_after_many_additions_from_elsewhere() {
    let real = CpuMask::of_this_thread();
    let (true, [first, second, ..]) = (rseq::is_available(), real.cpus()) else {
        return;
    };
    let homes = Homes::new(1);
    let home = homes.home_of(CpuId(0)).expect("one CPU");
    let word = AtomicI64::new(0);
    let add = || {
        let again = || homes.claim(home).then(|| home.add(&word, 1))?;
        home.add(&word, 1).or_else(again)
    };
    let pin = |cpu: &u32| affinity::pin(&CpuMask::only(*cpu)).expect("it may run there");
    thread::scope(|scope| {
        scope.spawn(|| {
            let _area = rseq::set_up();
            pin(first);
            assert_eq!(add(), Some(1), "it had no home");
            for (turn, cpu) in (2..).zip([second, first, second]) {
                pin(cpu);
                let refused = iter::repeat_with(add).take_while(Option::is_none).count();
                assert_eq!(refused, STRANGE_MAX as usize - 1);
                assert_eq!(word.load(Relaxed), turn);
            }
        });
    });
}

/// Another thread stops the sequences of a thread that frees pages, again and again. Each free
/// succeeds once: the page is in the stack, or has the new tag and is the caller's. A free of a page
/// that is free changes nothing.
#[test]
fn a_free_that_is_stopped_succeeds_once() {
    const ALLOCATED: u8 = 7;
    const FRONTED: u8 = 9;
    let Some(area) = rseq::set_up() else { return };
    let stack = Stack::new();
    stack.limit.store(2, Relaxed);
    let is_over = AtomicBool::new(false);
    let [tag, free_tag] = [ALLOCATED, FRONTED].map(AtomicU8::new);
    thread::scope(|scope| {
        let stops = scope.spawn(|| {
            for _ in 0..3000 {
                thread::sleep(Duration::from_micros(1));
                rseq::abort_on(stack.home.load(Relaxed));
            }
            is_over.store(true, Relaxed);
        });
        while !is_over.load(Relaxed) && !stops.is_finished() {
            let cpu = area.cpu().expect("the thread is set up");
            stack.home.store(cpu, Relaxed);
            let freed = rseq::free(area, &stack, 5, &tag, [ALLOCATED, FRONTED]);
            let (is_freed, is_pushed) = (tag.load(Relaxed) == FRONTED, stack.len() == 1);
            match freed {
                Freed::Pushed => assert!(is_freed && is_pushed),
                Freed::Tagged => assert!(is_freed && !is_pushed),
                // The thread was moved to another CPU.
                Freed::Unchanged => assert!(!is_freed && !is_pushed),
            }
            stack.state.store(0, Relaxed);
            // The page is free already.
            let freed = rseq::free(area, &stack, 5, &free_tag, [ALLOCATED, FRONTED]);
            assert_eq!((freed, stack.len()), (Freed::Unchanged, 0));
            tag.store(ALLOCATED, Relaxed);
        }
    });
}

/// A free that finds another tag than it expects leaves this tag as it is.
#[test]
fn a_front_takes_no_page_with_another_tag() {
    for kind in [Fronts::Restartable, Fronts::Owned] {
        let host = Host::with_fronts(Topology::flat(1), kind, OwnerLocks::Exchanged);
        let tags = host.tags(Pages(8));
        let front = HostFront::of_a_zone(1, Order::ZERO, kind).next();
        let front = front.expect("one CPU has a front");
        front.set_limit(4);
        host.fronts().prepare_thread();
        front.admits(&host);
        tags.set(3, 5);
        assert_eq!(front.free(&host, &tags, 3, 7, 9), Freed::Unchanged);
        assert_eq!((tags.get(3), front.blocks()), (5, 0), "{kind}");
    }
}
