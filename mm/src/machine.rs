//! The interface between the memory manager and the machine it runs on. Read this file to port the
//! manager.
//!
//! A [`Machine`] is a handle: cheap to borrow, passed to every operation as `&M`. It knows the CPU
//! the caller runs on and the time, makes the few shared things the manager uses (words, locks,
//! page tags), and runs work deferred to a CPU. The manager has no other input: it reads no other
//! clock, and no randomness, thread-local or environment.
//!
//! The manager relies on these rules:
//!
//! 1. [`Machine::this_cpu`] may be stale the moment it returns, except inside
//!    [`Machine::pinned`] and inside a lock's closure. Nothing breaks when it is stale: per-CPU
//!    state is guarded by a [`CpuLock`], so a stale id costs locality, never correctness.
//! 2. Closures run exactly once, on the calling CPU, before the call returns.
//! 3. A lock's release happens before the next acquisition of it.
//! 4. [`Word`] operations follow the C11 orderings passed to them.
//! 5. A deferred job runs once unless it is cancelled or replaced. The machine calls the handler
//!    that the embedder registered with it, on the CPU the job was deferred to.
//!
//! Nothing here requires `Send` or `Sync`: a machine with real threads makes its types `Send` and
//! `Sync`, and a simulated one has no need. `PageAllocator<Host>` is `Sync` because `Host`'s types
//! are.

use core::sync::atomic::Ordering;

use crate::event::Event;
use crate::site::{LockClass, Site, Work};
use crate::topology::Topology;
use crate::units::{CpuId, Hz, Jiffies, Nanos, Pages};

/// A machine to run on: CPUs, time, shared words, locks and deferred work.
pub trait Machine: Sized + 'static {
    /// A shared integer; see [`Word`].
    type Word: Word<Self>;
    /// A per-CPU integer; see [`LocalWord`].
    type LocalWord: LocalWord<Self>;
    /// A lock around a value; see [`Lock`].
    type Lock<T>: Lock<Self, T>;
    /// A lock that one CPU takes often and other CPUs seldom; see [`CpuLock`].
    type CpuLock<T>: CpuLock<Self, T>;
    /// One byte per page frame; see [`Tags`].
    type Tags: Tags;
    /// A few shared integers in one cache line; see [`Line`].
    type Line: Line<Self>;
    /// A value that is set once; see [`Once`].
    type Once<T>: Once<T>;
    /// A plain integer that may be read while it is written; see [`Field`].
    type Field: Field;
    /// A lock that readers share; see [`RwLock`].
    type RwLock<T>: RwLock<Self, T>;

    /// Every possible CPU, and which cores, caches, nodes and sockets they share.
    fn topology(&self) -> &Topology;

    /// The CPU the caller runs on (Linux: `raw_smp_processor_id`).
    fn this_cpu(&self) -> CpuId;

    /// Monotonic time of this CPU, in nanoseconds.
    fn now(&self) -> Nanos;

    /// Ticks per second, to convert between jiffies and nanoseconds.
    fn hz(&self) -> Hz;

    /// Makes a shared word that holds `value`.
    fn word(&self, value: i64) -> Self::Word;

    /// Makes a word that belongs to `cpu` and holds `value`.
    fn local_word(&self, cpu: CpuId, value: i64) -> Self::LocalWord;

    /// Makes a lock of `class`. Its memory is on the node of `home` if the machine can choose that.
    fn lock<T>(&self, class: LockClass, home: CpuId, value: T) -> Self::Lock<T>;

    /// Makes a lock of `class` that belongs to `cpu`.
    fn cpu_lock<T>(&self, class: LockClass, cpu: CpuId, value: T) -> Self::CpuLock<T>;

    /// Makes a lock of `class` that readers share. Its memory is on the node of `home` if the
    /// machine can choose that.
    fn rw_lock<T>(&self, class: LockClass, home: CpuId, value: T) -> Self::RwLock<T>;

    /// Makes one tag per page of a zone of `pages` pages. See [`Tags`] for the initial tags.
    fn tags(&self, pages: Pages) -> Self::Tags;

    /// Makes a line whose words are all zero.
    fn line(&self) -> Self::Line;

    /// Makes a [`Once`] without a value.
    fn once<T>(&self) -> Self::Once<T>;

    /// Makes a field that holds `value`.
    fn field(&self, value: u64) -> Self::Field;

    /// Accounts for `n` units of local work. On real CPUs it does nothing; on a simulated one it
    /// takes `n` times the price of `work`, and the CPU may be preempted here unless it is pinned.
    fn spend(&self, work: Work, n: u32);

    /// Runs `f` without migration to another CPU (Linux: `preempt_disable`).
    fn pinned<R>(&self, f: impl FnOnce() -> R) -> R;

    /// Defers `job` to `cpu`, to run when it is `due`. It replaces a pending job of the same kind
    /// on that CPU.
    fn defer(&self, cpu: CpuId, job: Job, due: Due, idle: WhenIdle);

    /// Cancels the pending `job` of `cpu`, if there is one. A running job finishes.
    fn cancel(&self, cpu: CpuId, job: Job);

    /// The state of `job` on `cpu`: pending, running or neither.
    fn job_state(&self, cpu: CpuId, job: Job) -> JobState;

    /// Passes `event` to observers. Must be cheap when there are none.
    fn emit(&self, event: Event);
}

