//! The lock `TicketLock`: a value behind a [`Ticket`], which is a spinlock.

use std::fmt;

use plimsoll_mm::machine::Lock;
use plimsoll_mm::site::Site;

use super::guarded::Guarded;
use super::spin_or_leave;
use super::ticket::Ticket;
use crate::Host;

/// A lock around a value. It serves waiters in the order of arrival.
pub struct TicketLock<T>(Guarded<Ticket, T>);

impl<T> TicketLock<T> {
    /// Creates an unlocked lock around `value`.
    pub fn new(value: T) -> Self {
        Self(Guarded::new(Ticket::default(), value))
    }

    /// Acquires the lock and runs `f`. Calls `relax` after each attempt that finds the lock held.
    #[inline]
    pub(crate) fn with_relax<R>(&self, relax: impl FnMut(u32), f: impl FnOnce(&mut T) -> R) -> R {
        self.0.with(relax, f)
    }
}

impl<T> Lock<Host, T> for TicketLock<T> {
    #[inline]
    fn with<R>(&self, machine: &Host, _site: Site, f: impl FnOnce(&mut T) -> R) -> R {
        self.0.with(|looks| spin_or_leave(machine, looks), f)
    }

    #[inline]
    fn try_with<R>(&self, _machine: &Host, _site: Site, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.try_with(f)
    }
}

impl<T> fmt::Debug for TicketLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketLock").finish_non_exhaustive()
    }
}

const _: () = assert!(
    size_of::<Ticket>() == 128,
    "one lock, one pair of cache lines"
);

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::Relaxed;
    use std::thread;

    use super::super::raw::RawLock;
    use super::super::spin_then_yield;
    use super::*;

    #[test]
    fn waiters_are_served_in_the_order_they_came() {
        let (lock, served) = (Ticket::default(), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            let first = lock.acquire(spin_then_yield);
            for waiter in 1..=4 {
                let (lock, served) = (&lock, &served);
                scope.spawn(move || {
                    let _turn = lock.acquire(spin_then_yield);
                    served
                        .lock()
                        .expect("no thread panics while it holds the lock")
                        .push(waiter);
                });
                // Start the next waiter only after this waiter has taken its ticket, so that the
                // order is known.
                while lock.next.load(Relaxed) != waiter + 1 {
                    thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(
            *served.lock().expect("every thread has ended"),
            [1, 2, 3, 4]
        );
    }

    #[test]
    fn tickets_wrap() {
        let lock = Ticket {
            next: AtomicU32::new(u32::MAX),
            serving: AtomicU32::new(u32::MAX),
        };
        for _ in 0..3 {
            let turn = lock.try_acquire().expect("the lock is free");
            assert!(lock.try_acquire().is_none(), "it has a holder");
            drop(turn);
            drop(lock.acquire(|_| unreachable!("the lock is free")));
        }
    }
}
