//! What an addition on its way up a tree does to the bound.
//!
//! The tree keeps as much as it can without a carry to the root: it is behind by exactly `T`. One
//! more, and four set out for the root; until they arrive the roots are behind by `T` + 1.

use alloc::sync::Arc;
use alloc::vec;
use core::fmt;

use super::Law;
use crate::counter::{Area, Batch, Counters, Items, OneSidedTree, Shape};
use crate::machine::Machine;

/// A tree that is as far behind as it can be.
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
        // 2 in the item, 1 in the cell.
        tree.add(machine, 0, 3);
        Self { tree, shape }
    }

    /// Looks at what is there, then at where it should be, `allowed` added.
    fn look(&self, machine: &M, allowed: u64) {
        let precise = self.tree.precise_sum(machine, 0);
        let range = self.tree.min_max(machine, 0);
        let max = range.max.saturating_add_unsigned(allowed);
        assert!(precise <= max, "{precise} is above {max}");
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

/// The bound holds with what one addition under way may add to it.
#[must_use]
pub fn one_under_way<M: Machine>() -> Law<M, Full<M>> {
    law(
        "a tree is behind by its bound and what is under way, no more",
        |machine, full| full.look(machine, full.shape.in_flight(1)),
    )
}

/// The same without it: broken, as a checker has to find.
#[must_use]
pub fn one_under_way_forgotten<M: Machine>() -> Law<M, Full<M>> {
    law(
        "a tree is behind by its bound, no more, whatever is under way",
        |machine, full| full.look(machine, 0),
    )
}

/// A CPU adds for the first time while another one looks. For machines that keep the order of one CPU's
/// stores and of another one's loads: elsewhere the other one may see what has arrived at the root before
/// it sees that the CPU has a cell.
#[must_use]
pub fn first_addition<M: Machine>() -> Law<M, Full<M>> {
    Law {
        name: "a precise sum has all that had arrived at the roots before it",
        setup: Full::new,
        bodies: vec![
            |machine, full| {
                let arrived = full.tree.min_max(machine, 0).min;
                let precise = full.tree.precise_sum(machine, 0);
                assert!(arrived <= precise, "{arrived} arrived, {precise} in all");
            },
            |machine, full| full.tree.add(machine, 0, 41),
        ],
        check: |machine, full| full.look(machine, 0),
    }
}

impl<M: Machine> fmt::Debug for Full<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Full").finish_non_exhaustive()
    }
}
