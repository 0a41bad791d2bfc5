//! A guard against forks: a machine belongs to the process that created it.
//!
//! A forked child has a copy of the allocator's records but only one of the threads. So a lock may
//! be held for ever, no worker runs, and if the arena is shared, parent and child would hand out
//! the same frames. A child therefore may not use a machine of its parent. It may create a machine
//! of its own, and it may drop what it has inherited.
//!
//! The guard costs nothing on the path of an allocation. In the child, `fork` makes the only thread
//! leave the CPU that it played. Every operation that asks for its CPU then takes the slow path,
//! which compares the number of forks with that of the machine's creation, as does a thread that
//! enters a CPU or has waited for a lock for some time. A child that was created by a system call
//! rather than by the C library's `fork` is not noticed, and on systems other than Linux no child
//! is.
//!
//! [`Origin`] is for values that have to know even then: it compares the process too, which takes
//! a system call.

use std::process;
use std::sync::Once;

use crate::{cpu, sys};

/// The text that a child prints before it aborts.
const MESSAGE: &[u8] = b"plimsoll: this process was forked from the one that created its memory \
manager, and must not use that manager: create a manager after the fork, or call exec\n";

/// The number of forks so far. The first call makes later forks count.
pub(crate) fn watched_forks() -> u64 {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: `in_child` only stores to an atomic and to a thread-local cell that needs neither
        // initialization nor a destructor, which a signal handler may do as well.
        #[expect(unsafe_code, reason = "see `in_child`")]
        let watched = unsafe { sys::at_fork(in_child) };
        // Without memory for the handler, or on a system without the call, there is no guard.
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
    /// This process.
    pub(crate) fn here() -> Self {
        Self {
            forks: watched_forks(),
            process: process::id(),
        }
    }

    /// Whether this is still the process that created the value, rather than a child of it.
    pub(crate) fn is_here(self) -> bool {
        // In a new PID namespace, a child may have the number of its parent.
        self.forks == cpu::forks() && self.process == process::id()
    }
}

extern "C" fn in_child() {
    cpu::leave_in_child();
}

/// Prints the reason to the standard error stream and aborts. Takes no lock and allocates nothing,
/// because a thread that the child does not have may hold the lock of the heap or of the stream.
#[cold]
pub(crate) fn abort_child() -> ! {
    write_error(MESSAGE);
    process::abort()
}

#[cfg(target_os = "linux")]
fn write_error(text: &[u8]) {
    use std::os::fd::AsFd;

    // If the stream is closed, the abort itself remains as a sign.
    let _written = rustix::io::write(std::io::stderr().as_fd(), text);
}

#[cfg(not(target_os = "linux"))]
fn write_error(_text: &[u8]) {}
