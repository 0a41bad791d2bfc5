//! Last resorts of simulated machines, which stay on one thread and need not be `Send`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::thread::{self, ThreadId};

use plimsoll_mm::page::{LastResort, PageAllocator, Relief, Request};

use crate::Sim;

type ZoneRequest = dyn Fn(&Sim, &PageAllocator<Sim>, Request) -> Relief;

thread_local! {
    static KEPT: RefCell<BTreeMap<u64, Rc<ZoneRequest>>> = const { RefCell::new(BTreeMap::new()) };
}

/// The last resort that the page allocator gets: the key of a closure in `KEPT`, and the thread on
/// which that closure is kept.
struct Kept {
    thread: ThreadId,
    key: u64,
}

/// A last resort that calls `ask`. The closure is kept on this thread, which a simulated machine
/// never leaves.
///
/// The values that `ask` captures live as long as the page allocator. A value that owns a share of
/// the allocator must be captured weakly.
///
/// # Panics
/// If the last resort is called on another thread.
pub fn last_resort(
    ask: impl Fn(&Sim, &PageAllocator<Sim>, Request) -> Relief + 'static,
) -> Box<dyn LastResort<Sim>> {
    let key = KEPT.with_borrow_mut(|kept| {
        let key = kept.last_key_value().map_or(0, |(last, _)| last + 1);
        kept.insert(key, Rc::new(ask));
        key
    });
    let thread = thread::current().id();
    Box::new(Kept { thread, key })
}

impl LastResort<Sim> for Kept {
    fn out_of_memory(&self, sim: &Sim, pages: &PageAllocator<Sim>, request: Request) -> Relief {
        assert_eq!(
            thread::current().id(),
            self.thread,
            "a simulated machine stays on its thread"
        );
        let ask = KEPT.with_borrow(|kept| kept.get(&self.key).cloned());
        ask.expect("it is kept as long as this")(sim, pages, request)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if thread::current().id() == self.thread {
            // The thread may be ending, and its kept functions may be gone already.
            let forgotten = KEPT.try_with(|kept| kept.borrow_mut().remove(&self.key));
            drop(forgotten);
        }
    }
}
