//! Emptying the memory of those who were killed but do not exit soon (Linux: `oom_reaper`).
//!
//! A victim that can exit does so better itself: so it has a delay first, and is forgotten if it was
//! done by then. A space that could not be emptied in so many attempts is given up on: it is not
//! chosen again, so that the next victim may help.
//!
//! The queue never grows when memory is short: for every process that was enrolled there is room for
//! one entry, an entry is made at most once per address space, and an address space that is queued is
//! kept by a process that keeps its room. Room is made without the lock, which those who kill need.
//!
//! Locks: `ReapQueue`, with nothing inside. Reaping itself is done without it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use super::process::Process;
use crate::event::Event;
use crate::machine::{Lock, Machine};
use crate::room::{self, NoRoom};
use crate::site::{LockClass, Site};
use crate::space::reap::Reaped;
use crate::space::rss::BadRss;
use crate::space::vma_tree::NoMemory;
use crate::space::{Flag, Memory};
use crate::units::{Nanos, ProcessId};

/// How long the reaper waits, and how often it tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// From the kill to the first attempt. Long enough for a process to exit and to wake those who
    /// wait for locks in its memory.
    pub delay: Nanos,
    /// From one attempt to the next.
    pub pause: Nanos,
    /// Attempts until it is given up on. 0 are as good as 1.
    pub attempts_max: u32,
}

impl Patience {
    /// 2 s, 100 ms, 10 attempts.
    pub const LINUX: Self = Self {
        delay: Nanos(2_000_000_000),
        pause: Nanos(100_000_000),
        attempts_max: 10,
    };
}

/// Empties address spaces of victims, one after the other.
pub struct Reaper<M: Machine> {
    queue: M::Lock<Queue<M>>,
    patience: Patience,
}

struct Queue<M: Machine> {
    /// In the order in which they came. Room for one per member, always.
    entries: Vec<Entry<M>>,
    /// What every member has a clone of.
    roll: Arc<()>,
}

/// Room in the queue of a reaper, for as long as it lives.
pub(super) struct Membership {
    _roll: Arc<()>,
}

impl<M: Machine> Queue<M> {
    /// Processes that were enrolled and are not gone.
    fn members(&self) -> usize {
        Arc::strong_count(&self.roll) - 1
    }
}

struct Entry<M: Machine> {
    process: Arc<Process<M>>,
    due: Nanos,
    /// Attempts that failed.
    failed: u32,
    /// Whether the delay has passed.
    awake: bool,
}

/// What a step has done, and when the next is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stepped {
    /// Whom the reaper is done with, if that came out of it.
    pub done: Option<Done>,
    /// When to call again.
    pub next: Next,
}

/// When the reaper has something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At this time, which may have come.
    At(Nanos),
    /// Not before [`Signals::reap_at`](super::Signals::reap_at).
    Idle,
}

/// A victim that the reaper is done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Who it was.
    pub process: ProcessId,
    /// How it went.
    pub how: How,
    /// A wrong count, if the address space went with its last user, and pages of it were miscounted.
    pub bad_rss: Option<BadRss>,
}

/// How the reaper went about a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Nothing was to be done: it had exited.
    Gone,
    /// All that could be emptied is.
    Emptied,
    /// There were too many attempts; the exit will do the rest.
    GaveUp {
        /// How the last one ended.
        last: Reaped,
        /// Pages that are still resident, about; more than could be emptied may be among them.
        resident: u64,
    },
}

/// How an attempt ended.
enum Attempt {
    Done(How),
    Failed(Reaped),
    /// It made place for somebody, so it counts for nothing. Ends: whoever uses the space was told to
    /// die and does not come again.
    GaveWay,
}

impl<M: Machine> Reaper<M> {
    pub(super) fn new(machine: &M, patience: Patience) -> Self {
        let queue = Queue {
            entries: Vec::new(),
            roll: Arc::new(()),
        };
        Self {
            queue: machine.lock(LockClass::ReapQueue, machine.this_cpu(), queue),
            patience,
        }
    }

    /// How long it waits, and how often it tries.
    pub const fn patience(&self) -> Patience {
        self.patience
    }

    /// Address spaces that wait.
    pub fn queued(&self, machine: &M) -> usize {
        self.queue
            .with(machine, Site::Reap, |queue| queue.entries.len())
    }

    /// Sets room aside for one process more.
    pub(super) fn reserve(&self, machine: &M) -> Result<Membership, NoMemory> {
        let mut longer = Vec::new();
        // Ends: the room only becomes more, and others can take it only by enrolling processes.
        loop {
            let reserved = self.queue.with(machine, Site::Reap, |queue| {
                room::replace(&mut queue.entries, &mut longer);
                let members = queue.members() + 1;
                if queue.entries.capacity() < members {
                    return Err(members);
                }
                let _roll = Arc::clone(&queue.roll);
                Ok(Membership { _roll })
            });
            match reserved {
                Ok(membership) => return Ok(membership),
                Err(members) => longer = room::list_of(members).map_err(|NoRoom| NoMemory)?,
            }
        }
    }

