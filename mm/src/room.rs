//! Making room in a list that a lock guards, without allocating memory under the lock.

use alloc::vec::Vec;

/// The global allocator has no memory for the list.
#[derive(Debug)]
pub(crate) struct NoRoom;

/// Makes an empty list that has room for at least `entries` entries. To be called with no lock
/// held.
pub(crate) fn list_of<T>(entries: usize) -> Result<Vec<T>, NoRoom> {
    let mut list = Vec::new();
    // Rounded up, so that a list that grows entry by entry is seldom replaced.
    let rounded = entries.checked_next_power_of_two().ok_or(NoRoom)?;
    list.try_reserve_exact(rounded).map_err(|_| NoRoom)?;
    Ok(list)
}

/// Replaces `list` by `longer` if that has more room, and moves the entries over. Called under the
/// lock, so it allocates no memory. The caller drops what is then in `longer` after it has released
/// the lock.
pub(crate) fn replace<T>(list: &mut Vec<T>, longer: &mut Vec<T>) {
    if list.capacity() < longer.capacity() {
        longer.append(list);
        core::mem::swap(list, longer);
    }
}
