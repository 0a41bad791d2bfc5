//! Tests the reader-writer lock in virtual time: which CPU acquires it when, and how long that
//! takes.

use crate::common;

use common::rw_fixture::{Fixture, HANDOVER, OWN, REMOTE, TRANSFER, WAKE_UP, never};
use plimsoll_mm::machine::{Machine, RwLock};
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::units::{CpuId, Nanos};

#[test]
fn readers_share() {
    let fixture = Fixture::new();
    for cpu in 0..8 {
        fixture.reads(cpu, 10, 100);
    }
    let stays = fixture.run();
    let last_start = stays.iter().map(|stay| stay.start).max();
    let first_end = stays.iter().map(|stay| stay.end).min();
    assert!(last_start < first_end, "{stays:?}");
    let stats = fixture.stats();
    assert_eq!((stats.acquisitions, stats.contentions), (8, 0));
}

#[test]
fn a_reader_behind_a_waiting_writer_gets_in_after_it() {
    let fixture = Fixture::new();
    fixture.reads(0, 10, 100);
    fixture.writes(1, 20, 100);
    fixture.reads(2, 30, 100);
    fixture.reads(3, 40, 100);
    fixture.writes(4, 50, 100);
    fixture.reads(5, 60, 100);
    let stays = fixture.run();
    let order: Vec<_> = stays.iter().map(|stay| stay.who).collect();
    let expected = [('r', 0), ('w', 1), ('r', 2), ('r', 3), ('w', 4), ('r', 5)];
    assert_eq!(order, expected);
    for (before, after) in [(0, 1), (1, 2), (2, 4), (3, 4), (4, 5)] {
        assert!(stays[before].end < stays[after].start, "{stays:?}");
    }
    assert!(stays[3].start < stays[2].end, "readers in a row share");
}

#[test]
fn to_try_succeeds_while_nobody_writes_or_waits() {
    let fixture = Fixture::new();
    fixture.reads(0, 10, 100);
    fixture.writes(1, 30, 100);
    fixture.at(2, 20, |sim, fixture| {
        let try_at = |at_us: u64| {
            let now = sim.now().0;
            let span = u32::try_from(at_us * 1000 - now).expect("soon");
            sim.spend(Work::Think, span);
            fixture.lock.try_read(sim, Site::Fault, |writes| *writes)
        };
        assert_eq!(try_at(22), Some(0), "a reader is inside");
        assert!(!fixture.lock.writer_waits(sim));
        assert_eq!(try_at(40), None, "a writer waits");
        assert!(fixture.lock.writer_waits(sim));
        assert_eq!(try_at(150), None, "it writes");
        assert!(!fixture.lock.writer_waits(sim));
        assert_eq!(try_at(300), Some(1), "it is gone");
    });
    fixture.run();
    assert_eq!(fixture.stats().failed_tries, 2);
}

#[test]
fn a_free_lock_takes_the_line_and_its_own_price() {
    let fixture = Fixture::new();
    fixture.reads(0, 10, 100);
    fixture.reads(1, 20, 1);
    fixture.writes(0, 200, 1);
    fixture.writes(0, 300, 1);
    let stays = fixture.run();
    let took: Vec<_> = stays
        .iter()
        .map(|stay| (stay.start - stay.asked, stay.after - stay.end))
        .collect();
    let expected = [
        // CPU 1 has fetched the cache line as a reader in the meantime, so CPU 0 has to fetch it
        // again for its release.
        (OWN, TRANSFER),
        (TRANSFER + REMOTE, 0),
        (OWN, 0),
        (OWN, 0),
    ];
    assert_eq!(took, expected);
    assert_eq!(fixture.sim.stats().lines[2], 2);
}

#[test]
fn a_hand_over_takes_its_price() {
    let fixture = Fixture::new();
    fixture.writes(0, 10, 100);
    for cpu in 1..4 {
        fixture.reads(cpu, 10 + cpu, 100);
    }
    fixture.writes(4, 20, 100);
    let stays = fixture.run();
    // To release the lock, the first writer fetches the cache line of the lock from the CPU that
    // requested the lock last. The writer then hands the lock to all readers at once.
    let first = stays[0];
    let handed = first.end + TRANSFER + TRANSFER + HANDOVER + WAKE_UP;
    for reader in &stays[1..4] {
        assert_eq!((reader.who.0, reader.start), ('r', handed), "{stays:?}");
    }
    // All readers release the lock at the same time, and each fetches the cache line. The last one
    // hands the lock over.
    let last = stays[1..4].iter().map(|stay| stay.after).max();
    let expected = last.expect("three readers") + TRANSFER + HANDOVER + WAKE_UP;
    assert_eq!((stays[4].who, stays[4].start), (('w', 4), expected));
    let stats = fixture.stats();
    let waits: u64 = stays
        .iter()
        .skip(1)
        .map(|stay| stay.start - stay.asked)
        .sum();
    assert_eq!((stats.contentions, stats.perf_contentions), (4, 4));
    assert_eq!(stats.wait_total, Nanos(waits));
    assert_eq!(stats.hold_total, Nanos(5 * 100_000));
}

