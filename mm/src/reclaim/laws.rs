//! The parts of reclaim that laws test apart from the whole.

pub(crate) use super::kswapd::{Duty, Kswapd as Drowsy};
use super::scan::CLUSTER;
use super::shrink::{Pass, Shrinker};
use crate::event::ReclaimedBy;
use crate::machine::Machine;
use crate::space::Memory;
use crate::units::{NodeId, Pages, narrow};

/// Looks at all inactive pages of `node` once, in the name of kswapd. Returns the number of pages
/// freed.
pub(crate) fn pass<M: Machine>(memory: Memory<'_, M>, node: NodeId) -> Pages {
    let pass = Pass {
        by: ReclaimedBy::Kswapd,
        priority: 0,
        target: CLUSTER,
        forced: false,
    };
    let shrinker = Shrinker::new(memory, node).expect("its pages are aged");
    Pages(narrow(shrinker.pass(pass, || ()).reclaimed))
}
