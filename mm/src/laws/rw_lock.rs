//! What the lock that readers share promises on every machine.
//!
//! It guards two words that are equal whenever nobody writes. A change is a look and two steps, so
//! that whoever should not be inside meanwhile is noticed, or undoes it.

use alloc::vec;
use core::cell::Cell;
use core::fmt;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::Law;
use crate::machine::{Machine, RwLock, Word};
use crate::site::{LockClass, Site};
use crate::units::CpuId;

/// Two words behind a lock.
pub struct Guarded<M: Machine> {
    twins: M::RwLock<Twins<M>>,
    /// Changes that were made.
    changes: M::Word,
}

struct Twins<M: Machine> {
    first: M::Word,
    second: M::Word,
}

impl<M: Machine> fmt::Debug for Guarded<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded").finish_non_exhaustive()
    }
}

/// Nobody is killed.
fn never() -> bool {
    false
}

impl<M: Machine> Twins<M> {
    /// Adds one to both, as only somebody alone may. Returns what they are then.
    fn change(&mut self, machine: &M) -> i64 {
        // Relaxed: the lock orders; another writer's steps are behind it. A load that acquires is
        // an order point in the simulator.
        let changed = self.first.load(machine, Acquire) + 1;
        self.first.store(machine, changed, Relaxed);
        self.second.store(machine, changed, Relaxed);
        changed
    }

    /// Both are the same, and stay so. Returns what they are.
    fn look(&self, machine: &M) -> i64 {
        let first = self.first.load(machine, Acquire);
        let second = self.second.load(machine, Acquire);
        let again = self.first.load(machine, Acquire);
        assert_eq!((second, again), (first, first), "somebody writes meanwhile");
        first
    }
}

impl<M: Machine> Guarded<M> {
    fn new(machine: &M) -> Self {
        let twins = Twins {
            first: machine.word(0),
            second: machine.word(0),
        };
        Self {
            twins: machine.rw_lock(LockClass::Mmap, CpuId(0), twins),
            changes: machine.word(0),
        }
    }

    fn note_change(&self, machine: &M) {
        // Relaxed: a sum that is looked at when all have ended.
        self.changes.add(machine, 1, Relaxed);
    }

    fn change(&self, machine: &M) {
        self.twins.write(machine, Site::Mmap, |twins| {
            twins.change(machine);
        });
        self.note_change(machine);
    }

    fn change_unless(&self, machine: &M, killed: impl Fn() -> bool) -> Option<()> {
        let change = |twins: &mut Twins<M>| {
            twins.change(machine);
            self.note_change(machine);
        };
        self.twins
            .write_killable(machine, Site::Mmap, killed, change)
    }

    fn look(&self, machine: &M) {
        self.twins
            .read(machine, Site::Fault, |twins| twins.look(machine));
    }

    fn try_look(&self, machine: &M) -> Option<i64> {
        let look = |twins: &Twins<M>| twins.look(machine);
        self.twins.try_read(machine, Site::Fault, look)
    }

    /// Changes them and goes on looking, if `keeps`.
    fn change_and_look(&self, machine: &M, keeps: bool) -> Option<Option<()>> {
        let change = |twins: &mut Twins<M>| {
            let changed = twins.change(machine);
            self.note_change(machine);
            keeps.then_some(changed)
        };
        let look = |twins: &Twins<M>, changed| {
            assert_eq!(twins.look(machine), changed, "another writer was in");
        };
        self.twins
            .write_then_read(machine, Site::Munmap, never, change, look)
    }

    /// Asks by `ask` as somebody who was killed already: lets in who need not wait, no others.
    fn ask_when_killed<R>(ask: impl FnOnce(&dyn Fn() -> bool) -> Option<R>) {
        let waited = Cell::new(false);
        let let_in = ask(&|| {
            waited.set(true);
            true
        });
        assert_eq!(
            let_in.is_none(),
            waited.get(),
            "who was killed gives up if it has to wait, and only then"
        );
    }

    /// All changes are there, nothing else is, and nobody is left inside.
    fn is_whole(&self, machine: &M) {
        let changes = self.changes.load(machine, Relaxed);
        assert_eq!(self.try_look(machine), Some(changes), "changes");
        assert!(!self.twins.writer_waits(machine), "nobody waits");
        assert_eq!(self.change_unless(machine, never), Some(()));
    }
}

/// Two write while one reads.
#[must_use]
pub fn writers_are_alone<M: Machine>() -> Law<M, Guarded<M>> {
    Law {
        name: "no reader sees half of a change, and no change undoes another",
        setup: Guarded::new,
        bodies: vec![
            |machine, guarded| guarded.change(machine),
            |machine, guarded| {
                assert_eq!(guarded.change_unless(machine, never), Some(()));
            },
            |machine, guarded| guarded.look(machine),
        ],
        check: |machine, guarded| guarded.is_whole(machine),
    }
}

/// One writes while two read, one of whom only tries.
#[must_use]
pub fn readers_against_a_writer<M: Machine>() -> Law<M, Guarded<M>> {
    Law {
        name: "readers see a change as a whole, also those that only try or may be killed",
        setup: Guarded::new,
        bodies: vec![
            |machine, guarded| guarded.change(machine),
            |machine, guarded| {
                let seen = guarded.try_look(machine);
                assert!(matches!(seen, None | Some(0 | 1)), "{seen:?}");
            },
            |machine, guarded| {
                let look = |twins: &Twins<M>| twins.look(machine);
                let seen = guarded
                    .twins
                    .read_killable(machine, Site::Fault, never, look);
                assert!(matches!(seen, Some(0 | 1)), "{seen:?}");
            },
        ],
        check: |machine, guarded| guarded.is_whole(machine),
    }
}

/// Two that were killed want to get in while one writes.
#[must_use]
pub fn the_killed_give_up<M: Machine>() -> Law<M, Guarded<M>> {
    Law {
        name: "who was killed and has to wait gives up, does nothing, and leaves nothing locked",
        setup: Guarded::new,
        bodies: vec![
            |machine, guarded| guarded.change(machine),
            |machine, guarded| {
                Guarded::<M>::ask_when_killed(|killed| guarded.change_unless(machine, killed));
            },
            |machine, guarded| {
                let look = |twins: &Twins<M>| twins.look(machine);
                Guarded::<M>::ask_when_killed(|killed| {
                    let twins = &guarded.twins;
                    twins.read_killable(machine, Site::Fault, killed, look)
                });
            },
        ],
        check: |machine, guarded| guarded.is_whole(machine),
    }
}

/// One goes on as a reader while another wants to write.
#[must_use]
pub fn no_writer_between<M: Machine>() -> Law<M, Guarded<M>> {
    Law {
        name: "a writer that goes on as a reader meets no other writer in between",
        setup: Guarded::new,
        bodies: vec![
            |machine, guarded| {
                assert_eq!(guarded.change_and_look(machine, true), Some(Some(())));
            },
            |machine, guarded| guarded.change(machine),
            |machine, guarded| {
                assert_eq!(guarded.change_and_look(machine, false), Some(None));
            },
        ],
        check: |machine, guarded| guarded.is_whole(machine),
    }
}
