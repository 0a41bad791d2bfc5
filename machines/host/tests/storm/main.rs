//! A storm: threads allocate and free, while the test does to them everything that a kernel may do
//! to threads. In the end no page is lost, every count is exact, and no page ever had two owners.
//!
//! Every 10 µs, each thread is moved to another CPU. There are signals, forks and drains. Threads
//! end while other threads have their pages, CPUs go offline and come back, and a zone changes its
//! size. Threads also add to counters. There is a storm for each kind of fronts, the stacks of free
//! pages that CPUs use without a lock, in a zone with lists and in one with bitmaps, and a storm
//! for each way in which blocks of pages can have owners. A storm lasts 2 seconds, or the number of
//! seconds that `PLIMSOLL_STORM_SECONDS` gives. On a busy computer it lasts longer, until every
//! part of the storm has run several times:
//!
//! ```sh
//! PLIMSOLL_STORM_SECONDS=600 cargo test --release -p plimsoll-host --test storm
//! ```
#![cfg(target_os = "linux")]

mod kernel;
mod load;
#[path = "../shared/own_areas.rs"]
mod own_areas;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_host::Host;
use plimsoll_host::affinity::CpuMask;
use plimsoll_host::fronts::Fronts;
use plimsoll_mm::page::owned::Owning;
use plimsoll_mm::page::{FreeIndex, Request};
use plimsoll_mm::units::{CpuId, Order, Pfn};

use kernel::Signals;
use load::{Load, Setting};

/// The number of CPUs of the memory manager. Some threads of the test act as one of these CPUs, and
/// other threads act as none.
const CPUS: u32 = 4;
/// The CPU that goes offline and comes back.
const LEAVES: CpuId = CpuId(3);

/// How much longer a storm may last if the computer is so busy that some part of the storm has
/// hardly run.
const PATIENCE: Duration = Duration::from_secs(60);

fn length() -> Duration {
    let seconds = std::env::var("PLIMSOLL_STORM_SECONDS");
    let seconds = seconds.map_or(2, |text| text.parse().expect("a number of seconds"));
    Duration::from_secs(seconds)
}

#[test]
fn every_count_is_exact_after_a_storm() {
    if own_areas::is_second_run() {
        return;
    }
    let all = [Fronts::Restartable, Fronts::Owned, Fronts::Off];
    for fronts in all.into_iter().filter(|fronts| fronts.is_available()) {
        for index in [FreeIndex::Lists, FreeIndex::Bitmaps] {
            storm(Setting::of(fronts, index));
        }
    }
    for owning in [Owning::Rfc, Owning::Inbox] {
        storm(Setting {
            owning,
            ..Setting::of(Fronts::Off, FreeIndex::Lists)
        });
    }
}

/// Without the areas of glibc, every thread registers an area of its own for restartable sequences,
/// and must end this registration when it ends.
#[test]
fn every_count_is_exact_without_the_areas_of_glibc() {
    if own_areas::is_second_run() {
        assert!(kernel::glibc_has_no_areas());
        storm(Setting::of(Fronts::Restartable, FreeIndex::Bitmaps));
    } else if Fronts::Restartable.is_available() {
        own_areas::run_again("every_count_is_exact");
    }
}

