//! A process as the OOM killer and the reaper see it.
//!
//! One word holds all states of a process, so one atomic step decides between states that exclude
//! each other. For example, a victim cannot be frozen again, and a process that has left its
//! address space cannot become a victim.
//!
//! This file takes no lock.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::facts::{Facts, Kind, Memory as Whose, ScoreAdj};
use super::membership::Membership;
use crate::machine::{Field, Machine, Word};
use crate::space::{AddressSpace, ExitError, Exited, Flag, Memory};
use crate::units::ProcessId;

/// A process: all of its threads together (Linux: a thread group).
///
/// [`OomKiller::enroll`](super::OomKiller::enroll) makes a process, and
/// [`OomKiller::retire`](super::OomKiller::retire) frees it.
pub struct Process<M: Machine> {
    id: ProcessId,
    kind: Kind,
    space: Option<Arc<AddressSpace<M>>>,
    state: M::Word,
    adj: M::Field,
    /// Reserves room for the process in the reaper's queue until the process is dropped.
    _room: Membership,
}

/// A state of a process. A process may be in several states at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// The process uses its parent's memory until it starts a program (Linux: `in_vfork`).
    Vfork,
    /// The process asked to be killed first (Linux: `oom_flag_origin`).
    Origin,
    /// The process's memory is being written to a core file: the process is dying, but not soon
    /// (Linux: `core_state`).
    CoreDumping,
    /// Every thread of the process is exiting without a signal (Linux: `PF_EXITING` of a single
    /// thread).
    Exiting,
    /// Every thread of the process was signalled to die (Linux: `SIGNAL_GROUP_EXIT`).
    Killed,
    /// The process does not run until it is thawed (Linux: the freezer).
    Frozen,
    /// The OOM killer chose the process: it may use the memory reserves and cannot be frozen
    /// (Linux: `TIF_MEMDIE` and `signal->oom_mm`).
    Victim,
    /// The process no longer uses its address space (Linux: no thread has an `mm`).
    Left,
}

/// The state of an address space after a process has left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parted {
    /// There was no address space: the process is a kernel thread.
    Nothing,
    /// Other processes still use the address space.
    Shared,
    /// The process was the last user of the address space, so the space was ended.
    Last(Exited),
}

impl<M: Machine> Process<M> {
    pub(super) fn new(
        machine: &M,
        id: ProcessId,
        kind: Kind,
        space: Option<Arc<AddressSpace<M>>>,
        room: Membership,
    ) -> Self {
        if let Some(space) = &space {
            space.add_user(machine);
        }
        Self {
            id,
            kind,
            space,
            state: machine.word(0),
            adj: machine.field(encode(ScoreAdj::ZERO)),
            _room: room,
        }
    }

    /// Returns the process's id, as passed to [`OomKiller::enroll`](super::OomKiller::enroll).
    pub const fn id(&self) -> ProcessId {
        self.id
    }

    /// Returns the kind of process: an ordinary one, the first process or a kernel thread.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the adjustment that makes the process more or less likely to be killed than others.
    pub fn adj(&self) -> ScoreAdj {
        decode(self.adj.get())
    }

    /// Changes the adjustment. If two CPUs change it at once, either value may remain.
    pub fn set_adj(&self, adj: ScoreAdj) {
        self.adj.set(encode(adj));
    }

    /// Returns the address space of the process; `None` for a kernel thread, or after the process
    /// has left its space.
    pub fn space(&self, machine: &M) -> Option<&Arc<AddressSpace<M>>> {
        let left = self.is(machine, State::Left);
        self.last_space().filter(|_| !left)
    }

    /// Returns the address space of the process, even after the process has left it (Linux:
    /// `signal->oom_mm`).
    pub(super) const fn last_space(&self) -> Option<&Arc<AddressSpace<M>>> {
        self.space.as_ref()
    }

    pub(super) fn into_space(self) -> Option<Arc<AddressSpace<M>>> {
        self.space
    }

    /// Returns whether the process uses `space`.
    pub(super) fn uses(&self, machine: &M, space: &Arc<AddressSpace<M>>) -> bool {
        self.space(machine)
            .is_some_and(|mine| Arc::ptr_eq(mine, space))
    }

    /// Returns whether the process is in `state`.
    pub fn is(&self, machine: &M, state: State) -> bool {
        self.state(machine) & bit(state) != 0
    }

    /// Puts the process into `state`. Returns whether it was not in that state before.
    ///
    /// # Panics
    /// If `state` is [`State::Frozen`], [`State::Victim`] or [`State::Left`], which only other
    /// methods change.
    pub fn set(&self, machine: &M, state: State) -> bool {
        assert_told(state);
        self.change(machine, |now| Some(now | bit(state)))
            .is_ok_and(|before| before & bit(state) == 0)
    }

    /// Takes the process out of `state`.
    ///
    /// # Panics
    /// If `state` is [`State::Frozen`], [`State::Victim`] or [`State::Left`], which only other
    /// methods change.
    pub fn clear(&self, machine: &M, state: State) {
        assert_told(state);
        let cleared = self.change(machine, |now| Some(now & !bit(state)));
        debug_assert!(cleared.is_ok(), "nothing speaks against it");
    }

    /// Freezes the process, unless it is a victim. Returns whether it is frozen now (Linux:
    /// `freezing`).
    pub fn freeze(&self, machine: &M) -> bool {
        let freeze = |now| (now & bit(State::Victim) == 0).then_some(now | bit(State::Frozen));
        self.change(machine, freeze).is_ok()
    }

