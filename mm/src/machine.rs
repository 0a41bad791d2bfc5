//! What the memory manager needs from a machine. Read this file to port it.
//!
//! A [`Machine`] is a handle: cheap to borrow, passed to every operation as `&M`. It knows the
//! CPU the caller runs on, the time, and how to make the few shared things the manager uses:
//! words, locks, page tags, and work deferred to a CPU. There is no other input: no clock,
//! randomness, thread-local or environment is read anywhere else.
//!
//! What the manager relies on:
//!
//! 1. [`Machine::this_cpu`] may be stale the moment it returns, except inside
//!    [`Machine::pinned`] and inside a lock's closure. Nothing breaks when it is stale: per-CPU
//!    state is guarded by a [`CpuLock`], so a stale id costs locality, never correctness.
//! 2. Closures run exactly once, on the calling CPU, before the call returns.
//! 3. A lock's release happens before the next acquisition of it.
//! 4. [`Word`] operations follow the C11 orderings passed to them.
//! 5. A job that was deferred runs once unless it is cancelled or replaced; the machine calls
//!    whatever handler the embedder registered with it, on the CPU the job was deferred to.
//!
//! Nothing here requires `Send` or `Sync`: a machine with real threads makes its types so, a
//! simulated one has no need. `PageAllocator<Host>` is `Sync` because `Host`'s types are.

use core::sync::atomic::Ordering;

use crate::event::Event;
use crate::site::{LockClass, Site, Work};
use crate::topology::Topology;
use crate::units::{CpuId, Hz, Jiffies, Nanos, Pages};

/// CPUs, time, shared words, locks and deferred work.
pub trait Machine: Sized + 'static {
    /// A shared integer; see [`Word`].
    type Word: Word<Self>;
    /// A per-CPU integer; see [`LocalWord`].
    type LocalWord: LocalWord<Self>;
    /// A lock around a value; see [`Lock`].
    type Lock<T>: Lock<Self, T>;
    /// A lock that one CPU takes often and others seldom; see [`CpuLock`].
    type CpuLock<T>: CpuLock<Self, T>;
    /// One byte per page frame; see [`Tags`].
    type Tags: Tags;
    /// A few shared integers in one cache line; see [`Line`].
    type Line: Line<Self>;
    /// A value that is set once; see [`Once`].
    type Once<T>: Once<T>;
    /// A plain integer that may be read while it is written; see [`Field`].
    type Field: Field;
    /// A lock that many may share to read; see [`RwLock`].
    type RwLock<T>: RwLock<Self, T>;

    /// Every possible CPU and what they share.
    fn topology(&self) -> &Topology;

    /// The CPU the caller runs on (Linux: `raw_smp_processor_id`).
    fn this_cpu(&self) -> CpuId;

    /// Monotonic time of this CPU, in nanoseconds.
    fn now(&self) -> Nanos;

    /// Ticks per second, for what is reckoned in jiffies.
    fn hz(&self) -> Hz;

    /// Makes a shared word.
    fn word(&self, value: i64) -> Self::Word;

    /// Makes a word of `cpu`.
    fn local_word(&self, cpu: CpuId, value: i64) -> Self::LocalWord;

    /// Makes a lock of `class` whose memory is on the node of `home`, if the machine has a say.
    fn lock<T>(&self, class: LockClass, home: CpuId, value: T) -> Self::Lock<T>;

    /// Makes a lock of `class` that belongs to `cpu`.
    fn cpu_lock<T>(&self, class: LockClass, cpu: CpuId, value: T) -> Self::CpuLock<T>;

    /// Makes a lock of `class` that readers share.
    fn rw_lock<T>(&self, class: LockClass, home: CpuId, value: T) -> Self::RwLock<T>;

    /// Makes one tag per page of a zone. See [`Tags`] for what they start as.
    fn tags(&self, pages: Pages) -> Self::Tags;

    /// Makes a line of zeros.
    fn line(&self) -> Self::Line;

    /// Makes a place for a value.
    fn once<T>(&self) -> Self::Once<T>;

    /// Makes a field.
    fn field(&self, value: u64) -> Self::Field;

    /// Local work that takes time on a real machine: nothing here on real CPUs, `n` times its
    /// price on a simulated one. Also where a simulated CPU may be preempted when not pinned.
    fn spend(&self, work: Work, n: u32);

    /// Runs `f` without migration to another CPU (Linux: `preempt_disable`).
    fn pinned<R>(&self, f: impl FnOnce() -> R) -> R;

    /// Runs `job` on `cpu` once `due` has come, replacing a pending one of the same kind.
    fn defer(&self, cpu: CpuId, job: Job, due: Due, idle: WhenIdle);

    /// Forgets the pending `job` of `cpu`, if any. A running one finishes.
    fn cancel(&self, cpu: CpuId, job: Job);

    /// Whether `job` of `cpu` waits, runs, or neither.
    fn job_state(&self, cpu: CpuId, job: Job) -> JobState;

    /// Tells observers. Must be cheap when there are none.
    fn emit(&self, event: Event);
}

