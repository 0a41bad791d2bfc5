//! The simplest machine: one thread that sets the CPU it runs on, a clock that the test advances,
//! and locks that tell the watched heap when they are held.

use std::sync::atomic::Ordering::{self, Relaxed};
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, RwLock as StdRwLock};

use plimsoll_mm::event::Event;
use plimsoll_mm::machine::{
    CpuLock, Due, Field, Job, JobState, LINE_WORDS, Line, LocalWord, Lock, Machine, Once, RwLock,
    Tags, WhenIdle, Word,
};
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Hz, Nanos, Order, Pages};

use super::front::{Depot, Stack};
use super::heap;
use super::watch::Watch;

/// The simplest machine: one thread, on the CPU that the test sets.
pub(crate) struct Plain {
    topology: Topology,
    cpu: AtomicU32,
    now: AtomicU64,
    /// The deferred jobs of each CPU, a bit for each kind of job.
    deferred: Box<[AtomicU8]>,
    /// The depot, through which the fronts (the CPUs' stacks of free pages) pass pages on; `None`
    /// if the machine has no fronts.
    depot: Option<Arc<Depot>>,
    /// The record of locks and events; `None` if the test needs none.
    watch: Option<Arc<Watch>>,
}

impl Plain {
    pub(crate) fn new(topology: Topology) -> Self {
        let deferred = topology.ids().map(|_| AtomicU8::new(0)).collect();
        Self {
            topology,
            cpu: AtomicU32::new(0),
            now: AtomicU64::new(0),
            deferred,
            depot: None,
            watch: None,
        }
    }

    /// Makes the machine record in `watch` the locks that are taken and the events.
    pub(crate) fn watched(self, watch: &Arc<Watch>) -> Self {
        Self {
            watch: Some(Arc::clone(watch)),
            ..self
        }
    }

    /// Creates a machine whose CPUs have fronts (stacks of free pages) that share `depot`.
    pub(crate) fn with_fronts(topology: Topology, depot: &Arc<Depot>) -> Self {
        Self {
            depot: Some(Arc::clone(depot)),
            ..Self::new(topology)
        }
    }

    /// Makes the thread run on `cpu` from now on, modulo the number of CPUs.
    pub(crate) fn on(&self, cpu: u32) {
        self.cpu.store(cpu % self.topology.cpus(), Relaxed);
    }

    pub(crate) fn pass(&self, time: Nanos) {
        self.now.fetch_add(time.0, Relaxed);
    }

    /// Removes some deferred job from its CPU, and returns the job and the CPU.
    pub(crate) fn take_job(&self) -> Option<(CpuId, Job)> {
        self.topology.ids().find_map(|cpu| {
            let of = |job: &Job| {
                let bit = 1 << *job as u8;
                self.deferred[cpu.index()].fetch_and(!bit, Relaxed) & bit != 0
            };
            Job::ALL.into_iter().find(of).map(|job| (cpu, job))
        })
    }
}

impl Machine for Plain {
    type Word = Atom;
    type LocalWord = Atom;
    type Lock<T> = Locked<T>;
    type CpuLock<T> = Locked<T>;
    type Tags = Bytes;
    type Line = Atoms;
    type Once<T> = OnceLocked<T>;
    type Field = Unsigned;
    type RwLock<T> = Shared<T>;
    type Front = Stack;

    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn this_cpu(&self) -> CpuId {
        CpuId(self.cpu.load(Relaxed))
    }

    fn now(&self) -> Nanos {
        Nanos(self.now.load(Relaxed))
    }

    fn hz(&self) -> Hz {
        Hz::new(1000).expect("1000 is a frequency")
    }

    fn word(&self, value: i64) -> Atom {
        Atom(AtomicI64::new(value))
    }

    fn local_word(&self, _cpu: CpuId, value: i64) -> Atom {
        Atom(AtomicI64::new(value))
    }

    fn lock<T>(&self, class: LockClass, _home: CpuId, value: T) -> Locked<T> {
        Locked(class, Mutex::new(value))
    }

    fn cpu_lock<T>(&self, class: LockClass, _cpu: CpuId, value: T) -> Locked<T> {
        Locked(class, Mutex::new(value))
    }

    fn rw_lock<T>(&self, class: LockClass, _home: CpuId, value: T) -> Shared<T> {
        Shared(class, StdRwLock::new(value))
    }

