//! A ticket spinlock: waiters are served in the order they came.
//!
//! `next` is the next ticket to give out, `serving` the ticket whose holder owns the lock; the
//! lock is free when they are equal. Both are in one cache line of their own: an uncontended
//! acquisition moves that line and the value's, and waiters do not disturb the value's.

use std::fmt;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use plimsoll_mm::machine::Lock;
use plimsoll_mm::site::Site;

use super::guarded::Guarded;
use super::{RawLock, spin_then_yield};
use crate::Host;

/// First come, first served, around a value.
pub struct TicketLock<T>(Guarded<Ticket, T>);

impl<T> TicketLock<T> {
    /// An unlocked `value`.
    pub fn new(value: T) -> Self {
        Self(Guarded::new(value))
    }

    /// Waits for the lock by `relax`, which is not called if the lock is free, then runs `f`.
    #[inline]
    pub(crate) fn with_relax<R>(&self, relax: impl FnMut(u32), f: impl FnOnce(&mut T) -> R) -> R {
        self.0.with(relax, f)
    }
}

impl<T> Lock<Host, T> for TicketLock<T> {
    #[inline]
    fn with<R>(&self, _machine: &Host, _site: Site, f: impl FnOnce(&mut T) -> R) -> R {
        self.0.with(spin_then_yield, f)
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

/// The tickets alone.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Ticket {
    next: AtomicU32,
    serving: AtomicU32,
}

const _: () = assert!(
    size_of::<Ticket>() == 128,
    "one lock, one pair of cache lines"
);

/// The right to be served; passed on when dropped.
pub(crate) struct Turn<'a> {
    lock: &'a Ticket,
    ticket: u32,
}

impl RawLock for Ticket {
    type Held<'a> = Turn<'a>;

    #[inline]
    fn acquire(&self, mut relax: impl FnMut(u32)) -> Turn<'_> {
        // Relaxed: the ticket only sets the order of waiters; what the holder before wrote is
        // seen through `serving`.
        let ticket = self.next.fetch_add(1, Relaxed);
        let mut looks = 0;
        // Acquire pairs with the Release in `Turn::drop`. Ends when every earlier holder has let
        // go, as each does when its closure returns or panics.
        while self.serving.load(Acquire) != ticket {
            relax(looks);
            looks = looks.saturating_add(1);
        }
        Turn { lock: self, ticket }
    }

    #[inline]
    fn try_acquire(&self) -> Option<Turn<'_>> {
        // Acquire pairs with the Release in `Turn::drop`, which wrote this very value.
        let ticket = self.serving.load(Acquire);
        // Relaxed: as in `acquire`. It succeeds only if nobody took a ticket since `ticket` was
        // served last, so the lock is free and the load above was of its latest release.
        let won = self
            .next
            .compare_exchange(ticket, ticket.wrapping_add(1), Relaxed, Relaxed);
        won.ok().map(|ticket| Turn { lock: self, ticket })
    }
}

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire loads above: the next holder sees this one's writes.
        self.lock
            .serving
            .store(self.ticket.wrapping_add(1), Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread;

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
                        .expect("nobody panics holding it")
                        .push(waiter);
                });
                // The next waiter comes only when this one has its ticket.
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
