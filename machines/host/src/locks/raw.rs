//! The interface of a lock without a value.

/// A lock without a value.
pub(crate) trait RawLock: Default {
    /// The guard of an acquisition, which releases the lock when it is dropped.
    type Held<'a>
    where
        Self: 'a;

    /// Acquires the lock, and waits while it is held. After each attempt that finds the lock held,
    /// calls `relax` with the number of earlier attempts.
    fn acquire(&self, relax: impl FnMut(u32)) -> Self::Held<'_>;

    /// Acquires the lock if it is free; otherwise returns `None`.
    fn try_acquire(&self) -> Option<Self::Held<'_>>;
}
