//! A ticket spinlock: waiters are served in the order of arrival.
//!
//! `next` is the next ticket to hand out, and `serving` is the ticket whose owner holds the lock.
//! The lock is free if the two numbers are equal. `next` and `serving` are in one cache line,
//! separate from the value. So an uncontended acquisition transfers two lines, and waiters do not
//! disturb the line of the value.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::raw::RawLock;
use super::sync::AtomicU32;

/// The counter of tickets handed out, and the ticket whose owner holds the lock.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Ticket {
    pub(super) next: AtomicU32,
    pub(super) serving: AtomicU32,
}

/// The guard of the lock's holder. Dropping it passes the lock to the owner of the next ticket.
pub(crate) struct Turn<'a> {
    lock: &'a Ticket,
    ticket: u32,
}

impl RawLock for Ticket {
    type Held<'a> = Turn<'a>;

    #[inline]
    fn acquire(&self, mut relax: impl FnMut(u32)) -> Turn<'_> {
        // Relaxed is enough: the ticket only determines the order of waiters. The load of `serving`
        // makes the writes of the previous holder visible.
        let ticket = self.next.fetch_add(1, Relaxed);
        let mut looks = 0;
        // Acquire pairs with the Release in `Turn::drop`. Each holder releases the lock when its
        // closure returns or panics. So this loop ends when all earlier holders have done that.
        while self.serving.load(Acquire) != ticket {
            relax(looks);
            looks = looks.saturating_add(1);
        }
        Turn { lock: self, ticket }
    }

    #[inline]
    fn try_acquire(&self) -> Option<Turn<'_>> {
        // Acquire pairs with the Release in `Turn::drop`, which wrote the value that this load
        // reads.
        let ticket = self.serving.load(Acquire);
        // Relaxed: the ticket only determines the order of waiters. The exchange succeeds only if
        // `ticket` has not been handed out. Then the lock is free, and the load above read the
        // value that the latest release stored.
        let won = self
            .next
            .compare_exchange(ticket, ticket.wrapping_add(1), Relaxed, Relaxed);
        won.ok().map(|ticket| Turn { lock: self, ticket })
    }
}

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire loads in `acquire` and `try_acquire`: the next holder sees
        // the writes of this holder.
        self.lock
            .serving
            .store(self.ticket.wrapping_add(1), Release);
    }
}
