//! Killing a process for its memory (Linux: `oom_kill_process`).
//!
//! ```text
//! enroll ──> kill ──> exit ──> retire
//!             └─ delay ──> reaper
//! ```
//!
//! User-space code must not be able to use up the memory reserves, so a victim is signalled before
//! it may use them. A kill allocates nothing: the reaper's room for a process was reserved when the
//! process was enrolled.
//!
//! Locks: the locks that `reaper` takes. The caller makes sure that only one process is killed at a
//! time (Linux: `oom_lock`). Two kills at the same time do no damage, but they kill two processes.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::facts::{Kind, ScoreAdj};
use super::process::{Parted, Process, State, bit};
use super::reaper::{Patience, Reaper};
use crate::event::Event;
use crate::machine::{Machine, Word};
use crate::space::budget::Budget;
use crate::space::rss::BadRss;
use crate::space::vma_tree::NoMemory;
use crate::space::{AddressSpace, ExitError, Flag, Memory};
use crate::units::{Nanos, ProcessId, total_in};

/// The services that the owner of the processes provides to the OOM killer. Each method may be
/// called on any CPU, by a caller that holds no lock of the manager. The methods must not wait for
/// memory.
pub trait Signals<M: Machine> {
    /// Signals every thread of `process` to die (Linux: `SIGKILL`). The method must also wake
    /// threads in a killable wait, because the event that they wait for may never happen.
    fn kill(&self, machine: &M, process: &Arc<Process<M>>);

    /// Thaws every thread of a frozen `process`, so that it runs again (Linux: `thaw_process`).
    fn thaw(&self, machine: &M, process: &Arc<Process<M>>);

    /// Tells the embedder that [`Reaper::step`] has work at time `at` (Linux: the timer of
    /// `queue_oom_reaper`).
    fn reap_at(&self, machine: &M, at: Nanos);
}

/// An implementation that sends no signals. It is for an owner that itself checks which processes
/// must die, and whether the reaper has work.
impl<M: Machine> Signals<M> for () {
    fn kill(&self, _machine: &M, _process: &Arc<Process<M>>) {}

    fn thaw(&self, _machine: &M, _process: &Arc<Process<M>>) {}

    fn reap_at(&self, _machine: &M, _at: Nanos) {}
}

/// The OOM killer: it kills processes, counts its victims, and owns the reaper.
pub struct OomKiller<M: Machine, S> {
    signals: S,
    victims: M::Word,
    kills: M::Word,
    reaper: Reaper<M>,
}

/// The effect of a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Killed {
    /// The number of processes that were signalled to die.
    pub signalled: u32,
    /// The way in which the victim's memory will be freed.
    pub aftermath: Aftermath,
}

/// The way in which the memory of a victim will be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aftermath {
    /// The reaper empties the memory after [`Patience::delay`], unless the victim has done so by
    /// then.
    Queued,
    /// The address space had already been handed to the reaper.
    QueuedBefore,
    /// The system's first process uses the victim's memory. So the reaper does not touch this
    /// memory, and no process that uses this memory is chosen again. The result is also `Shielded`
    /// if the victim is the first process itself. In that case nothing was done.
    Shielded,
    /// The victim had already left its address space, so no process was signalled.
    Gone,
}

impl<M: Machine, S: Signals<M>> OomKiller<M, S> {
    /// Makes a killer that has no processes and no victims yet.
    pub fn new(machine: &M, signals: S, patience: Patience) -> Self {
        Self {
            signals,
            victims: machine.word(0),
            kills: machine.word(0),
            reaper: Reaper::new(machine, patience),
        }
    }

    /// Returns the reaper. A thread of the embedder runs it, by calling [`Reaper::step`] again and
    /// again.
    pub const fn reaper(&self) -> &Reaper<M> {
        &self.reaper
    }

    /// Returns the owner's services, as passed to [`OomKiller::new`].
    pub const fn signals(&self) -> &S {
        &self.signals
    }

    /// Returns the number of victims that have not left their address space (Linux: `oom_victims`).
    pub fn victims(&self, machine: &M) -> u64 {
        // Acquire pairs with the Release in `exit`: a CPU that reads 0 victims sees the memory that
        // the victims freed.
        total_in(self.victims.load(machine, Acquire))
    }

    /// Returns the number of processes signalled so far (Linux: `oom_kill` of `/proc/vmstat`).
    pub fn kills(&self, machine: &M) -> u64 {
        // Relaxed: the number of kills is only a statistic.
        total_in(self.kills.load(machine, Relaxed))
    }

