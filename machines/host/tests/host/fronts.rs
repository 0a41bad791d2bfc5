//! Tests fronts, the stacks of free pages in front of the page lists, in each way in which threads
//! can use them.

use std::hint;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_host::affinity::{self, CpuMask};
use plimsoll_host::fronts::Fronts;
use plimsoll_host::{Host, OwnerLocks};
use plimsoll_mm::Manager;
use plimsoll_mm::counter::{Area, Batch, Counters, Items, OneSidedTree, Shape};
use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::{Config, FreeError, Layout, Request};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn};

#[path = "../shared/own_areas.rs"]
mod own_areas;

const PAGES: u32 = 1 << 14;
/// The number of additions of each thread.
const EACH: i64 = 20_000;
/// How long a test waits for threads that have not started yet.
const PATIENCE: Duration = Duration::from_secs(60);
const ONE: Request = Request::new(Order::ZERO);

/// The kinds of fronts (stacks of free pages) that this computer supports.
fn kinds() -> impl Iterator<Item = Fronts> {
    let all = [Fronts::Restartable, Fronts::Owned, Fronts::Off];
    all.into_iter().filter(|fronts| fronts.is_available())
}

fn machine(fronts: Fronts) -> (Host, Manager<Host>) {
    let host = Host::with_fronts(Topology::flat(2), fronts, OwnerLocks::Exchanged);
    assert_eq!(host.fronts(), fronts, "it is available");
    let config = Config::new(Layout::arena(Pages(PAGES)));
    let manager = Manager::new(&host, config).expect("a layout");
    (host, manager)
}

/// Asserts that every page is free and in the zone after a drain.
fn assert_whole(host: &Host, manager: &Manager<Host>) {
    let pages = manager.pages();
    let zone = &pages.view(host)[0];
    assert_eq!(zone.free + zone.listed, Pages(PAGES), "fronts are counted");
    pages.drain_all_sync(host);
    let zone = &pages.view(host)[0];
    assert_eq!((zone.free, zone.listed), (Pages(PAGES), Pages(0)));
    assert_eq!(zone.counted_free, u64::from(PAGES));
}

/// If glibc registers no areas for restartable sequences, the machine registers its own, and
/// everything in this file holds.
#[test]
fn fronts_hold_without_the_areas_of_glibc() {
    if own_areas::is_second_run() {
        assert!(Fronts::Restartable.is_available());
    } else if Fronts::Restartable.is_available() {
        own_areas::run_again("fronts::");
    }
}

#[test]
fn the_page_freed_last_is_allocated_first() {
    for fronts in kinds() {
        let (host, manager) = machine(fronts);
        let _entered = host.enter(CpuId(0));
        let local = manager.pages().local(&host, CpuId(0));
        let mut held: Vec<Pfn> = (0..300)
            .map(|_| local.alloc(&host, ONE).expect("there is memory"))
            .collect();
        for &pfn in &held[..20] {
            local
                .free(&host, pfn, Order::ZERO)
                .expect("it is allocated");
        }
        for &pfn in held[..20].iter().rev() {
            assert_eq!(local.alloc(&host, ONE), Ok(pfn), "{fronts}");
        }
        held.drain(..).for_each(|pfn| {
            let freed = manager.pages().free(&host, pfn, Order::ZERO);
            freed.expect("it is allocated");
        });
        assert_whole(&host, &manager);
    }
}

#[test]
fn a_thread_that_plays_no_cpu_uses_the_front_of_the_cpu_on_which_it_runs() {
    if !Fronts::Restartable.is_available() {
        return;
    }
    let (host, manager) = machine(Fronts::Restartable);
    let real = CpuMask::of_this_thread();
    let Some(&cpu) = real.cpus().first().filter(|&&cpu| cpu < 2) else {
        return;
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            affinity::pin(&CpuMask::only(cpu)).expect("it may run there");
            // The first frees prepare the thread, so that later frees use its CPU's stack of pages.
            for _ in 0..3 {
                let pfn = manager.pages().alloc(&host, ONE).expect("there is memory");
                let freed = manager.pages().free(&host, pfn, Order::ZERO);
                freed.expect("it is allocated");
            }
        });
    });
    assert!(manager.pages().listed(&host, CpuId(cpu)) > Pages(0));
    assert_eq!(manager.pages().listed(&host, CpuId(1 - cpu)), Pages(0));
    assert_whole(&host, &manager);
}

/// Runs `f` on a thread that stays on one real CPU, if the system can pin threads.
fn on_one_real_cpu(f: impl FnOnce() + Send) {
    let real = CpuMask::of_this_thread();
    thread::scope(|scope| {
        scope.spawn(|| {
            if let Some(&cpu) = real.cpus().first() {
                affinity::pin(&CpuMask::only(cpu)).expect("it may run there");
            }
            f();
        });
    });
}

