//! Emptying the memory of a dying process at its owner's or a manager's wish (Linux:
//! `process_mrelease`).
//!
//! At once, so it nearly always meets the exit of the process, which it helps. What is reapable and
//! how it is gone about is as in the reaper; but it waits for who changes the mappings, and leaves
//! the process to be chosen again.
//!
//! Locks: none of its own; those of `space/reap.rs`.

use alloc::sync::Arc;
use core::error::Error;
use core::fmt;

use super::process::Process;
use crate::machine::Machine;
use crate::space::reap::Reaped;
use crate::space::{Flag, Memory};

/// What became of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// What could be emptied is, by this call or by others meanwhile.
    All,
    /// Nothing was to be done: it was reaped, given up on, or emptied by its exit, before.
    Before,
}

/// Why memory was not released, or not all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseError {
    /// Flags other than 0 (Linux: `EINVAL`).
    InvalidFlags(u32),
    /// There is no such process, or it has left its memory (Linux: `ESRCH`).
    NoSuchProcess,
    /// The process, or another one that uses its memory, is not dying (Linux: `EINVAL`).
    NotDying,
    /// The caller was killed while it waited; nothing is done (Linux: `EINTR`).
    Interrupted,
    /// Somebody who holds translations of their own refused to give up some; the rest is done
    /// (Linux: `EAGAIN`).
    Again,
}

/// Empties the memory of `process`, which was told to die; `None` is one that was not found. `all` are
/// all processes, `killed` says whether the caller is to die itself.
///
/// Who waits to change the mappings is let in between, where a design gives way; then it begins again.
///
/// # Errors
/// As [`ReleaseError`] says. Only with [`ReleaseError::Again`] something may be emptied.
pub fn release<'p, M: Machine>(
    memory: Memory<'_, M>,
    process: Option<&'p Process<M>>,
    all: impl Iterator<Item = &'p Arc<Process<M>>>,
    flags: u32,
    killed: impl Fn() -> bool,
) -> Result<Released, ReleaseError> {
    let machine = memory.machine;
    if flags != 0 {
        return Err(ReleaseError::InvalidFlags(flags));
    }
    let process = process.ok_or(ReleaseError::NoSuchProcess)?;
    let space = process.space(machine).ok_or(ReleaseError::NoSuchProcess)?;
    if !process.will_free_memory(machine, all) {
        return if space.has(machine, Flag::Skip) {
            Ok(Released::Before)
        } else {
            Err(ReleaseError::NotDying)
        };
    }
    // Ends: whoever it gives way to was told to die, gets in next, and does not come again.
    loop {
        match space.release(memory, &killed) {
            None => return Err(ReleaseError::Interrupted),
            Some(Reaped::All) => return Ok(Released::All),
            Some(Reaped::Partly) => return Err(ReleaseError::Again),
            Some(Reaped::GaveWay | Reaped::Busy) => {}
        }
    }
}

impl fmt::Display for ReleaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidFlags(flags) => write!(f, "flags {flags:#x}: only 0 is allowed"),
            Self::NoSuchProcess => f.write_str("no such process, or it has left its memory"),
            Self::NotDying => {
                f.write_str("a process that uses the memory is not dying: kill it first")
            }
            Self::Interrupted => f.write_str("killed while waiting for the mappings"),
            Self::Again => f.write_str("some memory is in use by a device or guest: try again"),
        }
    }
}

impl Error for ReleaseError {}
