//! The handling of a shortage when nothing more can be reclaimed (Linux: `out_of_memory`).
//!
//! ```text
//! lock ── busy ──> a victim gets the reserves; others pause, then try the allocation again
//!   ├─ plenty of memory by now ──> allocate
//!   ├─ a notifier freed some ──> try again
//!   ├─ the caller is dying anyway ──> it gets the reserves
//!   ├─ select ── a victim is still dying ──> pause, try again
//!   ├─ plenty of memory by now ──> allocate
//!   └─ kill, report ──> pause, try again
//! ```
//!
//! **One kill at a time.** After the selection and before the kill, the lock holder checks once
//! more for free memory. By then no victim is dying, so this check finds what earlier victims have
//! freed. Linux checks only before the selection: if a victim finishes exiting between the check
//! and the selection, Linux kills another process unnecessarily.
//!
//! At this check, a victim that was reaped while it was exiting may still hold pages. Plimsoll
//! waits a few ticks for such a victim; Linux does not.
//!
//! Handling a shortage allocates nothing: the selection works in slots (memory for one candidate
//! each) that [`OutOfMemory::reserve`] has reserved.
//!
//! Locks: `OomKill`. A CPU that handles a shortage does not wait for this lock: it tries once to
//! take it. While a CPU holds the lock, it takes the locks that are needed to drain page lists, and
//! those that `reaper` takes.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use super::candidate::Candidates;
use super::census::Census;
use super::kill::{Aftermath, OomKiller, Signals};
use super::process::{Process, State};
use super::report::{Report, Row, Verdict};
use super::scope::{Constraint, Scope};
use super::select::{NoVictim, Outcome, SelectError, Selecting, Selector, Slot, select_by};
use super::shortage::Shortage;
use super::standing::Standing;
use crate::design::Design;
use crate::event::{Event, Phase};
use crate::machine::{Lock, Machine};
use crate::page::{LastResort, NoKill, PageAllocator, Reclaimer, Relief, Request};
use crate::room::{self, NoRoom};
use crate::site::{LockClass, Site};
use crate::space::budget::Budget;
use crate::space::vma_tree::NoMemory;
use crate::topology::NodeSet;
use crate::units::{Pages, count_of};

/// A function that looks at all processes of an [`Owner`].
pub type Look<'l, M> = dyn FnMut(&[Arc<Process<M>>]) + 'l;

/// The owner of the processes. All methods may be called on any CPU, and must not allocate pages.
pub trait Owner<M: Machine> {
    /// Calls `look` once with all processes, in the order in which they were made. The owner
    /// retires none of them before `look` returns. `look` calls the methods of [`Signals`].
    ///
    /// The caller holds the OOM lock. So while a task holds a lock that this method takes, the task
    /// must neither call [`OutOfMemory::reserve`] nor allocate pages. Otherwise that task and the
    /// caller could wait for each other for ever.
    fn with_processes(&self, machine: &M, look: &mut Look<'_, M>);

    /// Returns the process on whose behalf the caller allocates, if any (Linux: `current`).
    fn current(&self, machine: &M) -> Option<Arc<Process<M>>>;

    /// Lets other tasks run for about a tick, among them those that were signalled to die.
    fn pause(&self, machine: &M);

    /// Returns the nodes that the caller may allocate from, or `None` for all nodes. A process that
    /// may use none of these nodes is not killed (Linux: `cpuset_current_mems_allowed`).
    fn allowed(&self, machine: &M) -> Option<NodeSet> {
        let _ = machine;
        None
    }

    /// Returns the nodes that threads of `process` may allocate from.
    fn nodes(&self, machine: &M, process: &Process<M>) -> NodeSet {
        let _ = (machine, process);
        NodeSet::ALL
    }

    /// Reports that a process was killed, or why none was. The method is called from inside
    /// [`Owner::with_processes`], while the OOM lock is held.
    fn report(&self, machine: &M, report: &Report<'_, M>) {
        let _ = (machine, report);
    }
}

/// The rules by which a victim is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How the victim is selected: as the [`Design`] says, unless the embedder sets another
    /// variant.
    pub selecting: Selecting,
    /// The process to consider first.
    pub first: First,
    /// The number of pages of swap; they count as memory (Linux: `total_swap_pages`).
    pub swap_pages: u64,
}

