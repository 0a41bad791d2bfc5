//! Tasks, and the choice of what a CPU runs next.
//!
//! A task is a closure on a coroutine. Kernel work (jobs and the idle hook) borrows a coroutine
//! from the same pool as tasks, but only while the work runs. So a CPU that runs only short kernel
//! work owns no stack. A CPU prefers kernel work to tasks, and runs tasks in the order in which
//! they became ready.
//!
//! A task that is woken always passes through its CPU's list of sleepers, whichever CPU wakes it.
//! So the woken task never runs at a time before the wakeup.

use std::cmp::Reverse;

use plimsoll_mm::site::Work;
use plimsoll_mm::units::{CpuId, Nanos};

use crate::engine::cpu::{Cpu, NOBODY};
use crate::engine::record::{MIGRATE, bump};
use crate::engine::state::{Body, Inner, Kind, Sim, Task};
use crate::engine::tree::{NEVER, TIME_MAX_NS, key};
use crate::tasks::coroutine::Fiber;

/// The number of a task. The numbers of ended tasks are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(u32);

impl Sim {
    /// Starts a task on `cpu`. [`Sim::run`] waits until the task has ended.
    ///
    /// # Panics
    /// With a [`NoStack`](crate::NoStack) if no stack is left for the task.
    pub fn spawn(&self, cpu: CpuId, body: impl FnOnce(&Self) + 'static) -> TaskId {
        self.0.run.live.set(self.0.run.live.get() + 1);
        self.start(cpu, Kind::Program, Box::new(body))
    }

    /// Starts a task on `cpu` that [`Sim::run`] does not wait for.
    pub fn spawn_daemon(&self, cpu: CpuId, body: impl FnOnce(&Self) + 'static) -> TaskId {
        self.start(cpu, Kind::Daemon, Box::new(body))
    }

    fn start(&self, cpu: CpuId, kind: Kind, body: Box<dyn FnOnce(&Self)>) -> TaskId {
        self.0.order();
        let task = self.0.task(cpu.index(), kind, Body::Task(body));
        self.0.wake_at(task, self.0.now());
        TaskId(task)
    }

    /// Suspends the calling task for `span` and lets other tasks use the CPU.
    ///
    /// # Panics
    /// If the caller is in a section in which it must not be preempted.
    pub fn sleep(&self, span: Nanos) {
        self.sleep_until(Nanos(self.0.now() + span.0));
    }

    /// Suspends the calling task until `at` and lets other tasks use the CPU.
    ///
    /// # Panics
    /// If the caller is in a section in which it must not be preempted.
    pub fn sleep_until(&self, at: Nanos) {
        if !self.0.outside.get() {
            self.0.sleep_until(at.0);
        }
    }

    /// Wakes `task` now from a sleep that [`Sim::sleep`] or [`Sim::sleep_until`] has begun. Has no
    /// effect if the task is not asleep. The task must not have ended.
    pub fn wake(&self, task: TaskId) {
        self.0.order();
        if self.0.forget_sleeper(task.0) {
            self.0.wake_at(task.0, self.0.now());
        }
    }

    /// Moves the calling task to `cpu`, or to another CPU if `cpu` is offline.
    ///
    /// # Panics
    /// If the caller is kernel work, or is in a section in which it must not be preempted.
    pub fn migrate(&self, cpu: CpuId) {
        if !self.0.outside.get() && cpu.index() != self.0.cur.get() {
            self.0.migrate(cpu.index());
        }
    }
}

impl Inner {
    /// Prepares a task that runs `body` on `cpu`, on a pooled coroutine if there is one.
    fn task(&self, cpu: usize, kind: Kind, body: Body) -> u32 {
        let pooled = self.free.borrow_mut().pop();
        let id = pooled.unwrap_or_else(|| self.new_task());
        let task = self.tasks.get(id);
        task.cpu.set(cpu);
        task.kind.set(kind);
        task.body.set(Some(body));
        id
    }

