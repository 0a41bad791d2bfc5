//! A flag that says that memory for events that wait to be packed runs out.
//!
//! What readers take waits in memory for the converter, which packs and writes it with the lowest
//! priority, so that it uses only time that the load leaves. If memory runs out, the converter must
//! hurry.

use std::sync::atomic::{AtomicBool, Ordering};

/// Raised by readers that must wait; checked by the converter.
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
