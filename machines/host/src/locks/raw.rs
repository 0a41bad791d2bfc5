//! The interface of a lock without a value.

/// A lock without a value.
pub(crate) trait RawLock: Default {
    /// What releases the lock when dropped.
    type Held<'a>
    where
        Self: 'a;

    /// Waits for the lock. `relax` is called before each further look at a lock that was busy,
    /// with the number of looks so far; never for a lock that was free.
    fn acquire(&self, relax: impl FnMut(u32)) -> Self::Held<'_>;

    /// Takes the lock if it is free.
    fn try_acquire(&self) -> Option<Self::Held<'_>>;
}
