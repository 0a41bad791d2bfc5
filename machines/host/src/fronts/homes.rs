//! The real CPU whose threads add to the counters of a machine's CPU.
//!
//! A restartable sequence excludes only threads on the same real CPU. So each CPU of a machine has
//! a *home*, which is a real CPU. Only threads that run on this real CPU add to the CPU's counters
//! by a sequence. On any other real CPU, [`LocalWord::add_here`] adds nothing, and its caller
//! counts elsewhere, unless [`LocalWord::admits`] makes the other real CPU the home. If a CPU has no home, the first real CPU on which a thread plays it becomes
//! its home. The home changes when threads on other real CPUs have made many additions.
//!
//! [`LocalWord::add_here`]: plimsoll_mm::machine::LocalWord::add_here
//! [`LocalWord::admits`]: plimsoll_mm::machine::LocalWord::admits

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use plimsoll_mm::units::CpuId;

use super::rseq;
use super::stack::NOBODY;
use super::sync::{AtomicI64, AtomicU32, Mutex, STRANGE_MAX, try_lock};

/// The *homes* of a machine's CPUs. The home of a CPU is a real CPU; only threads on the home add
/// to that CPU's counters by restartable sequences. The table is empty if the machine does not use
/// restartable sequences.
#[derive(Default)]
pub(crate) struct Homes {
    homes: Box<[Home]>,
    /// The lock that a thread holds while it changes which real CPU is the home of a CPU.
    changing: Mutex<()>,
}

/// The home of one CPU of a machine: the real CPU whose threads add to the CPU's counters by
/// restartable sequences.
pub(crate) struct Home {
    /// The number of this real CPU, or [`NOBODY`] if none has been chosen.
    real: AtomicU32,
    /// The number of additions to the CPU's counters by threads on other real CPUs, since `real`
    /// last changed.
    strange: AtomicU32,
}

impl Home {
    /// Adds `delta` to a word of the CPU of which this is the home, and returns the new value. A
    /// home is the real CPU whose threads may add by restartable sequences. If the calling thread
    /// runs on another real CPU, returns `None` and leaves the word unchanged.
    #[inline(always)]
    pub(crate) fn add(&self, word: &AtomicI64, delta: i64) -> Option<i64> {
        rseq::add(rseq::mine(), &self.real, word, delta)
    }
}

impl Homes {
    /// Creates the table for `cpus` CPUs of the machine. At first, none of them has a home, which
    /// is the real CPU whose threads add to the CPU's counters.
    pub(crate) fn new(cpus: u32) -> Self {
        let home = |_| Home {
            real: AtomicU32::new(NOBODY),
            strange: AtomicU32::new(0),
        };
        Self {
            homes: (0..cpus).map(home).collect(),
            changing: Mutex::new(()),
        }
    }

    /// The home of `cpu`, which is the real CPU whose threads add to the counters of `cpu`; `None`
    /// if the machine does not use restartable sequences.
    #[inline(always)]
    pub(crate) fn home_of(&self, cpu: CpuId) -> Option<&Home> {
        self.homes.get(cpu.index())
    }

    /// Makes the caller's real CPU the home `home`, which is the real CPU whose threads may add by
    /// restartable sequences. Does so only if there is no home yet, or if *strangers*, threads on
    /// other real CPUs than the home, have made many additions. Returns whether an addition may
    /// succeed now.
    #[cold]
    #[inline(never)]
    pub(crate) fn claim(&self, home: &Home) -> bool {
        let Some(me) = rseq::set_up().and_then(rseq::Area::cpu) else {
            return false;
        };
        // Relaxed is enough for this load, and for the addition to `strange` below: both only
        // decide whether to try the lock.
        let real = home.real.load(Relaxed);
        if real == me {
            return true;
        }
        if real != NOBODY && home.strange.fetch_add(1, Relaxed) + 1 < STRANGE_MAX {
            return false;
        }
        let Some(_changing) = try_lock(&self.changing) else {
            return false;
        };
        // Acquire pairs with the Release below. The thread that changed the home last has stopped
        // the restartable sequences on the real CPU that was the home before.
        let real = home.real.load(Acquire);
        if real != NOBODY {
            home.real.store(NOBODY, Relaxed);
            // This call makes the threads on the old home (a real CPU) load the home again, and
            // acts as a barrier.
            rseq::abort_on(real);
        }
        home.strange.store(0, Relaxed);
        // Release pairs with the load of the home in a restartable sequence: a thread that loads
        // the new home sees the additions of threads on the old home.
        home.real.store(me, Release);
        true
    }
}
