//! Steps by which tests on every machine make processes and end them: give a process memory, enroll
//! it with the OOM killer, make it exit, and check that nothing of it is left.
//!
//! Each kind of test supplies the list of processes and the signals itself, because these differ.
//! In a law (a test for every machine), the list never changes. On a simulated machine, a signal
//! starts tasks. The test of a failing heap must not allocate.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use crate::machine::Machine;
use crate::oom::{Kind, OomKiller, Parted, Process, Signals, State};
use crate::space::{AddressSpace, Flag, MapRequest, Memory, Place};
use crate::units::{Pages, ProcessId, Vpn};
use crate::vmstat::counters::{NodeItem, ZoneItem};

/// Maps `pages` anonymous pages at `start` and populates all of them. Returns their range.
///
/// # Panics
/// If something is mapped there already, or if memory is short.
pub fn fill<M: Machine>(
    memory: Memory<'_, M>,
    space: &AddressSpace<M>,
    start: Vpn,
    pages: u64,
) -> Range<Vpn> {
    let range = start..Vpn(start.0 + pages);
    let request = MapRequest::anonymous(Place::Fixed(start), pages);
    space.map(memory, request).expect("nothing is there");
    let used = space.populate(memory, range.clone());
    used.expect("there is memory");
    range
}

/// Enrolls process `id`, which uses `space`.
///
/// # Panics
/// If the heap has no memory for the process, or if a process other than a kernel thread has no
/// space.
pub fn enroll<M: Machine, S: Signals<M>>(
    machine: &M,
    killer: &OomKiller<M, S>,
    id: u32,
    kind: Kind,
    space: Option<Arc<AddressSpace<M>>>,
) -> Arc<Process<M>> {
    let process = killer.enroll(machine, ProcessId(id), kind, space);
    Arc::new(process.expect("there is memory"))
}

/// Ends all `processes`: makes each process exit that still has its address space, and then retires
/// all of them. `processes` must be all processes of `killer`, and no other task may use them.
///
/// # Panics
/// If a victim or a queued address space is left, or if pages of a process were miscounted.
pub fn end<M: Machine, S: Signals<M>>(
    memory: Memory<'_, M>,
    killer: &OomKiller<M, S>,
    processes: Vec<Arc<Process<M>>>,
) {
    let machine = memory.machine;
    for process in &processes {
        if process.is(machine, State::Left) {
            continue;
        }
        let space = process.space(machine).cloned();
        let parted = killer.exit(memory, process).expect("it had not left");
        let ended = space.is_some_and(|space| space.has(machine, Flag::Ended));
        assert!(
            ended || !matches!(parted, Parted::Last(_)),
            "no process uses it"
        );
    }
    // All victims have left their address spaces, so a step of the reaper takes one victim off the
    // queue and does nothing else.
    while let Some(done) = killer.reaper().step(memory).done {
        assert_eq!(done.bad_rss, None, "{done:?}");
    }
    for process in processes {
        let retired = killer.retire(machine, process);
        assert_eq!(retired, Ok(()), "pages of every kind");
    }
    assert_eq!(killer.victims(machine), 0, "no victim is left");
    assert_eq!(killer.reaper().queued(machine), 0, "no space is queued");
}

/// Asserts that all memory is free, and that all counts agree. All processes must have ended, and
/// all objects must be empty.
///
/// # Panics
/// If a page, a page table or a slot of swap is in use, or is counted.
pub fn is_whole<M: Machine>(memory: Memory<'_, M>) {
    let (machine, manager) = (memory.machine, memory.manager);
    manager.pages().drain_all_sync(machine);
    for zone in manager.pages().view(machine) {
        assert_eq!(zone.free, zone.managed, "every page is back");
        assert_eq!(zone.listed, Pages::ZERO, "no page is on a list");
        assert_eq!(zone.counted_free, u64::from(zone.free.0), "each is counted");
    }
    assert_eq!(manager.pages().counted(machine, ZoneItem::Anon), 0);
    for item in [NodeItem::AnonMapped, NodeItem::PageTables] {
        assert_eq!(manager.counted_on_nodes(machine, item), 0, "{item:?}");
    }
    assert_eq!(memory.spaces.lru().total(machine), 0, "no page is aged");
    assert_eq!(memory.spaces.swap().used(machine), 0, "no slot is taken");
}