fn storm(setting: Setting) {
    let load = Arc::new(Load::new(CPUS, setting));
    let upkeep = Arc::clone(&load);
    let workers = load
        .host
        .start(move |host, job| upkeep.manager.run(host, job));
    let workers = workers.expect("threads can be created");
    load.manager.start(&load.host);
    let signals = Signals::installed();
    let (begun, length) = (Instant::now(), length());
    let is_over = || {
        let lasted = begun.elapsed();
        lasted >= length && (load.has_raged() || lasted >= length + PATIENCE)
    };
    thread::scope(|scope| {
        let load = &*load;
        // Two threads act as one CPU each. The two other threads act as no CPU, and use the CPU
        // that the kernel reports.
        for cpu in [Some(CpuId(0)), Some(CpuId(1)), None, None] {
            scope.spawn(move || {
                let _entered = cpu.map(|cpu| load.host.enter(cpu));
                let local = cpu.map(|cpu| load.manager.pages().local(&load.host, cpu));
                load.use_pages(local, is_over);
            });
        }
        scope.spawn(move || load.torment(&CpuMask::of_this_thread(), is_over));
        scope.spawn(move || pass_pages_on(load, is_over));
        scope.spawn(move || take_cpus_away(load, is_over));
        scope.spawn(move || {
            while !is_over() {
                load.manager.pages().drain_all(&load.host);
                load.resize();
            }
        });
        while !is_over() {
            kernel::fork_and_fail(|| {
                load.take(Order::ZERO);
            });
            load.forks.fetch_add(1, Relaxed);
            thread::sleep(Duration::from_millis(20));
        }
    });
    drop(workers);
    drop(signals);
    load.is_exact();
}

/// A thread allocates and frees one page, over and over, while another thread sends it signals. A
/// signal may arrive between the two stores of a free: after the page has got its new tag, and
/// before the page is in the front. The free must notice this, and must not report that the page
/// was freed twice.
#[test]
fn a_free_that_a_signal_interrupts_succeeds() {
    let all = [Fronts::Restartable, Fronts::Owned];
    for fronts in all.into_iter().filter(|fronts| fronts.is_available()) {
        let load = Load::new(CPUS, Setting::of(fronts, FreeIndex::Lists));
        let signals = Signals::installed();
        let (begun, length) = (Instant::now(), length() / 2);
        let thread = kernel::this_thread();
        thread::scope(|scope| {
            scope.spawn(|| {
                while begun.elapsed() < length {
                    assert!(kernel::interrupt(thread), "the thread lives");
                }
            });
            let _entered = load.host.enter(CpuId(0));
            let pages = load.manager.pages();
            let local = pages.local(&load.host, CpuId(0));
            let request = Request::new(Order::ZERO);
            while begun.elapsed() < length {
                for _ in 0..10_000 {
                    let pfn = local.alloc(&load.host, request).expect("there is memory");
                    let freed = local.free(&load.host, pfn, Order::ZERO);
                    assert_eq!(freed, Ok(()), "{fronts:?}");
                }
            }
        });
        drop(signals);
        let pages = load.manager.pages();
        assert_eq!(pages.double_frees(), 0, "{fronts:?}");
        pages.drain_all_sync(&load.host);
        let zone = &pages.view(&load.host)[0];
        assert_eq!(zone.free, zone.managed, "{fronts:?}");
    }
}

/// Starts threads that live only for a moment and allocate pages. The calling thread frees the
/// pages after those threads have ended.
fn pass_pages_on(load: &Load, is_over: impl Fn() -> bool + Copy) {
    while !is_over() {
        let (sender, receiver) = mpsc::channel::<(Pfn, Order)>();
        thread::scope(|scope| {
            scope.spawn(move || {
                let _entered = load.host.enter(CpuId(2));
                for order in [0, 0, 0, 1, 3, 0, 9].into_iter().filter_map(Order::new) {
                    if let Some(pfn) = load.take(order) {
                        sender.send((pfn, order)).expect("the test listens");
                    }
                }
            });
        });
        receiver
            .iter()
            .for_each(|(pfn, order)| load.free(pfn, order));
    }
}

/// Uses a CPU, takes it offline while pages are on its lists, and brings it back, again and again.
fn take_cpus_away(load: &Load, is_over: impl Fn() -> bool + Copy) {
    let (host, manager): (&Host, _) = (&load.host, &load.manager);
    while !is_over() {
        thread::scope(|scope| {
            scope.spawn(|| {
                let _entered = host.enter(LEAVES);
                let few = Instant::now() + Duration::from_millis(2);
                load.use_pages(None, || Instant::now() >= few);
                manager.cpu_going(host, LEAVES);
            });
        });
        manager.cpu_dead(host, LEAVES);
        manager.cpu_online(host, LEAVES);
        load.cpus_taken.fetch_add(1, Relaxed);
    }
}
