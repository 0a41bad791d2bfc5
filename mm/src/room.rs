//! Making room in a list that a lock guards, without asking for memory inside.

use alloc::vec::Vec;

/// The global allocator has no memory for the list.
#[derive(Debug)]
pub(crate) struct NoRoom;

/// An empty list that has room for `entries`. With no lock held.
pub(crate) fn list_of<T>(entries: usize) -> Result<Vec<T>, NoRoom> {
    let mut list = Vec::new();
    // Rounded up, so that entries that come one by one seldom need a longer list.
    let rounded = entries.checked_next_power_of_two().ok_or(NoRoom)?;
    list.try_reserve_exact(rounded).map_err(|_| NoRoom)?;
    Ok(list)
}

/// Moves what is in `list` to `longer`, if that has more room, and makes that the list. Under the lock:
/// takes no memory. What is left in `longer` is to be dropped afterwards.
pub(crate) fn replace<T>(list: &mut Vec<T>, longer: &mut Vec<T>) {
    if list.capacity() < longer.capacity() {
        longer.append(list);
        core::mem::swap(list, longer);
    }
}
