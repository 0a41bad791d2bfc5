//! Relaxed accesses of the tags of a run of pages, many tags at a time.
//!
//! The compiler does not combine accesses of neighbouring atomics. On x86-64, this module does so
//! in assembly. The CPU then loads, stores or exchanges eight tags by one instruction. After a store,
//! other threads may see some of these tags change before others, as with stores of single tags.

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

/// Changes each of `tags` from `old` to `new` by an atomic exchange, which may change eight tags at
/// once. Ends early if eight tags are not all `old`, or if the first tag does not have an address that
/// is a multiple of eight. Returns the number of tags that it has changed.
#[inline]
pub(super) fn exchange(tags: &[AtomicU8], old: u8, new: u8) -> usize {
    // An atomic exchange whose bytes are in two cache lines would be very slow.
    if !tags.as_ptr().addr().is_multiple_of(TOGETHER) {
        return 0;
    }
    let (groups, _rest) = tags.as_chunks::<TOGETHER>();
    let changed = |group: &&[AtomicU8; TOGETHER]| exchange_group(group, old, new);
    groups.iter().take_while(changed).count() * TOGETHER
}

/// Changes all tags of `group` from `old` to `new` in one atomic step. Returns `false`, without having
/// changed any, if one of them is not `old`.
#[inline]
fn exchange_group(group: &[AtomicU8; TOGETHER], old: u8, new: u8) -> bool {
    let wanted = u64::from_ne_bytes([old; TOGETHER]);
    let mut found = wanted;
    // SAFETY: the instruction compares and exchanges the eight tags of `group`, which are atomics. It
    // has the same effect on each tag as an atomic exchange of the byte, and all at the same time.
    unsafe {
        asm!(
            "lock cmpxchg qword ptr [{group}], {new}",
            group = in(reg) group.as_ptr(),
            new = in(reg) u64::from_ne_bytes([new; TOGETHER]),
            inout("rax") found,
            options(nostack),
        );
    }
    found == wanted
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
