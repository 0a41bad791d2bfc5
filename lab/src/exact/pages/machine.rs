//! A machine on which the replay performs one operation at a time, on the CPU that the recording
//! names. Time does not pass, no CPU waits for a lock, and no job is deferred.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::sync::atomic::Ordering;

use plimsoll_mm::event::Event;
use plimsoll_mm::machine::{
    CpuLock, Due, Field, Job, JobState, LINE_WORDS, Line, LocalWord, Lock, Machine, Once, RwLock,
    Tags, WhenIdle, Word,
};
use plimsoll_mm::no_front::NoFront;
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Hz, Nanos, Order, Pages};

/// A machine that performs one recorded operation at a time. No time passes on it.
pub(super) struct Stepwise {
    topology: Topology,
    cpu: Cell<CpuId>,
    /// True while an operation runs as an interrupt on a CPU that holds the lock of its page lists.
    interrupting: Cell<bool>,
    holds: RefCell<Vec<Hold>>,
}

/// One hold of a zone lock, with the number of pages that the CPU moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) zone: u32,
    pub(super) site: Site,
    pub(super) pages: u32,
    pub(super) blocks: u32,
}

impl Stepwise {
    pub(super) fn new(topology: Topology) -> Self {
        Self {
            topology,
            cpu: Cell::new(CpuId(0)),
            interrupting: Cell::new(false),
            holds: RefCell::new(Vec::new()),
        }
    }

    /// Makes `cpu` the CPU that performs the next operations, until the next call.
    pub(super) fn go_to(&self, cpu: u32) {
        self.cpu.set(CpuId(cpu));
    }

    /// Runs `f` as an interrupt. The interrupted CPU holds its own pcp lock, so `f` cannot use the
    /// CPU's page lists.
    pub(super) fn interrupting<R>(&self, f: impl FnOnce() -> R) -> R {
        self.interrupting.set(true);
        let result = f();
        self.interrupting.set(false);
        result
    }

    /// Returns the holds of zone locks since the last call of this function.
    pub(super) fn take_holds(&self) -> Vec<Hold> {
        self.holds.take()
    }
}

impl fmt::Debug for Stepwise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stepwise")
            .field("cpu", &self.cpu)
            .finish_non_exhaustive()
    }
}

impl Machine for Stepwise {
    type Word = StepWord;
    type LocalWord = StepWord;
    type Lock<T> = StepLock<T>;
    type CpuLock<T> = StepLock<T>;
    type Tags = StepTags;
    type Line = StepLine;
    type Once<T> = StepOnce<T>;
    type Field = StepField;
    type RwLock<T> = StepLock<T>;
    type Front = NoFront;

    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn this_cpu(&self) -> CpuId {
        self.cpu.get()
    }

    fn now(&self) -> Nanos {
        Nanos(0)
    }

    fn hz(&self) -> Hz {
        Hz::new(1000).expect("not zero")
    }

    fn word(&self, value: i64) -> StepWord {
        StepWord(Cell::new(value))
    }

    fn local_word(&self, _cpu: CpuId, value: i64) -> StepWord {
        StepWord(Cell::new(value))
    }

    fn lock<T>(&self, _class: LockClass, _home: CpuId, value: T) -> StepLock<T> {
        StepLock(RefCell::new(value))
    }

    fn cpu_lock<T>(&self, _class: LockClass, _cpu: CpuId, value: T) -> StepLock<T> {
        StepLock(RefCell::new(value))
    }

    fn rw_lock<T>(&self, _class: LockClass, _home: CpuId, value: T) -> StepLock<T> {
        StepLock(RefCell::new(value))
    }

    fn tags(&self, pages: Pages) -> StepTags {
        let fresh = |page: u32| {
            if page.is_multiple_of(1024) {
                StepTags::FRESH_HEAD
            } else {
                0
            }
        };
        StepTags((0..pages.0).map(|page| Cell::new(fresh(page))).collect())
    }

    fn line(&self) -> StepLine {
        StepLine::default()
    }

    fn once<T>(&self) -> StepOnce<T> {
        StepOnce(OnceCell::new())
    }

    fn field(&self, value: u64) -> StepField {
        StepField(Cell::new(value))
    }

    fn make_fronts(&self, _order: Order) -> impl Iterator<Item = NoFront> {
        std::iter::repeat(NoFront)
    }

    fn spend(&self, _work: Work, _n: u32) {}

    fn pinned<R>(&self, f: impl FnOnce() -> R) -> R {
        f()
    }

    fn defer(&self, _cpu: CpuId, _job: Job, _due: Due, _idle: WhenIdle) {}

    fn cancel(&self, _cpu: CpuId, _job: Job) {}

    fn job_state(&self, _cpu: CpuId, _job: Job) -> JobState {
        JobState::Dormant
    }

    fn emit(&self, event: Event) {
        if let Event::ZoneHold {
            zone,
            site,
            pages,
            blocks,
            ..
        } = event
        {
            self.holds.borrow_mut().push(Hold {
                zone,
                site,
                pages: pages.0,
                blocks,
            });
        }
    }
}

pub(super) struct StepWord(Cell<i64>);

impl Word<Stepwise> for StepWord {
    fn load(&self, _: &Stepwise, _: Ordering) -> i64 {
        self.0.get()
    }

