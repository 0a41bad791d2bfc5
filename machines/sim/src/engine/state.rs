//! The state of a machine and of its tasks, and the handle on the machine.
//!
//! A handler or a task gets the handle as an argument, and the state contains handlers and tasks.
//! Because these types need each other, this file defines all of them: the state, the handle,
//! handlers and tasks. The other files of this folder implement their methods.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::rc::{Rc, Weak};

use plimsoll_mm::event::Event;
use plimsoll_mm::machine::Job;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Hz, Nanos};

use crate::engine::cpu::Cpu;
use crate::engine::disturbances::Disturbances;
use crate::engine::load::LoadState;
use crate::engine::price::Prices;
use crate::engine::record::Record;
use crate::engine::resume::Resume;
use crate::engine::tree::Tree;
use crate::memory::arena::Arena;
use crate::options::SimOptions;
use crate::tasks::coroutine::Fiber;
use crate::tasks::step::StepObserver;
use crate::tasks::stretch::Stretches;
use crate::tasks::wait::WaitObserver;

/// A simulated machine. Clones are cheap handles on the same machine.
///
/// The machine owns its handlers and observers, so these must not own a handle on the machine.
/// Otherwise neither they nor the machine would ever be dropped.
pub struct Sim(pub(crate) Rc<Inner>);

/// A function that is called for each event.
pub(crate) type Observer = Box<dyn FnMut(&Sim, CpuId, Nanos, &Event)>;

/// A function that runs a job.
type JobHandler = Rc<dyn Fn(&Sim, Job)>;
/// A function that is called on a CPU that has run out of work.
type IdleHandler = Rc<dyn Fn(&Sim)>;

/// The state that all handles share. Frequently used fields come first.
#[repr(C)]
pub(crate) struct Inner {
    /// The index of the running CPU.
    pub(crate) cur: Cell<usize>,
    /// The running CPU's clock, in nanoseconds. While a CPU runs, its clock, `deadline` and `pins`
    /// are here; otherwise they are in its [`Cpu`].
    pub(crate) clock: Cell<u64>,
    /// A call of `spend` that ends at this time or later takes the slow path. The time is in
    /// nanoseconds. It is 0 outside a run, so that every call of `spend` takes the slow path.
    pub(crate) deadline: Cell<u64>,
    /// The nested sections of the running CPU that must not be preempted. The low 16 bits count all
    /// of them; the higher bits count those in which interrupts are also masked
    /// ([`pin_of`](crate::engine::disturbances::pin_of)).
    pub(crate) pins: Cell<u32>,
    /// The running CPU, if it may take its own per-CPU locks without first letting CPUs with
    /// earlier clocks run. Otherwise [`NO_CPU`](crate::engine::cpu::NO_CPU).
    pub(crate) local: Cell<CpuId>,
    /// The smallest key (time and CPU number) of all CPUs except the running one.
    pub(crate) limit: Cell<u64>,
    /// The number of times that the engine has resumed a CPU. As long as this number stays the
    /// same, no other CPU has run.
    pub(crate) epoch: Cell<u64>,
    pub(crate) outside: Cell<bool>,
    /// The number of bytes that the running CPU has moved to or from memory and that have not yet
    /// been added to the bytes of its node.
    pub(crate) moved: Cell<u64>,
    /// True if load changes the speeds of CPUs, or the time of steps that move pages.
    pub(crate) under_load: bool,
    /// True if there is a random delay before each order point. At an order point, a CPU waits
    /// until no other CPU has an earlier clock.
    pub(crate) shaken: bool,
    /// True if the owner of a per-CPU lock must wait for CPUs with earlier clocks, and so must not
    /// take the fast path. In strict mode the owner waits before it acquires the lock. With
    /// [`LockModel::ReleaseEvent`](crate::LockModel::ReleaseEvent) it waits before it releases the
    /// lock.
    pub(crate) ceremonial: bool,
    /// True if two things hold. Each kind of step always takes the same time on all CPUs. The owner
    /// of a per-CPU lock is allowed to take the fast path, because `ceremonial` is false.
    pub(crate) plain: bool,
    pub(crate) options: SimOptions,
    pub(crate) cpus: Box<[Cpu]>,
    /// For each CPU, the addresses in the host's memory that its next resumption reads.
    pub(crate) resumes: Box<[Resume]>,
    pub(crate) tree: Tree,
    pub(crate) tasks: Arena<Task>,
    pub(crate) prices: Prices,
    /// The interrupts and other disturbances of CPUs; `None` if there are none.
    pub(crate) disturbances: Option<Disturbances>,
    pub(crate) load: LoadState,
    pub(crate) record: Record,
    pub(crate) hz: Hz,
    pub(crate) topology: Topology,
    /// The indexes of tasks that have ended. The coroutines of these tasks can run the next task or
    /// kernel work.
    pub(crate) free: RefCell<Vec<u32>>,
    /// The sequence number that was last given to a waiting task or job. A task or job that is
    /// queued later gets a higher number.
    pub(crate) sequence: Cell<u64>,
    pub(crate) hooks: Hooks,
    pub(crate) stretches: Stretches,
    pub(crate) run: RunControl,
    pub(crate) me: Weak<Self>,
}

/// The callbacks that the program has registered with the machine.
#[derive(Default)]
pub(crate) struct Hooks {
    pub(crate) on_job: RefCell<Option<JobHandler>>,
    pub(crate) on_idle: RefCell<Option<IdleHandler>>,
    pub(crate) observers: RefCell<Vec<Observer>>,
    pub(crate) wait_observers: RefCell<Vec<WaitObserver>>,
    pub(crate) step_observers: RefCell<Vec<StepObserver>>,
    /// True if there is an observer of steps.
    pub(crate) stepped: Cell<bool>,
    /// True if there is an observer of events.
    pub(crate) observed: Cell<bool>,
    /// True if the observers also receive events of single pages.
    pub(crate) pages_observed: Cell<bool>,
}

/// The state that decides when a run, or the whole machine, ends.
#[derive(Default)]
pub(crate) struct RunControl {
    /// The number of tasks that have not ended, not counting daemons.
    pub(crate) live: Cell<u32>,
    /// True from [`Sim::stop`] until the next run begins.
    pub(crate) halt: Cell<bool>,
    /// True if the run ends when its last task ends.
    pub(crate) awaits_tasks: Cell<bool>,
    /// The time that the machine has reached, in nanoseconds.
    pub(crate) reached: Cell<u64>,
    /// True from the time when the machine begins to drop its unfinished tasks.
    pub(crate) ending: Cell<bool>,
    /// The number of handles on the machine that are held by coroutine stacks.
    pub(crate) residents: Cell<usize>,
}

/// A coroutine and the work it currently runs.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Task {
    pub(crate) fiber: OnceCell<Fiber>,
    pub(crate) cpu: Cell<usize>,
    pub(crate) kind: Cell<Kind>,
    /// The number of nested sections in which the task must stay on its CPU, although it may be
    /// preempted.
    pub(crate) stays: Cell<u32>,
    pub(crate) body: Cell<Option<Body>>,
}

/// The kind of work that a coroutine runs.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Kernel work, which is not preempted and does not migrate.
    #[default]
    Kernel,
    /// A task that a run waits for.
    Program,
    /// A task that a run does not wait for.
    Daemon,
}

/// The work that a coroutine does next.
pub(crate) enum Body {
    Task(Box<dyn FnOnce(&Sim)>),
    Job(Job),
    Idle,
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("cpu", &self.cpu)
            .finish_non_exhaustive()
    }
}
