//! Laws (tests for threads, model checkers and the simulator) of pages that are touched while they
//! are being unmapped or reaped.
//!
//! If the touch itself creates the page table, the CPU that empties the address space has to find
//! that new table too. The tests for this case are small enough for loom.

use alloc::vec;

use super::dying::{BARE, Dying, FILLED, SHARED, TABLE, WHOLE};
use super::{Body, Law};
use crate::machine::Machine;
use crate::space::Access;
use crate::space::reap::Reaping;
use crate::space::rss::RssKind;

fn meet<M: Machine>(machine: &M) -> Dying<M> {
    Dying::new(machine, Reaping::MeetInTheMiddle)
}

fn bare<M: Machine>(machine: &M) -> Dying<M> {
    Dying::bare(machine, Reaping::MeetInTheMiddle)
}

fn touch_bare<M: Machine>(machine: &M, dying: &Dying<M>) {
    dying.touch(machine, BARE.start);
}

/// Asserts that no private page is resident, and ends the space.
fn nothing_is_left<M: Machine>(machine: &M, dying: &Dying<M>) {
    assert_eq!(dying.counted(machine, RssKind::Anon), 0, "a page is left");
    dying.ends_whole(machine);
}

/// Asserts that no private page is resident, and that no page can be touched after a helper (such
/// as the reaper) has run.
fn nothing_comes_back<M: Machine>(machine: &M, dying: &Dying<M>) {
    assert_eq!(dying.reaps(machine), 1, "no other CPU was in the way");
    assert!(!dying.touch(machine, BARE.start), "it is gone for good");
    nothing_is_left(machine, dying);
}

/// Asserts that no huge page is resident, and that no huge page can be touched after a helper (such
/// as the reaper) has run.
fn nothing_huge_comes_back<M: Machine>(machine: &M, dying: &Dying<M>) {
    assert_eq!(dying.reaps(machine), 1, "no other CPU was in the way");
    assert!(
        !dying.touch(machine, WHOLE.start),
        "a huge page is gone for good"
    );
    nothing_is_left(machine, dying);
}

/// Asserts that a helper (such as the reaper) has run, and that no page of a file is mapped. Then
/// ends the address space.
fn no_file_page_is_left<M: Machine>(machine: &M, dying: &Dying<M>) {
    assert_eq!(dying.reaps(machine), 1, "no other CPU was in the way");
    assert_eq!(dying.counted(machine, RssKind::File), 0, "a page is left");
    dying.ends_whole(machine);
}

fn touch_two<M: Machine>(machine: &M, dying: &Dying<M>) {
    assert!(dying.touch(machine, BARE.start), "it stays mapped");
    assert!(dying.touch(machine, BARE.start + 1), "it stays mapped");
}

fn both_are_there<M: Machine>(machine: &M, dying: &Dying<M>) {
    assert_eq!(dying.counted(machine, RssKind::Anon), 2, "both are there");
    dying.ends_whole(machine);
}

/// A page is touched for the first time while a helper (such as the reaper) empties the address
/// space. Neither the page nor its new table is left behind.
#[must_use]
pub fn touched_while_reaped<M: Machine>() -> Law<M, Dying<M>> {
    Law {
        name: "no private page is left behind a helper, nor its table missed",
        setup: bare,
        bodies: vec![touch_bare, |machine, dying| dying.reap(machine)],
        check: nothing_comes_back,
    }
}

/// A page is touched for the first time while its mapping is removed. Neither the page nor its new
/// table is left behind.
#[must_use]
pub fn touched_while_unmapped<M: Machine>() -> Law<M, Dying<M>> {
    Law {
        name: "no page is left where nothing is mapped any more, nor its table missed",
        setup: bare,
        bodies: vec![touch_bare, |machine, dying| dying.unmap(machine, BARE)],
        check: nothing_is_left,
    }
}

/// A page is touched for the first time while shared memory replaces its mapping. No private page
/// is left of the old mapping.
#[must_use]
pub fn touched_while_replaced<M: Machine>() -> Law<M, Dying<M>> {
    Law {
        name: "no page is left of a mapping that another one has replaced, nor its table missed",
        setup: bare,
        bodies: vec![touch_bare, |machine, dying| dying.share(machine, BARE)],
        check: nothing_is_left,
    }
}

