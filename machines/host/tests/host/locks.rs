//! The promises of the locks, on real threads: one holder at a time, and a release even after a
//! panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::thread;

use plimsoll_host::Host;
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
/// another thread enters in the meantime.
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
        // On this machine the locks of all classes are the same, so one class is tried at length.
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
