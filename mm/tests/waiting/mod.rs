//! The law of the waiting heap: code that ends a shortage of memory never asks the global allocator
//! for memory. It is not enough that such code copes with an allocator that fails. A heap that gets
//! its memory from the page allocator may wait until a process has died, and would then wait for
//! the very code that asks it.
//!
//! The law covers: exit, reaping, `release`, killing, choosing a victim, allocating pages until
//! memory is out, moving pages to swap, unmapping whole mappings, ending counters, and dropping
//! processes. Each of them may free memory of the heap, and may not ask for any.

mod forms;

use plimsoll_mm::counter::Counting;
use plimsoll_mm::design::Design;
use plimsoll_mm::oom::{Selecting, State, release};
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::page::{Grouping, Request};
use plimsoll_mm::space::reap::Reaping;
use plimsoll_mm::space::{Access, AddressSpace, Flag};
use plimsoll_mm::units::{CpuId, Nanos, Order, Pfn, Vpn};
use std::sync::atomic::Ordering::Relaxed;

use crate::support::heap;
use crate::support::lives::touch;
use crate::support::machine::Plain;
use crate::support::world::{CPUS, MEMORY, World};
use forms::Form;

/// Asserts that `frees`, which frees memory, does not request memory from the heap.
fn asks_for_nothing(what: &str, frees: impl FnOnce()) {
    heap::panic_if_forbidden();
    assert_eq!(heap::asked_by(frees), 0, "{what}: requests to the heap");
}

/// The ways in which the memory of a process is freed.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The process exits, and no other task has emptied its memory before.
    Exit,
    /// The OOM killer kills the process, the reaper empties the process's memory, and then the
    /// process exits.
    Reaped,
    /// Another process empties the process's memory before the process exits (Linux:
    /// `process_mrelease`).
    Released,
    /// The process unmaps its mappings one by one before it exits.
    Unmapped,
    /// The pages of the process are moved to swap before the process exits.
    SwappedOut,
}

impl End {
    const ALL: [Self; 5] = [
        Self::Exit,
        Self::Reaped,
        Self::Released,
        Self::Unmapped,
        Self::SwappedOut,
    ];
}

/// Fills a process as `form` says, then ends the process as `end` says. Asserts that ending it
/// requests no memory from the heap.
fn ends(design: Design, grouping: Grouping, form: Form, end: End) {
    let world = World::new(CPUS, design, grouping);
    let spare = world.kept.spaces.spare_batches(&world.machine);
    let process = world.process(1).expect("there is memory");
    let _slots = world.oom.reserve(&world.machine, 1);
    form.fill(&world, process.space(&world.machine).expect("it has one"));
    let all = [process];
    let what = format!("{design:?} {form:?} {end:?}");
    asks_for_nothing(&what, || {
        let [process] = &all;
        let (machine, memory) = (&world.machine, world.memory());
        let space = process.space(machine).expect("it has one");
        let killer = world.oom.killer();
        match end {
            End::Exit => {}
            End::Reaped => {
                killer.kill(memory, process, &all.iter(), None);
                for _ in 0..4 {
                    machine.pass(Nanos::SECOND);
                    killer.reaper().step(memory);
                }
            }
            End::Released => {
                process.set(machine, State::Killed);
                let _again = release(memory, Some(&**process), all.iter(), 0, || false);
                assert!(space.has(machine, Flag::Unstable), "it was emptied");
            }
            End::Unmapped => unmap_each(&world, space),
            End::SwappedOut => {
                space.swap_out(memory, Vpn(0)..Vpn(1 << 16));
            }
        }
    });
    drop(all);
    asks_for_nothing(&what, || world.end_processes());
    let left = world.kept.spaces.spare_batches(&world.machine);
    assert_eq!(left, spare, "{what}: every batch was given back");
    world.assert_whole();
}

/// Unmaps all mappings of the space, each of them in one call.
fn unmap_each(world: &World, space: &AddressSpace<Plain>) {
    let mut from = Vpn(0);
    while let Ok(Some(vma)) = space.mappings().next(from) {
        let unmapped = space.unmap(world.memory(), vma.start, vma.end.0 - vma.start.0);
        assert_eq!(
            unmapped,
            Ok(()),
            "a whole mapping is unmapped without memory"
        );
        from = vma.end;
    }
}

