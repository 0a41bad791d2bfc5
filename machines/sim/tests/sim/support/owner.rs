//! `WorldOwner`: the owner of a test's processes, as the OOM code requires. It lists the processes
//! of an [`OomWorld`] and stores the reports.

use std::cell::{Cell, RefCell};
use std::rc::Weak;
use std::sync::Arc;

use plimsoll_mm::machine::Machine;
use plimsoll_mm::oom::{Look, Owner, Process, Report, Row, Verdict};
use plimsoll_mm::topology::NodeSet;
use plimsoll_mm::units::Nanos;
use plimsoll_sim::Sim;

use super::OomWorld;

/// The [`Owner`] of the processes of an [`OomWorld`].
#[derive(Default)]
pub(crate) struct WorldOwner {
    /// For each CPU, the process for which it allocates.
    pub(super) current: RefCell<[Option<Arc<Process<Sim>>>; super::oom_world::CPUS as usize]>,
    pub(crate) reports: RefCell<Vec<Told>>,
    /// The process that exits just before the owner next lists its processes.
    pub(crate) leaves: Cell<Option<u32>>,
    /// The nodes from which requests may allocate; `None` for all nodes.
    pub(crate) allowed: Cell<Option<NodeSet>>,
    /// The nodes that certain processes may use, by process id. All other processes may use all
    /// nodes.
    pub(crate) nodes: RefCell<Vec<(u32, NodeSet)>>,
    pub(super) world: RefCell<Weak<OomWorld>>,
}

/// The contents of a [`Report`].
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) rows: Vec<Row>,
    pub(crate) verdict: Verdict,
    pub(crate) text: String,
}

impl Owner<Sim> for WorldOwner {
    fn with_processes(&self, sim: &Sim, look: &mut Look<'_, Sim>) {
        let world = self.world.borrow().upgrade().expect("it is there");
        if let Some(id) = self.leaves.take() {
            world.exit(sim, &world.process(id));
        }
        let processes = world.processes.borrow().clone();
        look(&processes);
    }

    fn current(&self, sim: &Sim) -> Option<Arc<Process<Sim>>> {
        self.current.borrow()[sim.this_cpu().index()].clone()
    }

    fn pause(&self, sim: &Sim) {
        sim.sleep(Nanos::from_ms(1));
    }

    fn allowed(&self, _sim: &Sim) -> Option<NodeSet> {
        self.allowed.get()
    }

    fn nodes(&self, _sim: &Sim, process: &Process<Sim>) -> NodeSet {
        let nodes = self.nodes.borrow();
        let mut own = nodes.iter().filter(|(id, _)| *id == process.id().0);
        own.next().map_or(NodeSet::ALL, |(_, nodes)| *nodes)
    }

    fn report(&self, _sim: &Sim, report: &Report<'_, Sim>) {
        self.reports.borrow_mut().push(Told {
            rows: report.rows().collect(),
            verdict: report.verdict(),
            text: report.to_string(),
        });
    }
}
