//! Stand-ins for restartable sequences on systems that have none: systems other than Linux, and
//! processors other than x86-64 and AArch64.

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32};

use plimsoll_mm::machine::Freed;

use super::registrar::Registrar;
use super::stack::Stack;

/// The stand-in for the area that a thread shares with the kernel (Linux: `struct rseq`). With this
/// area, no restartable sequence completes.
pub(super) struct Area(());

impl Area {
    pub(super) fn cpu(&self) -> Option<u32> {
        None
    }
}

static NONE: Area = Area(());

pub(super) fn mine() -> &'static Area {
    &NONE
}

pub(super) fn is_available() -> bool {
    false
}

pub(super) fn registrar() -> Option<Registrar> {
    None
}

pub(super) fn set_up() -> Option<&'static Area> {
    None
}

pub(crate) fn leave() {}

pub(super) fn abort_on(_cpu: u32) {
    unreachable!("no sequence runs on this system")
}

pub(super) fn pop(_area: &Area, _stack: &Stack) -> Option<u32> {
    None
}

pub(super) fn push(_area: &Area, _stack: &Stack, _page: u32) -> bool {
    false
}

pub(super) fn pop_run(_area: &Area, _stack: &Stack, _pages: &mut [u32]) -> usize {
    0
}

pub(super) fn push_run(_area: &Area, _stack: &Stack, _pages: &[u32]) -> bool {
    false
}

pub(super) fn free(_: &Area, _: &Stack, _page: u32, _tag: &AtomicU8, _tags: [u8; 2]) -> Freed {
    Freed::Unchanged
}

pub(super) fn add(_: &Area, _home: &AtomicU32, _word: &AtomicI64, _delta: i64) -> Option<i64> {
    None
}