/// The process to consider first when the machine is out of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// The process with the most points: the pages that a kill would free, plus the process's
    /// adjustment.
    Largest,
    /// The allocating process, if it may be killed. In that case, no other process is considered
    /// (Linux: `vm.oom_kill_allocating_task`).
    Requester,
}

impl Rules {
    /// Makes rules by which the process with the most points is considered first, the selector that
    /// `design` names finds this process, and there is no swap.
    #[must_use]
    pub const fn of(design: &Design) -> Self {
        Self {
            selecting: design.selecting,
            first: First::Largest,
            swap_pages: 0,
        }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self::of(&Design::default())
    }
}

/// The last resort of the page allocator: it kills a process to free memory.
pub struct OutOfMemory<M: Machine, S, O> {
    killer: Arc<OomKiller<M, S>>,
    owner: O,
    rules: Rules,
    /// The embedder's own selector, which is used instead of [`Rules::selecting`].
    selector: Option<Box<dyn Selector>>,
    notifiers: Vec<Box<dyn Reclaimer<M>>>,
    /// The lock that serializes decisions (Linux: `oom_lock`), with the state it protects.
    kill_state: M::Lock<KillState>,
}

/// The state that only the holder of the OOM lock may use.
struct KillState {
    /// Memory for the selection of a victim: each slot has room for one candidate.
    slots: Vec<Slot>,
    /// The number of pauses that tasks have made since the last kill, because a victim was still
    /// leaving its address space.
    waited: u32,
}

/// The largest number of pauses for a victim that is still leaving its address space after the
/// reaper has finished with the space. A pause can help, because the task that empties the space
/// may still free pages. The number is limited, because that task may be stuck.
const WAITS_MAX: u32 = 10;

/// The result of a decision under the OOM lock.
enum Decision {
    Done(Relief),
    /// A victim is dying: pause without the OOM lock, then try the allocation again.
    Wait,
}

impl<M: Machine, S: Signals<M>, O: Owner<M>> OutOfMemory<M, S, O> {
    /// Makes a last resort that first asks `notifiers` for memory (Linux: `oom_notify_list`), and
    /// then kills one of the processes of `owner` through `killer`. The caller has to reserve slots
    /// for candidates with [`OutOfMemory::reserve`].
    pub fn new(
        machine: &M,
        killer: Arc<OomKiller<M, S>>,
        owner: O,
        rules: Rules,
        notifiers: Vec<Box<dyn Reclaimer<M>>>,
    ) -> Self {
        // Start with one slot, which has room for one candidate: a selection works with a single
        // slot, though slowly.
        let kill_state = KillState {
            slots: alloc::vec![Slot::EMPTY; 1],
            waited: 0,
        };
        Self {
            kill_state: machine.lock(LockClass::OomKill, machine.this_cpu(), kill_state),
            killer,
            owner,
            rules,
            selector: None,
            notifiers,
        }
    }

    /// Makes this last resort choose victims by `selector`, instead of [`Rules::selecting`].
    #[must_use]
    pub fn selecting_by(mut self, selector: impl Selector + 'static) -> Self {
        self.selector = Some(Box::new(selector));
        self
    }

    /// Returns the killer, as passed to [`OutOfMemory::new`].
    pub const fn killer(&self) -> &Arc<OomKiller<M, S>> {
        &self.killer
    }

    /// Returns the owner of the processes, as passed to [`OutOfMemory::new`].
    pub const fn owner(&self) -> &O {
        &self.owner
    }

    /// Reserves memory for a selection among `candidates` candidates: one slot for each. With fewer
    /// slots a selection is equally correct, but takes longer. The call allocates the slots before
    /// it takes the OOM lock. So a task that runs out of memory during the allocation does not find
    /// that lock busy.
    ///
    /// The caller must hold no lock that [`Owner::with_processes`] takes, because that method is
    /// called under the OOM lock.
    ///
    /// # Errors
    /// [`NoMemory`] if the slots cannot be allocated. In that case, nothing has changed.
    pub fn reserve(&self, machine: &M, candidates: usize) -> Result<(), NoMemory> {
        let room = self
            .kill_state
            .with(machine, Site::OutOfMemory, |kill_state| {
                kill_state.slots.capacity()
            });
        let mut longer = Vec::new();
        if room < candidates {
            longer = room::list_of(candidates).map_err(|NoRoom| NoMemory)?;
        }
        self.kill_state
            .with(machine, Site::OutOfMemory, |kill_state| {
                room::replace(&mut kill_state.slots, &mut longer);
                // The list of slots (memory for one candidate each) has the needed capacity by now,
                // so it grows without allocating.
                if kill_state.slots.len() < candidates {
                    kill_state.slots.resize(candidates, Slot::EMPTY);
                }
            });
        Ok(())
    }

