//! Killing a process for its memory (Linux: `oom_kill_process`).
//!
//! ```text
//! enroll ──> kill ──> exit ──> retire
//!             └─ delay ──> reaper
//! ```
//!
//! Whatever user space could do with the memory reserves it must not do: a victim is told to die
//! before it may use them. Nothing here allocates: what the reaper needs to remember a process was set
//! aside when it was enrolled.
//!
//! Locks: those of `reaper`. The caller sees to it that one process is killed at a time (Linux:
//! `oom_lock`); two at once do no harm, but kill two.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::candidate::{Kind, ScoreAdj};
use super::process::{Parted, Process, State, bit};
use super::reaper::{Patience, Reaper};
use crate::event::Event;
use crate::machine::{Machine, Word};
use crate::space::budget::Budget;
use crate::space::rss::BadRss;
use crate::space::vma_tree::NoMemory;
use crate::space::{AddressSpace, ExitError, Flag, Memory};
use crate::units::{Nanos, ProcessId};

/// What the owner of the processes does for the OOM killer. All may be called on any CPU, with no
/// lock of the manager held, and must not wait for memory.
pub trait Signals<M: Machine> {
    /// Tells every thread of `process` to die (Linux: `SIGKILL`). Threads that wait for something
    /// that may not come, and may be killed, have to be woken.
    fn kill(&self, machine: &M, process: &Arc<Process<M>>);

    /// Lets every thread of `process`, which was frozen, run (Linux: `thaw_process`).
    fn thaw(&self, machine: &M, process: &Arc<Process<M>>);

    /// Whoever calls [`Reaper::step`] has something to do at `at` (Linux: the timer of
    /// `queue_oom_reaper`).
    fn reap_at(&self, machine: &M, at: Nanos);
}

/// Kills processes, knows its victims, and has a reaper.
pub struct OomKiller<M: Machine, S> {
    signals: S,
    victims: M::Word,
    kills: M::Word,
    reaper: Reaper<M>,
}

/// What a kill has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Killed {
    /// Processes that were told to die.
    pub signalled: u32,
    /// What becomes of the victim's memory.
    pub aftermath: Aftermath,
}

/// Whether the reaper empties what a victim leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aftermath {
    /// After the delay, if it is not gone by then.
    Queued,
    /// It was handed to the reaper before.
    QueuedBefore,
    /// The first process uses the same memory, which is left alone and not chosen again; or it was
    /// to be killed itself, and nothing is done.
    Shielded,
    /// The victim had left its address space already; nobody was told to die for it.
    Gone,
}

impl<M: Machine, S: Signals<M>> OomKiller<M, S> {
    /// No process, no victim.
    pub fn new(machine: &M, signals: S, patience: Patience) -> Self {
        Self {
            signals,
            victims: machine.word(0),
            kills: machine.word(0),
            reaper: Reaper::new(machine, patience),
        }
    }

    /// Whom the embedder's reaper thread calls.
    pub const fn reaper(&self) -> &Reaper<M> {
        &self.reaper
    }

    /// What the owner of the processes does.
    pub const fn signals(&self) -> &S {
        &self.signals
    }

    /// Victims that have not left their address space (Linux: `oom_victims`).
    pub fn victims(&self, machine: &M) -> u64 {
        // Acquire: pairs with the release in `exit`: whoever sees that no victim is left sees the
        // memory that they gave back.
        u64::try_from(self.victims.load(machine, Acquire)).unwrap_or(0)
    }

    /// Processes that were told to die (Linux: `oom_kill` of `/proc/vmstat`).
    pub fn kills(&self, machine: &M) -> u64 {
        // Relaxed: a statistic.
        u64::try_from(self.kills.load(machine, Relaxed)).unwrap_or(0)
    }

