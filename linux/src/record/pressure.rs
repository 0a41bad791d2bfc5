//! Whether memory for what was read runs out.
//!
//! What is read waits in memory for a thread that packs and writes it with the lowest priority, so
//! that it takes only time that the load leaves. If memory runs out, that thread must hurry.

use std::sync::atomic::{AtomicBool, Ordering};

/// Told by readers that must wait, asked by the thread that packs.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    high: AtomicBool,
}

impl Pressure {
    pub(super) fn raise(&self) {
        // Relaxed: a hint; no other memory is read by it.
        self.high.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_high(&self) -> bool {
        self.high.load(Ordering::Relaxed)
    }
}