#[test]
fn waits_and_holds_are_those_of_the_site() {
    let fixture = Fixture::new();
    fixture.writes(0, 10, 100);
    fixture.reads(1, 20, 50);
    let stays = fixture.run();
    let stats = fixture.sim.stats();
    let read = stats.site(LockClass::Mmap, Site::Fault);
    let written = stats.site(LockClass::Mmap, Site::Mmap);
    assert_eq!((read.acquisitions, read.contentions), (1, 1));
    assert_eq!((written.acquisitions, written.contentions), (1, 0));
    assert_eq!(read.hold_max, Nanos(50_000));
    assert_eq!(written.hold_max, Nanos(100_000));
    let longest = read.wait_max.expect("the reader waited");
    let waited = Nanos(stays[1].start - stays[1].asked);
    assert_eq!((longest.wait, longest.at.0), (waited, stays[1].asked));
    assert_eq!((longest.cpu, longest.blocker), (CpuId(1), CpuId(0)));
    assert_eq!(longest.blocker_site, Site::Mmap);
    assert_eq!(stats.cpu_waits[LockClass::Mmap as usize][1].max, waited);
}

#[test]
fn a_writer_that_goes_on_as_a_reader_lets_those_in_who_wait_first() {
    let fixture = Fixture::new();
    fixture.at(0, 10, |sim, fixture| {
        let first = |writes: &mut u32| {
            *writes += 1;
            fixture.note(sim, 'f', 100, |stay| stay());
            Some(*writes)
        };
        let then = |writes: &u32, before: u32| {
            assert_eq!(*writes, before, "no CPU wrote in between");
            fixture.note(sim, 't', 100, |stay| stay());
            before
        };
        let outcome = fixture
            .lock
            .write_then_read(sim, Site::Munmap, never, first, then);
        assert_eq!(outcome, Some(Some(1)));
    });
    fixture.reads(1, 20, 20);
    fixture.writes(2, 30, 20);
    fixture.reads(3, 40, 20);
    let stays = fixture.run();
    let order: Vec<_> = stays.iter().map(|stay| stay.who).collect();
    assert_eq!(order, [('f', 0), ('t', 0), ('r', 1), ('w', 2), ('r', 3)]);
    assert!(stays[2].end < stays[1].end, "both read at once");
    assert!(stays[3].start > stays[1].end, "the writer waits for both");
    let held = fixture.sim.stats();
    let held = held.site(LockClass::Mmap, Site::Munmap);
    let both = stays[1].end - stays[0].start;
    assert_eq!((held.acquisitions, held.hold_max), (1, Nanos(both)));
}

#[test]
fn a_writer_that_has_nothing_to_read_leaves() {
    let fixture = Fixture::new();
    fixture.at(0, 10, |sim, fixture| {
        let first = |writes: &mut u32| {
            *writes += 1;
            None::<u32>
        };
        let outcome =
            fixture
                .lock
                .write_then_read(sim, Site::Munmap, never, first, |_, _| unreachable!());
        assert_eq!(outcome, Some(None::<()>));
        fixture.write(sim, 1);
    });
    assert_eq!(fixture.order(), [('w', 0)]);
}

#[test]
fn a_look_from_outside_waits_for_who_writes() {
    let fixture = Fixture::new();
    fixture.writes(0, 10, 100);
    fixture.sim.run_until(Nanos(50_000));
    let tried = fixture
        .lock
        .try_read(&fixture.sim, Site::Control, |value| *value);
    assert_eq!(tried, None);
    assert_eq!(
        fixture
            .lock
            .read(&fixture.sim, Site::Control, |value| *value),
        1
    );
    assert!(fixture.sim.now().0 > 100_000);
    fixture.reads(1, 300, 100);
    fixture.sim.run_until(Nanos(350_000));
    let tried = fixture
        .lock
        .try_read(&fixture.sim, Site::Control, |value| *value);
    assert_eq!(tried, Some(1));
    fixture
        .lock
        .write(&fixture.sim, Site::Control, |value| *value = 5);
    assert!(fixture.sim.now().0 > 400_000);
    fixture.sim.run();
}

#[test]
#[should_panic(expected = "CPU 3 takes a mmap_lock again that it holds as a writer")]
fn to_take_it_again_while_writing_is_a_bug() {
    let fixture = Fixture::new();
    fixture.at(3, 10, |sim, fixture| {
        fixture
            .lock
            .write(sim, Site::Mmap, |_| fixture.read(sim, 1));
    });
    fixture.run();
}

#[test]
#[should_panic(expected = "neither sleeps")]
fn to_wait_for_it_where_nobody_may_sleep_is_a_bug() {
    let fixture = Fixture::new();
    fixture.at(0, 10, |sim, fixture| sim.pinned(|| fixture.read(sim, 1)));
    fixture.run();
}
