//! The interface between the memory manager and the machine it runs on. To port the manager, start
//! here.
//!
//! A [`Machine`] is a cheap handle that is passed to every operation as `&M`. It knows the time and
//! the caller's CPU. It creates the few shared things that the manager uses (words, locks, page
//! tags), and it runs work that is deferred to a CPU. The manager has no other input: it uses no
//! other clock, and no randomness, thread-local storage or environment variables.
//!
//! The manager relies on the following rules:
//!
//! 1. The result of [`Machine::this_cpu`] may be stale as soon as it is returned, except inside
//!    [`Machine::pinned`] and inside a lock's closure. A stale id never breaks anything: per-CPU
//!    state is guarded by a [`CpuLock`], so a stale id only costs locality.
//! 2. Closures run exactly once, on the calling CPU, before the call returns.
//! 3. The release of a lock happens before (in the sense of C11) the next acquisition of that lock.
//! 4. [`Word`] operations follow the C11 orderings passed to them.
//! 5. A deferred job runs once unless it is cancelled or replaced. The machine calls the handler
//!    that the embedder registered with the machine, on the CPU that the job was deferred to.
//!
//! Nothing here requires `Send` or `Sync`. A machine with real threads makes its types `Send` and
//! `Sync`; a simulated machine need not. `PageAllocator<Host>` is `Sync` because `Host`'s types
//! are.

mod front;

use core::sync::atomic::Ordering;

pub use self::front::{Freed, Front};
use crate::event::Event;
use crate::site::{LockClass, Site, Work};
use crate::topology::Topology;
use crate::units::{CpuId, Hz, Jiffies, Nanos, Order, Pages};

/// A machine to run on. It provides CPUs, time, shared words, locks and deferred work.
pub trait Machine: Sized + 'static {
    /// A shared integer in a cache line of its own; see [`Word`].
    type Word: Word<Self>;
    /// A per-CPU integer; see [`LocalWord`].
    type LocalWord: LocalWord<Self>;
    /// A lock around a value; see [`Lock`].
    type Lock<T>: Lock<Self, T>;
    /// A lock that its own CPU takes often and other CPUs rarely; see [`CpuLock`].
    type CpuLock<T>: CpuLock<Self, T>;
    /// One byte per page frame; see [`Tags`].
    type Tags: Tags;
    /// Eight shared integers in one cache line; see [`Line`].
    type Line: Line<Self>;
    /// A value that is set once; see [`Once`].
    type Once<T>: Once<T>;
    /// A plain integer that may be read while it is being written; see [`Field`].
    type Field: Field;
    /// A lock that several readers may hold at once; see [`RwLock`].
    type RwLock<T>: RwLock<Self, T>;
    /// A stack of free pages in front of a CPU's page lists; see [`Front`]. A machine without such
    /// stacks uses [`NoFront`](crate::no_front::NoFront).
    type Front: Front<Self>;

    /// True if each load of a [`Word`] takes simulated time on this machine. The manager then takes
    /// no shortcuts: every allocation and every free loads the same words, so the time does not
    /// depend on a shortcut. If this is false, the manager may skip loads by reusing a result that
    /// it has computed from these words before.
    const PRICES_LOADS: bool = false;

    /// All possible CPUs, and the cores, caches, nodes and sockets that they share.
    fn topology(&self) -> &Topology;

    /// The CPU that the caller runs on (Linux: `raw_smp_processor_id`).
    fn this_cpu(&self) -> CpuId;

    /// Returns the result of [`Machine::this_cpu`], or `None` if the machine needs more than a few
    /// instructions to find out the CPU. If the result is `None`, an allocation or a free does not
    /// use its shortest path.
    #[inline]
    fn this_cpu_at_once(&self) -> Option<CpuId> {
        Some(self.this_cpu())
    }

    /// The monotonic time of this CPU's clock, in nanoseconds.
    fn now(&self) -> Nanos;

    /// The tick rate, which converts between jiffies and nanoseconds.
    fn hz(&self) -> Hz;

    /// Creates a shared word that holds `value`.
    fn word(&self, value: i64) -> Self::Word;

    /// Creates a word that belongs to `cpu` and holds `value`.
    fn local_word(&self, cpu: CpuId, value: i64) -> Self::LocalWord;

    /// Creates a lock of `class`. A machine that can choose the node of the lock's memory chooses
    /// the node of `home`.
    fn lock<T>(&self, class: LockClass, home: CpuId, value: T) -> Self::Lock<T>;

    /// Creates a lock of `class` that belongs to `cpu`.
    fn cpu_lock<T>(&self, class: LockClass, cpu: CpuId, value: T) -> Self::CpuLock<T>;

    /// Creates a reader-writer lock of `class`. A machine that can choose the node of the lock's
    /// memory chooses the node of `home`.
    fn rw_lock<T>(&self, class: LockClass, home: CpuId, value: T) -> Self::RwLock<T>;

    /// Tells the machine that element `i` of the array belongs to CPU `i`, which will use it most.
    /// A machine with several nodes may move the array's memory (Linux allocates such memory per
    /// node: `alloc_percpu`). By default nothing happens.
    fn settle<T>(&self, _of_cpus: &[T]) {}

    /// Creates the tags of a zone of `pages` pages: one byte for each page. See [`Tags`] for their
    /// initial values.
    fn tags(&self, pages: Pages) -> Self::Tags;

    /// Creates a cache line whose words are all zero.
    fn line(&self) -> Self::Line;

    /// Creates a [`Once`] that has no value yet.
    fn once<T>(&self) -> Self::Once<T>;

    /// Creates a field that holds `value`.
    fn field(&self, value: u64) -> Self::Field;

    /// Creates one empty [`Front`] for each CPU, for blocks of `order` of one zone. Each has the
    /// limit 0.
    fn make_fronts(&self, order: Order) -> impl Iterator<Item = Self::Front>;

    /// Accounts for `n` units of local work. On a real CPU this does nothing. On a simulated one,
    /// `n` units of `work` take time. Except inside [`Machine::pinned`], the CPU may be preempted.
    fn spend(&self, work: Work, n: u32);

    /// Runs `f` without migrating to another CPU (Linux: `preempt_disable`).
    fn pinned<R>(&self, f: impl FnOnce() -> R) -> R;

    /// Schedules `job` on `cpu`, where it runs when it is `due`. Replaces a pending job of the same
    /// kind on that CPU.
    fn defer(&self, cpu: CpuId, job: Job, due: Due, idle: WhenIdle);

    /// Cancels the pending `job` of `cpu`, if there is one. A job that is already running finishes.
    fn cancel(&self, cpu: CpuId, job: Job);

    /// The state of `job` on `cpu`: pending, running, or neither.
    fn job_state(&self, cpu: CpuId, job: Job) -> JobState;

    /// Passes `event` to the observers. This call must be cheap if there are no observers.
    fn emit(&self, event: Event);
}

