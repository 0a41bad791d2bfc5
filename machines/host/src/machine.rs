//! The handle: [`Host`] and its [`Machine`].
//!
//! A clone is another handle to the same machine. Only `defer`, `cancel` and `job_state` take a
//! lock here, that of one CPU's [`Desk`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use plimsoll_mm::event::Event;
use plimsoll_mm::machine::{Due, Job, JobState, Machine, WhenIdle};
use plimsoll_mm::site::{LockClass, Work};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Hz, Jiffies, Nanos, Pages};
use plimsoll_mm::wheel::Wheel;

use crate::affinity::{self, CpuMask};
use crate::cpu::{self, Entered, HostId, PinError};
use crate::desk::Desk;
use crate::locks::{OwnerLock, SharedLock, TicketLock};
use crate::topology;
use crate::words::{CpuWord, HostField, HostOnce, PageTags, SharedLine, SharedWord};

/// Ticks per second, as in the kernels of most current distributions.
const HZ: Hz = Hz::new(1000).expect("1000 is between 1 and 10,000");

/// This computer, or another machine that its threads play.
#[derive(Clone)]
pub struct Host(Arc<Shared>);

type Observer = dyn Fn(CpuId, Nanos, Event) + Send + Sync;

pub(crate) struct Shared {
    id: HostId,
    topology: Topology,
    created: Instant,
    /// The CPUs on which the thread that made the machine could run.
    allowed: CpuMask,
    observer: Option<Box<Observer>>,
    /// The deferred jobs: one [`Desk`] per CPU.
    pub(crate) desks: Box<[Desk]>,
    /// True while worker threads run the jobs of the desks.
    pub(crate) served: AtomicBool,
}

impl Host {
    /// This computer as Linux describes it, or, without a description, that many equal CPUs.
    ///
    /// To learn why there is no description, call [`topology::read`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_topology(topology::read_or_flat())
    }

    /// A machine of these CPUs, whatever CPUs this computer has.
    #[must_use]
    pub fn with_topology(topology: Topology) -> Self {
        Self::build(topology, None)
    }

    /// [`Host::with_topology`] with an `observer` that is passed every event with its CPU and time.
    ///
    /// The observer runs where the event happens, mostly with locks held: the page lists of this
    /// CPU (`Pcp`), a zone, a page table. So it must be short, and must not call the manager: if it
    /// drained page lists, it would wait for ever for those that its own CPU holds. Work that an
    /// event calls for belongs on another thread, for instance behind a channel.
    #[must_use]
    pub fn with_observer(
        topology: Topology,
        observer: impl Fn(CpuId, Nanos, Event) + Send + Sync + 'static,
    ) -> Self {
        Self::build(topology, Some(Box::new(observer)))
    }

    fn build(topology: Topology, observer: Option<Box<Observer>>) -> Self {
        static MACHINES: AtomicU64 = AtomicU64::new(HostId::FIRST.0);
        // Relaxed: the number only has to be unique.
        let id = HostId(MACHINES.fetch_add(1, Relaxed));
        let desks = topology.ids().map(|_cpu| Desk::default()).collect();
        let allowed = CpuMask::of_this_thread();
        let (created, served) = (Instant::now(), AtomicBool::new(false));
        Self(Arc::new(Shared {
            id,
            topology,
            created,
            allowed,
            observer,
            desks,
            served,
        }))
    }

    /// Makes the calling thread play `cpu` until the returned value is dropped.
    ///
    /// # Panics
    /// If the machine has no such CPU.
    pub fn enter(&self, cpu: CpuId) -> Entered {
        self.assert_has(cpu);
        Entered::new(self.0.id, cpu)
    }

    /// [`Host::enter`], and pins the thread to one real CPU meanwhile: to `cpu` itself if the
    /// thread may run there, otherwise to one of the CPUs on which it may.
    ///
    /// # Errors
    /// If the thread cannot be pinned; it then plays no CPU.
    ///
    /// # Panics
    /// If the machine has no such CPU.
    pub fn enter_pinned(&self, cpu: CpuId) -> Result<Entered, PinError> {
        self.assert_has(cpu);
        Entered::pinned(self.0.id, cpu, &self.0.allowed)
    }

    fn assert_has(&self, cpu: CpuId) {
        let cpus = self.0.topology.cpus();
        assert!(cpu.0 < cpus, "CPU {cpu} is not one of the machine's {cpus}");
    }

    /// The CPU that the kernel reports, for a thread that plays none.
    #[inline(never)]
    fn this_cpu_slow(&self) -> CpuId {
        CpuId(affinity::current() % self.0.topology.cpus())
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, cpus) = (self.0.id.0, self.0.topology.cpus());
        f.debug_struct("Host")
            .field("id", &id)
            .field("cpus", &cpus)
            .finish_non_exhaustive()
    }
}

impl Machine for Host {
    type Word = SharedWord;
    type LocalWord = CpuWord;
    type Lock<T> = TicketLock<T>;
    type CpuLock<T> = OwnerLock<T>;
    type Tags = PageTags;
    type Line = SharedLine;
    type Once<T> = HostOnce<T>;
    type Field = HostField;
    type RwLock<T> = SharedLock<T>;

    #[inline]
    fn topology(&self) -> &Topology {
        &self.0.topology
    }

