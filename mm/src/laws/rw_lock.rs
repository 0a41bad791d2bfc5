//! Laws (tests for threads, model checkers and the simulator) of the reader-writer lock that every
//! machine provides.
//!
//! The lock guards two words that are equal whenever no writer is inside. A change is a load and
//! two stores. Suppose that the lock wrongly lets a second CPU in during a change. Then a reader
//! sees the words differ or change, or a change is lost and the count of changes is wrong.

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
    /// The number of changes that writers have made.
    changes: M::Word,
    /// 1 after a waiting CPU has been killed.
    killed: M::Word,
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

/// Returns whether the caller was killed. This function is for callers that are never killed.
fn never() -> bool {
    false
}

impl<M: Machine> Twins<M> {
    /// Adds one to both words, and returns their new value. The caller must be the only CPU that
    /// holds the lock.
    fn change(&mut self, machine: &M) -> i64 {
        // Relaxed stores suffice, because the lock orders this writer after all earlier ones. The
        // load is an acquire because in the simulator an acquire load is an order point, at which
        // other CPUs may run first.
        let changed = self.first.load(machine, Acquire) + 1;
        self.first.store(machine, changed, Relaxed);
        self.second.store(machine, changed, Relaxed);
        changed
    }

    /// Asserts that both words are equal, and that they do not change while this function reads
    /// them. Returns their value.
    fn look(&self, machine: &M) -> i64 {
        let first = self.first.load(machine, Acquire);
        let second = self.second.load(machine, Acquire);
        let again = self.first.load(machine, Acquire);
        assert_eq!(
            (second, again),
            (first, first),
            "another CPU writes meanwhile"
        );
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
            killed: machine.word(0),
        }
    }

    fn note_change(&self, machine: &M) {
        // Relaxed: the number of changes is read only after every CPU has ended its part of the
        // test.
        self.changes.add(machine, 1, Relaxed);
    }

    fn change(&self, machine: &M) {
        self.twins.write(machine, Site::Mmap, |twins| {
            twins.change(machine);
        });
        self.note_change(machine);
    }

    /// Makes one change as a caller that may be killed while it waits, but is not.
    fn change_patiently(&self, machine: &M) {
        assert_eq!(self.change_unless(machine, never), Some(()), "it gets in");
    }

    fn change_unless(&self, machine: &M, killed: impl Fn() -> bool) -> Option<()> {
        self.change_unless_then(machine, killed, || ())
    }

    /// Changes the locked value once, unless the caller is killed while it waits for the lock. Also
    /// calls `inside` while the lock is held.
    fn change_unless_then(
        &self,
        machine: &M,
        killed: impl Fn() -> bool,
        inside: impl Fn(),
    ) -> Option<()> {
        let change = |twins: &mut Twins<M>| {
            inside();
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

    /// Reads the words if the lock can be taken without waiting. Asserts that at most one change
    /// was made so far.
    fn look_if_free(&self, machine: &M) {
        let seen = self.try_look(machine);
        assert!(matches!(seen, None | Some(0 | 1)), "{seen:?}");
    }

    /// Reads the words as a caller that could be killed while it waits, but is not killed. Asserts
    /// that at most one change was made so far.
    fn look_patiently(&self, machine: &M) {
        let look = |twins: &Twins<M>| twins.look(machine);
        let twins = &self.twins;
        let seen = twins.read_killable(machine, Site::Fault, never, look);
        assert!(matches!(seen, Some(0 | 1)), "{seen:?}");
    }

    /// Changes both words. If `keeps` is true, continues as a reader and reads the words.
    fn change_and_look(&self, machine: &M, keeps: bool) {
        let change = |twins: &mut Twins<M>| {
            let changed = twins.change(machine);
            self.note_change(machine);
            keeps.then_some(changed)
        };
        let look = |twins: &Twins<M>, changed| {
            assert_eq!(twins.look(machine), changed, "another writer was in");
        };
        let twins = &self.twins;
        let outcome = twins.write_then_read(machine, Site::Munmap, never, change, look);
        assert_eq!(outcome, Some(keeps.then_some(())), "it gets in, and looks");
    }

    /// Calls `ask` as a caller that was already killed. The lock must admit the caller if the
    /// caller need not wait, and only then.
    fn ask_when_killed<R>(ask: impl FnOnce(&dyn Fn() -> bool) -> Option<R>) {
        let waited = Cell::new(false);
        let let_in = ask(&|| {
            waited.set(true);
            true
        });
        assert_eq!(
            let_in.is_none(),
            waited.get(),
            "a killed CPU gives up if it has to wait, and only then"
        );
    }

    /// Takes the lock by `enter`, unless a CPU that held the lock has killed the caller. `enter`
    /// gets two functions: the `killed` test, and a function to call while the lock is held.
    fn unless_killed(
        &self,
        machine: &M,
        enter: impl FnOnce(&dyn Fn() -> bool, &dyn Fn()) -> Option<()>,
    ) {
        let waited = Cell::new(false);
        // Relaxed would be enough: the asserted value was written by a CPU that held the lock, so
        // the lock orders it. The load is an acquire because in the simulator an acquire load is an
        // order point, at which other CPUs may run first.
        let is_killed = || self.killed.load(machine, Acquire) == 1;
        let killed = || {
            waited.set(true);
            is_killed()
        };
        let inside = || assert!(!(waited.get() && is_killed()), "it has to look again");
        let let_in = enter(&killed, &inside);
        assert!(
            let_in.is_some() || is_killed(),
            "a CPU that was not killed gets the lock"
        );
    }

    /// Asserts that the words behind the lock have been changed exactly as often as `changes` says,
    /// and that the lock is free.
    fn is_whole(&self, machine: &M) {
        let changes = self.changes.load(machine, Relaxed);
        assert_eq!(self.try_look(machine), Some(changes), "changes");
        assert!(!self.twins.writer_waits(machine), "no CPU waits");
        self.change_patiently(machine);
    }
}

/// Two CPUs take the lock to write, while one takes it to read. The reader never sees half of a
/// change, and no change is lost.
#[must_use]
pub fn writers_are_alone<M: Machine>() -> Law<M, Guarded<M>> {
    Law {
        name: "no reader sees half of a change, and no change undoes another",
        setup: Guarded::new,
        bodies: vec![
            |machine, guarded| guarded.change(machine),
            |machine, guarded| guarded.change_patiently(machine),
            |machine, guarded| guarded.look(machine),
        ],
        check: |machine, guarded| guarded.is_whole(machine),
    }
}

/// One CPU takes the lock to write, while two others take the lock to read. One of the two takes it
/// only if the lock is free. Each reader sees the whole change or nothing of it.
#[must_use]
pub fn readers_against_a_writer<M: Machine>() -> Law<M, Guarded<M>> {
    Law {
        name: "readers see a change as a whole, also those that only try or may be killed",
        setup: Guarded::new,
        bodies: vec![
            |machine, guarded| guarded.change(machine),
            |machine, guarded| guarded.look_if_free(machine),
            |machine, guarded| guarded.look_patiently(machine),
        ],
        check: |machine, guarded| guarded.is_whole(machine),
    }
}

/// Two callers that were killed try to take the lock while a third CPU writes. A killed caller that
/// has to wait gives up, and changes nothing.
#[must_use]
pub fn the_killed_give_up<M: Machine>() -> Law<M, Guarded<M>> {
    Law {
        name: "a killed CPU that has to wait gives up, does nothing, and leaves nothing locked",
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

/// The writer that holds the lock kills the callers that wait for it. None of them gets the lock.
#[must_use]
pub fn the_killed_look_again<M: Machine>() -> Law<M, Guarded<M>> {
    Law {
        name: "a CPU that was killed while it waited does not get the lock",
        setup: Guarded::new,
        bodies: vec![
            |machine, guarded| {
                guarded.twins.write(machine, Site::Exit, |twins| {
                    twins.change(machine);
                    // Relaxed: the lock that this CPU holds orders the store, as `unless_killed`
                    // says.
                    guarded.killed.store(machine, 1, Relaxed);
                });
                guarded.note_change(machine);
            },
            |machine, guarded| {
                guarded.unless_killed(machine, |killed, inside| {
                    guarded.change_unless_then(machine, killed, inside)
                });
            },
            |machine, guarded| {
                guarded.unless_killed(machine, |killed, inside| {
                    let look = |twins: &Twins<M>| {
                        inside();
                        twins.look(machine);
                    };
                    let twins = &guarded.twins;
                    twins.read_killable(machine, Site::Fault, killed, look)
                });
            },
        ],
        check: |machine, guarded| guarded.is_whole(machine),
    }
}

/// A writer continues as a reader while another CPU waits to write. The other CPU does not get the
/// lock between the write and the read.
#[must_use]
pub fn no_writer_between<M: Machine>() -> Law<M, Guarded<M>> {
    Law {
        name: "a writer that goes on as a reader meets no other writer in between",
        setup: Guarded::new,
        bodies: vec![
            |machine, guarded| guarded.change_and_look(machine, true),
            |machine, guarded| guarded.change(machine),
            |machine, guarded| guarded.change_and_look(machine, false),
        ],
        check: |machine, guarded| guarded.is_whole(machine),
    }
}
