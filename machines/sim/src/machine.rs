//! Implements the trait `Machine`, through which the memory manager uses the simulated machine.

use std::rc::Rc;

use plimsoll_mm::event::Event;
use plimsoll_mm::machine::{Due, Job, JobState, Machine, WhenIdle};
use plimsoll_mm::site::{LockClass, Work};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Hz, Nanos, Order, Pages};

use crate::engine::state::Sim;
use crate::locks::cpu_lock::SimCpuLock;
use crate::locks::lock::SimLock;
use crate::locks::once::SimOnce;
use crate::locks::rw_lock::SimRwLock;
use crate::memory::front::SimFront;
use crate::memory::line::SimLine;
use crate::memory::tags::SimTags;
use crate::memory::word::{SimField, SimLocalWord, SimWord};

impl Machine for Sim {
    type Word = SimWord;
    type LocalWord = SimLocalWord;
    type Lock<T> = SimLock<T>;
    type CpuLock<T> = SimCpuLock<T>;
    type Tags = SimTags;
    type Line = SimLine;
    type Once<T> = SimOnce<T>;
    type Field = SimField;
    type RwLock<T> = SimRwLock<T>;
    type Front = SimFront;

    const PRICES_LOADS: bool = true;

    fn topology(&self) -> &Topology {
        &self.0.topology
    }

    #[inline]
    fn this_cpu(&self) -> CpuId {
        self.0.this_cpu()
    }

    #[inline]
    fn now(&self) -> Nanos {
        Nanos(self.0.now())
    }

    fn hz(&self) -> Hz {
        self.0.hz
    }

    fn word(&self, value: i64) -> SimWord {
        SimWord::new(value)
    }

    fn local_word(&self, _cpu: CpuId, value: i64) -> SimLocalWord {
        SimLocalWord::new(value)
    }

    fn lock<T>(&self, class: LockClass, home: CpuId, value: T) -> SimLock<T> {
        SimLock::new(class, home, value)
    }

    fn cpu_lock<T>(&self, class: LockClass, cpu: CpuId, value: T) -> SimCpuLock<T> {
        SimCpuLock::new(class, cpu, value)
    }

    fn rw_lock<T>(&self, class: LockClass, home: CpuId, value: T) -> SimRwLock<T> {
        SimRwLock::new(class, home, value)
    }

    fn tags(&self, pages: Pages) -> SimTags {
        let strict = self.0.options.strict;
        SimTags::new(pages, strict.then(|| Rc::downgrade(&self.0)))
    }

    fn line(&self) -> SimLine {
        SimLine::new()
    }

    fn once<T>(&self) -> SimOnce<T> {
        SimOnce::new()
    }

    fn field(&self, value: u64) -> SimField {
        SimField::new(value)
    }

    fn make_fronts(&self, _order: Order) -> impl Iterator<Item = SimFront> {
        SimFront::of_all(self.0.options.fronts)
    }

    #[inline]
    fn spend(&self, work: Work, n: u32) {
        self.0.spend(work, n);
    }

    #[inline]
    fn pinned<R>(&self, f: impl FnOnce() -> R) -> R {
        if self.0.outside.get() {
            return f();
        }
        let pins = &self.0.pins;
        pins.set(pins.get() + 1);
        let result = f();
        pins.set(pins.get() - 1);
        result
    }

    fn defer(&self, cpu: CpuId, job: Job, due: Due, idle: WhenIdle) {
        self.0.defer(cpu, job, due, idle);
    }

    fn cancel(&self, cpu: CpuId, job: Job) {
        self.0.cancel(cpu, job);
    }

    fn job_state(&self, cpu: CpuId, job: Job) -> JobState {
        self.0.job_state(cpu, job)
    }

    #[inline(always)]
    fn emit(&self, event: Event) {
        self.note(event);
    }
}