    fn store(&self, _: &Stepwise, value: i64, _: Ordering) {
        self.0.set(value);
    }

    fn add(&self, _: &Stepwise, delta: i64, _: Ordering) -> i64 {
        self.0.set(self.0.get().wrapping_add(delta));
        self.0.get()
    }

    fn swap(&self, _: &Stepwise, value: i64, _: Ordering) -> i64 {
        self.0.replace(value)
    }

    fn compare_exchange(&self, _: &Stepwise, old: i64, new: i64, _: Ordering) -> Result<i64, i64> {
        exchange(&self.0, old, new)
    }
}

fn exchange<T: Copy + PartialEq>(cell: &Cell<T>, old: T, new: T) -> Result<T, T> {
    if cell.get() == old {
        Ok(cell.replace(new))
    } else {
        Err(cell.get())
    }
}

impl LocalWord<Stepwise> for StepWord {
    fn add(&self, machine: &Stepwise, delta: i64) -> i64 {
        Word::add(self, machine, delta, Ordering::Relaxed)
    }

    fn set(&self, _: &Stepwise, value: i64) {
        self.0.set(value);
    }

    fn take(&self, _: &Stepwise) -> i64 {
        self.0.take()
    }

    fn read(&self, _: &Stepwise) -> i64 {
        self.0.get()
    }
}

pub(super) struct StepLock<T>(RefCell<T>);

impl<T> Lock<Stepwise, T> for StepLock<T> {
    fn with<R>(&self, _: &Stepwise, _: Site, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.borrow_mut())
    }

    fn try_with<R>(&self, _: &Stepwise, _: Site, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.try_borrow_mut().ok().map(|mut value| f(&mut value))
    }
}

impl<T> CpuLock<Stepwise, T> for StepLock<T> {
    fn try_local<R>(&self, machine: &Stepwise, _: Site, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        if machine.interrupting.get() {
            return None;
        }
        self.0.try_borrow_mut().ok().map(|mut value| f(&mut value))
    }

    fn with<R>(&self, _: &Stepwise, _: Site, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.borrow_mut())
    }
}

impl<T> RwLock<Stepwise, T> for StepLock<T> {
    fn read<R>(&self, _: &Stepwise, _: Site, f: impl FnOnce(&T) -> R) -> R {
        f(&self.0.borrow())
    }

    fn try_read<R>(&self, _: &Stepwise, _: Site, f: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.try_borrow().ok().map(|value| f(&value))
    }

    fn read_killable<R>(
        &self,
        _: &Stepwise,
        _: Site,
        killed: impl Fn() -> bool,
        f: impl FnOnce(&T) -> R,
    ) -> Option<R> {
        (!killed()).then(|| f(&self.0.borrow()))
    }

    fn write<R>(&self, _: &Stepwise, _: Site, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.borrow_mut())
    }

    fn write_killable<R>(
        &self,
        _: &Stepwise,
        _: Site,
        killed: impl Fn() -> bool,
        f: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        (!killed()).then(|| f(&mut self.0.borrow_mut()))
    }

    fn write_then_read<A, R>(
        &self,
        _: &Stepwise,
        _: Site,
        killed: impl Fn() -> bool,
        first: impl FnOnce(&mut T) -> Option<A>,
        then: impl FnOnce(&T, A) -> R,
    ) -> Option<Option<R>> {
        if killed() {
            return None;
        }
        let first = first(&mut self.0.borrow_mut());
        Some(first.map(|first| then(&self.0.borrow(), first)))
    }

    fn writer_waits(&self, _: &Stepwise) -> bool {
        false
    }
}

pub(super) struct StepTags(Vec<Cell<u8>>);

impl Tags for StepTags {
    fn get(&self, page: u32) -> u8 {
        self.0[page as usize].get()
    }

    fn set(&self, page: u32, tag: u8) {
        self.0[page as usize].set(tag);
    }

    fn replace(&self, page: u32, old: u8, new: u8) -> Result<(), u8> {
        exchange(&self.0[page as usize], old, new).map(|_| ())
    }
}

#[derive(Default)]
pub(super) struct StepLine([Cell<i64>; LINE_WORDS]);

impl Line<Stepwise> for StepLine {
    fn load(&self, _: &Stepwise, word: usize, _: Ordering) -> i64 {
        self.0[word].get()
    }

    fn store(&self, _: &Stepwise, word: usize, value: i64, _: Ordering) {
        self.0[word].set(value);
    }

    fn add(&self, _: &Stepwise, word: usize, delta: i64, _: Ordering) -> i64 {
        let cell = &self.0[word];
        cell.set(cell.get().wrapping_add(delta));
        cell.get()
    }

    fn compare_exchange(
        &self,
        _: &Stepwise,
        word: usize,
        old: i64,
        new: i64,
        _: Ordering,
    ) -> Result<i64, i64> {
        exchange(&self.0[word], old, new)
    }
}

pub(super) struct StepOnce<T>(OnceCell<T>);

impl<T> Once<T> for StepOnce<T> {
    fn of(value: T) -> Self {
        Self(OnceCell::from(value))
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

pub(super) struct StepField(Cell<u64>);

impl Field for StepField {
    fn get(&self) -> u64 {
        self.0.get()
    }

    fn set(&self, value: u64) {
        self.0.set(value);
    }
}
