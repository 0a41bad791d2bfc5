//! The implementation of [`Machine`] for [`Host`].
//!
//! Only `defer`, `cancel` and `job_state` take a lock here: that of one CPU's
//! [`JobQueue`](crate::job_queue::JobQueue).

use plimsoll_mm::event::Event;
use plimsoll_mm::machine::{Due, Job, JobState, Machine, WhenIdle};
use plimsoll_mm::site::{LockClass, Work};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Hz, Jiffies, Nanos, Order, Pages};
use plimsoll_mm::wheel::Wheel;

use crate::cpu;
use crate::fronts::HostFront;
use crate::host::Host;
use crate::locks::{OwnerLock, SharedLock, TicketLock};
use crate::tags::PageTags;
use crate::words::{CpuWord, HostField, HostOnce, SharedLine, SharedWord};

/// The number of ticks per second, as in the kernels of most current distributions.
const HZ: Hz = Hz::new(1000).expect("1000 is between 1 and 10,000");

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
    type Front = HostFront;

    #[inline]
    fn topology(&self) -> &Topology {
        &self.shared.topology
    }

    #[inline]
    fn this_cpu(&self) -> CpuId {
        match cpu::played(self.shared.id) {
            Some(cpu) => cpu,
            None => self.this_cpu_slow(),
        }
    }

    /// Returns the CPU that the thread plays. If the thread plays none, returns the real CPU on
    /// which the thread runs. Returns `None` if the thread cannot run restartable sequences, or if
    /// the machine has no CPU with the real CPU's number.
    #[inline(always)]
    fn this_cpu_at_once(&self) -> Option<CpuId> {
        match cpu::played(self.shared.id) {
            None => self.real_cpu_at_once(),
            played => played,
        }
    }

    /// The time since the machine was created.
    fn now(&self) -> Nanos {
        self.shared.created.elapsed().into()
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

    /// Ignores `home`: Linux allocates memory on the node of the thread that first touches the
    /// memory.
    fn lock<T>(&self, _class: LockClass, _home: CpuId, value: T) -> TicketLock<T> {
        TicketLock::new(value)
    }

    fn cpu_lock<T>(&self, _class: LockClass, _cpu: CpuId, value: T) -> OwnerLock<T> {
        OwnerLock::new(self.owner_locks(), value)
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

    fn make_fronts(&self, order: Order) -> impl Iterator<Item = HostFront> {
        HostFront::of_a_zone(self.shared.topology.cpus(), order, self.fronts())
    }

    /// Moves an array that has one element for each CPU to the nodes of the CPUs, if the computer
    /// has several nodes. See [`Host::placement`].
    fn settle<T>(&self, of_cpus: &[T]) {
        let first = of_cpus.as_ptr().addr();
        self.move_to_nodes(first, size_of::<T>(), of_cpus.len());
    }

    #[inline]
    fn spend(&self, _work: Work, _n: u32) {}

    /// Only calls `f`. A thread that plays a CPU keeps playing it during `f`. Any other thread may
    /// migrate, which costs only locality.
    #[inline]
    fn pinned<R>(&self, f: impl FnOnce() -> R) -> R {
        f()
    }

    /// `_idle` makes no difference: a sleeping worker thread is woken by its own timer. The kernel
    /// decides whether that wakes a real CPU.
    fn defer(&self, cpu: CpuId, job: Job, due: Due, _idle: WhenIdle) {
        self.shared.job_queues[cpu.index()].defer(job, due_at(due, self.now()));
    }

    fn cancel(&self, cpu: CpuId, job: Job) {
        self.shared.job_queues[cpu.index()].cancel(job);
    }

    /// If a running job is deferred again, its state is pending.
    fn job_state(&self, cpu: CpuId, job: Job) -> JobState {
        self.shared.job_queues[cpu.index()].state(job)
    }

    #[inline]
    fn emit(&self, event: Event) {
        if self.shared.observer.is_some() {
            self.tell(event);
        }
    }
}

/// The time at which a job that is deferred at `now` becomes due.
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
    use crate::affinity::CpuMask;

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
