//! Making room when nothing more can be reclaimed (Linux: `out_of_memory`).
//!
//! ```text
//! lock ── busy ──> is who asks a victim? ── else pause, try the allocation again
//!   ├─ is there plenty by now? notifiers? does who asks die anyway?
//!   ├─ select ── somebody is dying still ──> pause, try again
//!   ├─ is there plenty by now?
//!   └─ kill, report ──> pause, try again
//! ```
//!
//! **One kill at a time.** Whoever is about to kill looks for memory once more, and does so after the
//! selection: that one has found that nobody is dying, so what earlier victims had is back, and is
//! found. Linux looks before only; a victim that is done between the look and the selection is
//! followed by another one that need not have died. Nor does Linux wait for who was reaped while it was
//! leaving, and holds pages that are not back yet; here it is, for some ticks.
//!
//! Nothing here allocates: the selection works in slots that were set aside by
//! [`OutOfMemory::reserve`].
//!
//! Locks: `OomKill`, only ever tried; inside those of draining and of `reaper`.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use super::candidate::Candidates;
use super::census::Census;
use super::kill::{Aftermath, OomKiller, Signals};
use super::process::{Process, State};
use super::report::{Report, Row, Verdict};
use super::scope::{Constraint, NodeSet, Scope, Standing};
use super::select::{NoVictim, Outcome, SelectError, Selecting, Slot};
use super::shortage::Shortage;
use crate::design::Design;
use crate::event::{Event, Phase};
use crate::machine::{Lock, Machine};
use crate::page::{LastResort, NoKill, PageAllocator, Reclaimer, Relief, Request};
use crate::room::{self, NoRoom};
use crate::site::{LockClass, Site};
use crate::space::budget::Budget;
use crate::space::vma_tree::NoMemory;
use crate::units::Pages;

/// Looks at all processes of an [`Owner`].
pub type Look<'l, M> = dyn FnMut(&[Arc<Process<M>>]) + 'l;

/// Who owns the processes. All may be called on any CPU, and must not allocate pages.
pub trait Owner<M: Machine> {
    /// Calls `look` once with all processes, in the order in which they were made. None is given back
    /// meanwhile; [`Signals`] are called from inside.
    fn with_processes(&self, machine: &M, look: &mut Look<'_, M>);

    /// The process for which the caller allocates, if it is one (Linux: `current`).
    fn current(&self, machine: &M) -> Option<Arc<Process<M>>>;

    /// Lets others run, for a tick or so, among them whoever was told to die.
    fn pause(&self, machine: &M);

    /// The nodes the caller may take memory from, if not from all: those who may not use any of them
    /// are not killed for it (Linux: `cpuset_current_mems_allowed`).
    fn allowed(&self, machine: &M) -> Option<NodeSet> {
        let _ = machine;
        None
    }

    /// The nodes that threads of `process` may take memory from.
    fn nodes(&self, machine: &M, process: &Process<M>) -> NodeSet {
        let _ = (machine, process);
        NodeSet::ALL
    }

    /// Somebody was killed, or nobody could be. Called with the lock held, from inside
    /// [`Owner::with_processes`].
    fn report(&self, machine: &M, report: &Report<'_, M>) {
        let _ = (machine, report);
    }
}

/// How it is decided who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How the victim is found: that of a [`Design`], unless who embeds it wants another.
    pub selecting: Selecting,
    /// Whom to look at first.
    pub first: First,
    /// Pages of swap there are; they count as memory (Linux: `total_swap_pages`).
    pub swap_pages: u64,
}

/// Whom to look at first when the machine is out of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// Whoever has most.
    Largest,
    /// Whoever asks, if it may be killed, without looking at the others (Linux:
    /// `vm.oom_kill_allocating_task`).
    WhoAsks,
}