    fn tags(&self, pages: Pages) -> Bytes {
        let head = |page: u32| page.is_multiple_of(Order::MAX.pages().0);
        let tag = |page| if head(page) { Bytes::FRESH_HEAD } else { 0 };
        Bytes((0..pages.0).map(|page| AtomicU8::new(tag(page))).collect())
    }

    fn line(&self) -> Atoms {
        Atoms([const { AtomicI64::new(0) }; LINE_WORDS])
    }

    fn once<T>(&self) -> OnceLocked<T> {
        OnceLocked(OnceLock::new())
    }

    fn field(&self, value: u64) -> Unsigned {
        Unsigned(AtomicU64::new(value))
    }

    fn make_fronts(&self, order: Order) -> impl Iterator<Item = Stack> {
        (0..).map(move |cpu| Stack::new(CpuId(cpu), order, self.depot.clone()))
    }

    fn spend(&self, _work: Work, _n: u32) {}

    fn pinned<R>(&self, f: impl FnOnce() -> R) -> R {
        f()
    }

    fn defer(&self, cpu: CpuId, job: Job, _due: Due, _idle: WhenIdle) {
        self.deferred[cpu.index()].fetch_or(1 << job as u8, Relaxed);
    }

    fn cancel(&self, cpu: CpuId, job: Job) {
        self.deferred[cpu.index()].fetch_and(!(1 << job as u8), Relaxed);
    }

    fn job_state(&self, cpu: CpuId, job: Job) -> JobState {
        if self.deferred[cpu.index()].load(Relaxed) & 1 << job as u8 == 0 {
            JobState::Dormant
        } else {
            JobState::Pending
        }
    }

    fn emit(&self, event: Event) {
        if let Some(watch) = &self.watch {
            watch.heard(event);
        }
    }
}

/// A word of the machine, shared by all CPUs or used by one.
pub(crate) struct Atom(AtomicI64);

impl Word<Plain> for Atom {
    fn load(&self, _: &Plain, order: Ordering) -> i64 {
        self.0.load(order)
    }

    fn store(&self, _: &Plain, value: i64, order: Ordering) {
        self.0.store(value, order);
    }

    fn add(&self, _: &Plain, delta: i64, order: Ordering) -> i64 {
        self.0.fetch_add(delta, order).wrapping_add(delta)
    }

    fn swap(&self, _: &Plain, value: i64, order: Ordering) -> i64 {
        self.0.swap(value, order)
    }

    fn compare_exchange(&self, _: &Plain, old: i64, new: i64, order: Ordering) -> Result<i64, i64> {
        self.0.compare_exchange(old, new, order, Relaxed)
    }
}

impl LocalWord<Plain> for Atom {
    fn add(&self, _: &Plain, delta: i64) -> i64 {
        self.0.fetch_add(delta, Relaxed).wrapping_add(delta)
    }

    fn set(&self, _: &Plain, value: i64) {
        self.0.store(value, Relaxed);
    }

    fn take(&self, _: &Plain) -> i64 {
        self.0.swap(0, Relaxed)
    }

    fn read(&self, _: &Plain) -> i64 {
        self.0.load(Relaxed)
    }
}

/// The words of one cache line.
pub(crate) struct Atoms([AtomicI64; LINE_WORDS]);

impl Line<Plain> for Atoms {
    fn load(&self, _: &Plain, word: usize, order: Ordering) -> i64 {
        self.0[word].load(order)
    }

    fn store(&self, _: &Plain, word: usize, value: i64, order: Ordering) {
        self.0[word].store(value, order);
    }

    fn add(&self, _: &Plain, word: usize, delta: i64, order: Ordering) -> i64 {
        self.0[word].fetch_add(delta, order).wrapping_add(delta)
    }

    fn compare_exchange(
        &self,
        _: &Plain,
        word: usize,
        old: i64,
        new: i64,
        order: Ordering,
    ) -> Result<i64, i64> {
        self.0[word].compare_exchange(old, new, order, Relaxed)
    }
}

/// An unsigned integer that one CPU at a time writes, and other CPUs may read without a lock.
pub(crate) struct Unsigned(AtomicU64);

impl Field for Unsigned {
    fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn set(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }
}

/// The tags of a zone: one byte for each page, which says whether the page is free.
pub(crate) struct Bytes(Box<[AtomicU8]>);