    /// Makes a process that uses `space`, or a thread of the kernel without one, and sets aside what
    /// the reaper needs for it. Whoever adds a process to a space that others use sees to it that one
    /// of them does not leave meanwhile.
    ///
    /// The caller puts it into an [`Arc`], as it does with address spaces: stable Rust has none that can
    /// fail to be made, so the caller decides which allocator that takes, and what happens without
    /// memory.
    ///
    /// # Errors
    /// [`NoMemory`]; nothing has changed.
    ///
    /// # Panics
    /// If a process that is no thread of the kernel has no space.
    pub fn enroll(
        &self,
        machine: &M,
        id: ProcessId,
        kind: Kind,
        space: Option<Arc<AddressSpace<M>>>,
    ) -> Result<Process<M>, NoMemory> {
        assert!(
            space.is_some() || kind == Kind::KernelThread,
            "only threads of the kernel have no memory"
        );
        let room = self.reaper.reserve(machine)?;
        Ok(Process::new(machine, (id, kind), space, room))
    }

    /// Kills `victim`, and whoever has to die with it: all that use the same memory, and, if `domain`
    /// ran out (`None` is the machine), its group where that dies together. `all` are all processes.
    ///
    /// If the victim is dying anyway nobody is told so: it gets at the reserves, and is handed to the
    /// reaper.
    pub fn kill<'p>(
        &self,
        memory: Memory<'_, M>,
        victim: &'p Arc<Process<M>>,
        all: &(impl Iterator<Item = &'p Arc<Process<M>>> + Clone),
        domain: Option<&Arc<Budget<M>>>,
    ) -> Killed {
        self.kill_on(memory.machine, victim, all, domain)
    }

    /// [`OomKiller::kill`], for who has no more than the machine.
    pub(super) fn kill_on<'p>(
        &self,
        machine: &M,
        victim: &'p Arc<Process<M>>,
        all: &(impl Iterator<Item = &'p Arc<Process<M>>> + Clone),
        domain: Option<&Arc<Budget<M>>>,
    ) -> Killed {
        if victim.kind() == Kind::Init {
            return Killed {
                signalled: 0,
                aftermath: Aftermath::Shielded,
            };
        }
        if victim.will_free_memory(machine, all.clone()) {
            self.mark_victim(machine, victim);
            return Killed {
                signalled: 0,
                aftermath: self.hand_over(machine, victim),
            };
        }
        let group = victim
            .space(machine)
            .and_then(|space| space.budget()?.dies_together(domain));
        let mut killed = self.kill_with_sharers(machine, victim, all.clone());
        let Some(group) = group else { return killed };
        for member in all.clone() {
            if !Arc::ptr_eq(member, victim) && dies_with(machine, member, &group) {
                killed.signalled += self
                    .kill_with_sharers(machine, member, all.clone())
                    .signalled;
            }
        }
        killed
    }

