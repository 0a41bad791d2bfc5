//! Last resorts for simulated machines. A last resort calls a closure that is stored on the thread
//! of its machine, so the closure need not be `Send`.

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

/// The last resort that the page allocator owns: the key of a closure in `KEPT`, and the thread
/// that stores the closure.
struct Kept {
    thread: ThreadId,
    key: u64,
}

/// Returns a last resort that calls `ask`. The closure is stored on the calling thread, which a
/// simulated machine never leaves.
///
/// The values that `ask` captures live as long as the page allocator. If such a value keeps the
/// allocator alive, `ask` must capture it weakly.
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
            // The thread may be exiting, and `KEPT` may already have been destroyed.
            let forgotten = KEPT.try_with(|kept| kept.borrow_mut().remove(&self.key));
            drop(forgotten);
        }
    }
}
