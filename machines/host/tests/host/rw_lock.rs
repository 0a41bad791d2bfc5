//! Tests of the reader-writer lock on real threads.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_host::Host;
use plimsoll_mm::laws::rw_lock;
use plimsoll_mm::machine::{Machine, RwLock};
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::CpuId;

use crate::support::law::run_law;

const ROUNDS: u32 = 3000;

#[test]
fn writers_are_alone() {
    run_law(&rw_lock::writers_are_alone(), 3, ROUNDS);
}

#[test]
fn readers_against_a_writer() {
    run_law(&rw_lock::readers_against_a_writer(), 3, ROUNDS);
}

#[test]
fn the_killed_give_up() {
    run_law(&rw_lock::the_killed_give_up(), 3, ROUNDS);
}

#[test]
fn the_killed_look_again() {
    run_law(&rw_lock::the_killed_look_again(), 3, ROUNDS);
}

#[test]
fn no_writer_between() {
    run_law(&rw_lock::no_writer_between(), 3, ROUNDS);
}

type Shared = <Host as Machine>::RwLock<u32>;

fn lock(host: &Host) -> Shared {
    host.rw_lock(LockClass::Mmap, CpuId(0), 0)
}

/// Calls `write` `times` times; each call adds 1 while it holds the lock. Meanwhile three readers
/// acquire the lock repeatedly, and their holds overlap.
fn write_against_readers(times: u32, write: impl Fn(&Host, &Shared) + Sync) {
    let host = Host::new();
    let (lock, done) = (lock(&host), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                // Relaxed is enough: the flag only ends the test.
                while !done.load(Relaxed) {
                    // A writer that may be killed waits in slices of time. Each reader holds the
                    // lock for longer than such a slice. Without the queue in front of the lock,
                    // another reader would always have entered before this reader leaves, and the
                    // writer would never get in.
                    lock.read(&host, Site::Fault, |_| {
                        thread::sleep(Duration::from_millis(3));
                    });
                }
            });
        }
        // A write must not wait for the readers to stop, because they stop only after all writes.
        for _ in 0..times {
            write(&host, &lock);
        }
        done.store(true, Relaxed);
    });
    assert_eq!(lock.read(&host, Site::Control, |writes| *writes), times);
}

#[test]
fn a_writer_gets_in_though_readers_keep_coming() {
    write_against_readers(50, |host, lock| {
        lock.write(host, Site::Mmap, |writes| *writes += 1);
    });
}

#[test]
fn a_writer_that_may_be_killed_gets_in_though_readers_keep_coming() {
    write_against_readers(50, |host, lock| {
        let add = |writes: &mut u32| *writes += 1;
        let got_in = lock.write_killable(host, Site::Mmap, || false, add);
        assert_eq!(got_in, Some(()));
    });
}

/// Runs `asks` on another thread, where a writer has to wait for the lock. This thread holds the
/// lock as a reader, and runs `meanwhile` as soon as the writer waits.
fn while_a_writer_waits(
    asks: impl FnOnce(&Host, &Shared) + Send,
    meanwhile: impl FnOnce(&Host, &Shared),
) {
    let host = Host::new();
    let lock = lock(&host);
    thread::scope(|scope| {
        lock.read(&host, Site::Fault, |_| {
            scope.spawn(|| asks(&host, &lock));
            // The loop ends when the writer waits.
            while !lock.writer_waits(&host) {
                thread::yield_now();
            }
            meanwhile(&host, &lock);
        });
    });
}

/// Checks for 30 ms that no `try_read` succeeds. A writer that can be killed waits in slices of
/// time, and one slice is shorter than 30 ms.
fn assert_nobody_passes(host: &Host, lock: &Shared) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(30) {
        assert_eq!(lock.try_read(host, Site::Fault, |value| *value), None);
    }
}

#[test]
fn a_reader_that_tries_does_not_pass_a_writer_that_waits() {
    while_a_writer_waits(
        |host, lock| lock.write(host, Site::Mmap, |value| *value = 1),
        assert_nobody_passes,
    );
}

#[test]
fn a_reader_that_tries_does_not_pass_a_writer_that_may_be_killed() {
    while_a_writer_waits(
        |host, lock| {
            let write = |value: &mut u32| *value = 1;
            assert!(
                lock.write_killable(host, Site::Mmap, || false, write)
                    .is_some()
            );
        },
        assert_nobody_passes,
    );
}