/// A thread on CPU 1 calls the allocator that was made for CPU 0. No other thread uses the front
/// (the stack of free pages) of CPU 0, so the page goes there, and comes from there again.
#[test]
fn an_allocator_for_another_cpu_takes_over_a_front_without_a_user() {
    for fronts in kinds().filter(|fronts| *fronts != Fronts::Off) {
        on_one_real_cpu(|| {
            let (host, manager) = machine(fronts);
            let _entered = host.enter(CpuId(1));
            let pages = manager.pages();
            let listed = || [0, 1].map(|cpu| pages.listed(&host, CpuId(cpu)).0);
            let pfn = pages.alloc(&host, ONE).expect("there is memory");
            pages.drain_all_sync(&host);
            let local = pages.local(&host, CpuId(0));
            assert_eq!(local.free(&host, pfn, Order::ZERO), Ok(()));
            assert_eq!(listed(), [1, 0], "{fronts}");
            assert_eq!(local.alloc(&host, ONE), Ok(pfn));
            assert_eq!(local.free(&host, pfn, Order::ZERO), Ok(()));
            assert_whole(&host, &manager);
        });
    }
}

/// A thread on CPU 0 frees a page and then does nothing for a while. Meanwhile a thread on CPU 1
/// calls the allocator that was made for CPU 0. At first it may get pages of CPU 1. After many calls
/// it takes over the front (the stack of free pages) of CPU 0, and gets the page there.
#[test]
fn an_allocator_for_another_cpu_gets_the_front_of_an_idle_thread() {
    for fronts in kinds().filter(|fronts| *fronts != Fronts::Off) {
        on_one_real_cpu(|| {
            let (host, manager) = machine(fronts);
            let _entered = host.enter(CpuId(0));
            let pages = manager.pages();
            let local = pages.local(&host, CpuId(0));
            let pfn = local.alloc(&host, ONE).expect("there is memory");
            pages.drain_all_sync(&host);
            assert_eq!(local.free(&host, pfn, Order::ZERO), Ok(()));
            on_one_real_cpu(|| {
                let _entered = host.enter(CpuId(1));
                let is_there = |_| {
                    let got = local.alloc(&host, ONE).expect("there is memory");
                    assert_eq!(pages.free(&host, got, Order::ZERO), Ok(()));
                    got == pfn
                };
                assert!((0..10_000).any(is_there), "{fronts}");
            });
            assert_whole(&host, &manager);
        });
    }
}

/// A CPU goes offline after its front (its stack of free pages) has become empty. The front may
/// hold no page then, but the thread that used it last is still its user. The thread frees pages
/// with an allocator that was made for the CPU before. The pages go to the lists of another CPU.
#[test]
fn a_page_that_is_freed_for_a_cpu_that_is_gone_is_not_lost() {
    for fronts in kinds() {
        on_one_real_cpu(|| {
            let (host, manager) = machine(fronts);
            let pages = manager.pages();
            let local = pages.local(&host, CpuId(1));
            let mut held = Vec::new();
            {
                let _entered = host.enter(CpuId(1));
                held.push(local.alloc(&host, ONE).expect("there is memory"));
                while pages.listed(&host, CpuId(1)) > Pages(0) {
                    held.push(local.alloc(&host, ONE).expect("there is memory"));
                }
                manager.cpu_going(&host, CpuId(1));
            }
            let _entered = host.enter(CpuId(0));
            manager.cpu_dead(&host, CpuId(1));
            for pfn in held {
                assert_eq!(local.free(&host, pfn, Order::ZERO), Ok(()), "{fronts}");
            }
            assert_eq!(pages.listed(&host, CpuId(1)), Pages(0), "{fronts}");
            assert_whole(&host, &manager);
        });
    }
}

#[test]
fn a_second_free_is_an_error_before_and_after_the_page_has_left_the_front() {
    for fronts in kinds() {
        let (host, manager) = machine(fronts);
        let _entered = host.enter(CpuId(0));
        let local = manager.pages().local(&host, CpuId(0));
        let pfn = local.alloc(&host, ONE).expect("there is memory");
        let other = local.alloc(&host, ONE).expect("there is memory");
        let twice = Err(FreeError::NotAllocated(pfn));
        local
            .free(&host, pfn, Order::ZERO)
            .expect("it is allocated");
        assert_eq!(local.free(&host, pfn, Order::ZERO), twice, "{fronts}");
        local
            .free(&host, other, Order::ZERO)
            .expect("it is allocated");
        assert_eq!(manager.pages().free(&host, pfn, Order::ZERO), twice);
        assert_eq!(manager.pages().free_pages(&host, &[pfn]), twice);
        manager.pages().drain_all_sync(&host);
        assert!(local.free(&host, pfn, Order::ZERO).is_err(), "{fronts}");
        assert_eq!(manager.pages().double_frees(), 0);
        assert_whole(&host, &manager);
    }
}

