//! The membership of a process in the queue of a reaper.
//!
//! Locks: none.

use alloc::sync::Arc;

/// Room for one entry in the queue of a reaper, for as long as this value lives.
pub(super) struct Membership {
    _roll: Arc<()>,
}

impl Membership {
    /// A membership that `roll` counts. The caller has made sure that there is room for its entry.
    pub(super) fn of(roll: &Arc<()>) -> Self {
        Self {
            _roll: Arc::clone(roll),
        }
    }
}