#[test]
fn a_writer_that_waits_does_not_get_in_before_another_has_read() {
    let host = Host::new();
    let lock = lock(&host);
    for round in 0..20 {
        thread::scope(|scope| {
            let first = |value: &mut u32| {
                scope.spawn(|| lock.write(&host, Site::Mmap, |value| *value += 1));
                // The loop ends when the writer waits. A release by `parking_lot` lets a waiter in
                // at once if it has waited for long enough, and the sleep below is long enough. So
                // if the lock were released here instead of downgraded, the writer would get in.
                while !lock.writer_waits(&host) {
                    thread::yield_now();
                }
                thread::sleep(Duration::from_millis(2));
                Some(*value)
            };
            let then = |value: &u32, before| assert_eq!(*value, before);
            let outcome = lock.write_then_read(&host, Site::Munmap, || false, first, then);
            assert_eq!(outcome, Some(Some(())), "round {round}");
        });
    }
}

#[test]
fn a_killed_writer_leaves_and_readers_behind_it_get_in() {
    let killed = AtomicBool::new(false);
    while_a_writer_waits(
        |host, lock| {
            // Relaxed is enough: the flag does not protect other memory.
            let is_killed = || killed.load(Relaxed);
            let got_in = lock.write_killable(host, Site::Mmap, is_killed, |value| *value = 1);
            assert_eq!(got_in, None);
        },
        |host, lock| {
            thread::scope(|scope| {
                let behind = scope.spawn(|| lock.read(host, Site::Fault, |value| *value));
                thread::sleep(Duration::from_millis(20));
                assert!(!behind.is_finished(), "it waits behind the writer");
                killed.store(true, Relaxed);
                assert_eq!(behind.join().expect("a reader ends"), 0);
            });
            assert!(!lock.writer_waits(host), "no thread is left in the queue");
        },
    );
}

#[test]
fn a_reader_that_may_be_killed_waits_for_a_writer() {
    let host = Host::new();
    let lock = lock(&host);
    let killed = AtomicBool::new(false);
    thread::scope(|scope| {
        lock.write(&host, Site::Mmap, |value| {
            let patient = scope.spawn(|| {
                let read = |value: &u32| *value;
                lock.read_killable(&host, Site::Fault, || false, read)
            });
            let impatient = scope.spawn(|| {
                // Relaxed is enough: the flag does not protect other memory.
                let is_killed = || killed.load(Relaxed);
                lock.read_killable(&host, Site::Fault, is_killed, |value| *value)
            });
            thread::sleep(Duration::from_millis(20));
            assert!(!impatient.is_finished() && !patient.is_finished());
            killed.store(true, Relaxed);
            assert_eq!(impatient.join().expect("a reader ends"), None);
            assert!(!patient.is_finished(), "the lock is held");
            *value = 7;
            patient
        })
        .join()
        .map(|seen| assert_eq!(seen, Some(7)))
        .expect("a reader ends");
    });
}

#[test]
fn a_writer_that_is_killed_before_the_lock_is_free_does_not_get_in() {
    let host = Host::new();
    let lock = lock(&host);
    for round in 0..50 {
        let killed = AtomicBool::new(false);
        let outcome = thread::scope(|scope| {
            let waiter = lock.write(&host, Site::Mmap, |_| {
                let waiter = scope.spawn(|| {
                    // Relaxed is enough: the flag is written while the lock is held, and the lock
                    // orders the accesses.
                    let is_killed = || killed.load(Relaxed);
                    lock.write_killable(&host, Site::Mmap, is_killed, |value| *value = 1)
                });
                while !lock.writer_waits(&host) {
                    thread::yield_now();
                }
                // The waiter is now waiting for the lock, in the middle of a slice.
                thread::sleep(Duration::from_micros(1500));
                killed.store(true, Relaxed);
                waiter
            });
            waiter.join().expect("a waiter ends")
        });
        assert_eq!(outcome, None, "round {round}");
    }
}

#[test]
fn a_panic_inside_leaves_the_lock_free() {
    let host = Host::new();
    let lock = lock(&host);
    let panics = || lock.write(&host, Site::Mmap, |_| panic!("as it should"));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics));
    assert!(outcome.is_err());
    assert_eq!(lock.try_read(&host, Site::Fault, |value| *value), Some(0));
}
