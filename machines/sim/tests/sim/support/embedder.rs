//! `Embedder`: the embedder of the OOM code in an [`OomWorld`]. It lists the processes, makes them
//! exit if they are killed, starts the reaper, and records the calls.

use std::rc::{Rc, Weak};
use std::sync::Arc;

use plimsoll_mm::machine::Machine;
use plimsoll_mm::oom::{Look, Owner, Process, Report, Row, Signals, State, Verdict};
use plimsoll_mm::topology::NodeSet;
use plimsoll_mm::units::Nanos;
use plimsoll_sim::Sim;

use super::OomWorld;

/// The [`Owner`] of the processes of an [`OomWorld`]. It also receives the [`Signals`] to these
/// processes.
pub(crate) struct Embedder(pub(super) Weak<OomWorld>);

/// A call that the OOM killer made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// A process was told to die. Records whether the kill had already been counted, and whether
    /// the process had already been marked as a victim.
    Kill(u32, Counted, Marked),
    Thaw(u32),
    ReapAt(Nanos),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted(pub(crate) bool);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marked(pub(crate) bool);

/// What a [`Report`] of the OOM killer said, kept for the test to compare.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) rows: Vec<Row>,
    pub(crate) verdict: Verdict,
    pub(crate) text: String,
}

impl Embedder {
    pub(super) fn world(&self) -> Rc<OomWorld> {
        self.0.upgrade().expect("it is there")
    }
}

impl Signals<Sim> for Embedder {
    fn kill(&self, sim: &Sim, process: &Arc<Process<Sim>>) {
        let (world, id) = (self.world(), process.id().0);
        let counted = Counted(world.killer.kills(sim) == world.killed().len() as u64 + 1);
        let marked = Marked(process.is(sim, State::Victim));
        world.log.borrow_mut().push(Call::Kill(id, counted, marked));
        if !process.is(sim, State::Frozen) && !world.is_current(id) {
            world.exits(sim, process);
        }
    }

    fn thaw(&self, sim: &Sim, process: &Arc<Process<Sim>>) {
        let world = self.world();
        world.log.borrow_mut().push(Call::Thaw(process.id().0));
        world.exits(sim, process);
    }

    fn reap_at(&self, sim: &Sim, at: Nanos) {
        let world = self.world();
        world.log.borrow_mut().push(Call::ReapAt(at));
        if world.reaps.get() {
            world.start_reaper(sim, at);
        }
    }
}

impl Owner<Sim> for Embedder {
    fn with_processes(&self, sim: &Sim, look: &mut Look<'_, Sim>) {
        let world = self.world();
        if let Some(id) = world.leaves.take() {
            world.exit(sim, &world.process(id));
        }
        let processes = world.processes.borrow().clone();
        look(&processes);
    }

    fn current(&self, sim: &Sim) -> Option<Arc<Process<Sim>>> {
        let world = self.world();
        let id = world.current.get()[sim.this_cpu().index()];
        id.map(|id| world.process(id))
    }

    fn pause(&self, sim: &Sim) {
        sim.sleep(Nanos::from_ms(1));
    }

    fn allowed(&self, _sim: &Sim) -> Option<NodeSet> {
        self.world().allowed.get()
    }

    fn nodes(&self, _sim: &Sim, process: &Process<Sim>) -> NodeSet {
        let world = self.world();
        let nodes = world.nodes.borrow();
        let mut own = nodes.iter().filter(|(id, _)| *id == process.id().0);
        own.next().map_or(NodeSet::ALL, |(_, nodes)| *nodes)
    }

    fn report(&self, _sim: &Sim, report: &Report<'_, Sim>) {
        self.world().reports.borrow_mut().push(Told {
            rows: report.rows().collect(),
            verdict: report.verdict(),
            text: report.to_string(),
        });
    }
}
