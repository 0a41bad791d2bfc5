//! The reaper: empties the memory of victims that do not exit soon (Linux: `oom_reaper`).
//!
//! A victim that can exit empties its own memory better than the reaper does. So the reaper leaves
//! a victim alone for a delay, and drops the victim from the queue if the victim has exited by
//! then. After [`Patience::attempts_max`] failed attempts, the reaper gives up on an address space.
//! No selection chooses that space again, so another process is killed if memory is still short.
//!
//! The queue never grows when memory is short. It has room for one entry per enrolled process, and
//! an address space is queued at most once. An entry holds a reference to its process, and the room
//! for a process stays reserved until the process is freed. That room is allocated before the
//! queue's lock is taken, because a CPU that kills a process needs the lock.
//!
//! Locks: `ReapQueue`. A CPU that holds this lock takes no other lock. The reaper does not hold the
//! lock while it empties an address space.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use super::membership::Membership;
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

/// The reaper's delays, and its number of attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The time from the kill to the first attempt. It should be long enough for a process to exit
    /// and to wake the tasks that wait for locks in its memory.
    pub delay: Nanos,
    /// The time from one attempt to empty an address space to the next attempt.
    pub pause: Nanos,
    /// The number of failed attempts after which the reaper gives up. 0 counts as 1.
    pub attempts_max: u32,
}

impl Patience {
    /// The values of Linux: a delay of 2 s, a pause of 100 ms, 10 attempts.
    pub const LINUX: Self = Self {
        delay: Nanos(2_000_000_000),
        pause: Nanos(100_000_000),
        attempts_max: 10,
    };
}

/// The reaper: it empties the address spaces of victims, one after the other.
pub struct Reaper<M: Machine> {
    queue: M::Lock<Queue<M>>,
    patience: Patience,
}

struct Queue<M: Machine> {
    /// The queued victims, in the order in which they were added. There is always capacity for one
    /// entry per enrolled process.
    entries: Vec<Entry<M>>,
    /// The membership (the reserved room in this queue) of every enrolled process holds a clone of
    /// this `Arc`. So the reference count gives the number of these processes.
    roll: Arc<()>,
}

impl<M: Machine> Queue<M> {
    /// Returns the number of processes that were enrolled and are not dropped yet.
    fn members(&self) -> usize {
        Arc::strong_count(&self.roll) - 1
    }
}

struct Entry<M: Machine> {
    process: Arc<Process<M>>,
    due: Nanos,
    /// The number of failed attempts of the reaper to empty this victim's memory.
    failed: u32,
    /// True from the reaper's first attempt on, which comes after [`Patience::delay`].
    awake: bool,
}

/// The result of [`Reaper::step`], and the time of the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stepped {
    /// The victim that the reaper finished with in this step, if any.
    pub done: Option<Done>,
    /// The time at which to call [`Reaper::step`] again.
    pub next: Next,
}

/// The time at which the reaper next has something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The reaper has work at this time, which may have passed already.
    At(Nanos),
    /// The reaper has nothing to do before the next [`Signals::reap_at`](super::Signals::reap_at).
    Idle,
}

/// A victim that the reaper has finished with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The id of the victim.
    pub process: ProcessId,
    /// The outcome for the victim's memory.
    pub how: How,
    /// The error that pages of the address space were miscounted. It is set only if the reaper
    /// dropped the last reference to the address space.
    pub bad_rss: Option<BadRss>,
}

/// The outcome of the reaper's work on a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// There was nothing to do: the victim had exited.
    Gone,
    /// The reaper has emptied all that can be reaped.
    Emptied,
    /// Too many attempts failed. The victim's own exit will free the memory that is left.
    GaveUp {
        /// The result of the reaper's last attempt at this victim.
        last: Reaped,
        /// The approximate number of pages that are still resident. Some of them may be pages that
        /// the reaper is not allowed to free.
        resident: u64,
    },
}

/// The result of a single attempt to empty a victim's address space.
enum Attempt {
    Done(How),
    Failed(Reaped),
    /// The reaper gave way to a task that waits to change the mappings, so the attempt does not
    /// count as failed. Tasks can make the reaper give way only a limited number of times: each
    /// user of the space was signalled to die, and does not take the lock of the mappings again.
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

    /// Returns the delays of the reaper and its maximum number of attempts, as passed to
    /// [`OomKiller::new`](super::OomKiller::new).
    pub const fn patience(&self) -> Patience {
        self.patience
    }

    /// Returns the number of address spaces in the queue.
    pub fn queued(&self, machine: &M) -> usize {
        self.queue
            .with(machine, Site::Reap, |queue| queue.entries.len())
    }

    /// Reserves room in the queue for one more process.
    pub(super) fn reserve(&self, machine: &M) -> Result<Membership, NoMemory> {
        let mut longer = Vec::new();
        // The loop ends: the capacity never shrinks. So after the second turn, another turn follows
        // only if other CPUs have enrolled processes in the meantime.
        loop {
            let reserved = self.queue.with(machine, Site::Reap, |queue| {
                room::replace(&mut queue.entries, &mut longer);
                let members = queue.members() + 1;
                if queue.entries.capacity() < members {
                    return Err(members);
                }
                Ok(Membership::of(&queue.roll))
            });
            match reserved {
                Ok(membership) => return Ok(membership),
                Err(members) => longer = room::list_of(members).map_err(|NoRoom| NoMemory)?,
            }
        }
    }

    /// Drops one reference to a process. Dropping the last reference frees the process's room in
    /// the queue, and destroys its address space if no other reference to the space exists.
    pub(super) fn put(machine: &M, process: Arc<Process<M>>) -> Result<(), BadRss> {
        let process = Arc::into_inner(process);
        let space = process.and_then(Process::into_space);
        let space = space.and_then(Arc::into_inner);
        space.map_or(Ok(()), |space| space.destroy(machine))
    }

    /// Queues `victim`. Returns the time when the first attempt to empty its memory is due, or
    /// `None` if the victim's space had already been handed to the reaper.
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

    /// Makes one attempt to empty the memory of the victim that became due last, if any victim is
    /// due. One or several threads of the embedder may call this. These threads must never be
    /// killed or frozen.
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

    /// Removes the entry of the victim that became due last, if any victim is due.
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

    /// Ends the reaper's work on a victim, whatever the outcome. Marks the victim's address space,
    /// so that no later selection chooses a process of this space.
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
