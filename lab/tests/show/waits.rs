//! Tests the tables of waits for locks: pairs of begin and end events, callers, and waits that
//! began before the recording or ended after it.

use plimsoll_lab::show::waits::Contentions;
use plimsoll_recording::What;

use super::{recording, row, rows, stack, table};

const SPIN: u32 = 1;
const READ: u32 = 2;
const MUTEX: u32 = 32;

fn begin(lock: u64, flags: u32, names: &[&str]) -> What {
    let stack = stack(names);
    What::ContentionBegin { lock, flags, stack }
}

fn end(lock: u64) -> What {
    What::ContentionEnd { lock, result: 0 }
}

const REFILL: [&str; 4] = [
    "native_queued_spin_lock_slowpath",
    "_raw_spin_lock_irqsave",
    "rmqueue_bulk",
    "get_page_from_freelist",
];

#[test]
fn waits_are_counted_by_kind_and_by_the_first_function_that_is_no_lock() {
    let recording = recording([
        (100, 0, 7, begin(1, SPIN, &REFILL)),
        (150, 1, 8, begin(1, SPIN, &REFILL)),
        (400, 0, 7, end(1)),
        (450, 1, 8, end(1)),
        (
            500,
            2,
            9,
            begin(
                2,
                READ,
                &["rwsem_down_read_slowpath", "lock_mm_and_find_vma"],
            ),
        ),
        // This is the end of a wait that began on another CPU. The waiting thread slept, and then
        // continued on CPU 3.
        (9_500, 3, 9, end(2)),
        (
            9_600,
            0,
            7,
            begin(1, SPIN, &["_raw_spin_lock_irqsave", "free_pcppages_bulk"]),
        ),
        (9_700, 0, 7, end(1)),
    ]);
    assert_eq!(
        rows(&table(&recording, "contentions")),
        [
            row(
                "rwsem:R lock_mm_and_find_vma",
                &[1.0, 9000.0, 9000.0, 9000.0]
            ),
            row("spinlock rmqueue_bulk", &[2.0, 600.0, 300.0, 300.0]),
            row("spinlock free_pcppages_bulk", &[1.0, 100.0, 100.0, 100.0]),
        ]
    );
}

/// An interrupt can wait for a lock while the thread that it interrupts waits for another lock. All
/// idle tasks have the thread id 0, so `show` tells their waits apart by CPU.
#[test]
fn an_interrupt_waits_within_the_wait_of_its_thread_and_idle_tasks_are_told_apart_by_cpu() {
    let recording = recording([
        (100, 0, 7, begin(1, SPIN, &["rmqueue_bulk"])),
        (120, 0, 7, begin(2, SPIN, &["free_pcppages_bulk"])),
        (130, 1, 0, begin(2, SPIN, &["free_pcppages_bulk"])),
        (140, 2, 0, begin(2, SPIN, &["free_pcppages_bulk"])),
        (150, 0, 7, end(2)),
        (160, 2, 0, end(2)),
        (170, 1, 0, end(2)),
        (200, 0, 7, end(1)),
    ]);
    assert_eq!(
        rows(&table(&recording, "contentions")),
        [
            row("spinlock rmqueue_bulk", &[1.0, 100.0, 100.0, 100.0]),
            row("spinlock free_pcppages_bulk", &[3.0, 90.0, 40.0, 30.0]),
        ]
    );
}

#[test]
fn a_mutex_that_spins_and_then_sleeps_is_one_wait() {
    let recording = recording([
        (
            100,
            0,
            7,
            begin(1, MUTEX | SPIN, &["get_page_from_freelist"]),
        ),
        (300, 0, 7, begin(1, MUTEX, &["get_page_from_freelist"])),
        (900, 0, 7, end(1)),
    ]);
    let contentions = table(&recording, "contentions");
    let whole = [row(
        "mutex get_page_from_freelist",
        &[1.0, 800.0, 800.0, 800.0],
    )];
    assert_eq!(rows(&contentions), whole);
    assert_eq!(contentions.note, "");
}

#[test]
fn a_wait_that_the_recording_cuts_off_is_counted_or_left_out_and_said() {
    let recording = recording([
        (100, 0, 7, end(1)),
        (200, 0, 7, begin(1, SPIN, &[])),
        (250, 1, 8, starts_nothing()),
    ]);
    let contentions = table(&recording, "contentions");
    assert_eq!(
        rows(&contentions),
        [row("spinlock (no call chain)", &[1.0, 50.0, 50.0, 50.0])]
    );
    assert_eq!(
        contentions.note,
        "1 wait lasted beyond the end of the recording; counted up to its end. \
         1 wait began before the recording; left out."
    );
}

/// If the recording has lost the end of a wait, the table leaves out this wait. It does not join
/// the wait with the thread's next wait for the lock.
#[test]
fn a_wait_whose_end_was_lost_is_not_taken_for_one_with_the_next() {
    let recording = recording([
        (100, 0, 7, begin(1, SPIN, &["rmqueue_bulk"])),
        (9_000, 0, 7, begin(1, SPIN, &["free_pcppages_bulk"])),
        (9_050, 0, 7, end(1)),
    ]);
    let contentions = table(&recording, "contentions");
    assert_eq!(
        rows(&contentions),
        [row("spinlock free_pcppages_bulk", &[1.0, 50.0, 50.0, 50.0])]
    );
    assert_eq!(
        contentions.note,
        "1 wait ended unseen, as the recording lost events; left out."
    );
}

fn starts_nothing() -> What {
    What::Mark("the end".to_owned())
}

#[test]
fn a_caller_is_looked_for_in_the_whole_chain() {
    let recording = recording([
        (100, 0, 7, begin(1, SPIN, &REFILL)),
        (200, 0, 7, end(1)),
        (300, 0, 7, begin(2, READ, &["lock_mm_and_find_vma"])),
        (400, 0, 7, end(2)),
    ]);
    let of = |wanted: &[&str]| {
        let wanted: Vec<String> = wanted.iter().map(|part| (*part).to_owned()).collect();
        let found = Contentions::of(&recording, &wanted).rows;
        found.into_iter().map(|row| row.caller).collect::<Vec<_>>()
    };
    assert_eq!(of(&["freelist"]), ["rmqueue_bulk"]);
    assert_eq!(of(&["find_vma", "nothing"]), ["lock_mm_and_find_vma"]);
    assert_eq!(of(&["nothing"]), [""; 0]);
}