    #[cold]
    fn new_task(&self) -> u32 {
        let id = self.tasks.push();
        let me = self
            .me
            .upgrade()
            .expect("a machine that is asked for a task is alive");
        let resident = Resident::new(Sim(me));
        let fiber = Fiber::new(self.options.stack_bytes, id as usize, move |exit| {
            let sim = &resident.0;
            let task = sim.0.tasks.get(id);
            task.fiber().enter(exit);
            // When the machine ends, `finish` returns if the coroutine is in the pool, so the loop
            // ends. A coroutine that is suspended in `run_body` is unwound instead.
            while !sim.0.is_ending() {
                sim.run_body(task);
                sim.0.finish(id);
            }
        });
        assert!(
            self.tasks.get(id).fiber.set(fiber).is_ok(),
            "a new task has no coroutine yet"
        );
        id
    }

    /// Ends the work of a coroutine. Its CPU chooses other work, and the coroutine returns to the
    /// pool.
    fn finish(&self, id: u32) {
        let task = self.tasks.get(id);
        self.free.borrow_mut().push(id);
        if task.kind.get() != Kind::Kernel {
            self.rescheduled();
        }
        if task.kind.get() == Kind::Program {
            self.run.live.set(self.run.live.get() - 1);
            if self.run.live.get() == 0 && self.run.awaits_tasks.get() {
                self.stop();
            }
        }
        self.yield_to_next(task);
    }

    /// Gives up the CPU, because the running task `task` has ended or is queued elsewhere. The
    /// caller continues when `task` runs again.
    pub(crate) fn yield_to_next(&self, task: &Task) {
        let cpu = self.cpu();
        debug_assert!(self.pins.get() == 0, "a pinned task keeps its CPU");
        cpu.current.set(NOBODY);
        self.choose_next(cpu);
        task.suspend();
    }

    /// Makes an idle CPU choose what to run, because an event is due.
    pub(crate) fn wake_up(&self, cpu: &Cpu) {
        bump(&self.record.wakeups);
        self.forget_disturbances();
        self.begin_stretch();
        self.choose_next(cpu);
    }

    /// Chooses what the running CPU does next, and sets the CPU's key (time and CPU number)
    /// accordingly.
    fn choose_next(&self, cpu: &Cpu) {
        self.fire_timers(cpu);
        let index = self.cur.get();
        let next = self
            .kernel_work(cpu, index)
            .or_else(|| cpu.ready.borrow_mut().pop_front());
        if self.under_load {
            self.load.note(index, next.is_some(), self.clock.get());
        }
        let at = self.clock.get();
        self.switched(next.unwrap_or(NOBODY), at);
        let Some(next) = next else {
            let wakes_at = cpu.wakes_at();
            let when = if wakes_at == u64::MAX {
                NEVER
            } else {
                key(wakes_at, index)
            };
            return self.tree.set(index, when);
        };
        self.charge(Work::ContextSwitch, 1);
        bump(&self.record.context_switches);
        if self.tasks.get(next).kind.get() != Kind::Kernel {
            cpu.quiet.set(false);
        }
        cpu.current.set(next);
        self.deadline.set(0);
        cpu.slice_end.set(self.clock.get() + self.options.slice.0);
        self.tree.set(index, key(self.clock.get(), index));
    }

    /// Returns a task that runs the next kernel work of the running CPU, which is CPU `index`.
    /// `None` if this CPU has no kernel work to do.
    fn kernel_work(&self, cpu: &Cpu, index: usize) -> Option<u32> {
        if let Some(job) = cpu.next_job() {
            self.begin_job(cpu, job);
            cpu.quiet.set(false);
            return Some(self.task(index, Kind::Kernel, Body::Job(job)));
        }
        if cpu.quiet.get() || !cpu.ready.borrow().is_empty() {
            return None;
        }
        cpu.quiet.set(true);
        let hooked = self.hooks.on_idle.borrow().is_some();
        hooked.then(|| self.task(index, Kind::Kernel, Body::Idle))
    }

    /// Adds `task` to its CPU's list of sleepers. The task becomes ready at time `at`, in
    /// nanoseconds; if the CPU is idle at that time, it wakes up.
    pub(crate) fn wake_at(&self, task: u32, at: u64) {
        let home = &self.tasks.get(task).cpu;
        if !self.cpus[home.get()].online.get() && self.tasks.get(task).may_move() {
            home.set(self.another_cpu(home.get()));
        }
        let cpu = home.get();
        assert!(at < TIME_MAX_NS, "virtual time ends after 26 days");
        let entry = Reverse((at, self.next_sequence(), task));
        self.cpus[cpu].sleepers.borrow_mut().push(entry);
        self.alert(cpu, at);
    }

