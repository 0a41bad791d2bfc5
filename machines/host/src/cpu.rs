//! The CPU that a thread plays: the machine assumes that the thread runs on this CPU.
//!
//! A thread that has entered a CPU plays it until its [`Entered`] is dropped. Any other thread is
//! on the CPU that the kernel reports, modulo the machine's number of CPUs. The played CPU is
//! stored per thread, together with the number of its machine, so that each machine recognizes only
//! its own CPUs. If the thread then enters a CPU of another machine, the first machine again sees
//! the CPU that the kernel reports.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::{fmt, io};

use plimsoll_mm::units::CpuId;

use crate::affinity::{self, CpuMask};

/// The number of a machine (a [`Host`](crate::Host)), unique in the process and never
/// [`HostId::NONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostId(pub(crate) u64);

impl HostId {
    /// The number that belongs to no machine. With an `Option` instead, [`played`] would need two
    /// comparisons, and every addition to a counter calls [`played`].
    const NONE: Self = Self(0);
    /// The number of the first machine that a process creates.
    pub(crate) const FIRST: Self = Self(1);
}

/// A machine, and the CPU of this machine that a thread plays.
type Played = (HostId, CpuId);

thread_local! {
    static PLAYED: Cell<Played> = const { Cell::new((HostId::NONE, CpuId(0))) };
    /// True once the thread can wait for a lock without allocating memory.
    static MAY_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// Makes `parking_lot` set up its data for this thread now. Otherwise `parking_lot` does so when
/// the thread first waits, and may then enlarge its table of waiters while the table is locked. A
/// thread that is about to free memory must not depend on that allocation.
#[cold]
fn prepare_to_wait() {
    let lock = parking_lot::Mutex::new(());
    let mut held = lock.lock();
    parking_lot::Condvar::new().wait_for(&mut held, Duration::ZERO);
}

/// The CPU of machine `host` that the calling thread plays; `None` if it plays none.
#[inline]
pub(crate) fn played(host: HostId) -> Option<CpuId> {
    let (of, cpu) = PLAYED.get();
    (of == host).then_some(cpu)
}

/// The number of forks between the first process in which [`at_fork`](crate::sys::at_fork) was
/// called and this process.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of forks so far. Forks before the first call of
/// [`watched_forks`](crate::fork::watched_forks) do not count.
pub(crate) fn forks() -> u64 {
    // Relaxed is enough: only the child's first thread changes the number, before `fork` returns
    // and so before it can create other threads.
    FORKS.load(Relaxed)
}

/// Counts a fork, and makes this thread give up the CPU that it acts as. Runs in the child of a
/// fork, where only async-signal-safe functions may run. The thread-local `PLAYED` is safe there,
/// because it needs neither initialization nor a destructor.
pub(crate) fn leave_in_child() {
    FORKS.fetch_add(1, Relaxed);
    PLAYED.set((HostId::NONE, CpuId(0)));
}

/// The right of a thread to play a CPU, which ends when this value is dropped. A thread that has
/// entered several CPUs must drop the newest value first.
#[must_use = "the thread plays the CPU only while this lives"]
#[derive(Debug)]
pub struct Entered {
    before: Played,
    /// The number of forks when the thread entered the CPU.
    forks: u64,
    /// The CPUs on which the thread may run again once this value is dropped; `None` if the thread
    /// was not pinned.
    mask: Option<CpuMask>,
    /// Makes the type `!Send`: the thread that created a value must also drop it.
    _not_send: PhantomData<*const ()>,
}

impl Entered {
    pub(crate) fn new(host: HostId, cpu: CpuId) -> Self {
        if !MAY_WAIT.replace(true) {
            prepare_to_wait();
        }
        let before = PLAYED.replace((host, cpu));
        Self {
            before,
            forks: forks(),
            mask: None,
            _not_send: PhantomData,
        }
    }

    pub(crate) fn pinned(host: HostId, cpu: CpuId, allowed: &CpuMask) -> Result<Self, PinError> {
        let real = allowed.real(cpu.0).ok_or(PinError::NoCpu)?;
        let mask = CpuMask::of_this_thread();
        affinity::pin(&CpuMask::only(real)).map_err(|why| PinError::Refused { cpu: real, why })?;
        let mut entered = Self::new(host, cpu);
        entered.mask = Some(mask);
        Ok(entered)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.forks != forks() {
            return; // In the child of a fork, the thread has left all CPUs.
        }
        PLAYED.set(self.before);
        if let Some(mask) = &self.mask {
            // If the kernel refuses, the thread stays pinned to one CPU. That only makes the thread
            // slower.
            let _ = affinity::pin(mask);
        }
    }
}

/// The reason why a thread could not be pinned.
#[derive(Debug)]
pub enum PinError {
    /// The system does not report on which CPUs the thread may run. This is always so on systems
    /// other than Linux.
    NoCpu,
    /// The kernel refused.
    Refused {
        /// The real CPU to which the thread was to be pinned.
        cpu: u32,
        /// The kernel's error.
        why: io::Error,
    },
}

impl fmt::Display for PinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCpu => f.write_str("it is not known where this thread may run"),
            Self::Refused { cpu, why } => write!(f, "the kernel refused CPU {cpu}: {why}"),
        }
    }
}

impl std::error::Error for PinError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoCpu => None,
            Self::Refused { why, .. } => Some(why),
        }
    }
}
