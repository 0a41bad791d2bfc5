//! A guard against forks: a machine (a [`Host`](crate::Host)) belongs to the process that created
//! it.
//!
//! A forked child has a copy of the allocator's records but only one of the threads. So a lock may
//! be held for ever, and no worker runs. If the arena is shared, parent and child would hand out
//! the same frames. A child therefore may not use a machine of its parent. It may create a machine
//! of its own, and it may drop what it has inherited.
//!
//! The guard costs nothing when an allocation takes its fast path. In the child, `fork` makes the
//! only thread leave the CPU that it played. Every operation that asks on which CPU it runs then
//! takes the slow path. The slow path compares the current number of forks with the number when the
//! machine was created. A thread also compares these numbers when it enters a CPU, and when it has
//! waited for a lock for some time.
//!
//! The guard does not notice a child that was created by a system call rather than by the C
//! library's `fork`. On systems other than Linux it notices no child.
//!
//! [`Origin`] recognizes such children as well, because it also compares the id of the process.
//! This takes a system call.

use std::process;
use std::sync::Once;

use crate::{cpu, fronts, locks, sys};

/// The text that a child prints before it aborts.
const MESSAGE: &[u8] = b"plimsoll: this process was forked from the one that created its memory \
manager, and must not use that manager: create a manager after the fork, or call exec\n";

/// Returns the number of forks so far. The first call installs the handler that counts; earlier
/// forks do not count.
pub(crate) fn watched_forks() -> u64 {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: `in_child` only stores to an atomic and to thread-local cells that need neither
        // initialization nor a destructor, which a signal handler may do as well.
        #[expect(unsafe_code, reason = "see `in_child`")]
        let watched = unsafe { sys::at_fork(in_child) };
        // The call fails if there is no memory for the handler, or the system does not support the
        // call. Then forks are not counted, and there is no guard.
        let _guarded = watched;
    });
    cpu::forks()
}

/// The process that created a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    forks: u64,
    process: u32,
}

impl Origin {
    /// Returns an [`Origin`] that says that the calling process creates a value now.
    pub(crate) fn here() -> Self {
        Self {
            forks: watched_forks(),
            process: process::id(),
        }
    }

    /// Whether this is still the process that created the value, rather than a child of it.
    pub(crate) fn is_here(self) -> bool {
        // The process id alone is not enough: in a new PID namespace, a child may have the id of
        // its parent.
        self.forks == cpu::forks() && self.process == process::id()
    }
}

extern "C" fn in_child() {
    cpu::leave_in_child();
    fronts::leave();
    locks::stand_up_in_child();
}

/// Prints the reason to the standard error stream and aborts. Takes no lock and allocates nothing,
/// because the lock of the heap or of the stream may be held by a thread that does not exist in the
/// child.
#[cold]
pub(crate) fn abort_child() -> ! {
    write_error(MESSAGE);
    process::abort()
}

#[cfg(target_os = "linux")]
fn write_error(text: &[u8]) {
    use std::os::fd::AsFd;

    // If the stream is closed, the message is lost, but the process still aborts.
    let _written = rustix::io::write(std::io::stderr().as_fd(), text);
}

#[cfg(not(target_os = "linux"))]
fn write_error(_text: &[u8]) {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child has either another number of forks or another process id. In a new PID namespace, it
    /// may have the id of its parent. If a system call created it, no fork was counted.
    #[test]
    fn a_child_is_recognized_by_its_forks_or_by_its_id() {
        let here = Origin::here();
        assert!(here.is_here());
        let forked = Origin {
            forks: here.forks + 1,
            ..here
        };
        let cloned = Origin {
            process: here.process + 1,
            ..here
        };
        assert!(!forked.is_here() && !cloned.is_here());
    }
}
