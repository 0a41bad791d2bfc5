//! Page faults make progress, however often other threads change the mappings of the address space.

use crate::support;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::event::Event;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::space::{
    Access, AddressSpace, FAULT_TRIES, Faulted, MapRequest, Memory, Place, Spaces,
};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Nanos, Pages, Vpn};
use plimsoll_sim::{Sim, SimOptions};
use support::small;

/// The number of faults in one run.
const FAULTS: u64 = 200;
/// The first page of the mapping in which the thread faults.
const BASE: u64 = 1 << 20;

/// A process with one thread on CPU 0 that faults, and other threads that map and unmap.
struct Busy {
    mm: Manager<Sim>,
    spaces: Spaces<Sim>,
    space: AddressSpace<Sim>,
    is_over: Cell<bool>,
    changes: Cell<u64>,
}

impl Busy {
    fn map(&self, sim: &Sim, start: u64, pages: u64) {
        let request = MapRequest::anonymous(Place::Fixed(Vpn(start)), pages);
        let memory = Memory::new(sim, &self.mm, &self.spaces);
        let mapped = self.space.map(memory, request);
        mapped.expect("nothing is mapped there");
    }

    fn change_mappings(&self, sim: &Sim, start: u64) {
        let memory = Memory::new(sim, &self.mm, &self.spaces);
        while !self.is_over.get() {
            self.map(sim, start, 4);
            let unmapped = self.space.unmap(memory, Vpn(start), 4);
            unmapped.expect("no task is killed");
            self.changes.set(self.changes.get() + 2);
        }
    }
}

/// What the faults of one run cost, and how often the mappings changed during the run.
struct Ran {
    /// The largest number of pages that any single fault allocated.
    pages_max: u64,
    /// The duration of the longest fault.
    longest: Nanos,
    /// The number of times that the mappings changed.
    changes: u64,
}

/// Faults on one page after the other while `mappers` threads change the mappings.
fn run(mappers: u32, seed: u64, fault: fn(&Busy, Memory<'_, Sim>, Vpn)) -> Ran {
    let options = SimOptions {
        seed,
        shake_ns: 100,
        ..SimOptions::default()
    };
    let sim = Sim::new(&small::profile(Topology::flat(mappers + 1), 1000), options);
    let mm = Manager::new(&sim, Config::new(Layout::arena(Pages(1 << 14))));
    let mm = mm.expect("an arena is a layout");
    let spaces = Spaces::new(&sim, &Design::OURS, 0).expect("so few CPUs can be counted");
    let space = AddressSpace::new(Memory::new(&sim, &mm, &spaces)).expect("there is memory");
    let busy = Rc::new(Busy {
        mm,
        spaces,
        space,
        is_over: Cell::new(false),
        changes: Cell::new(0),
    });
    let taken = Rc::new(Cell::new(0_u64));
    let count = Rc::clone(&taken);
    sim.observe_pages();
    sim.observe(move |_, cpu, _, event| {
        if cpu == CpuId(0) && matches!(event, Event::PageAlloc { .. }) {
            count.set(count.get() + 1);
        }
    });
    let (worst, faulter) = (Rc::new(RefCell::new((0, Nanos(0)))), Rc::clone(&busy));
    let note = Rc::clone(&worst);
    sim.spawn(CpuId(0), move |sim| {
        let memory = Memory::new(sim, &faulter.mm, &faulter.spaces);
        faulter.map(sim, BASE, FAULTS + 1);
        // The first fault also allocates the page table, so it is not measured.
        fault(&faulter, memory, Vpn(BASE));
        for page in 1..=FAULTS {
            let (before, began) = (taken.get(), sim.now());
            fault(&faulter, memory, Vpn(BASE + page));
            let mut worst = note.borrow_mut();
            worst.0 = worst.0.max(taken.get() - before);
            worst.1 = worst.1.max(sim.now().since(began));
        }
        faulter.is_over.set(true);
    });
    for mapper in 1..=mappers {
        let busy = Rc::clone(&busy);
        let start = 2 * BASE + 512 * u64::from(mapper);
        sim.spawn(CpuId(mapper), move |sim| busy.change_mappings(sim, start));
    }
    sim.run();
    let (pages_max, longest) = *worst.borrow();
    Ran {
        pages_max,
        longest,
        changes: busy.changes.get(),
    }
}

fn touch(busy: &Busy, memory: Memory<'_, Sim>, page: Vpn) {
    let faulted = busy.space.fault(memory, page, Access::Write);
    assert_eq!(faulted, Ok(Faulted::Mapped { swapped: false }));
}

fn populate(busy: &Busy, memory: Memory<'_, Sim>, page: Vpn) {
    let filled = busy.space.populate(memory, page..Vpn(page.0 + 1));
    filled.expect("there is memory");
}

#[test]
fn a_fault_tries_a_few_times_and_then_keeps_mappings_from_changing() {
    let mut shut_out = 0;
    for mappers in [1, 2, 8] {
        for (seed, fault) in [(1, touch as fn(&_, Memory<'_, _>, _)), (2, populate)] {
            let Ran {
                pages_max,
                longest,
                changes,
            } = run(mappers, seed, fault);
            let most = u64::from(FAULT_TRIES) + 1;
            assert!(
                pages_max <= most,
                "{mappers} mappers made a fault take {pages_max} pages, one a try"
            );
            assert!(
                longest < Nanos::from_ms(1),
                "{mappers} mappers made a fault take {longest:?}"
            );
            assert!(changes > FAULTS, "mappers get on as well: {changes}");
            shut_out += u64::from(pages_max == most);
        }
    }
    assert!(shut_out > 0, "in some run a fault has to keep mappers out");
}