    /// Tries to free memory after an allocation from `pages` has failed.
    pub fn relieve(&self, machine: &M, pages: &PageAllocator<M>, request: Request) -> Relief {
        self.relieve_shortage(machine, &Shortage::Machine(pages, request))
    }

    /// Tries to free memory among the processes under `budget`, which has no room for `pages` more
    /// (Linux: `mem_cgroup_out_of_memory`). Never returns [`Relief::Allocated`].
    pub(crate) fn relieve_group(&self, machine: &M, budget: &Arc<Budget<M>>, pages: u64) -> Relief {
        self.relieve_shortage(machine, &Shortage::Group(budget, pages))
    }

    fn relieve_shortage(&self, machine: &M, shortage: &Shortage<'_, M>) -> Relief {
        let decided = self
            .kill_state
            .try_with(machine, Site::OutOfMemory, |kill_state| {
                self.decide(machine, shortage, kill_state)
            });
        match decided {
            Some(Decision::Done(relief)) => relief,
            // The lock is busy, and the caller is itself a victim. It gets the reserves at once:
            // tasks that wait for its memory take the lock again and again, so waiting for the lock
            // would delay its exit.
            None if self.is_current_victim(machine) => Relief::Reserves,
            // Pause after the lock is released, so that other tasks do not find it busy for no
            // reason.
            Some(Decision::Wait) | None => {
                self.owner.pause(machine);
                Relief::Retry
            }
        }
    }

    /// Returns whether the allocating process was chosen as a victim and may use the reserves
    /// (Linux: `tsk_is_oom_victim`).
    fn is_current_victim(&self, machine: &M) -> bool {
        let current = self.owner.current(machine);
        current.is_some_and(|current| current.is(machine, State::Victim))
    }

    /// Decides what to do about a shortage. Runs under the OOM lock, so on one CPU at a time.
    fn decide(
        &self,
        machine: &M,
        shortage: &Shortage<'_, M>,
        kill_state: &mut KillState,
    ) -> Decision {
        if let Some(relief) = shortage.is_over(machine) {
            return Decision::Done(relief);
        }
        if let Shortage::Machine(pages, request) = shortage {
            let wanted = request.order.pages();
            let mut freed = Pages::ZERO;
            for notifier in &self.notifiers {
                freed += notifier.reclaim(machine, pages, wanted);
            }
            if freed > Pages::ZERO {
                return Decision::Done(Relief::Retry);
            }
        }
        let mut step = Decision::Wait;
        self.owner.with_processes(machine, &mut |all| {
            step = self.decide_among(machine, shortage, all, kill_state);
        });
        step
    }

    fn decide_among(
        &self,
        machine: &M,
        shortage: &Shortage<'_, M>,
        all: &[Arc<Process<M>>],
        kill_state: &mut KillState,
    ) -> Decision {
        let current = self.owner.current(machine);
        if let Some(current) = &current
            && self.lets_current_die(machine, shortage, current, all)
        {
            return Decision::Done(Relief::Reserves);
        }
        let allowed = self.owner.allowed(machine);
        let Some(scope) = shortage.scope(allowed, self.rules.swap_pages) else {
            return Decision::Done(Relief::GiveUp(NoKill::NobodyLeft));
        };
        let nodes = |process: &Process<M>| self.owner.nodes(machine, process);
        let census = Census::new(machine, all)
            .within(shortage.domain())
            .on_nodes(&nodes);
        let position = |current| all.iter().position(|process| Arc::ptr_eq(process, current));
        let current = current.as_ref().and_then(position);
        let outcome = match self.requester(&census, &scope, current) {
            Some(current) => Ok(Chosen::Victim(current)),
            None => self.choose(&census, &scope, &mut kill_state.slots),
        };
        match outcome {
            Ok(chosen) => self.act(&census, &scope, shortage, chosen, &mut kill_state.waited),
            Err(error) => {
                self.tell(&census, scope, Verdict::Failed(error));
                Decision::Done(Relief::GiveUp(NoKill::NotSelected))
            }
        }
    }

