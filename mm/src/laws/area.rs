//! Laws (tests that run on every machine) of the per-CPU memory of counters (`counter/area.rs`),
//! while several CPUs take and return places. A *place* is the part of this memory that one group
//! of counters uses.
//!
//! The area of each law begins without memory, so the first CPUs that need a place all allocate the
//! first run (memory for several groups) outside the lock. Only one of these CPUs may add its run
//! to the area.

use alloc::sync::Arc;
use alloc::vec;
use core::fmt;

use super::{Body, Law};
use crate::counter::{Area, Counters, Flat};
use crate::machine::Machine;

/// The number of counters in each group. A single counter keeps the area's memory small: loom makes
/// an object for each word of it.
const WIDTH: usize = 1;

/// The state of the tests in this file: an area (source of per-CPU memory for counters) that has
/// not allocated any memory yet.
pub struct EmptyArea<M: Machine>(Arc<Area<M>>);

impl<M: Machine> fmt::Debug for EmptyArea<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EmptyArea").field(&self.0).finish()
    }
}

impl<M: Machine> EmptyArea<M> {
    fn new(machine: &M) -> Self {
        let area = Area::new(machine, WIDTH).expect("the width is allowed");
        Self(Arc::new(area))
    }

    /// Makes a group with one counter, and adds an amount that depends on this CPU's number.
    /// Asserts that the sum is just this amount, so no other group uses the same memory.
    fn count_alone(&self, machine: &M) -> Flat<M> {
        let group = Flat::init_many(machine, &self.0).expect("there is memory");
        assert_eq!(group.precise_sum(machine, 0), 0, "a new counter is zero");
        let amount = 40 + i64::from(machine.this_cpu().0);
        group.add(machine, 0, amount);
        assert_eq!(
            group.precise_sum(machine, 0),
            amount,
            "no other group has this place"
        );
        group
    }

    /// Asserts that every group has returned its place in the area's memory. Also asserts that the
    /// area has allocated only one run of memory, although several CPUs needed memory at the same
    /// time.
    fn is_one_free_run(&self, machine: &M) {
        assert_eq!(self.0.groups(machine), 0, "every place came back");
        let once = Self::new(machine);
        once.count_alone(machine).destroy_many(machine);
        assert_eq!(
            self.0.bytes(machine),
            once.0.bytes(machine),
            "the CPUs share the run that one of them added"
        );
    }
}

/// Two CPUs create their first group of counters at the same time and destroy it. They get
/// different parts of the per-CPU memory, and the area allocates only one piece of memory (a run).
#[must_use]
pub fn first_groups_at_once<M: Machine>() -> Law<M, EmptyArea<M>> {
    Law {
        name: "CPUs that need places at once add one run of memory, and get different places",
        setup: EmptyArea::new,
        bodies: vec![make_and_destroy as Body<M, EmptyArea<M>>; 2],
        check: |machine, area| area.is_one_free_run(machine),
    }
}

/// Two CPUs create and destroy a group of counters, while a third CPU drops its group without
/// destroying it. The area gets the memory of the dropped group back, too.
#[must_use]
pub fn a_group_dropped_meanwhile<M: Machine>() -> Law<M, EmptyArea<M>> {
    let drops: Body<M, EmptyArea<M>> = |machine, area| drop(area.count_alone(machine));
    Law {
        name: "the place of a group that was dropped comes back, and no place is handed out twice",
        setup: EmptyArea::new,
        bodies: vec![make_and_destroy, make_and_destroy, drops],
        check: |machine, area| area.is_one_free_run(machine),
    }
}

fn make_and_destroy<M: Machine>(machine: &M, area: &EmptyArea<M>) {
    area.count_alone(machine).destroy_many(machine);
}