    /// Makes `cpu` check its queues at time `at`, in nanoseconds, or earlier.
    pub(crate) fn alert(&self, cpu: usize, at: u64) {
        if cpu == self.cur.get() && !self.outside.get() {
            return self.deadline.set(self.deadline.get().min(at));
        }
        let state = &self.cpus[cpu];
        state.deadline.set(state.deadline.get().min(at));
        if state.is_idle() || state.spending.get() {
            self.post(cpu, key(at.max(state.clock.get()), cpu));
        }
    }

    /// Removes `task` from its CPU's list of sleepers. Returns whether it was on the list.
    pub(crate) fn forget_sleeper(&self, task: u32) -> bool {
        let cpu = &self.cpus[self.tasks.get(task).cpu.get()];
        let mut sleepers = cpu.sleepers.borrow_mut();
        let before = sleepers.len();
        sleepers.retain(|&Reverse((_, _, asleep))| asleep != task);
        sleepers.len() < before
    }

    pub(crate) fn sleep_until(&self, at: u64) {
        let id = self.cpu().current.get();
        self.assert_may_sleep();
        self.wake_at(id, at.max(self.now()));
        self.rescheduled();
        self.yield_to_next(self.tasks.get(id));
    }

    /// Moves the running task to CPU `target`, on which it continues.
    pub(crate) fn migrate(&self, target: usize) {
        self.assert_may_sleep();
        self.order();
        let id = self.cpu().current.get();
        let task = self.tasks.get(id);
        assert!(
            task.may_move(),
            "kernel work and holders of a sleeping lock do not migrate"
        );
        bump(&self.record.migrations);
        self.record
            .fold(self.now(), self.cur.get(), MIGRATE | (target as u64) << 12);
        task.cpu.set(target);
        self.wake_at(id, self.now());
        self.rescheduled();
        self.yield_to_next(task);
    }

    pub(crate) fn assert_may_sleep(&self) {
        assert!(
            self.pins.get() == 0,
            "a pinned section neither sleeps nor migrates"
        );
    }

    /// An online CPU other than `cpu`. The choice varies from call to call, so that tasks that have
    /// to move spread over the CPUs.
    pub(crate) fn another_cpu(&self, cpu: usize) -> usize {
        let count = self.cpus.len();
        let offset = usize::try_from(self.next_sequence() % count as u64).expect("below count");
        let mut candidates = (1..=count).map(|step| (offset + step) % count);
        candidates
            .find(|&other| other != cpu && self.cpus[other].online.get())
            .expect("at least one CPU is online")
    }
}

impl Sim {
    /// Runs the work that was assigned to the coroutine of `task`.
    fn run_body(&self, task: &Task) {
        match task
            .body
            .take()
            .expect("a coroutine is resumed with something to do")
        {
            Body::Task(body) => body(self),
            Body::Job(job) => self.run_job(job),
            Body::Idle => {
                let hook = self.0.hooks.on_idle.borrow().clone();
                if let Some(hook) = hook {
                    hook(self);
                }
            }
        }
    }
}

/// A handle on the machine, stored on a coroutine's stack. When only such handles are left, the
/// machine ends.
struct Resident(Sim);

impl Resident {
    fn new(sim: Sim) -> Self {
        sim.0.run.residents.set(sim.0.run.residents.get() + 1);
        Self(sim)
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        let residents = &self.0.0.run.residents;
        residents.set(residents.get() - 1);
    }
}

impl Task {
    fn fiber(&self) -> &Fiber {
        self.fiber
            .get()
            .expect("a task has a coroutine from the start")
    }

    #[inline(always)]
    pub(crate) fn resume(&self) {
        self.fiber().resume();
    }

    #[inline(always)]
    pub(crate) fn suspend(&self) {
        self.fiber().suspend();
    }

    /// Returns whether the task may run on another CPU.
    pub(crate) fn may_move(&self) -> bool {
        self.kind.get() != Kind::Kernel && self.stays.get() == 0
    }

    /// Ends the coroutine for good. Does nothing if the task was refused a stack, and so has no
    /// coroutine.
    pub(crate) fn end(&self) {
        if let Some(fiber) = self.fiber.get() {
            fiber.end();
        }
    }
}