/// A shared 64-bit integer, alone in its cache line.
///
/// In the simulator every access but a `Relaxed` load is a point where CPUs are put in order.
pub trait Word<M> {
    /// Reads.
    fn load(&self, machine: &M, order: Ordering) -> i64;
    /// Writes.
    fn store(&self, machine: &M, value: i64, order: Ordering);
    /// Adds, returning the new value. Wraps.
    fn add(&self, machine: &M, delta: i64, order: Ordering) -> i64;
    /// Writes, returning the old value.
    fn swap(&self, machine: &M, value: i64, order: Ordering) -> i64;
    /// Writes `new` if it holds `old`.
    ///
    /// # Errors
    /// The value it holds instead. No spurious failure.
    fn compare_exchange(
        &self,
        machine: &M,
        old: i64,
        new: i64,
        order: Ordering,
    ) -> Result<i64, i64>;
}

/// Integers of a [`Line`].
pub const LINE_WORDS: usize = 8;

/// [`LINE_WORDS`] shared 64-bit integers, alone together in one cache line.
///
/// For what is always touched together; otherwise as [`Word`], which see. All panic when `word`
/// is not below [`LINE_WORDS`].
pub trait Line<M> {
    /// Reads.
    fn load(&self, machine: &M, word: usize, order: Ordering) -> i64;
    /// Writes.
    fn store(&self, machine: &M, word: usize, value: i64, order: Ordering);
    /// Adds, returning the new value. Wraps.
    fn add(&self, machine: &M, word: usize, delta: i64, order: Ordering) -> i64;
    /// Writes `new` if it holds `old`.
    ///
    /// # Errors
    /// The value it holds instead. No spurious failure.
    fn compare_exchange(
        &self,
        machine: &M,
        word: usize,
        old: i64,
        new: i64,
        order: Ordering,
    ) -> Result<i64, i64>;
}

/// A value that is set once and from then on read without waiting.
///
/// Setting it happens before every [`Once::get`] that finds it.
pub trait Once<T>: Sized {
    /// One that is set already.
    fn of(value: T) -> Self;
    /// The value, if it was set.
    fn get(&self) -> Option<&T>;
    /// Sets it.
    ///
    /// # Errors
    /// `value` itself, if somebody else set it first.
    fn set(&self, value: T) -> Result<(), T>;
    /// The value, if it was set, when nobody else can look any more.
    fn into_inner(self) -> Option<T>;
}

/// A 64-bit integer with one writer at a time, which others may read meanwhile: what records are
/// made of that are read without a lock and checked afterwards.
///
/// A read is an acquire and a write is a release, which cost nothing on x86 and little on arm64: so
/// whoever reads something new reads what was written before it. Not an order point in the
/// simulator; what fields are part of is priced as work.
pub trait Field {
    /// Reads.
    fn get(&self) -> u64;
    /// Writes.
    fn set(&self, value: u64);
}

/// An integer that one CPU changes and any CPU may read or take.
///
/// Every operation is atomic and relaxed: nothing else is ordered by it. It may share its cache
/// line with other words of the same CPU.
pub trait LocalWord<M> {
    /// Adds, returning the new value. Wraps.
    fn add(&self, machine: &M, delta: i64) -> i64;
    /// Writes.
    fn set(&self, machine: &M, value: i64);
    /// Writes zero, returning the old value.
    fn take(&self, machine: &M) -> i64;
    /// Reads, possibly from another CPU.
    fn read(&self, machine: &M) -> i64;
}

/// A queued spinlock (or a mutex, where [`LockClass::sleeps`]) around a value.
///
/// Closures, not guards: the value cannot leak, and release order is forced.
pub trait Lock<M, T> {
    /// Waits for the lock, then runs `f` pinned.
    fn with<R>(&self, machine: &M, site: Site, f: impl FnOnce(&mut T) -> R) -> R;

    /// Runs `f` pinned if nobody holds the lock, or `None`.
    fn try_with<R>(&self, machine: &M, site: Site, f: impl FnOnce(&mut T) -> R) -> Option<R>;
}

/// A sleeping lock around a value that many may read at once, or one may change.
///
/// First come, first served (Linux: `rw_semaphore`): a reader that arrives while a writer waits
/// gets in after it, so writers do not starve. Not to be taken again by who holds it, not even to
/// read. A waiter that may be killed looks whether it was when it begins to wait, at least once a
/// tick while it waits, and before it gets in; then it gives up with `None` and its closure is
/// dropped.
pub trait RwLock<M, T> {
    /// Waits for the writers that came before, then runs `f` together with other readers.
    fn read<R>(&self, machine: &M, site: Site, f: impl FnOnce(&T) -> R) -> R;

