//! `Presses`: the embedder of reclaim in a [`SpaceShared`]. It starts or wakes a thread of kswapd
//! when reclaim asks for this.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use plimsoll_mm::event::{Event, ReclaimedBy};
use plimsoll_mm::machine::Machine;
use plimsoll_mm::reclaim::{Embedder, Next};
use plimsoll_mm::space::Memory;
use plimsoll_mm::units::{Nanos, NodeId};
use plimsoll_sim::{KswapdThread, Sim};

use super::space_shared::{Process, SpaceShared};

/// The [`Embedder`] through which reclaim uses the state of the tasks, a [`SpaceShared`].
#[derive(Default)]
pub(crate) struct Presses {
    shared: RefCell<Weak<SpaceShared>>,
    /// The kswapd threads of the two nodes.
    threads: [Rc<KswapdThread>; 2],
}

impl Presses {
    /// Gives the embedder a reference to the state that all tasks share. This state must be
    /// complete. Before this call, nothing is reclaimed.
    pub(crate) fn set(&self, shared: &Rc<SpaceShared>) {
        self.shared.replace(Rc::downgrade(shared));
    }

    fn shared(&self) -> Option<Rc<SpaceShared>> {
        self.shared.borrow().upgrade()
    }
}

impl Embedder<Sim> for Presses {
    fn with_memory(&self, sim: &Sim, f: &mut dyn FnMut(Memory<'_, Sim>)) {
        // Reclaim may unmap pages of every process, so every process counts reclaim as an operation
        // in progress.
        fn during_all(processes: &[Process], f: &mut dyn FnMut()) {
            match processes {
                [] => f(),
                [first, rest @ ..] => first.steps.during(|| during_all(rest, f)),
            }
        }
        if let Some(shared) = self.shared() {
            during_all(&shared.processes, &mut || f(shared.memory(sim)));
        }
    }

    fn wake_kswapd(&self, sim: &Sim, node: NodeId) {
        let thread = Rc::clone(&self.threads[node.index()]);
        let (woken, shared) = (Rc::clone(&thread), self.shared.borrow().clone());
        thread.wake(sim, || {
            sim.spawn(sim.this_cpu(), move |sim| {
                woken.run(sim, || {
                    let Some(shared) = shared.upgrade() else {
                        return Next::Woken;
                    };
                    let reclaim = shared.reclaim.as_ref().expect("it has woken kswapd");
                    reclaim.kswapd(sim, node)
                });
            })
        });
    }

    fn pause(&self, sim: &Sim, span: Nanos) -> bool {
        sim.sleep(span);
        true
    }
}

/// Counts the pages that `event` reports as reclaimed by kswapd, reclaimed directly, or made
/// inactive.
pub(crate) fn note(shared: &SpaceShared, event: &Event) {
    match *event {
        Event::ShrinkInactive { by, reclaimed, .. } => shared.note(|met| {
            met.reclaimed[usize::from(by == ReclaimedBy::Direct)] += u64::from(reclaimed.0);
        }),
        Event::ShrinkActive { deactivated, .. } => {
            shared.note(|met| met.reclaimed[2] += u64::from(deactivated.0));
        }
        _ => {}
    }
}