    /// Gives one of those back who know a process; with the last its room, and perhaps its space.
    pub(super) fn put(machine: &M, process: Arc<Process<M>>) -> Result<(), BadRss> {
        let process = Arc::into_inner(process);
        let space = process.and_then(Process::into_space);
        let space = space.and_then(Arc::into_inner);
        space.map_or(Ok(()), |space| space.destroy(machine))
    }

    /// Remembers `victim`: when it is due, or `None` if its space was handed over before.
    pub(super) fn queue(&self, machine: &M, victim: &Arc<Process<M>>) -> Option<Nanos> {
        let space = victim.last_space()?;
        if !space.raise(machine, Flag::ReapQueued) {
            return None;
        }
        let due = Nanos(machine.now().0.saturating_add(self.patience.delay.0));
        self.keep(
            machine,
            Entry {
                process: Arc::clone(victim),
                due,
                failed: 0,
                awake: false,
            },
        );
        Some(due)
    }

    fn keep(&self, machine: &M, entry: Entry<M>) {
        self.queue.with(machine, Site::Reap, |queue| {
            let room = queue.entries.capacity() - queue.entries.len();
            assert!(room > 0, "every process has room in the queue");
            queue.entries.push(entry);
        });
    }

    /// Makes one attempt at the victim that became due last, if any is. For one or several threads
    /// of the embedder, which may be killed or frozen at no time.
    pub fn step(&self, memory: Memory<'_, M>) -> Stepped {
        let machine = memory.machine;
        let done = self.take(machine).and_then(|mut entry| {
            let how = match attempt(memory, &mut entry) {
                Attempt::Done(how) => how,
                Attempt::Failed(last) if entry.failed + 1 >= self.patience.attempts_max => {
                    gave_up(machine, &entry, last)
                }
                again => {
                    entry.failed += u32::from(matches!(again, Attempt::Failed(_)));
                    entry.due = Nanos(machine.now().0.saturating_add(self.patience.pause.0));
                    self.keep(machine, entry);
                    return None;
                }
            };
            Some(Self::finish(machine, entry, how))
        });
        let next = self.next(machine);
        Stepped { done, next }
    }

    /// Takes out who is due: of several the last one.
    fn take(&self, machine: &M) -> Option<Entry<M>> {
        let now = machine.now();
        self.queue.with(machine, Site::Reap, |queue| {
            let due = queue.entries.iter().enumerate();
            let last = due
                .filter(|(_, entry)| entry.due <= now)
                .max_by_key(|(_, entry)| entry.due);
            let place = last.map(|(place, _)| place)?;
            Some(queue.entries.remove(place))
        })
    }

    fn next(&self, machine: &M) -> Next {
        let first = self.queue.with(machine, Site::Reap, |queue| {
            queue.entries.iter().map(|entry| entry.due).min()
        });
        first.map_or(Next::Idle, Next::At)
    }

    /// Whatever came out of it: nothing more is to be had.
    fn finish(machine: &M, entry: Entry<M>, how: How) -> Done {
        let process = entry.process.id();
        if let Some(space) = entry.process.last_space() {
            space.raise(machine, Flag::Skip);
        }
        let bad_rss = Self::put(machine, entry.process).err();
        Done {
            process,
            how,
            bad_rss,
        }
    }
}

fn attempt<M: Machine>(memory: Memory<'_, M>, entry: &mut Entry<M>) -> Attempt {
    let (machine, id) = (memory.machine, entry.process.id());
    let space = entry.process.last_space();
    let space = space.filter(|space| !space.has(machine, Flag::Skip));
    let Some(space) = space else {
        if entry.awake {
            machine.emit(Event::SkipTaskReaping(id));
        }
        return Attempt::Done(How::Gone);
    };
    if !entry.awake {
        entry.awake = true;
        machine.emit(Event::WakeReaper(id));
    }
    let mut started = false;
    let reaped = space.try_reap_after(memory, || {
        started = true;
        machine.emit(Event::StartTaskReaping(id));
    });
    machine.emit(if started {
        Event::FinishTaskReaping(id)
    } else {
        Event::SkipTaskReaping(id)
    });
    match reaped {
        Reaped::All => Attempt::Done(How::Emptied),
        Reaped::GaveWay => Attempt::GaveWay,
        Reaped::Partly | Reaped::Busy => Attempt::Failed(reaped),
    }
}

fn gave_up<M: Machine>(machine: &M, entry: &Entry<M>, last: Reaped) -> How {
    let space = entry.process.last_space();
    let resident = space.map_or(0, |space| space.rss().resident(machine));
    How::GaveUp { last, resident }
}

impl<M: Machine> fmt::Debug for Reaper<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reaper")
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}
