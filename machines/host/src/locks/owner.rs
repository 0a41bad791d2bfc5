//! The lock `OwnerLock`: a value behind a [`Biased`] lock.

use std::fmt;

use plimsoll_mm::machine::CpuLock;
use plimsoll_mm::site::Site;

use super::biased::Biased;
use super::guarded::Guarded;
use super::seats::{self, Threads};
use super::spin_or_leave;
use crate::Host;
use crate::host::OwnerLocks;

/// A lock around a value that one CPU, the owner, acquires often and cheaply. Other CPUs acquire
/// the lock seldom, and wait while it is held.
///
/// With [`OwnerLocks::Biased`], a thread that is the only one to play the CPU acquires the lock
/// without an atomic read-modify-write instruction.
pub struct OwnerLock<T>(Guarded<Biased<Threads>, T>);

impl<T> OwnerLock<T> {
    /// Creates an unlocked lock around `value`. Threads take the lock in the way that `locks`
    /// names.
    pub fn new(locks: OwnerLocks, value: T) -> Self {
        let after = match locks {
            OwnerLocks::Biased { after } => Some(after),
            OwnerLocks::Exchanged => None,
        };
        Self(Guarded::new(Biased::new(after), value))
    }
}

impl<T> CpuLock<Host, T> for OwnerLock<T> {
    #[inline]
    fn try_local<R>(&self, _machine: &Host, _site: Site, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.try_local(seats::mine(), f)
    }

    #[inline(always)]
    fn try_quick<R>(&self, _machine: &Host, _site: Site, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.try_quick(seats::mine(), f)
    }

    #[inline]
    fn with<R>(&self, machine: &Host, _site: Site, f: impl FnOnce(&mut T) -> R) -> R {
        self.0
            .with_seat(seats::mine(), |looks| spin_or_leave(machine, looks), f)
    }
}

impl<T> fmt::Debug for OwnerLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnerLock").finish_non_exhaustive()
    }
}
