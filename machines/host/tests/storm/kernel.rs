//! Makes the kernel disturb the threads of a test: moves them to other CPUs, sends them signals,
//! and forks.
#![expect(unsafe_code, reason = "signals and forks have no safe interface")]

use std::mem;
use std::ptr;

use rustix::thread::{CpuSet, Pid, gettid, sched_setaffinity};

/// Returns the thread id of the calling thread, by which the kernel knows it.
pub(crate) fn this_thread() -> i32 {
    gettid().as_raw_nonzero().get()
}

/// Makes a thread run on one of `cpus` only. Returns whether the kernel did so.
pub(crate) fn move_to(thread: i32, cpus: &[u32]) -> bool {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu as usize));
    sched_setaffinity(Pid::from_raw(thread), &set).is_ok()
}

/// Sends a thread a signal whose handler does nothing. Returns whether the kernel has sent the
/// signal.
pub(crate) fn interrupt(thread: i32) -> bool {
    let process = std::process::id();
    // SAFETY: the signal has a handler, which does nothing.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR1) == 0 }
}

/// Returns whether glibc has registered no areas for restartable sequences in this process.
pub(crate) fn glibc_has_no_areas() -> bool {
    // SAFETY: the name ends with a zero byte, and the call changes nothing.
    let size = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()) };
    // SAFETY: the symbol is a constant of type `unsigned int`, which glibc sets before the program
    // starts.
    size.is_null() || unsafe { *size.cast::<u32>() } == 0
}

extern "C" fn nothing(_signal: libc::c_int) {}

/// Signal handlers that do nothing, and a timer whose signal goes to any thread of the process.
pub(crate) struct Signals(());

impl Signals {
    pub(crate) fn installed() -> Self {
        for signal in [libc::SIGUSR1, libc::SIGALRM] {
            // SAFETY: all-zero bytes are a valid `sigaction`.
            let mut action: libc::sigaction = unsafe { mem::zeroed() };
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            // SAFETY: the handler does nothing, which every handler may do.
            let outcome = unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
            assert_eq!(outcome, 0, "the kernel accepts the handler");
        }
        set_timer(1000);
        Self(())
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        set_timer(0);
    }
}

/// Sends `SIGALRM` to the process every `micros` microseconds. Stops the timer if `micros` is 0.
fn set_timer(micros: libc::suseconds_t) {
    let every = libc::timeval {
        tv_sec: 0,
        tv_usec: micros,
    };
    let timer = libc::itimerval {
        it_interval: every,
        it_value: every,
    };
    // SAFETY: the timer is valid, and its signal has a handler.
    let outcome = unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, ptr::null_mut()) };
    assert_eq!(outcome, 0, "the kernel sets the timer");
}

/// Forks, and runs `child` in the child.
///
/// # Panics
/// If the child does not abort.
pub(crate) fn fork_and_fail(child: impl FnOnce()) {
    // SAFETY: the child closes its error stream, runs `child` and ends. Until `child` aborts, it
    // takes no lock that a thread which does not exist in the child may hold.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: the child needs no error stream: the parent sees how the child ends.
        unsafe { libc::close(2) };
        child();
        // SAFETY: `_exit` ends the child at once, without the exit handlers and destructors of the
        // parent.
        unsafe { libc::_exit(0) };
    }
    assert!(pid > 0, "the process can fork");
    let mut status = 0;
    // SAFETY: `status` is a place for the status of a child of this process.
    let ended = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(ended, pid);
    let aborted = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT;
    assert!(
        aborted,
        "the child aborts when it allocates: status {status:#x}"
    );
}
