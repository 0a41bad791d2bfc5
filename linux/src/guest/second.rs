//! Starts a second process that uses the memory of the first, and binds a process's memory to a
//! node. These operations need `clone` and `set_mempolicy`, which `rustix` does not have.
//!
//! The second process only waits to be killed. The second process shares everything in memory with
//! the first, including the state of the C library, so it must not call anything that changes
//! memory.
#![expect(
    unsafe_code,
    reason = "the compiler cannot check memory that is shared with another process"
)]

use std::ffi::{c_int, c_ulong, c_void};
use std::io;
use std::mem;
use std::ptr;

use memmap2::MmapMut;

use super::op::REACHED;

/// The size of a second process's stack, in bytes. The process calls only two functions of the C
/// library.
const STACK_BYTES: usize = 64 << 10;
/// The number of nodes that a mask of one word can name.
const NODES_MAX: u32 = c_ulong::BITS;

/// Starts a second process that uses this process's memory until it is killed.
pub(super) fn share() -> io::Result<()> {
    start(wait, libc::CLONE_VM)
}

/// Starts a second process that uses this process's memory, and waits until that process is killed.
/// The second process reports to the load's leader that it runs.
pub(super) fn vfork() -> io::Result<()> {
    start(report_and_wait, libc::CLONE_VM | libc::CLONE_VFORK)
}

/// Binds the memory of this process to `node`. If the node has no memory left, allocations fail and
/// do not use another node.
pub(super) fn bind(node: u32) -> io::Result<()> {
    if node >= NODES_MAX {
        let text = format!("node {node} cannot be asked for: at most {}", NODES_MAX - 1);
        return Err(io::Error::other(text));
    }
    let nodes: c_ulong = 1 << node;
    // `set_mempolicy` expects the number of bits of the mask plus one.
    let bits = c_ulong::from(NODES_MAX + 1);
    // SAFETY: the kernel reads one word of the mask, which lives until the call returns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy,
            libc::MPOL_BIND,
            ptr::from_ref(&nodes),
            bits,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn start(what: extern "C" fn(*mut c_void) -> c_int, flags: c_int) -> io::Result<()> {
    let mut stack = MmapMut::map_anon(STACK_BYTES)?;
    // Stacks grow down, so this is the address just past the stack's last byte. A mapping ends at a
    // page boundary, so the address has the alignment that the ABI requires.
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    // The second process may outlive every reference to its stack, so the stack is never unmapped.
    mem::forget(stack);
    // SAFETY: `what` runs on a separate stack that is never unmapped, takes no argument, calls only
    // `write` and `pause`, and never returns. Both processes share `errno`. These calls would set
    // `errno` only if a signal had a handler, which no signal has in a worker.
    let pid = unsafe { libc::clone(what, top, flags | libc::SIGCHLD, ptr::null_mut()) };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

extern "C" fn wait(_: *mut c_void) -> c_int {
    loop {
        // SAFETY: `pause` takes no arguments and touches no memory of this program.
        unsafe { libc::pause() };
    }
}

extern "C" fn report_and_wait(nothing: *mut c_void) -> c_int {
    for text in [REACHED, "\n"] {
        // SAFETY: the kernel reads `text.len()` bytes, all of which belong to the text.
        unsafe { libc::write(libc::STDOUT_FILENO, text.as_ptr().cast(), text.len()) };
    }
    wait(nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_beyond_the_mask_is_refused_by_its_number() {
        let text = bind(64).unwrap_err().to_string();
        assert!(
            text.contains("node 64") && text.contains("at most 63"),
            "{text}"
        );
    }
}
