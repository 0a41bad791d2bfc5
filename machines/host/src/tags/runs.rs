//! Relaxed loads and stores of the tags of a run of pages, one tag at a time.

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

/// Sets all `tags` to `tag`.
#[inline]
pub(super) fn set_all(tags: &[AtomicU8], tag: u8) {
    tags.iter().for_each(|each| each.store(tag, Relaxed));
}
