//! The interface of a lock without a value.

/// A lock without a value.
pub(crate) trait RawLock: Default {
    /// The guard of an acquisition, which releases the lock when it is dropped.
    type Held<'a>
    where
        Self: 'a;

    /// Takes the lock, and waits for it while it is busy. Each look that finds the lock busy is
    /// followed by a call of `relax`, with the number of such looks before this one.
    fn acquire(&self, relax: impl FnMut(u32)) -> Self::Held<'_>;

    /// Takes the lock if it is free.
    fn try_acquire(&self) -> Option<Self::Held<'_>>;
}
