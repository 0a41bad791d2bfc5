//! A flag that readers raise when the memory for events that wait to be packed (compressed for the
//! file) is full.
//!
//! The sub-buffers that readers take wait in memory for the converter. The converter runs at the
//! lowest priority, so that it uses only CPU time that the load leaves. When the flag is raised,
//! the converter returns to the default priority.

use std::sync::atomic::{AtomicBool, Ordering};

/// The flag that readers raise before they wait, and that the converter checks.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    high: AtomicBool,
}

impl Pressure {
    pub(super) fn raise(&self) {
        // Relaxed: the flag is a hint, and no other memory depends on it.
        self.high.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_high(&self) -> bool {
        self.high.load(Ordering::Relaxed)
    }
}