/// Lets two threads, on CPUs 0 and 1, free all of `held` at the same time. Returns how many of these
/// frees succeeded.
pub(crate) fn free_at_once(host: &Host, manager: &Manager<Host>, held: &[Pfn]) -> usize {
    let (pages, gate) = (manager.pages(), Barrier::new(2));
    let freed = thread::scope(|scope| {
        let frees = [0, 1].map(|cpu| {
            let gate = &gate;
            scope.spawn(move || {
                let _entered = host.enter(CpuId(cpu));
                gate.wait();
                let free = |pfn: &&Pfn| pages.free(host, **pfn, Order::ZERO).is_ok();
                held.iter().filter(free).count()
            })
        });
        frees.map(|thread| thread.join().expect("no thread panicked"))
    });
    freed[0] + freed[1]
}

/// Two threads free the same pages at the same moment. If both frees of a page succeed, the page is
/// in two fronts (stacks of free pages). Nevertheless it returns to the zone once.
#[test]
fn frees_that_race_return_a_page_once() {
    for fronts in kinds() {
        let (host, manager) = machine(fronts);
        let (pages, mut twice) = (manager.pages(), 0);
        for _round in 0..50 {
            let held: Vec<Pfn> = {
                let _entered = host.enter(CpuId(0));
                let alloc = |_| pages.alloc(&host, ONE).expect("there is memory");
                (0..100).map(alloc).collect()
            };
            let freed = free_at_once(&host, &manager, &held);
            assert!(freed >= held.len(), "each page is freed");
            if fronts != Fronts::Restartable {
                assert_eq!(freed, held.len(), "{fronts}: one free of each page fails");
            }
            twice += (freed - held.len()) as u64;
            pages.drain_all_sync(&host);
            assert_eq!(pages.double_frees(), twice, "{fronts}: each is found");
        }
        assert_whole(&host, &manager);
    }
}

#[test]
fn a_drain_empties_a_front_while_its_cpu_uses_it() {
    for fronts in kinds() {
        let (host, manager) = machine(fronts);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for cpu in [CpuId(0), CpuId(1)] {
                let (host, manager, stop) = (&host, &manager, &stop);
                scope.spawn(move || {
                    let _entered = host.enter(cpu);
                    let local = manager.pages().local(host, cpu);
                    let mut held = Vec::new();
                    while !stop.load(Relaxed) {
                        held.extend((0..90).filter_map(|_| local.alloc(host, ONE).ok()));
                        held.drain(..).for_each(|pfn| {
                            let freed = local.free(host, pfn, Order::ZERO);
                            freed.expect("it is allocated");
                        });
                    }
                });
            }
            // On a busy computer the two threads may start only after many drains.
            let (start, mut drains, mut drained) = (Instant::now(), 0, Pages(0));
            while drains < 200 || (drained == Pages(0) && start.elapsed() < PATIENCE) {
                drained += manager.pages().drain_all_sync(&host);
                drains += 1;
                thread::yield_now();
            }
            stop.store(true, Relaxed);
            assert!(drained > Pages(0));
        });
        assert_whole(&host, &manager);
    }
}

/// A thread uses the front (the stack of free pages) of its CPU with plain stores. A drain makes the
/// kernel issue a barrier on the CPU of this thread, because otherwise neither might see the store
/// of the other in time, and both would take the same page. This happens only in a few of many
/// thousand drains, so without the barrier the test fails in some runs and not in others.
#[test]
fn a_drain_takes_no_page_that_the_thread_takes() {
    if !Fronts::Owned.is_available() {
        return;
    }
    let (host, manager) = machine(Fronts::Owned);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let user = scope.spawn(|| {
            let _entered = host.enter(CpuId(0));
            let local = manager.pages().local(&host, CpuId(0));
            let mut held = Vec::new();
            while !stop.load(Relaxed) {
                held.extend((0..4).filter_map(|_| local.alloc(&host, ONE).ok()));
                for pfn in held.drain(..) {
                    let freed = local.free(&host, pfn, Order::ZERO);
                    freed.expect("the thread alone has the page");
                }
            }
        });
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(2) && !user.is_finished() {
            // The thread takes its front back, and uses it for a moment.
            (0..1000).for_each(|_| hint::spin_loop());
            manager.pages().drain_cpu(&host, CpuId(0));
        }
        stop.store(true, Relaxed);
    });
    assert_whole(&host, &manager);
}