    #[inline]
    fn this_cpu(&self) -> CpuId {
        match cpu::played(self.0.id) {
            Some(cpu) => cpu,
            None => self.this_cpu_slow(),
        }
    }

    /// Time since the machine was made.
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.0.created.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn hz(&self) -> Hz {
        HZ
    }

    fn word(&self, value: i64) -> SharedWord {
        SharedWord::new(value)
    }

    fn local_word(&self, _cpu: CpuId, value: i64) -> CpuWord {
        CpuWord::new(value)
    }

    /// `home` has no effect: Linux puts memory on the node of the thread that touches it first.
    fn lock<T>(&self, _class: LockClass, _home: CpuId, value: T) -> TicketLock<T> {
        TicketLock::new(value)
    }

    fn cpu_lock<T>(&self, _class: LockClass, _cpu: CpuId, value: T) -> OwnerLock<T> {
        OwnerLock::new(value)
    }

    fn rw_lock<T>(&self, _class: LockClass, _home: CpuId, value: T) -> SharedLock<T> {
        SharedLock::new(value)
    }

    fn tags(&self, pages: Pages) -> PageTags {
        PageTags::new(pages)
    }

    fn line(&self) -> SharedLine {
        SharedLine::new()
    }

    fn once<T>(&self) -> HostOnce<T> {
        HostOnce::new()
    }

    fn field(&self, value: u64) -> HostField {
        HostField::new(value)
    }

    #[inline]
    fn spend(&self, _work: Work, _n: u32) {}

    /// Only calls `f`. A thread that plays a CPU goes on playing it during `f`. Any other thread
    /// may migrate, which costs locality only.
    #[inline]
    fn pinned<R>(&self, f: impl FnOnce() -> R) -> R {
        f()
    }

    /// `_idle` makes no difference: a worker thread that sleeps is woken by its own timer, and the
    /// kernel decides whether that wakes a real CPU.
    fn defer(&self, cpu: CpuId, job: Job, due: Due, _idle: WhenIdle) {
        self.0.desks[cpu.index()].defer(job, due_at(due, self.now()));
    }

    fn cancel(&self, cpu: CpuId, job: Job) {
        self.0.desks[cpu.index()].cancel(job);
    }

    /// A job that was deferred again while it runs is pending.
    fn job_state(&self, cpu: CpuId, job: Job) -> JobState {
        self.0.desks[cpu.index()].state(job)
    }

    #[inline]
    fn emit(&self, event: Event) {
        if let Some(observer) = &self.0.observer {
            observer(self.this_cpu(), self.now(), event);
        }
    }
}

/// The time at which a job deferred at `now` is to run.
fn due_at(due: Due, now: Nanos) -> Nanos {
    match due {
        Due::Now => now,
        Due::At(at) => at,
        Due::Wheel(ahead) => {
            let clock = HZ.jiffies(now);
            let expires = Jiffies(clock.0.saturating_add(ahead.0));
            HZ.nanos(Wheel::new(HZ).fires_at(clock, expires))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_of_the_wheel_fires_a_tick_after_its_jiffy_or_a_step() {
        let at = |ahead, now| due_at(Due::Wheel(Jiffies(ahead)), Nanos(now)).0;
        assert_eq!(at(0, 5_000_000), 6_000_000);
        assert_eq!(at(2, 5_000_000), 8_000_000);
        assert_eq!(at(2, 5_000_001), 8_000_000);
        assert_eq!(at(1000, 5_000_000), 1_024_000_000);
        assert!(at(u64::MAX, 1) > 10 * 24 * 3600 * Nanos::SECOND.0);
    }

    #[test]
    fn a_thread_plays_the_cpu_it_entered_on_that_machine_only() {
        let (host, other) = (Host::with_topology(Topology::flat(64)), Host::new());
        {
            let _outer = host.enter(CpuId(63));
            assert_eq!(host.clone().this_cpu(), CpuId(63));
            assert!(other.this_cpu().0 < other.topology().cpus());
            let inner = host.enter(CpuId(7));
            assert_eq!(host.this_cpu(), CpuId(7));
            drop(inner);
            assert_eq!(host.this_cpu(), CpuId(63));
        }
        assert!(host.this_cpu().0 < 64);
    }

    #[test]
    fn a_pinned_thread_may_run_elsewhere_afterwards() {
        let host = Host::with_topology(Topology::flat(64));
        let before = CpuMask::of_this_thread();
        if let Ok(_entered) = host.enter_pinned(CpuId(63)) {
            assert_eq!(host.this_cpu(), CpuId(63));
            assert_eq!(CpuMask::of_this_thread().cpus().len(), 1);
        }
        assert_eq!(CpuMask::of_this_thread(), before);
    }

    #[test]
    fn an_observer_hears_who_and_what() {
        let (sender, heard) = std::sync::mpsc::channel();
        let tell = move |cpu, _at, event| sender.send((cpu, event)).expect("the test listens");
        let host = Host::with_observer(Topology::flat(4), tell);
        let _entered = host.enter(CpuId(3));
        host.emit(Event::Kick { cpu: CpuId(1) });
        assert_eq!(
            heard.try_recv(),
            Ok((CpuId(3), Event::Kick { cpu: CpuId(1) }))
        );
    }
}
