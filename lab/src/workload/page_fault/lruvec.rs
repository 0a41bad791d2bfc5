//! The lists by which the pages of a node are aged. Only the lock of these lists is simulated.
//!
//! Every new page goes onto its node's lists, and every freed page comes off them. A CPU does both
//! in batches of up to 31 pages, and takes the lock of the lists once for each batch (Linux:
//! `folio_batch_move_lru`, `folios_put_refs`). All tasks of a node share this lock, even if they
//! have different address spaces. This is true of Linux if there are no memory cgroups, or if all
//! the tasks are in one cgroup, because a node then has one set of lists (`lruvec`).
//!
//! Taking a page off the lists has a separate price, `lru_remove`. Putting a page on the lists
//! touches the same cache lines, so it has the same price here. But the price of a fault already
//! includes putting the page on the lists. So the simulation charges about 1 % of the price of a
//! fault twice.

use plimsoll_mm::machine::{Lock, Machine};
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::units::NodeId;
use plimsoll_sim::Sim;

use crate::workload::COUNTED_TOGETHER;

/// For each node, the lock of the node's lists.
pub(super) struct Lruvecs(Vec<<Sim as Machine>::Lock<()>>);

impl Lruvecs {
    pub(super) fn new(sim: &Sim) -> Self {
        let topology = sim.topology();
        let lock = |node| {
            let home = topology
                .ids()
                .find(|cpu| topology.place(*cpu).node == node)
                .expect("every node of the topology has CPUs");
            sim.lock(LockClass::Lru, home, ())
        };
        Self((0..topology.nodes()).map(NodeId).map(lock).collect())
    }

    /// Simulates that this CPU puts a batch of new pages on its node's lists.
    pub(super) fn add(&self, sim: &Sim) {
        self.hold(sim, Site::LruAdd, COUNTED_TOGETHER);
    }

    /// Simulates that this CPU takes `pages` pages off its node's lists, batch by batch.
    pub(super) fn remove(&self, sim: &Sim, pages: usize) {
        let mut rest = pages;
        while rest > 0 {
            let batch = rest.min(COUNTED_TOGETHER);
            self.hold(sim, Site::LruRemove, batch);
            rest -= batch;
        }
    }

    fn hold(&self, sim: &Sim, site: Site, pages: usize) {
        let node = sim.topology().place(sim.this_cpu()).node;
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        self.0[node.index()].with(sim, site, |()| sim.spend(Work::LruRemove, pages));
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use plimsoll_mm::units::CpuId;
    use plimsoll_sim::SimOptions;
    use plimsoll_sim::profile::{Card, Profile};

    use super::*;

    /// Runs a machine on which each of `cpus` takes 1000 pages off its node's lists and then puts
    /// 31 pages on them.
    fn removed(cpus: [u32; 2]) -> Sim {
        let profile = Profile::load("epyc-9654-2s", Card::Mid).expect("built in");
        let sim = Sim::new(&profile, SimOptions::default());
        let lruvecs = Rc::new(Lruvecs::new(&sim));
        for cpu in cpus {
            let lruvecs = Rc::clone(&lruvecs);
            sim.spawn(CpuId(cpu), move |sim| {
                lruvecs.remove(sim, 1000);
                lruvecs.add(sim);
            });
        }
        sim.run();
        sim
    }

    #[test]
    fn cpus_of_one_node_contend_for_its_lists_and_those_of_two_nodes_do_not() {
        let contentions = |cpus| removed(cpus).stats().class(LockClass::Lru).contentions;
        let topology = removed([0, 1]).topology().clone();
        let node = |cpu: u32| topology.place(CpuId(cpu)).node;
        let far = (0..topology.cpus()).find(|cpu| node(*cpu) != node(0));
        assert_eq!(node(0), node(1));
        assert!(contentions([0, 1]) > 0);
        assert_eq!(contentions([0, far.expect("it has two sockets")]), 0);
    }

    /// A CPU that takes 1000 pages off the lists acquires their lock 33 times: for 32 batches of 31
    /// pages, and for one batch of 8 pages.
    #[test]
    fn a_hold_moves_at_most_a_batch_and_each_page_has_its_price() {
        let sim = removed([0, 1]);
        let holds = |site| sim.stats().site(LockClass::Lru, site).acquisitions;
        assert_eq!([holds(Site::LruRemove), holds(Site::LruAdd)], [2 * 33, 2]);
        let profile = Profile::load("epyc-9654-2s", Card::Mid).expect("built in");
        let price_ns = u64::from(profile.costs.work_ns[Work::LruRemove as usize]);
        let spent_ns = sim.stats().work_ns[Work::LruRemove as usize];
        assert_eq!(spent_ns, 2 * 1031 * price_ns);
    }
}
