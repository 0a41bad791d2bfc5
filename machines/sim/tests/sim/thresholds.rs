//! Tests how large a CPU's differential becomes before the CPU adds it to the shared counter, with
//! some CPUs online and with all CPUs online. A differential is the amount that a CPU has counted
//! by itself.

use crate::support;

use std::cell::Cell;
use std::rc::Rc;

use plimsoll_mm::Manager;
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Pages, Pfn};
use plimsoll_mm::vmstat::counters::{Direction, NodeItem, ZoneItem};
use plimsoll_mm::vmstat::threshold;
use plimsoll_sim::Sim;
use support::Small;
use support::small::profile;

const CPUS: u32 = 8;
const PAGES: Pages = Pages(1 << 22);

/// Returns the largest count that CPU 0 keeps in its own differential, without adding it to the
/// shared counter.
fn unfolded(small: &Small, count: fn(&Manager<Sim>, &Sim, i64)) -> u32 {
    let found = Rc::new(Cell::new(0));
    let note = Rc::clone(&found);
    small.on(0, move |sim, mm| {
        for pages in 1..=threshold::THRESHOLD_MAX + 10 {
            mm.refresh(sim);
            count(mm, sim, i64::from(pages));
            if mm.is_dirty(sim, CpuId(0)) {
                assert_eq!(note.get() + 1, pages, "up to the threshold, not above it");
                note.set(pages);
            }
            count(mm, sim, -i64::from(pages));
        }
        mm.refresh(sim);
    });
    found.get()
}

/// Counts on CPU 0 in steps of 1 or -1. Returns the largest number of steps in a row that this CPU
/// keeps to itself, without adding them to the shared counter.
fn unfolded_steps(small: &Small, step: Direction) -> u32 {
    let found = Rc::new(Cell::new(0));
    let note = Rc::clone(&found);
    small.on(0, move |sim, mm| {
        for steps in 1..=threshold::THRESHOLD_MAX + 10 {
            mm.refresh(sim);
            for _ in 0..steps {
                mm.step_node(sim, NodeItem::AnonMapped, step);
            }
            // Undo all steps but one, by a single addition. If the CPU has kept all steps, a
            // differential (an amount that only the CPU has counted) of one step is left.
            // Otherwise, the CPU has added the steps and half a threshold more to the shared
            // counter, and the differential is minus half a threshold. Then the single addition
            // takes the differential past the threshold. So the CPU adds to the shared counter
            // again, and no differential is left.
            let back = step as i64 * (1 - i64::from(steps));
            mm.count_node(sim, NodeItem::AnonMapped, back);
            if mm.is_dirty(sim, CpuId(0)) {
                assert_eq!(note.get() + 1, steps, "up to the threshold, not above it");
                note.set(steps);
            }
            mm.count_node(sim, NodeItem::AnonMapped, -(step as i64));
        }
        mm.refresh(sim);
        assert_eq!(mm.counted_on_nodes(sim, NodeItem::AnonMapped), 0);
    });
    found.get()
}

fn check(small: &Small, online: u32) {
    let expected = threshold::normal(online, PAGES);
    let zone = unfolded(small, |mm, sim, pages| {
        mm.pages().count(sim, Pfn(0), ZoneItem::Anon, pages);
    });
    let node = unfolded(small, |mm, sim, pages| {
        mm.count_node(sim, NodeItem::AnonMapped, pages);
    });
    assert_eq!((zone, node), (expected, expected), "{online} CPUs online");
    for steps in [Direction::Up, Direction::Down].map(|step| unfolded_steps(small, step)) {
        assert_eq!(steps, expected, "{online} CPUs online");
    }
}

#[test]
fn a_differential_is_folded_beyond_the_threshold_of_the_online_cpus() {
    let config = Config::new(Layout::arena(PAGES).lazily());
    let small = Small::new(&profile(Topology::flat(CPUS), 1000), config);
    check(&small, CPUS);
    for cpu in (3..CPUS).map(CpuId) {
        small.on(0, move |sim, mm| {
            mm.cpu_going(sim, cpu);
            mm.cpu_dead(sim, cpu);
        });
    }
    check(&small, 3);
    assert_ne!(threshold::normal(3, PAGES), threshold::normal(CPUS, PAGES));
    for cpu in (3..CPUS).map(CpuId) {
        small.on(0, move |sim, mm| mm.cpu_online(sim, cpu));
    }
    check(&small, CPUS);
}