/// A shared 64-bit integer, alone in its cache line.
///
/// In the simulator, every access except a `Relaxed` load is an order point: before the access, the
/// simulator runs the CPUs whose clocks are earlier.
pub trait Word<M> {
    /// Returns the current value.
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
    /// Returns the current value if it is not `old`. Never fails spuriously.
    fn compare_exchange(
        &self,
        machine: &M,
        old: i64,
        new: i64,
        order: Ordering,
    ) -> Result<i64, i64>;
}

/// The number of integers in a cache line of type [`Line`].
pub const LINE_WORDS: usize = 8;

/// [`LINE_WORDS`] shared 64-bit integers, which fill a cache line of their own.
///
/// A line is for integers that are always accessed together. Each method does to the integer with
/// the index `word` what the method of the same name does to a [`Word`]. All methods panic if
/// `word` is not less than [`LINE_WORDS`].
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
    /// Returns the current value if it is not `old`. Never fails spuriously.
    fn compare_exchange(
        &self,
        machine: &M,
        word: usize,
        old: i64,
        new: i64,
        order: Ordering,
    ) -> Result<i64, i64>;
}

/// A value that is set once and can then be read without waiting.
///
/// Setting the value happens before every [`Once::get`] that returns the value.
pub trait Once<T>: Sized {
    /// Creates a `Once` that is already set to `value`.
    fn of(value: T) -> Self;
    /// The value, or `None` if it has not been set yet.
    fn get(&self) -> Option<&T>;
    /// Sets the value.
    ///
    /// # Errors
    /// Returns `value` if the `Once` already has a value.
    fn set(&self, value: T) -> Result<(), T>;
    /// Consumes the `Once` and returns the value, or `None` if it was never set.
    fn into_inner(self) -> Option<T>;
}

/// A 64-bit integer with one writer at a time, which other CPUs may read concurrently. Fields make
/// up records that are read without a lock and validated afterwards.
///
/// A read has Acquire ordering, and a write has Release ordering. This costs nothing on x86 and
/// little on arm64. So a CPU that reads a new value also sees everything that was written before
/// that value. In the simulator, an access takes no time and waits for no other CPU; the operations
/// that use fields take time as [`Work`] instead.
pub trait Field {
    /// Returns the value.
    fn get(&self) -> u64;
    /// Sets the value.
    fn set(&self, value: u64);
}

