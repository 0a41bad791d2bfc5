//! A value behind a [`Flag`].

use std::fmt;

use plimsoll_mm::machine::CpuLock;
use plimsoll_mm::site::Site;

use super::flag::Flag;
use super::guarded::Guarded;
use super::spin_or_leave;
use crate::Host;

/// A lock around a value that one CPU, the owner, acquires often and cheaply. Other CPUs acquire
/// the lock seldom, and wait while it is held.
pub struct OwnerLock<T>(Guarded<Flag, T>);

impl<T> OwnerLock<T> {
    /// Creates an unlocked lock around `value`.
    pub fn new(value: T) -> Self {
        Self(Guarded::new(value))
    }
}

impl<T> CpuLock<Host, T> for OwnerLock<T> {
    #[inline]
    fn try_local<R>(&self, _machine: &Host, _site: Site, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.try_with(f)
    }

    #[inline]
    fn with<R>(&self, machine: &Host, _site: Site, f: impl FnOnce(&mut T) -> R) -> R {
        self.0.with(|looks| spin_or_leave(machine, looks), f)
    }
}

impl<T> fmt::Debug for OwnerLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnerLock").finish_non_exhaustive()
    }
}