    /// Runs `f` together with other readers if nobody writes or waits, or `None`.
    fn try_read<R>(&self, machine: &M, site: Site, f: impl FnOnce(&T) -> R) -> Option<R>;

    /// As [`RwLock::read`], but gives up once `killed`.
    fn read_killable<R>(
        &self,
        machine: &M,
        site: Site,
        killed: impl Fn() -> bool,
        f: impl FnOnce(&T) -> R,
    ) -> Option<R>;

    /// Waits for everybody that came before, then runs `f` alone.
    fn write<R>(&self, machine: &M, site: Site, f: impl FnOnce(&mut T) -> R) -> R;

    /// As [`RwLock::write`], but gives up once `killed`.
    fn write_killable<R>(
        &self,
        machine: &M,
        site: Site,
        killed: impl Fn() -> bool,
        f: impl FnOnce(&mut T) -> R,
    ) -> Option<R>;

    /// As [`RwLock::write_killable`] for `first`; then, if that returns `Some`, runs `then` as a
    /// reader, with no writer in between (Linux: `mmap_write_downgrade`). A machine may run `then`
    /// alone. Otherwise the lock is released and `None` returned in the inner option.
    fn write_then_read<A, R>(
        &self,
        machine: &M,
        site: Site,
        killed: impl Fn() -> bool,
        first: impl FnOnce(&mut T) -> Option<A>,
        then: impl FnOnce(&T, A) -> R,
    ) -> Option<Option<R>>;

    /// Whether a writer waits, so that readers who have been in for long should leave (Linux:
    /// `rwsem_is_contended`).
    fn writer_waits(&self, machine: &M) -> bool;
}

/// A lock that belongs to one CPU: cheap for it, blocking for others.
///
/// The owner never waits: it may be in an interrupt of its own critical section.
pub trait CpuLock<M, T> {
    /// Runs `f` pinned if nobody holds the lock, or `None`. For the owner.
    fn try_local<R>(&self, machine: &M, site: Site, f: impl FnOnce(&mut T) -> R) -> Option<R>;

    /// Waits for the lock, then runs `f` pinned. For any CPU.
    fn with<R>(&self, machine: &M, site: Site, f: impl FnOnce(&mut T) -> R) -> R;
}

/// One byte per page frame: what the page is, readable without a lock.
///
/// All operations are relaxed and per byte. A page's tag is written by whoever owns the page: the
/// holder of the zone lock while it is free, the holder of the pcp lock while it is on a list,
/// the caller while it is allocated.
///
/// Fresh tags read as if every 1024th page headed a free block of the largest order: `head` there
/// and `0` elsewhere, where `head` is [`Tags::FRESH_HEAD`]. So a machine need not store tags of
/// blocks that were never split.
pub trait Tags {
    /// What the first page of each untouched 1024-page block reads as.
    const FRESH_HEAD: u8 = 0x1a;

    /// Reads the tag of the zone's `page`-th page.
    fn get(&self, page: u32) -> u8;
    /// Writes it.
    fn set(&self, page: u32, tag: u8);
    /// Writes `new` if it is `old`.
    ///
    /// # Errors
    /// The tag it has instead.
    fn replace(&self, page: u32, old: u8, new: u8) -> Result<(), u8>;
}

/// Work the manager defers to a CPU. One of each kind per CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Job {
    /// Fold differentials, decay page lists (Linux: `vmstat_update`).
    VmstatUpdate,
    /// Wake the dormant (Linux: `vmstat_shepherd`); one for the whole machine.
    Shepherd,
}

impl Job {
    /// Every kind, in declaration order.
    pub const ALL: [Self; 2] = [Self::VmstatUpdate, Self::Shepherd];
}

/// When a job is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Due {
    /// At once; an idle CPU is woken for it.
    Now,
    /// When this many jiffies have passed, by the timer wheel: one jiffy later or up to its
    /// granularity, as [`Wheel::fires_at`](crate::wheel::Wheel::fires_at) says.
    Wheel(Jiffies),
    /// At this point of the clock, by a high-resolution timer.
    At(Nanos),
}

/// Whether a timer wakes an idle CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WhenIdle {
    /// It does.
    Wake,
    /// It waits until something else wakes the CPU (Linux: deferrable).
    Defer,
}

/// What a job of a CPU is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobState {
    /// Neither queued nor running.
    Dormant,
    /// Waiting for its time or its turn.
    Pending,
    /// Running.
    Running,
}