/// An integer that one CPU changes, and that any CPU may read or reset to zero.
///
/// Every operation is atomic and relaxed, so it orders no other access. The integer may share its
/// cache line with other words of the same CPU.
pub trait LocalWord<M> {
    /// Adds `delta`, wrapping, and returns the new value.
    fn add(&self, machine: &M, delta: i64) -> i64;
    /// Adds `delta`, wrapping, to a word of `cpu`, and returns the new value. Returns `None`,
    /// without having done anything, if the machine cannot make sure that the caller is on `cpu`.
    /// Until the call returns, no CPU may call any other function of the word except
    /// [`LocalWord::read`]. So the machine need not use an instruction that excludes other CPUs.
    #[inline]
    fn add_here(&self, machine: &M, _cpu: CpuId, delta: i64) -> Option<i64> {
        Some(self.add(machine, delta))
    }
    /// Returns whether [`LocalWord::add_here`] may succeed now for a word of `cpu`, after it has
    /// returned `None`. If threads that the machine takes for `cpu` run on several real CPUs, only
    /// those on one of them may add to the word. Many calls of this function by threads on another
    /// one make that one the real CPU whose threads may add.
    #[inline]
    fn admits(&self, _machine: &M, _cpu: CpuId) -> bool {
        false
    }
    /// Sets the value.
    fn set(&self, machine: &M, value: i64);
    /// Sets the value to zero and returns the old one.
    fn take(&self, machine: &M) -> i64;
    /// Returns the value. Any CPU may call this.
    fn read(&self, machine: &M) -> i64;
}

/// A lock around a value: a mutex if its class [sleeps](LockClass::sleeps), else a queued spinlock.
///
/// Locks take closures instead of returning guards. So the value cannot leave the lock, and locks
/// are released in the reverse of the order in which they were taken.
pub trait Lock<M, T> {
    /// Waits for the lock, then runs `f` without migrating to another CPU.
    fn with<R>(&self, machine: &M, site: Site, f: impl FnOnce(&mut T) -> R) -> R;

    /// If the lock is free, runs `f` without migrating to another CPU. Otherwise returns `None`.
    fn try_with<R>(&self, machine: &M, site: Site, f: impl FnOnce(&mut T) -> R) -> Option<R>;
}

/// A sleeping lock around a value, held by many readers or one writer at a time.
///
/// Admission is first come, first served (Linux: `rw_semaphore`). A reader that arrives while a
/// writer is waiting is admitted after that writer, so writers do not starve. A holder must not
/// take the lock again, not even to read.
///
/// A waiter in [`RwLock::read_killable`] or another killable function calls `killed` when it begins
/// to wait, at least once per tick while it waits, and just before it is admitted. If `killed`
/// returns true, the waiter gives up: the call returns `None` and drops its closure.
pub trait RwLock<M, T> {
    /// Waits for the writers that arrived earlier, then runs `f`, possibly at the same time as
    /// other readers.
    fn read<R>(&self, machine: &M, site: Site, f: impl FnOnce(&T) -> R) -> R;

    /// Runs `f` as a reader if no writer holds the lock and no CPU is waiting for it. Otherwise
    /// returns `None`.
    fn try_read<R>(&self, machine: &M, site: Site, f: impl FnOnce(&T) -> R) -> Option<R>;

    /// Runs `f` as [`RwLock::read`] does, but gives up and returns `None` if `killed` returns true.
    fn read_killable<R>(
        &self,
        machine: &M,
        site: Site,
        killed: impl Fn() -> bool,
        f: impl FnOnce(&T) -> R,
    ) -> Option<R>;

    /// Waits for all readers and writers that arrived earlier, then runs `f` exclusively.
    fn write<R>(&self, machine: &M, site: Site, f: impl FnOnce(&mut T) -> R) -> R;

    /// Runs `f` as [`RwLock::write`] does, but gives up and returns `None` if `killed` returns
    /// true.
    fn write_killable<R>(
        &self,
        machine: &M,
        site: Site,
        killed: impl Fn() -> bool,
        f: impl FnOnce(&mut T) -> R,
    ) -> Option<R>;

    /// Runs `first` as [`RwLock::write_killable`] does.
    ///
    /// - If `first` returns `Some`, this function runs `then` as a reader, and no writer gets the
    ///   lock in between (Linux: `mmap_write_downgrade`). A machine is allowed to run `then`
    ///   exclusively.
    /// - If `first` returns `None`, this function releases the lock and returns `Some(None)`.
    /// - If the waiter gave up because `killed` returned true, this function returns `None`.
    fn write_then_read<A, R>(
        &self,
        machine: &M,
        site: Site,
        killed: impl Fn() -> bool,
        first: impl FnOnce(&mut T) -> Option<A>,
        then: impl FnOnce(&T, A) -> R,
    ) -> Option<Option<R>>;

    /// Returns whether a writer is waiting. If so, a reader that has held the lock for a long time
    /// should release it (Linux: `rwsem_is_contended`).
    fn writer_waits(&self, machine: &M) -> bool;
}