/// If a CPU has not used its front (its stack of free pages) since the last decay, the periodic
/// decay empties this front. The decay leaves the front of any other CPU alone.
#[test]
fn only_an_idle_front_decays() {
    for fronts in kinds().filter(|fronts| *fronts != Fronts::Off) {
        let (host, manager) = machine(fronts);
        let _entered = host.enter(CpuId(0));
        let pages = manager.pages();
        let local = pages.local(&host, CpuId(0));
        let pair = || {
            let pfn = local.alloc(&host, ONE).expect("there is memory");
            local
                .free(&host, pfn, Order::ZERO)
                .expect("it is allocated");
            pfn
        };
        (0..5).for_each(|_| {
            pair();
        });
        let decay = || pages.decay_lists(&host, 0, CpuId(0)).expect("zone 0");
        decay();
        let hot = pair();
        decay();
        assert_eq!(pair(), hot, "{fronts}: the front was in use");
        decay();
        // CPU 0 has not used its stack of free pages since the last decay, so this decay moves the
        // pages to its page list.
        decay();
        let held: Vec<Pfn> = (0..pages.listed(&host, CpuId(0)).0)
            .map(|_| local.alloc(&host, ONE).expect("there is memory"))
            .collect();
        assert!(held.contains(&hot), "{fronts}: no page is lost");
        for pfn in held {
            local
                .free(&host, pfn, Order::ZERO)
                .expect("it is allocated");
        }
        assert_whole(&host, &manager);
    }
}

/// Every page can be allocated, also those in the front (the stack of free pages) of an idle CPU.
#[test]
fn pages_in_other_fronts_are_found_before_memory_is_out() {
    for fronts in kinds() {
        let (host, manager) = machine(fronts);
        let pages = manager.pages();
        {
            let _entered = host.enter(CpuId(1));
            let held: Vec<Pfn> = (0..100)
                .map(|_| pages.alloc(&host, ONE).expect("there is memory"))
                .collect();
            for pfn in held {
                pages
                    .free(&host, pfn, Order::ZERO)
                    .expect("it is allocated");
            }
        }
        let _entered = host.enter(CpuId(0));
        let all = ONE.urgent(plimsoll_mm::page::watermark::Urgency::Reserve);
        let held: Vec<Pfn> = std::iter::from_fn(|| pages.alloc(&host, all).ok()).collect();
        assert_eq!(held.len(), PAGES as usize, "{fronts}");
        for pfn in held {
            pages
                .free(&host, pfn, Order::ZERO)
                .expect("it is allocated");
        }
        assert_whole(&host, &manager);
    }
}

/// Threads that move between real CPUs all the time add to one counter. No addition is lost.
#[test]
fn a_counter_is_exact_although_its_threads_move() {
    for fronts in kinds() {
        let host = Host::with_fronts(Topology::flat(2), fronts, OwnerLocks::Exchanged);
        let fan_in = OneSidedTree::<Host>::FAN_IN;
        let shape = Shape::of_topology(host.topology(), Batch::RSS, fan_in);
        let shape = Arc::new(shape.expect("there are few CPUs"));
        let area = Arc::new(Area::new(&host, 1).expect("there is memory"));
        let lines = OneSidedTree::<Host>::items_lines(&shape);
        let items = Items::new(&host, lines).expect("there is memory");
        let tree = OneSidedTree::init_many_grown(&host, &area, &shape, items).expect("it fits");
        let real = CpuMask::of_this_thread();
        thread::scope(|scope| {
            for nth in 0..4 {
                let (host, tree, real) = (&host, &tree, &real);
                scope.spawn(move || {
                    let _entered = (nth < 3).then(|| host.enter(CpuId(nth % 2)));
                    let here = tree.local(host, CpuId(nth % 2));
                    for turn in 0..EACH {
                        if turn % 100 == 0 {
                            let turn = u32::try_from(turn / 100).expect("few");
                            let cpu = real.real(turn + nth).expect("it runs somewhere");
                            let _moved = affinity::pin(&CpuMask::only(cpu));
                        }
                        if nth % 2 == 1 {
                            here.add(host, 0, 1);
                        } else {
                            tree.add(host, 0, 1);
                        }
                    }
                });
            }
        });
        assert_eq!(tree.precise_sum(&host, 0), 4 * EACH, "{fronts}");
        let range = tree.min_max(&host, 0);
        assert!(range.min <= 4 * EACH && 4 * EACH <= range.max, "{range:?}");
        let _items = tree.destroy_many(&host);
    }
}

#[test]
fn a_machine_uses_the_best_fronts_that_it_can() {
    assert_eq!(Host::new().fronts(), Fronts::best());
    assert!(Fronts::best().is_available());
    let observed = Host::with_observer(Topology::flat(1), |_, _, _| {});
    assert_eq!(observed.fronts(), Fronts::Off);
}
