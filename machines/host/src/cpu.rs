//! Which CPU a thread plays.
//!
//! A thread that entered a CPU plays it until its [`Entered`] is dropped; any other thread is on
//! the CPU the kernel says, modulo the CPUs of the machine. What a thread plays is kept per
//! thread with the machine's number, so that machines do not mistake each other's CPUs; inside
//! an entry of another machine a thread is, for the outer one, where the kernel says.

use std::cell::Cell;
use std::marker::PhantomData;
use std::time::Duration;
use std::{fmt, io};

use plimsoll_mm::units::CpuId;

use crate::affinity::{self, CpuMask};

/// The number of a machine; no two in a process are the same, and none is [`HostId::NONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostId(pub(crate) u64);

impl HostId {
    /// Of no machine. A number and not an `Option`, so that looking takes one comparison: every
    /// addition to a counter looks.
    const NONE: Self = Self(0);
    /// Of the first machine.
    pub(crate) const FIRST: Self = Self(1);
}

/// A CPU of a machine.
type Played = (HostId, CpuId);

thread_local! {
    static PLAYED: Cell<Played> = const { Cell::new((HostId::NONE, CpuId(0))) };
    /// Whether waiting for a lock takes no memory any more.
    static MAY_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// Has `parking_lot` make what it needs for each thread that waits. It does so when the thread first
/// waits, and may then make its table of waiters larger with that locked: too late for a thread that is
/// on its way to give memory back.
#[cold]
fn prepare_to_wait() {
    let lock = parking_lot::Mutex::new(());
    let mut held = lock.lock();
    parking_lot::Condvar::new().wait_for(&mut held, Duration::ZERO);
}

/// The CPU of machine `host` that the calling thread plays.
#[inline]
pub(crate) fn played(host: HostId) -> Option<CpuId> {
    let (of, cpu) = PLAYED.get();
    (of == host).then_some(cpu)
}

/// The calling thread plays a CPU until this is dropped. Drop the innermost first.
#[must_use = "the thread plays the CPU only while this lives"]
#[derive(Debug)]
pub struct Entered {
    before: Played,
    /// Where the thread may run again afterwards.
    mask: Option<CpuMask>,
    /// It is of the thread that made it.
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
        PLAYED.set(self.before);
        if let Some(mask) = &self.mask {
            // A refusal leaves the thread pinned: slower, never wrong.
            let _ = affinity::pin(mask);
        }
    }
}

/// Why a thread could not be pinned.
#[derive(Debug)]
pub enum PinError {
    /// It is not known where the thread may run; so off Linux.
    NoCpu,
    /// The kernel refused.
    Refused {
        /// The real CPU asked for.
        cpu: u32,
        /// What the kernel said.
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