/// A shared 64-bit integer, alone in its cache line.
///
/// In the simulator, every access except a `Relaxed` load is an order point: CPUs with earlier
/// clocks go first.
pub trait Word<M> {
    /// Returns the value.
    fn load(&self, machine: &M, order: Ordering) -> i64;
    /// Sets the value.
    fn store(&self, machine: &M, value: i64, order: Ordering);
    /// Adds `delta`, wrapping, and returns the new value.
    fn add(&self, machine: &M, delta: i64, order: Ordering) -> i64;
    /// Sets the value and returns the old one.
    fn swap(&self, machine: &M, value: i64, order: Ordering) -> i64;
    /// Sets the value to `new` if it is `old`, and returns the old value.
    ///
    /// # Errors
    /// Returns the present value if it is not `old`. Never fails spuriously.
    fn compare_exchange(
        &self,
        machine: &M,
        old: i64,
        new: i64,
        order: Ordering,
    ) -> Result<i64, i64>;
}

/// The number of integers in a [`Line`].
pub const LINE_WORDS: usize = 8;

/// [`LINE_WORDS`] shared 64-bit integers, alone together in one cache line.
///
/// For integers that are always accessed together. Each access is as in [`Word`], on the integer
/// with the index `word`. All methods panic if `word` is not below [`LINE_WORDS`].
pub trait Line<M> {
    /// Returns the value.
    fn load(&self, machine: &M, word: usize, order: Ordering) -> i64;
    /// Sets the value.
    fn store(&self, machine: &M, word: usize, value: i64, order: Ordering);
    /// Adds `delta`, wrapping, and returns the new value.
    fn add(&self, machine: &M, word: usize, delta: i64, order: Ordering) -> i64;
    /// Sets the value to `new` if it is `old`, and returns the old value.
    ///
    /// # Errors
    /// Returns the present value if it is not `old`. Never fails spuriously.
    fn compare_exchange(
        &self,
        machine: &M,
        word: usize,
        old: i64,
        new: i64,
        order: Ordering,
    ) -> Result<i64, i64>;
}

/// A value that is set once, and read without waiting from then on.
///
/// Setting the value happens before every [`Once::get`] that returns it.
pub trait Once<T>: Sized {
    /// Makes a value that is already set to `value`.
    fn of(value: T) -> Self;
    /// The value, or `None` if it was not set yet.
    fn get(&self) -> Option<&T>;
    /// Sets the value.
    ///
    /// # Errors
    /// Returns `value` if another CPU set it first.
    fn set(&self, value: T) -> Result<(), T>;
    /// Consumes this and returns the value, or `None` if it was never set.
    fn into_inner(self) -> Option<T>;
}

