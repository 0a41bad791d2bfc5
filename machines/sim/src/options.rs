//! What a run depends on besides its machine profile and its tasks.

use plimsoll_mm::units::Nanos;

/// Choices of one run. [`SimOptions::default`] is what experiments use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimOptions {
    /// Where every random stream starts.
    pub seed: u64,
    /// How locks are simulated.
    pub lock_model: LockModel,
    /// Whether accesses that normally run ahead wait their turn as well: owner accesses of per-CPU
    /// locks, relaxed loads, per-CPU words, tags of pages. Slower, and free of causality slips.
    pub strict: bool,
    /// How long a task runs while others want its CPU.
    pub slice: Nanos,
    /// How far a CPU runs ahead on short local work before it lets earlier CPUs go first.
    pub run_ahead: Nanos,
    /// The most random nanoseconds added before each ordered step: shakes interleavings.
    pub jitter_ns: u32,
    /// Address space of one task's stack; only touched pages take memory.
    pub stack_bytes: usize,
    /// In percent, how many of the wheel's timers fire a jiffy late because their CPU's tick came
    /// before the CPU that keeps time had counted it; at most 50, never on CPU 0, which keeps time.
    /// A Linux 6.12 booted with 64 and 72 CPUs in an emulator shows 18 to 25. On real hardware
    /// nobody has measured it, so it is 0 unless a run asks for it.
    pub late_ticks_percent: u32,
    /// What goes wrong on purpose.
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

/// How locks are simulated. Both give the same results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockModel {
    /// Who acquires computes when it may start and runs its section ahead; only a section that
    /// waits for something inside makes others park.
    RunAhead,
    /// Every release is an ordered step and wakes the next waiter.
    ReleaseEvent,
}

/// What goes wrong on purpose. Intervals are means in virtual time per CPU; zero is never.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Between two stalls of a CPU.
    pub stall_every: Nanos,
    /// How long a stall takes.
    pub stall_for: Nanos,
    /// Between two migrations of whatever task runs on a CPU.
    pub migrate_every: Nanos,
    /// The most jiffies a timer-wheel timer is late beyond the wheel's own rounding.
    pub timer_late_jiffies: u64,
}
