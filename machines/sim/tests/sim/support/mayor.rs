//! `Mayor`: the owner of a test's processes, as the OOM code asks for one. It lists the processes
//! of a [`Village`] and keeps the reports.

use std::cell::{Cell, RefCell};
use std::rc::Weak;
use std::sync::Arc;

use plimsoll_mm::machine::Machine;
use plimsoll_mm::oom::{Look, Owner, Process, Report, Row, Verdict};
use plimsoll_mm::topology::NodeSet;
use plimsoll_mm::units::Nanos;
use plimsoll_sim::Sim;

use super::Village;

/// The [`Owner`] of the processes of a [`Village`].
#[derive(Default)]
pub(crate) struct Mayor {
    /// For each CPU, the process that it allocates for.
    pub(super) current: RefCell<[Option<Arc<Process<Sim>>>; super::village::CPUS as usize]>,
    pub(crate) reports: RefCell<Vec<Told>>,
    /// The process that exits right before the owner next lists its processes.
    pub(crate) leaves: Cell<Option<u32>>,
    /// The nodes that requests may take memory from; `None` for all nodes.
    pub(crate) allowed: Cell<Option<NodeSet>>,
    /// The nodes that some processes may use, by process id; all other processes may use all nodes.
    pub(crate) nodes: RefCell<Vec<(u32, NodeSet)>>,
    pub(super) village: RefCell<Weak<Village>>,
}

/// The contents of a [`Report`].
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) rows: Vec<Row>,
    pub(crate) verdict: Verdict,
    pub(crate) text: String,
}

impl Owner<Sim> for Mayor {
    fn with_processes(&self, sim: &Sim, look: &mut Look<'_, Sim>) {
        let village = self.village.borrow().upgrade().expect("it is there");
        if let Some(id) = self.leaves.take() {
            village.exit(sim, &village.process(id));
        }
        let processes = village.processes.borrow().clone();
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