impl Rules {
    /// Whoever has most, found as `design` says, on a machine without swap.
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

/// The last resort that kills.
pub struct OutOfMemory<M: Machine, S, O> {
    killer: Arc<OomKiller<M, S>>,
    owner: O,
    rules: Rules,
    notifiers: Vec<Box<dyn Reclaimer<M>>>,
    /// Who holds the lock decides.
    desk: M::Lock<Desk>,
}

struct Desk {
    /// What a selection works in.
    slots: Vec<Slot>,
    /// Pauses since the last kill because a victim was leaving.
    waited: u32,
}

/// So often a victim that is leaving is waited for although it was reaped or given up on: who empties
/// it may hold pages that are not back yet, but may also be stuck.
const WAITS_MAX: u32 = 10;

enum Step {
    Done(Relief),
    /// Somebody is dying, or somebody else decides.
    Wait,
}

impl<M: Machine, S: Signals<M>, O: Owner<M>> OutOfMemory<M, S, O> {
    /// Kills by `killer` whom `owner` has, after asking `notifiers` for memory (Linux:
    /// `oom_notify_list`). Slots for candidates are to be reserved.
    pub fn new(
        machine: &M,
        killer: Arc<OomKiller<M, S>>,
        owner: O,
        rules: Rules,
        notifiers: Vec<Box<dyn Reclaimer<M>>>,
    ) -> Self {
        // Of one slot a selection can be made, if slowly.
        let desk = Desk {
            slots: alloc::vec![Slot::EMPTY; 1],
            waited: 0,
        };
        Self {
            desk: machine.lock(LockClass::OomKill, machine.this_cpu(), desk),
            killer,
            owner,
            rules,
            notifiers,
        }
    }

    /// Who kills.
    pub const fn killer(&self) -> &Arc<OomKiller<M, S>> {
        &self.killer
    }

    /// Who owns the processes.
    pub const fn owner(&self) -> &O {
        &self.owner
    }

    /// Sets room aside to select among so many candidates. With less a selection is as right, but
    /// takes longer. Memory is taken without the lock, which those who are out of memory wait for.
    ///
    /// # Errors
    /// [`NoMemory`]; nothing has changed.
    pub fn reserve(&self, machine: &M, candidates: usize) -> Result<(), NoMemory> {
        let room = self
            .desk
            .with(machine, Site::OutOfMemory, |desk| desk.slots.capacity());
        let mut longer = Vec::new();
        if room < candidates {
            longer = room::list_of(candidates).map_err(|NoRoom| NoMemory)?;
        }
        self.desk.with(machine, Site::OutOfMemory, |desk| {
            room::replace(&mut desk.slots, &mut longer);
            // The list has room for so many: it only becomes longer.
            if desk.slots.len() < candidates {
                desk.slots.resize(candidates, Slot::EMPTY);
            }
        });
        Ok(())
    }

    /// An allocation from `pages` has failed: makes room.
    pub fn relieve(&self, machine: &M, pages: &PageAllocator<M>, request: Request) -> Relief {
        self.relieve_shortage(machine, &Shortage::Machine(pages, request))
    }

    /// `budget` is too full for so many `pages` more: makes room among those who are under it (Linux:
    /// `mem_cgroup_out_of_memory`). Never [`Relief::Allocated`].
    pub fn relieve_group(&self, machine: &M, budget: &Arc<Budget<M>>, pages: u64) -> Relief {
        self.relieve_shortage(machine, &Shortage::Group(budget, pages))
    }

    fn relieve_shortage(&self, machine: &M, shortage: &Shortage<'_, M>) -> Relief {
        let decided = self.desk.try_with(machine, Site::OutOfMemory, |desk| {
            self.decide(machine, shortage, desk)
        });
        match decided {
            Some(Step::Done(relief)) => relief,
            // Those who wait for a victim would keep it from dying if it had to wait for their lock.
            None if self.is_current_victim(machine) => Relief::Reserves,
            // Without the lock, which others find busy meanwhile for nothing.
            Some(Step::Wait) | None => {
                self.owner.pause(machine);
                Relief::Retry
            }
        }
    }

    /// Whether who asks was chosen, and may use the reserves (Linux: `tsk_is_oom_victim`).
    fn is_current_victim(&self, machine: &M) -> bool {
        let current = self.owner.current(machine);
        current.is_some_and(|current| current.is(machine, State::Victim))
    }

