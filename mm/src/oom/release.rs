//! Emptying the memory of a dying process when its owner or a process manager asks for it (Linux:
//! `process_mrelease`).
//!
//! Unlike the reaper, [`release()`] starts at once. The process is usually still exiting and
//! freeing its own memory, and the two share the work. The call empties the same pages as the
//! reaper, in the same way. But unlike the reaper, the call waits for a task that is changing the
//! mappings, and the process may still be chosen as a victim afterwards.
//!
//! Locks: the locks that `space/reap.rs` takes.

use alloc::sync::Arc;
use core::error::Error;
use core::fmt;

use super::process::Process;
use crate::machine::Machine;
use crate::space::reap::Reaped;
use crate::space::{Flag, Memory};

/// The outcome of a successful [`release()`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// All memory that can be reaped has been emptied, by this call or by other CPUs at the same
    /// time.
    All,
    /// There was nothing to do: the exit of the process or the reaper had already emptied the
    /// memory, or the reaper had given up on it.
    Before,
}

/// The reason why not all of the memory was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseError {
    /// The flags were not 0 (Linux: `EINVAL`).
    InvalidFlags(u32),
    /// There is no such process, or the process has left its address space (Linux: `ESRCH`).
    NoSuchProcess,
    /// The process, or another one that uses its memory, is not dying (Linux: `EINVAL`).
    NotDying,
    /// The caller was killed while it waited for a change of the mappings to end; nothing was
    /// emptied (Linux: `EINTR`).
    Interrupted,
    /// A device or guest refused to give up some of its translations; all other memory was emptied
    /// (Linux: `EAGAIN`).
    Again,
}

/// Empties the memory of `process`, which was signalled to die; `None` stands for a process that
/// was not found. `all` iterates over all processes, and `killed` returns whether the caller itself
/// is to die.
///
/// In some designs, this call gives way to a task that waits to change the mappings. The call then
/// goes on to empty the memory when that task has changed the mappings.
///
/// # Errors
/// See [`ReleaseError`]. With [`ReleaseError::Again`], some memory may have been emptied. With any
/// other error, this call has emptied none.
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
    // The loop ends: a task to which this call gives way was signalled to die. That task takes the
    // lock of the mappings next, and does not ask for it again.
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
