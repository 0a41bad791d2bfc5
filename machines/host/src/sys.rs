//! The system calls of Linux that our safe dependencies do not offer. They set memory policies of
//! NUMA nodes and the advice for forks, run a function in the child of a fork, and return the CPU
//! time, switches and page faults of a thread.
//!
//! On other systems each of these calls fails with [`std::io::ErrorKind::Unsupported`].

#[cfg(target_os = "linux")]
pub(crate) use imp::{
    at_fork, bind, locate_or_move, switches_and_faults, thread_cpu_ns, wipe_on_fork,
};
#[cfg(not(target_os = "linux"))]
pub(crate) use none::{
    at_fork, bind, locate_or_move, switches_and_faults, thread_cpu_ns, wipe_on_fork,
};

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "system calls with addresses")]
mod imp {
    use std::io;
    use std::os::raw::{c_int, c_long, c_ulong, c_void};
    use std::ptr;

    /// `MPOL_BIND` of `linux/mempolicy.h`: pages come from the given nodes only.
    const MPOL_BIND: c_long = 2;
    /// `MPOL_MF_MOVE` of `linux/mempolicy.h`: the call moves only pages that no other process maps.
    const MPOL_MF_MOVE: c_long = 2;
    /// The number of nodes for which a mask has bits (Linux: at most 1024).
    const NODES_MAX: usize = 1024;
    const WORD_BITS: usize = c_ulong::BITS as usize;

    /// Makes the kernel take the pages of a range, when they are first touched, from `node` only.
    /// `address` must be the start of a page, and the range must be mapped.
    pub(crate) fn bind(address: usize, bytes: usize, node: u32) -> io::Result<()> {
        let node = node as usize;
        if node >= NODES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut mask: [c_ulong; NODES_MAX / WORD_BITS] = [0; NODES_MAX / WORD_BITS];
        mask[node / WORD_BITS] |= 1 << (node % WORD_BITS);
        // The kernel reads one bit fewer than the argument `maxnode` of `mbind` says.
        let bits = NODES_MAX + 1;
        // SAFETY: the call reads `mask`, which has `bits - 1` bits. It changes where the kernel
        // takes memory from, but neither the contents of memory nor the mappings.
        let outcome = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                address,
                bytes,
                MPOL_BIND,
                mask.as_ptr(),
                bits,
                0,
            )
        };
        checked(outcome)
    }

    /// Stores in `status`, for each page at `addresses`, the page's node or a negative error
    /// number. If `nodes` has a node for each page, moves each page to its node first.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub(crate) fn locate_or_move(
        addresses: &[usize],
        nodes: Option<&[c_int]>,
        status: &mut [c_int],
    ) -> io::Result<()> {
        assert_eq!(addresses.len(), status.len(), "one status for each page");
        if let Some(nodes) = nodes {
            assert_eq!(addresses.len(), nodes.len(), "one node for each page");
        }
        let nodes = nodes.map_or(ptr::null(), <[c_int]>::as_ptr);
        let this_process = 0;
        // SAFETY: `addresses` and `status` have as many elements as the count says, and so does
        // `nodes` unless it is null. The kernel accesses only these elements. A page keeps its
        // contents and its address when it moves.
        let outcome = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                this_process,
                addresses.len(),
                addresses.as_ptr(),
                nodes,
                status.as_mut_ptr(),
                MPOL_MF_MOVE,
            )
        };
        checked(outcome)
    }

    /// Makes the children of later forks find zeros in a range instead of its contents.
    ///
    /// # Safety
    /// A child must not rely on the contents of the range: no value of Rust may be there.
    pub(crate) unsafe fn wipe_on_fork(address: *mut u8, bytes: usize) -> io::Result<()> {
        // SAFETY: the advice changes nothing in this process, and the caller guarantees that
        // children do not rely on the contents.
        let outcome =
            unsafe { libc::madvise(address.cast::<c_void>(), bytes, libc::MADV_WIPEONFORK) };
        checked(outcome.into())
    }

    /// Runs `in_child` in the child of each later `fork`, before `fork` returns there.
    ///
    /// # Safety
    /// `in_child` runs while locks of threads that the child does not have may be held. So it may
    /// only do what a signal handler may do.
    pub(crate) unsafe fn at_fork(in_child: extern "C" fn()) -> io::Result<()> {
        // SAFETY: the function exists for as long as the program runs. The caller guarantees that
        // the function does only what a signal handler may do.
        match unsafe { libc::pthread_atfork(None, None, Some(in_child)) } {
            0 => Ok(()),
            why => Err(io::Error::from_raw_os_error(why)),
        }
    }

    /// The number of voluntary and involuntary context switches of the calling thread, and the
    /// number of its page faults (Linux: `getrusage` with `RUSAGE_THREAD`).
    pub(crate) fn switches_and_faults() -> io::Result<[u64; 2]> {
        // SAFETY: all-zero bytes are a valid `rusage`, which consists of numbers.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the call writes to `usage`.
        checked(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) }.into())?;
        let switches = usage.ru_nvcsw + usage.ru_nivcsw;
        let faults = usage.ru_minflt + usage.ru_majflt;
        Ok([switches, faults].map(|count| u64::try_from(count).unwrap_or_default()))
    }

    /// The time that the calling thread has run on a CPU, in nanoseconds. If the kernel accounts
    /// for a hypervisor's *steal*, the time that the hypervisor took is not included.
    pub(crate) fn thread_cpu_ns() -> io::Result<u64> {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the call writes to `time`.
        let outcome = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        checked(outcome.into())?;
        let ns = time.tv_sec * 1_000_000_000 + time.tv_nsec;
        Ok(u64::try_from(ns).unwrap_or_default())
    }

    fn checked(outcome: c_long) -> io::Result<()> {
        if outcome < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}

#[cfg(not(target_os = "linux"))]
#[expect(unsafe_code, reason = "the same signatures as on Linux")]
mod none {
    use std::io;

    pub(crate) fn bind(_address: usize, _bytes: usize, _node: u32) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn locate_or_move(
        _addresses: &[usize],
        _nodes: Option<&[i32]>,
        _status: &mut [i32],
    ) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// # Safety
    /// The caller has no duties, because the call does nothing.
    pub(crate) unsafe fn wipe_on_fork(_address: *mut u8, _bytes: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// # Safety
    /// The caller has no duties, because the call does nothing.
    pub(crate) unsafe fn at_fork(_in_child: extern "C" fn()) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn switches_and_faults() -> io::Result<[u64; 2]> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn thread_cpu_ns() -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
