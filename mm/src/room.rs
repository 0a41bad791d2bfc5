//! Making room in a list that a lock guards, without allocating memory while the lock is held.

use alloc::vec::Vec;

/// The error returned when the global allocator has no memory for the list.
#[derive(Debug)]
pub(crate) struct NoRoom;

/// Creates an empty list that has room for at least `entries` entries. Must be called with no lock
/// held.
pub(crate) fn list_of<T>(entries: usize) -> Result<Vec<T>, NoRoom> {
    let mut list = Vec::new();
    // The capacity is rounded up, so that a list that grows entry by entry is rarely replaced.
    let rounded = entries.checked_next_power_of_two().ok_or(NoRoom)?;
    list.try_reserve_exact(rounded).map_err(|_| NoRoom)?;
    Ok(list)
}

/// Replaces `list` by `longer` if `longer` has more room, and moves the entries over. Called with
/// the lock held, so it allocates no memory. After releasing the lock, the caller drops the old
/// list, which is now in `longer`.
pub(crate) fn replace<T>(list: &mut Vec<T>, longer: &mut Vec<T>) {
    if list.capacity() < longer.capacity() {
        longer.append(list);
        core::mem::swap(list, longer);
    }
}