    /// What to do. One at a time.
    fn decide(&self, machine: &M, shortage: &Shortage<'_, M>, desk: &mut Desk) -> Step {
        if let Some(relief) = shortage.is_over(machine) {
            return Step::Done(relief);
        }
        if let Shortage::Machine(pages, request) = shortage {
            let wanted = request.order.pages();
            let mut freed = Pages::ZERO;
            for notifier in &self.notifiers {
                freed += notifier.reclaim(machine, pages, wanted);
            }
            if freed > Pages::ZERO {
                return Step::Done(Relief::Retry);
            }
        }
        let mut step = Step::Wait;
        self.owner.with_processes(machine, &mut |all| {
            step = self.decide_among(machine, shortage, all, desk);
        });
        step
    }

    fn decide_among(
        &self,
        machine: &M,
        shortage: &Shortage<'_, M>,
        all: &[Arc<Process<M>>],
        desk: &mut Desk,
    ) -> Step {
        let current = self.owner.current(machine);
        if let Some(current) = &current
            && self.lets_current_die(machine, shortage, current, all)
        {
            return Step::Done(Relief::Reserves);
        }
        let allowed = self.owner.allowed(machine);
        let Some(scope) = shortage.scope(allowed, self.rules.swap_pages) else {
            return Step::Done(Relief::GiveUp(NoKill::NobodyLeft));
        };
        let nodes = |process: &Process<M>| self.owner.nodes(machine, process);
        let census = Census::new(machine, all)
            .within(shortage.domain())
            .on_nodes(&nodes);
        let position = |current| all.iter().position(|it| Arc::ptr_eq(it, current));
        let current = current.as_ref().and_then(position);
        let outcome = match self.who_asks(&census, &scope, current) {
            Some(current) => Ok(Chosen::Victim(current)),
            None => self.choose(&census, &scope, &mut desk.slots),
        };
        match outcome {
            Ok(chosen) => self.act(&census, &scope, shortage, chosen, &mut desk.waited),
            Err(_) => Step::Done(Relief::GiveUp(NoKill::NotSelected)),
        }
    }

    /// Does what was chosen, unless there is memory by now or very soon.
    fn act(
        &self,
        census: &Census<'_, M>,
        scope: &Scope,
        shortage: &Shortage<'_, M>,
        chosen: Chosen,
        waited: &mut u32,
    ) -> Step {
        if let Chosen::Nobody(NoVictim::Aborted { .. } | NoVictim::Unsettled) = chosen {
            return Step::Wait;
        }
        if *waited < WAITS_MAX && census.has_leaving_victim() {
            *waited += 1;
            return Step::Wait;
        }
        if let Some(relief) = shortage.is_over(census.machine()) {
            return Step::Done(relief);
        }
        match chosen {
            Chosen::Victim(victim) => {
                *waited = 0;
                self.kill(census, scope, shortage.domain(), victim)
            }
            Chosen::Nobody(why) => {
                self.tell(census, *scope, Verdict::Nobody(why));
                Step::Done(Relief::GiveUp(NoKill::NobodyLeft))
            }
        }
    }

    /// Whether who asks is dying; if so, it may use the reserves from now on.
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
            // Kills nobody: marks it, and hands it to the reaper.
            self.killer
                .kill_on(machine, current, &all.iter(), shortage.domain());
        }
        dies
    }

    /// The number of who asks, if it is to be killed without looking at others.
    fn who_asks(
        &self,
        census: &Census<'_, M>,
        scope: &Scope,
        current: Option<usize>,
    ) -> Option<u32> {
        if self.rules.first != First::WhoAsks || matches!(scope.constraint, Constraint::Group(_)) {
            return None;
        }
        let current = u32::try_from(current?).ok()?;
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
        let selection = self.rules.selecting.select(census, scope, slots);
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
    ) -> Step {
        let machine = census.machine();
        let row = Row::of(census, scope, victim);
        let (Some(victim), Some(row)) = (census.process(victim), row) else {
            // It has exited: memory comes back by itself.
            return Step::Done(Relief::Retry);
        };
        let all = census.processes().iter();
        let killed = self.killer.kill_on(machine, victim, &all, domain);
        if killed.aftermath == Aftermath::Gone {
            return Step::Done(Relief::Retry);
        }
        self.tell(census, *scope, Verdict::Killed(row, killed));
        Step::Wait
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