/// A 64-bit integer with one writer at a time, which other CPUs may read at the same time. Fields
/// make up records that are read without a lock and checked afterwards.
///
/// A read is an acquire and a write is a release, which cost nothing on x86 and little on arm64. So
/// a CPU that reads a new value also sees everything written before that value. An access is not an
/// order point in the simulator; the operations that use fields are priced as work.
pub trait Field {
    /// Returns the value.
    fn get(&self) -> u64;
    /// Sets the value.
    fn set(&self, value: u64);
}

/// An integer that one CPU changes and any CPU may read or take.
///
/// Every operation is atomic and relaxed, so it orders no other access. The integer may share its
/// cache line with other words of the same CPU.
pub trait LocalWord<M> {
    /// Adds `delta`, wrapping, and returns the new value.
    fn add(&self, machine: &M, delta: i64) -> i64;
    /// Sets the value.
    fn set(&self, machine: &M, value: i64);
    /// Sets the value to zero and returns the old one.
    fn take(&self, machine: &M) -> i64;
    /// Returns the value. May be called on another CPU.
    fn read(&self, machine: &M) -> i64;
}

/// A queued spinlock (or a mutex, where [`LockClass::sleeps`]) around a value.
///
/// Locks take closures instead of returning guards, so the value cannot leave the lock, and locks
/// are released in the reverse of the order in which they were taken.
pub trait Lock<M, T> {
    /// Waits for the lock, then runs `f` pinned.
    fn with<R>(&self, machine: &M, site: Site, f: impl FnOnce(&mut T) -> R) -> R;

    /// Runs `f` pinned if the lock is free. Returns `None` if it is not.
    fn try_with<R>(&self, machine: &M, site: Site, f: impl FnOnce(&mut T) -> R) -> Option<R>;
}

/// A sleeping lock around a value, for many readers or one writer at a time.
///
/// Admission is first come, first served (Linux: `rw_semaphore`): a reader that arrives while a
/// writer waits gets in after that writer, so writers do not starve. A holder must not take the
/// lock again, not even to read. A killable waiter calls `killed` when it begins to wait, at least
/// once a tick while it waits, and just before it gets in. If `killed` returns true, the waiter
/// gives up: the call returns `None` and drops its closure.
pub trait RwLock<M, T> {
    /// Waits for the writers that came before, then runs `f`, possibly at the same time as other
    /// readers.
    fn read<R>(&self, machine: &M, site: Site, f: impl FnOnce(&T) -> R) -> R;

    /// Runs `f` as a reader if no writer holds the lock and no CPU waits for it. Returns `None`
    /// otherwise.
    fn try_read<R>(&self, machine: &M, site: Site, f: impl FnOnce(&T) -> R) -> Option<R>;

    /// Runs `f` as [`RwLock::read`] does, but gives up with `None` once `killed` returns true.
    fn read_killable<R>(
        &self,
        machine: &M,
        site: Site,
        killed: impl Fn() -> bool,
        f: impl FnOnce(&T) -> R,
    ) -> Option<R>;

    /// Waits for all readers and writers that came before, then runs `f` exclusively.
    fn write<R>(&self, machine: &M, site: Site, f: impl FnOnce(&mut T) -> R) -> R;

    /// Runs `f` as [`RwLock::write`] does, but gives up with `None` once `killed` returns true.
    fn write_killable<R>(
        &self,
        machine: &M,
        site: Site,
        killed: impl Fn() -> bool,
        f: impl FnOnce(&mut T) -> R,
    ) -> Option<R>;

