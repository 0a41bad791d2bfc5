//! Relaxed accesses of the tags of a run of pages, one tag at a time.

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

/// Returns whether all `tags` are `tag`.
#[inline]
pub(super) fn are_all(tags: &[AtomicU8], tag: u8) -> bool {
    // Looks at all tags without a branch for each, because nearly always all of them are `tag`.
    let differ = tags
        .iter()
        .fold(0, |all, other| all | (other.load(Relaxed) ^ tag));
    differ == 0
}

/// Changes each of `tags` from `old` to `new` by an atomic exchange, as long as they are `old`. Returns
/// the number of tags that it has changed.
#[inline]
pub(super) fn exchange(tags: &[AtomicU8], old: u8, new: u8) -> usize {
    let changed = |tag: &&AtomicU8| tag.compare_exchange(old, new, Relaxed, Relaxed).is_ok();
    tags.iter().take_while(changed).count()
}

/// Sets all `tags` to `tag`.
#[inline]
pub(super) fn set_all(tags: &[AtomicU8], tag: u8) {
    tags.iter().for_each(|each| each.store(tag, Relaxed));
}
