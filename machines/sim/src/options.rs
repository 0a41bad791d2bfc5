//! The inputs of a run besides its machine profile and its tasks.

use plimsoll_mm::units::Nanos;

/// The options of one run. Experiments use [`SimOptions::default`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimOptions {
    /// The seed of every random stream.
    pub seed: u64,
    /// The lock model: how locks are simulated.
    pub lock_model: LockModel,
    /// If true, accesses that normally run ahead wait for their turn as well: owner accesses of
    /// per-CPU locks, relaxed loads, per-CPU words, tags of pages. Such a run is slower, and
    /// causality never slips.
    pub strict: bool,
    /// The time that a task runs while other tasks want its CPU.
    pub slice: Nanos,
    /// The time that a CPU runs ahead on short local work before it lets earlier CPUs go first.
    pub run_ahead: Nanos,
    /// The most random nanoseconds added before each ordered step, to vary interleavings.
    pub jitter_ns: u32,
    /// Bytes of address space for one task's stack; only touched pages take memory.
    pub stack_bytes: usize,
    /// The percentage of the wheel's timers that fire a jiffy late because their CPU's tick came
    /// before the CPU that keeps time had counted it. At most 50, and never on CPU 0, which keeps
    /// time. A Linux 6.12 booted with 64 and 72 CPUs in an emulator shows 18 to 25. No measurement
    /// on real hardware is known, so the default is 0.
    pub late_ticks_percent: u32,
    /// The faults to inject.
    pub faults: Faults,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            lock_model: LockModel::RunAhead,
            strict: false,
            slice: Nanos::from_ms(3),
            run_ahead: Nanos(100_000),
            jitter_ns: 0,
            stack_bytes: 64 << 10,
            late_ticks_percent: 0,
            faults: Faults::default(),
        }
    }
}

/// The ways to simulate locks. Both give the same results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockModel {
    /// The CPU that acquires a lock computes when it may start, and runs its section ahead. Other
    /// CPUs park only for a section that waits for something inside.
    RunAhead,
    /// Every release is an ordered step and wakes the next waiter.
    ReleaseEvent,
}

/// The faults to inject. Intervals are means in virtual time per CPU; zero means never.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The mean time between two stalls of a CPU.
    pub stall_every: Nanos,
    /// The length of a stall.
    pub stall_for: Nanos,
    /// The mean time between two forced migrations of the tasks that run on a CPU.
    pub migrate_every: Nanos,
    /// The most jiffies by which a timer-wheel timer is late, beyond the wheel's own rounding.
    pub timer_late_jiffies: u64,
}