#[test]
fn what_frees_an_address_space_never_asks_the_heap() {
    for end in End::ALL {
        for form in Form::ALL {
            for reaping in Reaping::ALL {
                let design = Design {
                    reaping,
                    ..Design::OURS
                };
                ends(design, Grouping::Off, form, end);
            }
            for counting in Counting::ALL {
                let design = Design {
                    counting,
                    ..Design::OURS
                };
                ends(design, Grouping::Huge, form, end);
            }
            ends(Design::LINUX, Grouping::Huge, form, end);
        }
    }
}

/// Allocates single pages until an allocation fails. By then the OOM killer has killed every
/// process. Asserts that neither the allocations nor the kills request memory from the heap.
fn shortage(selecting: Selecting, dies: bool) {
    let design = Design {
        selecting,
        ..Design::OURS
    };
    let world = World::new(CPUS, design, Grouping::Off);
    let (machine, pages) = (&world.machine, world.kept.manager.pages());
    world.oom.owner().die.store(dies, Relaxed);
    let _slots = world.oom.reserve(machine, 3);
    for (id, form) in (0..).zip([Form::Sparse, Form::Bare, Form::Small]) {
        let process = world.process(id).expect("there is memory");
        form.fill(&world, process.space(machine).expect("it has one"));
    }
    let mut taken = Box::new([Pfn(0); MEMORY.0 as usize]);
    let mut len = 0;
    asks_for_nothing(&format!("{selecting:?} {dies}"), || {
        let single = Request::new(Order::ZERO);
        while let Ok(pfn) = pages.alloc(machine, single) {
            machine.on(u32::try_from(len % 40).expect("small"));
            taken[len] = pfn;
            len += 1;
        }
        let _none = pages.alloc(machine, Request::new(Order::MAX));
        let _none = pages.alloc(machine, single.urgent(Urgency::Reserve));
        machine.on(0);
        for cpu in 0..CPUS {
            pages.drain_cpu(machine, CpuId(cpu));
        }
        let freed = pages.free_pages(machine, &taken[..len]);
        assert_eq!(freed, Ok(()), "they were handed out");
        pages.drain_all(machine);
    });
    assert_eq!(world.oom.killer().kills(machine), 3, "all were killed");
    asks_for_nothing("the end", || world.end_processes());
}

#[test]
fn a_shortage_never_asks_the_heap() {
    for selecting in Selecting::ALL {
        for dies in [true, false] {
            shortage(selecting, dies);
        }
    }
}

/// Charges pages until the budget is full, then touches more pages, for which no page table has to
/// be allocated. Each of these touches has to wait until a process of this budget has been killed.
fn over_budget(selecting: Selecting, dies: bool) {
    let design = Design {
        selecting,
        ..Design::OURS
    };
    let world = World::new(CPUS, design, Grouping::Off);
    let machine = &world.machine;
    world.oom.owner().die.store(dies, Relaxed);
    let _slots = world.oom.reserve(machine, 2);
    let greedy = world.process(1).expect("there is memory");
    let modest = world.process(2).expect("there is memory");
    let space = modest.space(machine).expect("it has one");
    Form::Large.fill(&world, greedy.space(machine).expect("it has one"));
    Form::Bare.fill(&world, space);
    touch(&world, space, 1024, Access::Write);
    world.budget.set_limit(world.budget.used(machine));
    asks_for_nothing(&format!("{selecting:?} {dies}"), || {
        for page in (1025..1500).map(Vpn) {
            let touched = world
                .oom
                .fault_or_kill(world.memory(), space, page, Access::Write);
            assert!(touched.is_ok(), "{touched:?}");
        }
    });
    assert!(greedy.is(machine, State::Victim), "the larger one");
    assert_eq!(world.oom.killer().kills(machine), 1);
    drop((greedy, modest));
    asks_for_nothing("the end", || world.end_processes());
    world.assert_whole();
}

#[test]
fn a_kill_for_a_budget_never_asks_the_heap() {
    for selecting in Selecting::ALL {
        for dies in [true, false] {
            over_budget(selecting, dies);
        }
    }
}