    /// Acts on the outcome of a selection. Kills no process if there is enough memory by now, or if
    /// a victim is still leaving its address space and will free memory very soon.
    fn act(
        &self,
        census: &Census<'_, M>,
        scope: &Scope,
        shortage: &Shortage<'_, M>,
        chosen: Chosen,
        waited: &mut u32,
    ) -> Decision {
        if let Chosen::Nobody(NoVictim::Aborted { .. } | NoVictim::Unsettled) = chosen {
            return Decision::Wait;
        }
        if *waited < WAITS_MAX && census.has_leaving_victim() {
            *waited += 1;
            return Decision::Wait;
        }
        if let Some(relief) = shortage.is_over(census.machine()) {
            return Decision::Done(relief);
        }
        match chosen {
            Chosen::Victim(victim) => {
                *waited = 0;
                self.kill(census, scope, shortage.domain(), victim)
            }
            Chosen::Nobody(why) => {
                self.tell(census, *scope, Verdict::Nobody(why));
                Decision::Done(Relief::GiveUp(NoKill::NobodyLeft))
            }
        }
    }

    /// Returns whether the allocating process is dying. If it is, it may use the reserves from now
    /// on.
    fn lets_current_die(
        &self,
        machine: &M,
        shortage: &Shortage<'_, M>,
        current: &Arc<Process<M>>,
        all: &[Arc<Process<M>>],
    ) -> bool {
        if current.is(machine, State::Victim) {
            return true;
        }
        let dies = current.will_free_memory(machine, all.iter());
        if dies {
            // This call kills no process: it marks the allocating process as a victim and hands it
            // to the reaper.
            self.killer
                .kill_on(machine, current, &all.iter(), shortage.domain());
        }
        dies
    }

    /// Returns the index of the allocating process among the candidates, if the rules say to kill
    /// this process without considering any other.
    fn requester(
        &self,
        census: &Census<'_, M>,
        scope: &Scope,
        current: Option<usize>,
    ) -> Option<u32> {
        if self.rules.first != First::Requester || matches!(scope.constraint, Constraint::Group(_))
        {
            return None;
        }
        let current = count_of(current?);
        let facts = census.facts(current)?;
        let standing = Standing::of(census, scope, &facts);
        matches!(standing, Standing::Counted(_) | Standing::Origin).then_some(current)
    }

    fn choose(
        &self,
        census: &Census<'_, M>,
        scope: &Scope,
        slots: &mut [Slot],
    ) -> Result<Chosen, SelectError> {
        let machine = census.machine();
        machine.emit(Event::Begin(Phase::Select));
        let selection = match &self.selector {
            Some(selector) => select_by(&**selector, census, scope, slots),
            None => self.rules.selecting.select(census, scope, slots),
        };
        machine.emit(Event::End(Phase::Select));
        Ok(match selection?.outcome {
            Outcome::Victim(victim) => Chosen::Victim(victim.candidate),
            Outcome::Nobody(why) => Chosen::Nobody(why),
        })
    }

    fn kill(
        &self,
        census: &Census<'_, M>,
        scope: &Scope,
        domain: Option<&Arc<Budget<M>>>,
        victim: u32,
    ) -> Decision {
        let machine = census.machine();
        let row = Row::of(census, scope, victim);
        let (Some(victim), Some(row)) = (census.process(victim), row) else {
            // The victim has exited and freed its memory.
            return Decision::Done(Relief::Retry);
        };
        let all = census.processes().iter();
        let killed = self.killer.kill_on(machine, victim, &all, domain);
        if killed.aftermath == Aftermath::Gone {
            return Decision::Done(Relief::Retry);
        }
        self.tell(census, *scope, Verdict::Killed(row, killed));
        Decision::Wait
    }

    fn tell(&self, census: &Census<'_, M>, scope: Scope, verdict: Verdict) {
        let report = Report {
            scope,
            census,
            verdict,
        };
        self.owner.report(census.machine(), &report);
    }
}

#[derive(Clone, Copy)]
enum Chosen {
    Victim(u32),
    Nobody(NoVictim),
}

impl<M, S, O> LastResort<M> for Arc<OutOfMemory<M, S, O>>
where
    M: Machine,
    S: Signals<M>,
    O: Owner<M>,
    OutOfMemory<M, S, O>: Send + Sync,
{
    fn out_of_memory(&self, machine: &M, pages: &PageAllocator<M>, request: Request) -> Relief {
        self.relieve(machine, pages, request)
    }
}

impl<M: Machine, S, O> fmt::Debug for OutOfMemory<M, S, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutOfMemory")
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}
