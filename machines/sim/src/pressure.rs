//! Reclaim (taking used pages out of memory) for simulated machines. A [`Reclaim`] is stored in a
//! thread-local variable of its machine's thread, so the embedder that it calls need not be `Send`.

use std::cell::Cell;
use std::rc::Rc;

use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::{PageAllocator, Pressure, Request};
use plimsoll_mm::reclaim::{Embedder, Next, Reclaim};
use plimsoll_mm::units::{NodeId, Pages};

use crate::kept::Kept;
use crate::{Sim, TaskId};

struct Reclaims<E>(Kept<Rc<Reclaim<Sim, E>>>);

/// Wraps `reclaim` into the object that a page allocator calls when memory is short.
///
/// `reclaim` and its embedder live as long as the page allocator. If a value that the embedder uses
/// keeps the allocator alive, the embedder must hold only a weak reference to it. Otherwise neither
/// would ever be dropped.
///
/// # Panics
/// If the page allocator calls the object on another thread.
pub fn pressure<E: Embedder<Sim> + 'static>(
    reclaim: &Rc<Reclaim<Sim, E>>,
) -> Box<dyn Pressure<Sim>> {
    Box::new(Reclaims(Kept::new(Rc::clone(reclaim))))
}

impl<E: Embedder<Sim> + 'static> Pressure<Sim> for Reclaims<E> {
    fn wake(&self, sim: &Sim, pages: &PageAllocator<Sim>, request: Request) {
        self.0.get().wake(sim, pages, request);
    }

    fn reclaim(&self, sim: &Sim, _: &PageAllocator<Sim>, request: Request) -> Option<Pages> {
        self.0.get().reclaim(sim, request)
    }

    fn reclaimable(&self, sim: &Sim, node: NodeId) -> u64 {
        self.0.get().reclaimable(sim, node)
    }
}

/// The thread of one kswapd: a task while kswapd is awake, and no task while it is asleep.
#[derive(Debug, Default)]
pub struct KswapdThread {
    task: Cell<Option<TaskId>>,
    /// True if the thread was woken since its last step began.
    woken: Cell<bool>,
}

impl KswapdThread {
    /// Wakes the thread. If the thread has no task, calls `start`, which must start a task that
    /// calls [`KswapdThread::run`].
    pub fn wake(&self, sim: &Sim, start: impl FnOnce() -> TaskId) {
        self.woken.set(true);
        match self.task.get() {
            Some(task) => sim.wake(task),
            None => self.task.set(Some(start())),
        }
    }

    /// Calls `step` again and again until kswapd is asleep. The task of kswapd then ends. `step`
    /// calls [`Reclaim::kswapd`].
    pub fn run(&self, sim: &Sim, mut step: impl FnMut() -> Next) {
        loop {
            self.woken.set(false);
            let next = step();
            match (next, self.woken.get()) {
                (Next::At(at), false) => sim.sleep_until(at),
                (Next::At(_), true) => sim.sleep_until(sim.now()),
                (Next::Woken, true) => {}
                (Next::Woken, false) => break,
            }
        }
        self.task.set(None);
    }
}
