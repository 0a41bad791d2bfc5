//! The lock that readers share: the lock of `parking_lot` behind a queue (`fifo`).
//!
//! The lock of `parking_lot` alone is not enough. A writer that may be killed has to wait in slices
//! of time, so that it can check after each slice whether it was killed. Such a writer would lose
//! its place in the lock of `parking_lot` each time. So a thread that does not get the lock at once
//! joins the queue. Only the first thread of the queue waits for the lock itself, in slices if it
//! may be killed. A thread that finds waiters in the queue joins the queue, and so overtakes none
//! of them.
//!
//! Readers and writers, killable or not, are therefore served in the order of arrival. There is one
//! exception: a thread that arrives at the same moment as the first thread of the queue may
//! overtake it.

use std::fmt;

use parking_lot::{RwLock as RawRwLock, RwLockReadGuard, RwLockWriteGuard};
use plimsoll_mm::machine::RwLock;
use plimsoll_mm::site::Site;

use super::fifo::{Fifo, LOOK_EVERY, Place, Purpose};
use crate::Host;

/// A lock that readers share and a writer holds alone. It serves waiters in the order of arrival,
/// and waiters sleep.
pub struct SharedLock<T> {
    fifo: Fifo,
    lock: RawRwLock<T>,
}

impl<T> SharedLock<T> {
    /// Creates an unlocked lock around `value`.
    pub fn new(value: T) -> Self {
        Self {
            fifo: Fifo::default(),
            lock: RawRwLock::new(value),
        }
    }

    #[inline]
    fn try_reader(&self) -> Option<RwLockReadGuard<'_, T>> {
        if self.fifo.is_empty() {
            self.lock.try_read()
        } else {
            None
        }
    }

    #[inline]
    fn try_writer(&self) -> Option<RwLockWriteGuard<'_, T>> {
        if self.fifo.is_empty() {
            self.lock.try_write()
        } else {
            None
        }
    }

    #[cold]
    fn reader_slow(&self, machine: &Host) -> RwLockReadGuard<'_, T> {
        machine.abort_in_child();
        let place = self.fifo.join(Purpose::Read);
        place.wait();
        self.lock.read()
    }

    #[cold]
    fn writer_slow(&self, machine: &Host) -> RwLockWriteGuard<'_, T> {
        machine.abort_in_child();
        let place = self.fifo.join(Purpose::Write);
        place.wait();
        self.lock.write()
    }

    /// Acquires the lock as a reader that has to queue. Returns `None` if `killed` returns true
    /// before the reader has the lock.
    #[cold]
    fn reader_unless(
        &self,
        machine: &Host,
        killed: impl Fn() -> bool,
    ) -> Option<RwLockReadGuard<'_, T>> {
        machine.abort_in_child();
        let place = self.fifo.join_unless(Purpose::Read, &killed)?;
        let attempt = || self.lock.try_read_for(LOOK_EVERY);
        in_slices(&place, killed, attempt)
    }

    /// Acquires the lock as a writer. Returns `None` if `killed` returns true while the writer
    /// waits.
    fn writer_unless(
        &self,
        machine: &Host,
        killed: impl Fn() -> bool,
    ) -> Option<RwLockWriteGuard<'_, T>> {
        self.try_writer().or_else(|| {
            machine.abort_in_child();
            let place = self.fifo.join_unless(Purpose::Write, &killed)?;
            let attempt = || self.lock.try_write_for(LOOK_EVERY);
            in_slices(&place, killed, attempt)
        })
    }
}

/// Waits to be first in the queue, then calls `attempt` until it returns a guard. Returns this
/// guard, or `None` as soon as `killed` returns true.
fn in_slices<G>(
    place: &Place<'_>,
    killed: impl Fn() -> bool,
    attempt: impl Fn() -> Option<G>,
) -> Option<G> {
    if !place.wait_unless(&killed) {
        return None;
    }
    let mut got = None;
    // The loop ends when all holders have released the lock, because no other thread is admitted
    // before this thread. It also ends when this thread is killed.
    while got.is_none() && !killed() {
        got = attempt();
    }
    // The thread may have been killed while it waited for the guard.
    got.filter(|_| !killed())
}

impl<T> RwLock<Host, T> for SharedLock<T> {
    #[inline]
    fn read<R>(&self, machine: &Host, _site: Site, f: impl FnOnce(&T) -> R) -> R {
        let value = self
            .try_reader()
            .unwrap_or_else(|| self.reader_slow(machine));
        f(&value)
    }

    #[inline]
    fn try_read<R>(&self, _machine: &Host, _site: Site, f: impl FnOnce(&T) -> R) -> Option<R> {
        self.try_reader().map(|value| f(&value))
    }

    #[inline]
    fn read_killable<R>(
        &self,
        machine: &Host,
        _site: Site,
        killed: impl Fn() -> bool,
        f: impl FnOnce(&T) -> R,
    ) -> Option<R> {
        let value = self
            .try_reader()
            .or_else(|| self.reader_unless(machine, killed));
        value.map(|value| f(&value))
    }

    #[inline]
    fn write<R>(&self, machine: &Host, _site: Site, f: impl FnOnce(&mut T) -> R) -> R {
        let mut value = self
            .try_writer()
            .unwrap_or_else(|| self.writer_slow(machine));
        f(&mut value)
    }

    #[inline]
    fn write_killable<R>(
        &self,
        machine: &Host,
        _site: Site,
        killed: impl Fn() -> bool,
        f: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        self.writer_unless(machine, killed)
            .map(|mut value| f(&mut value))
    }

    fn write_then_read<A, R>(
        &self,
        machine: &Host,
        _site: Site,
        killed: impl Fn() -> bool,
        first: impl FnOnce(&mut T) -> Option<A>,
        then: impl FnOnce(&T, A) -> R,
    ) -> Option<Option<R>> {
        let mut value = self.writer_unless(machine, killed)?;
        let Some(kept) = first(&mut value) else {
            return Some(None);
        };
        let value = RwLockWriteGuard::downgrade(value);
        Some(Some(then(&value, kept)))
    }

    fn writer_waits(&self, _machine: &Host) -> bool {
        self.fifo.writer_waits()
    }
}

impl<T> fmt::Debug for SharedLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLock").finish_non_exhaustive()
    }
}
