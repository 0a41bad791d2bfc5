//! Laws (tests for threads, model checkers and the simulator) of a counter tree. They check the
//! error bound of the tree's sum while an addition is on its way up the tree.
//!
//! The set-up adds as much as the tree can keep below its roots. So the roots are behind the
//! precise sum by exactly `T`, the largest amount that the tree can keep below them. One more
//! addition passes an amount of four to the root. Until that amount arrives, the roots are behind
//! by `T` + 1.

use alloc::sync::Arc;
use alloc::vec;
use core::fmt;

use super::Law;
use crate::counter::{Area, Batch, Counters, Items, OneSidedTree, Shape};
use crate::machine::Machine;

/// The state of the tests in this file: a counter tree whose roots (top nodes) add up to less than
/// the tree's precise sum, by the largest possible amount.
pub struct Full<M: Machine> {
    tree: OneSidedTree<M>,
    shape: Arc<Shape>,
}

impl<M: Machine> Full<M> {
    fn new(machine: &M) -> Self {
        let batch = Batch::new(2).expect("two is a power of two");
        let shape = Shape::of_topology(machine.topology(), batch, 2);
        let shape = Arc::new(shape.expect("a few CPUs have a shape"));
        let area = Arc::new(Area::new(machine, 1).expect("one counter fits"));
        let items = Items::new(machine, OneSidedTree::<M>::items_lines(&shape));
        let items = items.expect("there is memory");
        let tree = OneSidedTree::init_many_grown(machine, &area, &shape, items);
        let tree = tree.expect("there is memory");
        // The root gets nothing of these 3: 2 stay in an inner node of the tree (an item), and 1
        // stays in the CPU's leaf (its cell). This is the most that the root can lack.
        tree.add(machine, 0, 3);
        Self { tree, shape }
    }

    /// Asserts that the precise sum is at most `allowed` above the maximum that `min_max` returns
    /// after the sum was read.
    fn look(&self, machine: &M, allowed: u64) {
        let precise = self.tree.precise_sum(machine, 0);
        let range = self.tree.min_max(machine, 0);
        let max = range.max.saturating_add_unsigned(allowed);
        assert!(precise <= max, "{precise} is above {max}");
    }

    /// Asserts that a precise sum includes everything that had arrived at the tree's roots before
    /// the sum was taken.
    fn look_twice(&self, machine: &M) {
        let arrived = self.tree.min_max(machine, 0).min;
        let precise = self.tree.precise_sum(machine, 0);
        assert!(arrived <= precise, "{arrived} arrived, {precise} in all");
    }
}

fn law<M: Machine>(name: &'static str, look: fn(&M, &Full<M>)) -> Law<M, Full<M>> {
    Law {
        name,
        setup: Full::new,
        bodies: vec![|machine, full| full.tree.add(machine, 0, 1), look],
        check: |machine, full| full.look(machine, 0),
    }
}

/// The error of a counter tree's sum has a bound. While one addition is under way, the error may
/// exceed the bound only by the amount that this addition may add.
#[must_use]
pub fn one_under_way<M: Machine>() -> Law<M, Full<M>> {
    law(
        "a tree is behind by its bound and the additions under way, no more",
        |machine, full| full.look(machine, full.shape.in_flight(1)),
    )
}

/// Checks the error bound of a counter tree's sum without widening it by the amount of an addition
/// under way. This law does not hold, and a model checker has to find that out.
#[must_use]
pub fn one_under_way_forgotten<M: Machine>() -> Law<M, Full<M>> {
    law(
        "a tree is behind by its bound, no more, whatever additions are under way",
        |machine, full| full.look(machine, 0),
    )
}

/// One CPU adds for the first time while another CPU reads. This law holds only on machines that
/// reorder neither stores with stores nor loads with loads. On other machines, the reader may see
/// an amount arrive at the root of the counter tree before it sees that the adding CPU uses its own
/// part of the tree.
#[must_use]
pub fn first_addition<M: Machine>() -> Law<M, Full<M>> {
    Law {
        name: "a precise sum has all that had arrived at the roots before it",
        setup: Full::new,
        bodies: vec![|machine, full| full.look_twice(machine), |machine, full| {
            full.tree.add(machine, 0, 41);
        }],
        check: |machine, full| full.look(machine, 0),
    }
}

impl<M: Machine> fmt::Debug for Full<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Full").finish_non_exhaustive()
    }
}
