//! Values that belong to the page allocator of a simulated machine, but are stored in a
//! thread-local variable of the machine's thread. The allocator itself owns only the key of such a
//! value.
//!
//! The allocator requires such values to be `Send` and `Sync`, because it also runs on machines
//! with real threads. A value of a simulated machine usually is neither.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::rc::Rc;
use std::thread::{self, ThreadId};

thread_local! {
    static KEPT: RefCell<BTreeMap<u64, Rc<dyn Any>>> = const { RefCell::new(BTreeMap::new()) };
}

/// The key of a value in `KEPT`, and the thread that stores the value. The value lives as long as
/// this key.
pub(crate) struct Kept<T> {
    thread: ThreadId,
    key: u64,
    value: PhantomData<fn() -> T>,
}

impl<T: 'static> Kept<T> {
    /// Stores `value` on the calling thread, which a simulated machine never leaves.
    pub(crate) fn new(value: T) -> Self {
        let key = KEPT.with_borrow_mut(|kept| {
            let key = kept.last_key_value().map_or(0, |(last, _)| last + 1);
            kept.insert(key, Rc::new(value));
            key
        });
        Self {
            thread: thread::current().id(),
            key,
            value: PhantomData,
        }
    }

    /// Returns the value.
    ///
    /// # Panics
    /// If the calling thread is not the one that stores the value.
    pub(crate) fn get(&self) -> Rc<T> {
        assert_eq!(
            thread::current().id(),
            self.thread,
            "a simulated machine stays on its thread"
        );
        let value = KEPT.with_borrow(|kept| kept.get(&self.key).cloned());
        let value = value.expect("it is kept as long as this");
        value.downcast().expect("it was kept as this type")
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        if thread::current().id() == self.thread {
            // The thread may be exiting, and `KEPT` may already have been destroyed.
            let forgotten = KEPT.try_with(|kept| kept.borrow_mut().remove(&self.key));
            drop(forgotten);
        }
    }
}
