//! A value that is set once. Reading it costs no virtual time: the simulator assumes that a CPU
//! loads the pointer to the value together with the structure that contains the pointer.

use std::cell::OnceCell;

use plimsoll_mm::machine::Once;

/// The simulated `Once`: a cell that is empty until a value is set, which can happen only once.
#[derive(Debug)]
pub struct SimOnce<T>(OnceCell<T>);

impl<T> SimOnce<T> {
    pub(crate) fn new() -> Self {
        Self(OnceCell::new())
    }
}

impl<T> Once<T> for SimOnce<T> {
    fn of(value: T) -> Self {
        Self(value.into())
    }

    #[inline]
    fn get(&self) -> Option<&T> {
        self.0.get()
    }

    fn set(&self, value: T) -> Result<(), T> {
        self.0.set(value)
    }

    fn into_inner(self) -> Option<T> {
        self.0.into_inner()
    }
}