/// A lock that belongs to one CPU. That CPU can take the lock cheaply; other CPUs may have to wait
/// for it.
///
/// Code that may run in an interrupt must not wait for its own CPU's lock, but use
/// [`CpuLock::try_local`]: the interrupt may have arrived inside a critical section of this lock.
pub trait CpuLock<M, T> {
    /// If the lock is free, runs `f` without migrating to another CPU. Otherwise returns `None`.
    /// Only the owner may call this.
    fn try_local<R>(&self, machine: &M, site: Site, f: impl FnOnce(&mut T) -> R) -> Option<R>;

    /// Like [`CpuLock::try_local`], but may give up if taking the lock needs many instructions. If
    /// the result is `None`, the caller tries again with [`CpuLock::try_local`].
    #[inline]
    fn try_quick<R>(&self, machine: &M, site: Site, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.try_local(machine, site, f)
    }

    /// Waits for the lock, then runs `f` without migrating to another CPU. Any CPU may call this.
    fn with<R>(&self, machine: &M, site: Site, f: impl FnOnce(&mut T) -> R) -> R;
}

/// One byte for each page frame. It holds the state of the page, and is read without a lock.
///
/// All operations are relaxed and affect one byte. Only the page's current owner writes the page's
/// tag. The owner of a free page is the holder of the zone lock. The owner of a page on a CPU's
/// page list is the holder of that list's pcp lock. The owner of an allocated page is the caller
/// that allocated it.
///
/// Fresh tags read as if every 1024th page were the first page of a free block of the largest
/// order: [`Tags::FRESH_HEAD`] for those pages and `0` for all others. So a machine need not store
/// tags for blocks that have never been split.
pub trait Tags {
    /// A block of 1024 pages that was never split has this tag on its first page.
    const FRESH_HEAD: u8 = 0x1a;

    /// Returns the tag of the page with the index `page` in the zone.
    fn get(&self, page: u32) -> u8;
    /// Sets the tag of the page with the index `page` in the zone.
    fn set(&self, page: u32, tag: u8);
    /// Sets the tag of the page with the index `page` to `new` if it is `old`, in one atomic step.
    ///
    /// # Errors
    /// The page's current tag, if it is not `old`.
    fn replace(&self, page: u32, old: u8, new: u8) -> Result<(), u8>;
    /// Sets the tags of pages from the index `first` on to `new`, as [`Tags::replace`] does: at most
    /// `len` tags, and only as long as they are `old`. May end early. Returns the number of tags that
    /// it has changed. Several tags may change in one atomic step.
    fn replace_while(&self, first: u32, len: u32, old: u8, new: u8) -> u32 {
        let replaced = |page: &u32| self.replace(*page, old, new).is_ok();
        let pages = (first..first + len).take_while(replaced).count();
        u32::try_from(pages).unwrap_or(len)
    }
    /// Sets the tags of the `len` pages from the index `first` on to `new`, if all of them are
    /// `old`. Returns whether it did so; otherwise, nothing has changed. The loads and stores of the
    /// tags are no atomic step, so the caller holds a lock that keeps other CPUs from doing the same.
    fn replace_run(&self, first: u32, len: u32, old: u8, new: u8) -> bool {
        let pages = first..first + len;
        let all_old = pages.clone().all(|page| self.get(page) == old);
        if all_old {
            pages.for_each(|page| self.set(page, new));
        }
        all_old
    }
}

/// A kind of work that the manager schedules on a CPU. A CPU has at most one pending job of each
/// kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Job {
    /// The periodic work of one CPU: fold differentials and decay page lists (Linux:
    /// `vmstat_update`).
    VmstatUpdate,
    /// The shepherd, which restarts the vmstat work of CPUs that have stopped it (Linux:
    /// `vmstat_shepherd`). There is one shepherd for the whole machine.
    Shepherd,
}

impl Job {
    /// All kinds of jobs, in declaration order.
    pub const ALL: [Self; 2] = [Self::VmstatUpdate, Self::Shepherd];
}

/// The time at which a job must run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Due {
    /// The job is due immediately. An idle CPU is woken for the job.
    Now,
    /// The job is due when the timer wheel fires a timer that is set ahead by this number of
    /// jiffies. The wheel fires the timer late: by at least one jiffy, and at most by the wheel's
    /// granularity at that distance. See [`Wheel::fires_at`](crate::wheel::Wheel::fires_at).
    Wheel(Jiffies),
    /// The job is due at this time, at which a high-resolution timer fires.
    At(Nanos),
}

/// Whether a timer wakes a CPU that is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WhenIdle {
    /// The timer wakes the idle CPU.
    Wake,
    /// The job waits until something else wakes the CPU (Linux: a deferrable timer).
    Defer,
}

/// The state of a job on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobState {
    /// The job is neither scheduled nor running.
    Dormant,
    /// The job is waiting until it is due, or until the CPU can run it.
    Pending,
    /// The job is running.
    Running,
}