impl Tags for Bytes {
    fn get(&self, page: u32) -> u8 {
        self.0[page as usize].load(Relaxed)
    }

    fn set(&self, page: u32, tag: u8) {
        self.0[page as usize].store(tag, Relaxed);
    }

    fn replace(&self, page: u32, old: u8, new: u8) -> Result<(), u8> {
        let tag = &self.0[page as usize];
        tag.compare_exchange(old, new, Relaxed, Relaxed).map(drop)
    }
}

/// A value of the machine that is set once.
pub(crate) struct OnceLocked<T>(OnceLock<T>);

impl<T> Once<T> for OnceLocked<T> {
    fn of(value: T) -> Self {
        Self(OnceLock::from(value))
    }

    fn get(&self) -> Option<&T> {
        self.0.get()
    }

    fn set(&self, value: T) -> Result<(), T> {
        self.0.set(value)
    }

    fn into_inner(self) -> Option<T> {
        self.0.into_inner()
    }
}

/// A lock that one caller at a time can hold. No caller ever waits for it, because there is only
/// one thread.
pub(crate) struct Locked<T>(LockClass, Mutex<T>);

impl<T> Locked<T> {
    fn run<R>(&self, machine: &Plain, site: Site, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        if let Some(watch) = &machine.watch {
            watch.will_lock((self.0, site));
        }
        let mut value = self.1.try_lock().ok()?;
        Some(heap::holding(self.0, || f(&mut value)))
    }
}

impl<T> Lock<Plain, T> for Locked<T> {
    fn with<R>(&self, machine: &Plain, site: Site, f: impl FnOnce(&mut T) -> R) -> R {
        self.run(machine, site, f)
            .expect("one thread does not wait for itself")
    }

    fn try_with<R>(&self, machine: &Plain, site: Site, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.run(machine, site, f)
    }
}

impl<T> CpuLock<Plain, T> for Locked<T> {
    fn try_local<R>(&self, machine: &Plain, site: Site, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        if machine.watch.as_ref().is_some_and(|watch| watch.refuses()) {
            return None;
        }
        self.run(machine, site, f)
    }

    fn with<R>(&self, machine: &Plain, site: Site, f: impl FnOnce(&mut T) -> R) -> R {
        self.run(machine, site, f)
            .expect("one thread does not wait for itself")
    }
}

/// A lock that readers share. No caller ever waits for it, because there is only one thread.
pub(crate) struct Shared<T>(LockClass, StdRwLock<T>);

impl<T> RwLock<Plain, T> for Shared<T> {
    fn read<R>(&self, machine: &Plain, site: Site, f: impl FnOnce(&T) -> R) -> R {
        let outcome = self.try_read(machine, site, f);
        outcome.expect("one thread does not wait for itself")
    }

    fn try_read<R>(&self, _: &Plain, _: Site, f: impl FnOnce(&T) -> R) -> Option<R> {
        let value = self.1.try_read().ok()?;
        Some(heap::holding(self.0, || f(&value)))
    }

    fn read_killable<R>(
        &self,
        machine: &Plain,
        site: Site,
        _killed: impl Fn() -> bool,
        f: impl FnOnce(&T) -> R,
    ) -> Option<R> {
        Some(self.read(machine, site, f))
    }

    fn write<R>(&self, _: &Plain, _: Site, f: impl FnOnce(&mut T) -> R) -> R {
        let value = self.1.try_write();
        let mut value = value.expect("one thread does not wait for itself");
        heap::holding(self.0, || f(&mut value))
    }

    fn write_killable<R>(
        &self,
        machine: &Plain,
        site: Site,
        _killed: impl Fn() -> bool,
        f: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        Some(self.write(machine, site, f))
    }

    fn write_then_read<A, R>(
        &self,
        machine: &Plain,
        site: Site,
        _killed: impl Fn() -> bool,
        first: impl FnOnce(&mut T) -> Option<A>,
        then: impl FnOnce(&T, A) -> R,
    ) -> Option<Option<R>> {
        let kept = self.write(machine, site, first);
        // No other writer can enter between the write and the read, because there is only one
        // thread.
        Some(kept.map(|kept| self.read(machine, site, |value| then(value, kept))))
    }

    fn writer_waits(&self, _: &Plain) -> bool {
        false
    }
}
