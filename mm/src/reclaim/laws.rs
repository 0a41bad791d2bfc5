//! Access to single parts of reclaim, for laws (tests of contracts) that test these parts alone.

pub(crate) use super::kswapd::{Duty, Kswapd as Drowsy};
use super::scan::CLUSTER;
use super::shrink::{Pass, Shrinker};
use crate::event::ReclaimedBy;
use crate::machine::Machine;
use crate::space::Memory;
use crate::space::lru::{Fate, List};
use crate::units::{NodeId, Pages, count_of, narrow};

/// Runs a pass of kswapd at priority 0, which covers the whole lists of `node`. The pass ends soon
/// after it has freed 32 pages. Returns the number of pages freed.
pub(crate) fn pass<M: Machine>(memory: Memory<'_, M>, node: NodeId) -> Pages {
    let pass = Pass {
        by: ReclaimedBy::Kswapd,
        priority: 0,
        target: CLUSTER,
        forced: false,
    };
    let shrinker = Shrinker::new(memory, node).expect("its pages are aged");
    Pages(narrow(shrinker.pass(pass, |_| true).reclaimed))
}

/// Isolates up to 32 inactive pages of files of `node`, and tries to drop them while a CPU uses
/// each of them. Returns the number of pages that were dropped, which should be 0.
pub(crate) fn drop_used<M: Machine>(memory: Memory<'_, M>, node: NodeId) -> Pages {
    let machine = memory.machine;
    let shrinker = Shrinker::new(memory, node).expect("its pages are aged");
    let (run, mut fates) = shrinker.isolate(List::InactiveFile, CLUSTER);
    let fates = &mut fates[..run.get().len()];
    let share = |pfn| shrinker.aged.share(memory.manager.pages(), pfn);
    let shares = || run.get().iter().filter_map(|taken| share(taken.pfn));
    fates.iter_mut().for_each(|(_, fate)| *fate = Fate::Leaves);
    shares().for_each(|share| share.pin(machine));
    let (_, dropped) = shrinker.drop_files(fates, run.age);
    shares().for_each(|share| share.unpin(machine));
    shrinker.conclude(fates);
    Pages(count_of(dropped))
}

/// Lets reclaim look at up to 32 inactive pages of files on `node` while a CPU reads each of them.
/// No page leaves memory.
pub(crate) fn look_while_read<M: Machine>(memory: Memory<'_, M>, node: NodeId) {
    let machine = memory.machine;
    let shrinker = Shrinker::new(memory, node).expect("its pages are aged");
    let (run, mut fates) = shrinker.isolate(List::InactiveFile, CLUSTER);
    let fates = &mut fates[..run.get().len()];
    let share = |pfn| shrinker.aged.share(memory.manager.pages(), pfn);
    let shares = || run.get().iter().filter_map(|taken| share(taken.pfn));
    shares().for_each(|share| share.pin(machine));
    for (taken, fate) in &mut *fates {
        *fate = shrinker.check(*taken);
    }
    shares().for_each(|share| share.unpin(machine));
    shrinker.conclude(fates);
}