    /// Thaws the process, so that it runs again. Returns whether it was frozen.
    pub fn thaw(&self, machine: &M) -> bool {
        self.change(machine, |now| Some(now & !bit(State::Frozen)))
            .is_ok_and(|before| before & bit(State::Frozen) != 0)
    }

    /// Makes the process a victim of the OOM killer and thaws it. Changes nothing if the process is
    /// a victim already, or has left its address space. Returns the state before the change, or the
    /// unchanged state as the error.
    pub(super) fn make_victim(&self, machine: &M) -> Result<i64, i64> {
        let victim = |now: i64| {
            (now & (bit(State::Victim) | bit(State::Left)) == 0)
                .then_some((now | bit(State::Victim)) & !bit(State::Frozen))
        };
        self.change(machine, victim)
    }

    /// Marks the process as having left its address space. Returns whether it had not left before.
    pub(super) fn leave(&self, machine: &M) -> bool {
        let left = bit(State::Left);
        self.change(machine, |now| (now & left == 0).then_some(now | left))
            .is_ok()
    }

    /// Ends the address space if no other process uses it. The process must have left the address
    /// space (Linux: `mmput`).
    pub(super) fn part(&self, memory: Memory<'_, M>) -> Result<Parted, ExitError> {
        match &self.space {
            None => Ok(Parted::Nothing),
            Some(space) if space.remove_user(memory.machine) => {
                space.exit(memory).map(Parted::Last)
            }
            Some(_) => Ok(Parted::Shared),
        }
    }

    /// Returns whether the process is dying, and will exit soon (Linux: `__task_will_free_mem`).
    fn is_dying(&self, machine: &M) -> bool {
        let now = self.state(machine);
        now & bit(State::CoreDumping) == 0 && now & (bit(State::Killed) | bit(State::Exiting)) != 0
    }

    /// Returns whether the memory of the process will be freed without a kill: the process is
    /// dying, and so are all processes of `all` that use the same memory (Linux:
    /// `task_will_free_mem`).
    pub(super) fn will_free_memory<'p>(
        &'p self,
        machine: &M,
        all: impl Iterator<Item = &'p Arc<Self>>,
    ) -> bool {
        let Some(space) = self.space(machine) else {
            return false;
        };
        self.is_dying(machine)
            && !space.has(machine, Flag::Skip)
            && (space.users(machine) <= 1
                || all
                    .filter(|other| other.uses(machine, space))
                    .all(|other| other.is_dying(machine)))
    }

    /// Returns the facts that a selection uses. In these facts, the memory group is 0 and every
    /// node is allowed. The caller can replace both values.
    pub fn facts(&self, machine: &M) -> Facts {
        let now = self.state(machine);
        Facts {
            kind: self.kind,
            memory: self.whose_memory(machine, now),
            adj: self.adj(),
            is_victim: now & bit(State::Victim) != 0,
            is_origin: now & bit(State::Origin) != 0,
            ..Facts::PROCESS
        }
    }

    fn whose_memory(&self, machine: &M, now: i64) -> Whose {
        match &self.space {
            None => Whose::Gone,
            Some(space) if space.has(machine, Flag::Skip) => Whose::Reaped,
            Some(_) if now & bit(State::Left) != 0 => Whose::Gone,
            Some(_) if now & bit(State::Vfork) != 0 => Whose::Parents,
            Some(_) => Whose::Own,
        }
    }

    fn state(&self, machine: &M) -> i64 {
        // Acquire pairs with the Release in `change`, so that stores made before a state was set
        // are visible.
        self.state.load(machine, Acquire)
    }

    /// Changes the state in one atomic step to the value that `to` returns. Returns the state
    /// before the change or, if `to` returns `None`, the current state as the error.
    fn change(&self, machine: &M, to: impl Fn(i64) -> Option<i64>) -> Result<i64, i64> {
        // Relaxed: the exchange fails if this value is out of date.
        let mut now = self.state.load(machine, Relaxed);
        // The loop ends: an exchange fails only if another CPU has changed the state in the
        // meantime, which happens seldom.
        while let Some(next) = to(now) {
            // AcqRel: the Release part pairs with the Acquire in `state`, and with the Acquire part
            // of later exchanges here.
            match self.state.compare_exchange(machine, now, next, AcqRel) {
                Ok(before) => return Ok(before),
                Err(others) => now = others,
            }
        }
        Err(now)
    }
}

/// Returns the bit that stands for `state` in the word with all states of a process.
pub(super) const fn bit(state: State) -> i64 {
    1 << state as u8
}

fn assert_told(state: State) {
    assert!(
        !matches!(state, State::Frozen | State::Victim | State::Left),
        "{state:?} follows from what is done to a process; no caller sets it"
    );
}

fn encode(adj: ScoreAdj) -> u64 {
    // The field holds the adjustment plus 1000, because a field cannot hold a negative number.
    u64::from(adj.get().abs_diff(ScoreAdj::NEVER.get()))
}

fn decode(field: u64) -> ScoreAdj {
    let adj = i32::try_from(field).map(|above| above + i32::from(ScoreAdj::NEVER.get()));
    adj.ok()
        .and_then(|adj| ScoreAdj::new(adj).ok())
        .expect("only adjustments are written")
}

impl<M: Machine> fmt::Debug for Process<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("adj", &self.adj())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_adjustment_is_read_as_it_was_written() {
        for adj in -1000..=1000 {
            let adj = ScoreAdj::new(adj).expect("in range");
            assert_eq!(decode(encode(adj)), adj);
        }
    }

    #[test]
    #[should_panic(expected = "Victim follows from")]
    fn nobody_says_that_a_process_is_a_victim() {
        assert_told(State::Victim);
    }
}
