//! Reserved room for a process in the queue of a reaper.

use alloc::sync::Arc;

/// While this value lives, the queue of a reaper has room reserved for one entry.
pub(super) struct Membership {
    _roll: Arc<()>,
}

impl Membership {
    /// Makes a membership. All memberships of a reaper hold a reference to the same `roll`, so the
    /// reference count of `roll` tells how many memberships exist. The caller has made sure that
    /// the queue has room for one more entry.
    pub(super) fn of(roll: &Arc<()>) -> Self {
        Self {
            _roll: Arc::clone(roll),
        }
    }
}
