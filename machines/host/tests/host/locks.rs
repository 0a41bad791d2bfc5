//! Tests of the locks on real threads: there is one holder at a time, and a lock is released even
//! after a panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::thread;

use plimsoll_host::affinity::{self, CpuMask};
use plimsoll_host::{Host, OwnerLocks};
use plimsoll_mm::machine::{CpuLock, Lock, Machine};
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::CpuId;

const THREADS: u32 = 4;
const TURNS: u64 = 20_000;

fn host() -> Host {
    Host::with_topology(Topology::flat(THREADS))
}

/// Reads the count, lets other threads run, and writes the count plus one. An update is lost if
/// another thread gets the lock in the meantime.
fn slow_increment(count: &mut u64) {
    let seen = *count;
    if seen.is_multiple_of(512) {
        thread::yield_now();
    }
    *count = std::hint::black_box(seen) + 1;
}

#[test]
fn no_turn_of_a_lock_is_lost() {
    let host = host();
    for (nth, class) in LockClass::ALL.into_iter().enumerate() {
        // On a `Host` the locks of all classes are the same, so only one class is tried at length.
        let turns = if nth == 0 { TURNS } else { TURNS / 100 };
        let lock = host.lock(class, CpuId(0), 0_u64);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..turns {
                        lock.with(&host, Site::Refill, slow_increment);
                    }
                });
            }
        });
        assert_eq!(
            lock.with(&host, Site::Control, |count| *count),
            turns * u64::from(THREADS)
        );
    }
}

#[test]
fn no_turn_of_a_cpu_lock_is_lost_and_the_owner_never_waits() {
    let host = host();
    let lock = host.cpu_lock(LockClass::Pcp, CpuId(0), 0_u64);
    let taken: u64 = thread::scope(|scope| {
        for _ in 1..THREADS {
            scope.spawn(|| {
                for _ in 0..TURNS {
                    lock.with(&host, Site::Drain, slow_increment);
                }
            });
        }
        let tries = (0..TURNS).map(|_| lock.try_local(&host, Site::PcpAlloc, slow_increment));
        tries.map(|taken| u64::from(taken.is_some())).sum()
    });
    let total = lock.with(&host, Site::Control, |count| *count);
    assert_eq!(total, TURNS * u64::from(THREADS - 1) + taken);
}

#[test]
fn a_busy_lock_turns_tries_away() {
    let host = host();
    let zone = host.lock(LockClass::Zone, CpuId(0), ());
    let pcp = host.cpu_lock(LockClass::Pcp, CpuId(0), ());
    let (inside, leave) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            zone.with(&host, Site::Drain, |()| {
                pcp.with(&host, Site::Drain, |()| {
                    inside.wait();
                    leave.wait();
                });
            });
        });
        inside.wait();
        assert_eq!(zone.try_with(&host, Site::Refill, |()| ()), None);
        assert_eq!(pcp.try_local(&host, Site::PcpFree, |()| ()), None);
        leave.wait();
    });
    assert_eq!(zone.try_with(&host, Site::Refill, |()| 1), Some(1));
    assert_eq!(pcp.try_local(&host, Site::PcpFree, |()| 1), Some(1));
}

#[test]
fn a_panic_inside_releases() {
    let host = host();
    let zone = host.lock(LockClass::Zone, CpuId(0), 1);
    let pcp = host.cpu_lock(LockClass::Pcp, CpuId(0), 2);
    let panics = |f: &dyn Fn()| catch_unwind(AssertUnwindSafe(f)).is_err();
    assert!(panics(&|| zone.with(&host, Site::Spill, panic_on_purpose)));
    assert!(panics(
        &|| _ = zone.try_with(&host, Site::Spill, panic_on_purpose)
    ));
    assert!(panics(&|| pcp.with(&host, Site::Drain, panic_on_purpose)));
    assert!(panics(
        &|| _ = pcp.try_local(&host, Site::Drain, panic_on_purpose)
    ));
    assert_eq!(zone.try_with(&host, Site::Spill, |value| *value), Some(1));
    assert_eq!(pcp.try_local(&host, Site::Drain, |value| *value), Some(2));
}

fn panic_on_purpose(_: &mut i32) {
    panic!("on purpose");
}

/// The ways in which threads can take a CPU's lock. With `after: 0`, the ownership (the right of
/// one thread to take the lock by plain stores) changes all the time.
const WAYS: [OwnerLocks; 4] = [
    OwnerLocks::Exchanged,
    OwnerLocks::BIASED,
    OwnerLocks::Biased { after: 0 },
    OwnerLocks::Biased { after: 3 },
];