fn bare_huge<M: Machine>(machine: &M) -> Dying<M> {
    Dying::bare_huge(machine, Reaping::MeetInTheMiddle)
}

/// A huge page is touched for the first time while a helper (such as the reaper) empties the
/// address space. The huge page is not left behind.
#[must_use]
pub fn huge_touched_while_reaped<M: Machine>() -> Law<M, Dying<M>> {
    Law {
        name: "no huge page is left behind a helper",
        setup: bare_huge,
        bodies: vec![
            |machine, dying| {
                dying.touch(machine, WHOLE.start + 5);
            },
            |machine, dying| dying.reap(machine),
        ],
        check: nothing_huge_comes_back,
    }
}

/// A huge page is touched for the first time while its mapping is removed. The huge page is not
/// left behind.
#[must_use]
pub fn huge_touched_while_unmapped<M: Machine>() -> Law<M, Dying<M>> {
    Law {
        name: "no huge page is left where nothing is mapped any more",
        setup: bare_huge,
        bodies: vec![
            |machine, dying| {
                dying.touch(machine, WHOLE.start + 5);
            },
            |machine, dying| dying.unmap(machine, WHOLE),
        ],
        check: nothing_is_left,
    }
}

/// A page of a file is read for the first time while a helper (such as the reaper) empties the
/// address space. No entry maps the page afterwards.
#[must_use]
pub fn file_touched_while_reaped<M: Machine>() -> Law<M, Dying<M>> {
    let look: Body<M, Dying<M>> = |machine, dying| {
        dying.touch_for(machine, BARE.start, Access::Read);
    };
    Law {
        name: "no page of a file is left mapped behind a helper",
        setup: |machine| Dying::bare_file(machine, Reaping::MeetInTheMiddle),
        bodies: vec![look, |machine, dying| dying.reap(machine)],
        check: no_file_page_is_left,
    }
}

/// A page is touched while another CPU maps and unmaps memory next to it. The mappings change so
/// often that the fault stops starting over and takes the lock of the mappings. The page is mapped
/// once.
#[must_use]
pub fn touched_while_others_map<M: Machine>() -> Law<M, Dying<M>> {
    Law {
        name: "a page that is touched comes, once, however often mappings change meanwhile",
        setup: bare,
        bodies: vec![touch_two, |machine, dying| {
            let beside = BARE.end + 1..BARE.end + 2;
            for _ in 0..6 {
                dying.share(machine, beside.clone());
                dying.unmap(machine, beside.clone());
            }
        }],
        check: both_are_there,
    }
}

/// Several pages are touched, and another is moved to swap, while a helper (such as the reaper)
/// empties their tables. No private page is left behind.
#[must_use]
pub fn many_touched_while_reaped<M: Machine>() -> Law<M, Dying<M>> {
    Law {
        name: "no private page is left behind a helper that went through everything",
        setup: meet,
        bodies: vec![
            |machine, dying| {
                let pages = [BARE.start, FILLED.start, SHARED.start];
                dying.touch_all(machine, &pages);
            },
            |machine, dying| dying.reap(machine),
            |machine, dying| dying.swap_out(machine, TABLE),
        ],
        check: nothing_comes_back,
    }
}

/// Several pages are touched, and another is moved to swap, while their mappings are removed one by
/// one. No page is left behind.
#[must_use]
pub fn many_touched_while_unmapped<M: Machine>() -> Law<M, Dying<M>> {
    let touch: Body<M, Dying<M>> = |machine, dying| {
        let pages = [BARE.start, FILLED.start, TABLE];
        dying.touch_all(machine, &pages);
    };
    Law {
        name: "no page is left where nothing is mapped any more, whichever fault is under way",
        setup: meet,
        bodies: vec![
            touch,
            |machine, dying| {
                dying.unmap(machine, BARE);
                // Unmap the pages in two calls, so that the first call must distinguish the pages
                // it unmaps from those that stay mapped.
                dying.unmap(machine, FILLED.start..FILLED.start + 1);
                dying.unmap(machine, FILLED);
            },
            |machine, dying| dying.swap_out(machine, TABLE),
        ],
        check: nothing_is_left,
    }
}
