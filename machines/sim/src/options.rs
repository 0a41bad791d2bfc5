//! The options of a run, which are its inputs besides the machine profile and the tasks.

use plimsoll_mm::units::Nanos;

/// The options of one run. Experiments use [`SimOptions::default`], but also set
/// [`SimOptions::jitter`] and [`SimOptions::under_load`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each option is independent of the others"
)]
pub struct SimOptions {
    /// The seed of every random stream.
    pub seed: u64,
    /// The model by which locks are simulated.
    pub lock_model: LockModel,
    /// If true, some accesses for which a CPU normally does not wait are delayed until no other CPU
    /// has an earlier clock. These are the accesses of an owner to its per-CPU lock, relaxed loads,
    /// and accesses to per-CPU words and page tags. Such a run is slower, and in such a run no CPU
    /// sees an effect from its own future.
    pub strict: bool,
    /// The longest time for which a task may run while other tasks are ready on the same CPU.
    pub slice: Nanos,
    /// The longest time for which a CPU may do short local work before it lets CPUs with earlier
    /// clocks run.
    pub run_ahead: Nanos,
    /// The upper bound, in nanoseconds, of the random delay before each order point, at which CPUs
    /// with earlier clocks run first. Delays vary the interleavings.
    pub shake_ns: u32,
    /// If true, interrupts, softirqs and steals disturb busy CPUs at the rates of the profile's
    /// table `[jitter]`.
    pub jitter: bool,
    /// The size of the address space for each task's stack, in bytes. Only the pages that the task
    /// touches take memory.
    pub stack_bytes: usize,
    /// The percentage, at most 50, of the timer wheel's timers that fire one jiffy late. A timer is
    /// late if its CPU ticks before the timekeeping CPU has counted the jiffy. Timers on CPU 0 are
    /// never late, because CPU 0 keeps time. Linux 6.12, booted with 64 and with 72 CPUs in an
    /// emulator, shows 18 to 25 percent. No measurement on real hardware is known, so the default
    /// is 0.
    pub late_ticks_percent: u32,
    /// If true, the profile's effects of load apply: while many CPUs are busy, cores run at lower
    /// clock frequencies, and CPUs share memory bandwidth. Experiments set this option; most tests
    /// do not.
    pub under_load: bool,
    /// If true, the CPUs have fronts: stacks of free blocks in front of their page lists. The work of
    /// an allocation from a front, or of a free to it, has no price and emits no event. So this
    /// option is for tests of what the memory manager does with fronts, and not for measurements.
    pub fronts: bool,
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
            shake_ns: 0,
            jitter: false,
            stack_bytes: 64 << 10,
            late_ticks_percent: 0,
            under_load: false,
            fronts: false,
            faults: Faults::default(),
        }
    }
}

/// The models of a lock. Both give the same results if no CPU accesses per-CPU data at a time
/// before the owner's last access (a causality slip).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockModel {
    /// When a CPU requests a lock, the simulator calculates the time at which this CPU gets the
    /// lock. The CPU then runs its critical section ahead of the other CPUs. Other CPUs are
    /// suspended only if the section itself waits for something.
    RunAhead,
    /// Every release lets CPUs with earlier clocks run first, and then wakes the next waiter.
    ReleaseEvent,
}

/// The faults to inject. The times between faults are mean virtual times on one CPU. If such a time
/// is zero, there are no faults of this kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The mean time between two stalls of a CPU.
    pub stall_every: Nanos,
    /// The length of a stall.
    pub stall_for: Nanos,
    /// The mean time between two forced migrations of the task that runs on a CPU.
    pub migrate_every: Nanos,
    /// The largest number of jiffies by which a timer of the timer wheel is late, in addition to
    /// the rounding by the wheel.
    pub timer_late_jiffies: u64,
}