/// Tries the lock `turns` times on a thread that plays CPU 0. Returns how often the thread got the
/// lock.
fn tries(host: &Host, lock: &impl CpuLock<Host, u64>, turns: u64) -> u64 {
    let _entered = host.enter(CpuId(0));
    let once = |_| match lock.try_quick(host, Site::PcpFree, slow_increment) {
        None => lock.try_local(host, Site::PcpFree, slow_increment),
        got => got,
    };
    (0..turns).filter_map(once).count() as u64
}

#[test]
fn no_turn_is_lost_while_threads_play_one_cpu_and_others_wait() {
    for way in WAYS {
        let host = Host::with_owner_locks(Topology::flat(2), way);
        let lock = host.cpu_lock(LockClass::Pcp, CpuId(0), 0_u64);
        let taken: u64 = thread::scope(|scope| {
            let players = [(); 2].map(|()| scope.spawn(|| tries(&host, &lock, TURNS)));
            for _ in 0..TURNS / 100 {
                lock.with(&host, Site::Drain, slow_increment);
            }
            players
                .map(|player| player.join().expect("no panic"))
                .into_iter()
                .sum()
        });
        let count = lock.with(&host, Site::Control, |count| *count);
        assert_eq!(count, taken + TURNS / 100, "{way:?}");
    }
}

#[test]
fn no_turn_is_lost_while_an_owner_migrates_and_its_successors_end() {
    let mask = CpuMask::of_this_thread();
    for way in WAYS {
        let host = Host::with_owner_locks(Topology::flat(2), way);
        let lock = host.cpu_lock(LockClass::Pcp, CpuId(0), 0_u64);
        let taken: u64 = thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                for _ in 0..TURNS / 100 {
                    lock.with(&host, Site::Drain, slow_increment);
                }
            });
            // A seat is the place where a thread notes that it holds a biased lock (a lock that it
            // takes by plain stores). Each thread here gets the seat of the thread that ended
            // before it, and with the seat the locks that are biased to it. Each thread moves from
            // CPU to CPU.
            let player = |_| {
                let play = || {
                    let moves = mask.cpus().iter().cycle().take(20);
                    moves
                        .map(|&cpu| {
                            let _ = affinity::pin(&CpuMask::only(cpu));
                            tries(&host, &lock, TURNS / 200)
                        })
                        .sum::<u64>()
                };
                let player = scope.spawn(play);
                player.join().expect("no panic")
            };
            let taken = (0..10).map(player).sum();
            waiter.join().expect("no panic");
            taken
        });
        let count = lock.with(&host, Site::Control, |count| *count);
        assert_eq!(count, taken + TURNS / 100, "{way:?}");
    }
}

#[test]
fn an_owner_that_panics_lets_go_and_none_enters_twice() {
    for way in WAYS {
        let host = Host::with_owner_locks(Topology::flat(1), way);
        let _entered = host.enter(CpuId(0));
        let [lock, inner] = [0, 0].map(|value| host.cpu_lock(LockClass::Pcp, CpuId(0), value));
        tries(&host, &lock, 100);
        tries(&host, &inner, 100);
        let panics = || lock.try_local(&host, Site::PcpFree, |_| panic!("planted"));
        catch_unwind(AssertUnwindSafe(panics)).expect_err("the holder panics");
        let nested = lock.try_local(&host, Site::PcpFree, |_| {
            // This thread owns both locks (it takes them by plain stores) and holds one. It must
            // not get the same lock again, as an interrupt handler might try to. But it must get
            // another lock.
            let again = lock.try_quick(&host, Site::PcpFree, |_| ()).is_some()
                || lock.try_local(&host, Site::PcpFree, |_| ()).is_some();
            let other = inner.try_local(&host, Site::PcpFree, |_| ()).is_some();
            (again, other)
        });
        assert_eq!(nested, Some((false, true)), "{way:?}");
        assert!(lock.try_local(&host, Site::PcpFree, |_| ()).is_some());
    }
}

#[test]
fn a_machine_says_how_its_locks_are_taken() {
    let host = |way| Host::with_owner_locks(Topology::flat(1), way).owner_locks();
    assert_eq!(host(OwnerLocks::Exchanged), OwnerLocks::Exchanged);
    let biased = host(OwnerLocks::BIASED);
    assert!(biased == OwnerLocks::BIASED || biased == OwnerLocks::Exchanged);
    let default = Host::with_topology(Topology::flat(1)).owner_locks();
    assert_eq!(default, OwnerLocks::Exchanged);
}