    /// Runs `first` as [`RwLock::write_killable`] does. If it returns `Some`, then runs `then` as a
    /// reader, with no writer in between (Linux: `mmap_write_downgrade`); a machine may also run
    /// `then` exclusively. If `first` returns `None`, releases the lock and returns `Some(None)`.
    /// Returns `None` if the waiter gave up because `killed` returned true.
    fn write_then_read<A, R>(
        &self,
        machine: &M,
        site: Site,
        killed: impl Fn() -> bool,
        first: impl FnOnce(&mut T) -> Option<A>,
        then: impl FnOnce(&T, A) -> R,
    ) -> Option<Option<R>>;

    /// Returns whether a writer waits, in which case a reader that has held the lock for long
    /// should release it (Linux: `rwsem_is_contended`).
    fn writer_waits(&self, machine: &M) -> bool;
}

/// A lock that belongs to one CPU. It is cheap for its owner; other CPUs wait for it.
///
/// An owner that may run in an interrupt must not wait, because the interrupt may have arrived
/// within its own critical section. It uses [`CpuLock::try_local`].
pub trait CpuLock<M, T> {
    /// Runs `f` pinned if the lock is free. Returns `None` if it is not. For the owner.
    fn try_local<R>(&self, machine: &M, site: Site, f: impl FnOnce(&mut T) -> R) -> Option<R>;

    /// Waits for the lock, then runs `f` pinned. For any CPU.
    fn with<R>(&self, machine: &M, site: Site, f: impl FnOnce(&mut T) -> R) -> R;
}

/// One byte per page frame that says what the page is, readable without a lock.
///
/// All operations are relaxed and affect one byte. The owner of a page writes its tag: the holder
/// of the zone lock while the page is free, the holder of the pcp lock while it is on a list, and
/// the caller that allocated it while it is allocated.
///
/// Fresh tags read as if every 1024th page were the first of a free block of the largest order:
/// [`Tags::FRESH_HEAD`] there and `0` elsewhere. So a machine need not store tags of blocks that
/// were never split.
pub trait Tags {
    /// The tag of the first page of each untouched block of 1024 pages.
    const FRESH_HEAD: u8 = 0x1a;

    /// Returns the tag of the zone's page number `page`.
    fn get(&self, page: u32) -> u8;
    /// Sets the tag of the zone's page number `page`.
    fn set(&self, page: u32, tag: u8);
    /// Sets the tag of the zone's page number `page` to `new`, in one atomic step, if it is `old`.
    ///
    /// # Errors
    /// The tag that the page has instead.
    fn replace(&self, page: u32, old: u8, new: u8) -> Result<(), u8>;
}

/// A kind of work that the manager defers to a CPU. A CPU has at most one pending job of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Job {
    /// The periodic work of one CPU: fold differentials and decay page lists (Linux:
    /// `vmstat_update`).
    VmstatUpdate,
    /// The shepherd: kick dormant CPUs (Linux: `vmstat_shepherd`). There is one for the whole
    /// machine.
    Shepherd,
}

impl Job {
    /// Every kind, in declaration order.
    pub const ALL: [Self; 2] = [Self::VmstatUpdate, Self::Shepherd];
}

/// The time at which a job is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Due {
    /// At once. An idle CPU is woken for it.
    Now,
    /// When the timer wheel fires a timer set this many jiffies ahead. That is late by one jiffy up
    /// to the wheel's granularity at that distance; see
    /// [`Wheel::fires_at`](crate::wheel::Wheel::fires_at).
    Wheel(Jiffies),
    /// At this time, by a high-resolution timer.
    At(Nanos),
}

/// The effect of a timer on an idle CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WhenIdle {
    /// The timer wakes an idle CPU.
    Wake,
    /// The job waits until something else wakes the CPU (Linux: a deferrable timer).
    Defer,
}

/// The state of a job on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobState {
    /// The job is neither deferred nor running.
    Dormant,
    /// The job waits until it is due, or until the CPU gets to it.
    Pending,
    /// The job runs.
    Running,
}