    /// Linux: `__oom_kill_process`.
    fn kill_with_sharers<'p>(
        &self,
        machine: &M,
        victim: &'p Arc<Process<M>>,
        all: impl Iterator<Item = &'p Arc<Process<M>>>,
    ) -> Killed {
        let Some(space) = victim.space(machine) else {
            return Killed {
                signalled: 0,
                aftermath: Aftermath::Gone,
            };
        };
        // First counted, then told, then marked: who is told finds itself counted, and who may use
        // the reserves is dying.
        let mut signalled = self.signal(machine, victim);
        self.mark_victim(machine, victim);
        let mut reapable = true;
        for other in all.filter(|other| !Arc::ptr_eq(other, victim) && other.uses(machine, space)) {
            match other.kind() {
                Kind::Init => reapable = false,
                Kind::KernelThread => {}
                Kind::Process => signalled += self.signal(machine, other),
            }
        }
        let aftermath = if reapable {
            self.hand_over(machine, victim)
        } else {
            space.raise(machine, Flag::Skip);
            Aftermath::Shielded
        };
        Killed {
            signalled,
            aftermath,
        }
    }

    /// Tells a process to die, unless it was told before and does so; how many were told.
    fn signal(&self, machine: &M, process: &Arc<Process<M>>) -> u32 {
        let first = process.set(machine, State::Killed);
        // Who writes its memory to a file was told to die, but stops only when told again.
        if !first && !process.is(machine, State::CoreDumping) {
            return 0;
        }
        // Relaxed: a statistic.
        self.kills.add(machine, 1, Relaxed);
        machine.emit(Event::OomKill(process.id()));
        self.signals.kill(machine, process);
        1
    }

    /// Lets `process` use the reserves, and run if it was frozen. Not if it has left: it is not waited
    /// for then.
    fn mark_victim(&self, machine: &M, process: &Arc<Process<M>>) {
        // Before it is one, so that nobody sees none of a victim that is on its way. Relaxed: the
        // change of the state, which follows, is what others look at.
        self.victims.add(machine, 1, Relaxed);
        let Ok(before) = process.make_victim(machine) else {
            self.victims.add(machine, -1, Relaxed);
            return;
        };
        if let Some(space) = process.last_space() {
            // Others who use it get at the reserves by this as well, which in Linux they do not: pages
            // are charged to spaces here.
            space.raise(machine, Flag::Victim);
        }
        machine.emit(Event::MarkVictim(process.id()));
        if before & bit(State::Frozen) != 0 {
            self.signals.thaw(machine, process);
        }
    }

    /// Gives a victim's memory to the reaper. All who use it are dying.
    fn hand_over(&self, machine: &M, victim: &Arc<Process<M>>) -> Aftermath {
        // So none of them needs to wait for its mappings any more.
        if let Some(space) = victim.last_space() {
            space.raise(machine, Flag::Killed);
        }
        match self.reaper.queue(machine, victim) {
            Some(due) => {
                self.signals.reap_at(machine, due);
                Aftermath::Queued
            }
            None => Aftermath::QueuedBefore,
        }
    }

    /// `process` leaves its address space, which ends with its last user; then a victim is one no more
    /// (Linux: `exit_mm`). The last a process does.
    ///
    /// # Errors
    /// [`ExitError::Ended`] if it left before, or if somebody ended the address space without its
    /// users.
    pub fn exit(&self, memory: Memory<'_, M>, process: &Process<M>) -> Result<Parted, ExitError> {
        if !process.leave(memory.machine) {
            return Err(ExitError::Ended);
        }
        let parted = process.part(memory);
        if process.is(memory.machine, State::Victim) {
            // Release: pairs with the acquire in `victims`.
            self.victims.add(memory.machine, -1, Release);
        }
        parted
    }

    /// Gives a process back that has left (Linux: `put_task_struct`). With the last one of those that
    /// use an address space its counters go back too, if the caller has not kept it.
    ///
    /// A process that is dropped instead gives back the same, but what its counters take is found only
    /// when more is needed, and nobody is told if they are wrong.
    ///
    /// # Errors
    /// [`BadRss`] if pages of the address space were miscounted.
    ///
    /// # Panics
    /// If it has not left.
    pub fn retire(&self, machine: &M, process: Arc<Process<M>>) -> Result<(), BadRss> {
        assert!(
            process.is(machine, State::Left),
            "a process exits before it is given back"
        );
        Reaper::put(machine, process)
    }
}

/// Whether `member` dies when `group` does.
fn dies_with<M: Machine>(machine: &M, member: &Process<M>, group: &Arc<Budget<M>>) -> bool {
    let within = |space: &Arc<AddressSpace<M>>| {
        space.budget().is_some_and(|budget| {
            core::iter::successors(Some(budget), |budget| budget.parent())
                .any(|budget| Arc::ptr_eq(budget, group))
        })
    };
    member.kind() == Kind::Process
        && member.adj() != ScoreAdj::NEVER
        && member.space(machine).is_some_and(within)
}

impl<M: Machine, S> fmt::Debug for OomKiller<M, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OomKiller")
            .field("reaper", &self.reaper)
            .finish_non_exhaustive()
    }
}
