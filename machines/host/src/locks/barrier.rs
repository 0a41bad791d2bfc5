//! An asymmetric barrier between threads (Linux: `membarrier`). One side is free at run time: it
//! only restrains the compiler. The other side makes the kernel issue a full barrier on all CPUs
//! that run threads of this process.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::compiler_fence;

/// Returns whether this process can call [`heavy_barrier`]. The first call registers the process
/// with the kernel.
pub(crate) fn are_available() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(imp::register)
}

/// Keeps the compiler from moving memory accesses across this call. Together with a
/// [`heavy_barrier`] of another thread it acts as a full barrier.
#[inline(always)]
pub(crate) fn light_barrier() {
    compiler_fence(SeqCst);
}

/// Executes a full barrier on each CPU that runs a thread of this process. A thread that is not
/// running passes a full barrier before it runs again.
///
/// # Panics
/// If [`are_available`] is false.
#[cold]
pub(crate) fn heavy_barrier() {
    imp::issue();
}

#[cfg(target_os = "linux")]
mod imp {
    use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

    pub(super) fn register() -> bool {
        let known = membarrier_query();
        known.contains_command(MembarrierCommand::PrivateExpedited)
            && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
    }

    pub(super) fn issue() {
        let issued = membarrier(MembarrierCommand::PrivateExpedited);
        issued.expect("the process has registered for `membarrier`");
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn issue() {
        panic!("this system has no barrier on the CPUs of other threads");
    }
}
