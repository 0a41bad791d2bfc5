//! Relaxed loads and stores of the tags of a run of pages, many tags at a time.
//!
//! The compiler does not combine accesses of neighbouring atomics. On x86-64, this module does so
//! in assembly. The CPU then loads or stores eight tags by one instruction. Other threads may see some
//! of these tags change before others, as with loads and stores of single tags.

#![expect(unsafe_code, reason = "the accesses are in assembly")]

use std::arch::asm;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

/// The number of tags that one instruction loads or stores.
const TOGETHER: usize = 8;

/// Returns whether all `tags` are `tag`.
#[inline]
pub(super) fn are_all(tags: &[AtomicU8], tag: u8) -> bool {
    let (groups, rest) = tags.as_chunks::<TOGETHER>();
    let differ = rest
        .iter()
        .fold(0, |all, other| all | (other.load(Relaxed) ^ tag));
    differ == 0 && groups_are_all(groups, tag)
}

/// Sets all `tags` to `tag`.
#[inline]
pub(super) fn set_all(tags: &[AtomicU8], tag: u8) {
    let (groups, rest) = tags.as_chunks::<TOGETHER>();
    rest.iter().for_each(|each| each.store(tag, Relaxed));
    set_groups(groups, tag);
}

/// Returns whether all tags of `groups` are `tag`. Looks at all tags without a branch for each,
/// because nearly always all of them are `tag`.
#[inline]
fn groups_are_all(groups: &[[AtomicU8; TOGETHER]], tag: u8) -> bool {
    let wanted = u64::from_ne_bytes([tag; TOGETHER]);
    let mut differ = 0;
    for group in groups {
        let found: u64;
        // SAFETY: the instruction loads the eight tags of `group`, which are atomics. A load of
        // eight bytes reads each of them as a relaxed load of the byte does.
        unsafe {
            asm!(
                "mov {found}, qword ptr [{group}]",
                group = in(reg) group.as_ptr(),
                found = out(reg) found,
                options(nostack, readonly, preserves_flags),
            );
        }
        differ |= found ^ wanted;
    }
    differ == 0
}

/// Sets all tags of `groups` to `tag`.
#[inline]
fn set_groups(groups: &[[AtomicU8; TOGETHER]], tag: u8) {
    for group in groups {
        // SAFETY: the instruction stores to the eight tags of `group`, which are atomics. A store
        // of eight bytes writes each of them as a relaxed store of the byte does.
        unsafe {
            asm!(
                "mov qword ptr [{group}], {tags}",
                group = in(reg) group.as_ptr(),
                tags = in(reg) u64::from_ne_bytes([tag; TOGETHER]),
                options(nostack, preserves_flags),
            );
        }
    }
}