    /// Makes a process that uses `space`, or a kernel thread without a space, and reserves room for
    /// the process in the reaper's queue. If `space` has users already, the caller must make sure
    /// that at least one of them does not leave the space during the call.
    ///
    /// The caller puts the process into an [`Arc`], as it does with address spaces. Stable Rust has
    /// no fallible way to allocate an `Arc`, so the caller decides which allocator it uses, and
    /// what happens if there is not enough memory.
    ///
    /// # Errors
    /// [`NoMemory`] if the room in the queue cannot be allocated. In that case, nothing has
    /// changed.
    ///
    /// # Panics
    /// If a process other than a kernel thread has no space.
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
        Ok(Process::new(machine, id, kind, space, room))
    }

    /// Kills `victim` and every process that has to die with it. These are all processes that use
    /// the victim's memory and, if the victim's group is killed together, all processes of the
    /// group. `domain` is the budget that ran out of pages; `None` means that the machine ran out
    /// of pages. `all` iterates over all processes.
    ///
    /// If the victim is already dying, no process is signalled. The victim may then use the
    /// reserves, and is handed to the reaper.
    pub fn kill<'p>(
        &self,
        memory: Memory<'_, M>,
        victim: &'p Arc<Process<M>>,
        all: &(impl Iterator<Item = &'p Arc<Process<M>>> + Clone),
        domain: Option<&Arc<Budget<M>>>,
    ) -> Killed {
        self.kill_on(memory.machine, victim, all, domain)
    }

    /// Kills `victim` and every process that has to die with it, like [`OomKiller::kill`], for
    /// callers that have no [`Memory`].
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

    /// Kills one process and all processes that share its memory (Linux: `__oom_kill_process`).
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
        // The order matters: count the kill, send the signal, then mark the victim. So a signalled
        // process finds itself counted, and a process that may use the reserves is already dying.
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

    /// Signals a process to die, unless an earlier signal is already making it die. Returns the
    /// number of processes signalled, 0 or 1.
    fn signal(&self, machine: &M, process: &Arc<Process<M>>) -> u32 {
        let first = process.set(machine, State::Killed);
        // A process that is dumping core was signalled before, but it stops the dump only when it
        // is signalled again.
        if !first && !process.is(machine, State::CoreDumping) {
            return 0;
        }
        // Relaxed: the number of kills is only a statistic.
        self.kills.add(machine, 1, Relaxed);
        machine.emit(Event::OomKill(process.id()));
        self.signals.kill(machine, process);
        1
    }

    /// Lets `process` use the reserves, and thaws it if it was frozen. Does nothing if the process
    /// has left its address space.
    fn mark_victim(&self, machine: &M, process: &Arc<Process<M>>) {
        // Count the victim before marking it, so that `victims` never misses a process that is just
        // being marked. Relaxed is enough: the change of the state below has Release ordering, so a
        // CPU that sees the new state also sees this addition.
        self.victims.add(machine, 1, Relaxed);
        let Ok(before) = process.make_victim(machine) else {
            self.victims.add(machine, -1, Relaxed);
            return;
        };
        if let Some(space) = process.last_space() {
            // This flag lets every process that uses the space allocate from the reserves. Linux
            // allows that only to the victim itself. Plimsoll charges pages to spaces, so it cannot
            // tell the processes of a space apart.
            space.raise(machine, Flag::Victim);
        }
        machine.emit(Event::MarkVictim(process.id()));
        if before & bit(State::Frozen) != 0 {
            self.signals.thaw(machine, process);
        }
    }

    /// Hands a victim's memory to the reaper. All users of that memory are dying.
    fn hand_over(&self, machine: &M, victim: &Arc<Process<M>>) -> Aftermath {
        // All users are dying, so none of them needs to wait for the lock of the mappings any more.
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

    /// Makes `process` leave its address space, and ends the space if `process` was its last user.
    /// If the process was a victim, it is then no longer counted as one (Linux: `exit_mm`). This is
    /// the last step of a process.
    ///
    /// # Errors
    /// [`ExitError::Ended`] if the process left before, or if its address space was ended in
    /// another way than by its users.
    pub fn exit(&self, memory: Memory<'_, M>, process: &Process<M>) -> Result<Parted, ExitError> {
        if !process.leave(memory.machine) {
            return Err(ExitError::Ended);
        }
        let parted = process.part(memory);
        if process.is(memory.machine, State::Victim) {
            // Release pairs with the Acquire in the method `victims`.
            self.victims.add(memory.machine, -1, Release);
        }
        parted
    }

    /// Frees a process that has left its address space (Linux: `put_task_struct`). The last process
    /// of an address space also frees the space's counters, unless the caller keeps a reference to
    /// the space.
    ///
    /// Dropping a process without this call frees the same memory. But without this call, the
    /// memory of the counters can be reused only when the counters' area needs more memory, and
    /// miscounts are not reported.
    ///
    /// # Errors
    /// [`BadRss`] if pages of the address space were miscounted.
    ///
    /// # Panics
    /// If the process has not left its address space.
    pub fn retire(&self, machine: &M, process: Arc<Process<M>>) -> Result<(), BadRss> {
        assert!(
            process.is(machine, State::Left),
            "a process exits before it is given back"
        );
        Reaper::put(machine, process)
    }
}

/// Returns whether `member` dies when the processes of `group` are killed together.
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
