//! The interface of a raw lock, which admits one holder at a time but contains no value.

/// A lock that admits one holder at a time and contains no value.
pub(crate) trait RawLock: Default {
    /// The guard of an acquired lock. Dropping the guard releases the lock.
    type Held<'a>
    where
        Self: 'a;

    /// Acquires the lock, and waits while it is held. After each attempt that finds the lock held,
    /// calls `relax` with the number of earlier attempts.
    fn acquire(&self, relax: impl FnMut(u32)) -> Self::Held<'_>;

    /// Acquires the lock if it is free; otherwise returns `None`.
    fn try_acquire(&self) -> Option<Self::Held<'_>>;
}
