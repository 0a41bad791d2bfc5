//! The reader-writer lock for both checkers' machines. It is a macro, because loom and shuttle
//! define primitives of the same names.
//!
//! The lock is the reader-writer lock of the checker. Any waiter may be next, which allows more
//! interleavings than a queue does. A writer that downgrades still excludes readers, which allows
//! fewer interleavings. A caller that can be killed begins with an attempt that does not wait. Only
//! if this attempt fails does the caller test whether it was killed.

/// Defines the lock of `$Machine` in terms of the crate `$checker`.
macro_rules! checked_rw_lock {
    ($Machine:ident, $checker:ident) => {
        use std::sync::atomic::AtomicU32;

        use ::$checker::sync::{RwLock as Inner, RwLockReadGuard, RwLockWriteGuard};
        use plimsoll_mm::machine::RwLock;

        /// A reader-writer lock of the model. When it is released, any waiter may acquire it next.
        #[derive(Debug)]
        pub struct ModelRwLock<T> {
            lock: Inner<T>,
            /// The number of callers that wait to write. The checker never switches threads when
            /// this number is read.
            writers: AtomicU32,
        }

        impl<T> ModelRwLock<T> {
            pub(crate) fn new(value: T) -> Self {
                Self {
                    lock: Inner::new(value),
                    writers: AtomicU32::new(0),
                }
            }

            fn reader(&self, killed: impl Fn() -> bool) -> Option<RwLockReadGuard<'_, T>> {
                if let Ok(free) = self.lock.try_read() {
                    return Some(free);
                }
                if killed() {
                    return None;
                }
                let value = self.lock.read().expect("a panic ends the whole model");
                if killed() { None } else { Some(value) }
            }

            fn writer(&self, killed: impl Fn() -> bool) -> Option<RwLockWriteGuard<'_, T>> {
                if let Ok(free) = self.lock.try_write() {
                    return Some(free);
                }
                if killed() {
                    return None;
                }
                // Relaxed is enough: model threads run one at a time.
                self.writers.fetch_add(1, Relaxed);
                let value = self.lock.write().expect("a panic ends the whole model");
                self.writers.fetch_sub(1, Relaxed);
                if killed() { None } else { Some(value) }
            }
        }

        impl<T> RwLock<$Machine, T> for ModelRwLock<T> {
            fn read<R>(&self, _: &$Machine, _: Site, f: impl FnOnce(&T) -> R) -> R {
                f(&self.lock.read().expect("a panic ends the whole model"))
            }

            fn try_read<R>(&self, _: &$Machine, _: Site, f: impl FnOnce(&T) -> R) -> Option<R> {
                self.lock.try_read().ok().map(|value| f(&value))
            }

            fn read_killable<R>(
                &self,
                _: &$Machine,
                _: Site,
                killed: impl Fn() -> bool,
                f: impl FnOnce(&T) -> R,
            ) -> Option<R> {
                self.reader(killed).map(|value| f(&value))
            }

            fn write<R>(&self, _: &$Machine, _: Site, f: impl FnOnce(&mut T) -> R) -> R {
                let mut value = self.writer(|| false).expect("no body was killed");
                f(&mut value)
            }

            fn write_killable<R>(
                &self,
                _: &$Machine,
                _: Site,
                killed: impl Fn() -> bool,
                f: impl FnOnce(&mut T) -> R,
            ) -> Option<R> {
                self.writer(killed).map(|mut value| f(&mut value))
            }

            /// Runs `first` and `then` as one writer, so no reader is admitted during `then`.
            fn write_then_read<A, R>(
                &self,
                _: &$Machine,
                _: Site,
                killed: impl Fn() -> bool,
                first: impl FnOnce(&mut T) -> Option<A>,
                then: impl FnOnce(&T, A) -> R,
            ) -> Option<Option<R>> {
                let mut value = self.writer(killed)?;
                let kept = first(&mut value);
                Some(kept.map(|kept| then(&value, kept)))
            }

            fn writer_waits(&self, _: &$Machine) -> bool {
                // Relaxed is enough: model threads run one at a time.
                self.writers.load(Relaxed) > 0
            }
        }
    };
}

pub(crate) use checked_rw_lock;
