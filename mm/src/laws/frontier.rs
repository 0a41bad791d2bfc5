//! Laws (tests for threads, model checkers and the simulator) of frontiers. A frontier is the word
//! by which *walkers*, the CPUs that empty one address space together, claim its page tables from
//! both ends.
//!
//! In the tests of this file, a walker empties a table by setting the table's mark. Only the walker
//! that claimed the table sets the mark, by a relaxed load and a relaxed store. So only the
//! frontier orders the accesses of different walkers to a mark.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

use super::{Body, Law};
use crate::machine::{Machine, Word};
use crate::site::Site;
use crate::space::frontier::{Claim, Claimer, End, Frontier, Left, NotJoined};

/// The state of the tests in this file: a few page tables that walkers (CPUs that empty one address
/// space together) empty.
pub struct FewTables<M: Machine> {
    frontier: Frontier<M>,
    /// The number of tables that a walker (a CPU that empties tables) claims at a time while other
    /// walkers are at work.
    share: u64,
    /// For each table, the number of times it was emptied.
    emptied: Box<[M::Word]>,
    /// For each page table, the number of times that a walker (a CPU that empties tables) dropped
    /// the mappings that begin in this table.
    forgotten: Box<[M::Word]>,
    /// For each CPU, 1 while the CPU takes part in emptying the address space, otherwise 0.
    at_work: Box<[M::Word]>,
    /// The number of walkers (CPUs that empty tables) that were told to finish the address space.
    /// Only the walker that leaves last is told so.
    finished: M::Word,
}

impl<M: Machine> fmt::Debug for FewTables<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FewTables").finish_non_exhaustive()
    }
}

impl<M: Machine> FewTables<M> {
    fn new(machine: &M, tables: usize, walkers: usize) -> Self {
        let words = |words| (0..words).map(|_| machine.word(0)).collect();
        Self {
            frontier: Frontier::with_rests(machine, 1),
            share: 1,
            emptied: words(tables),
            forgotten: words(tables),
            at_work: words(walkers),
            finished: machine.word(0),
        }
    }

    /// Empties tables as the last user (the thread that ends the address space) does: from the
    /// lowest one upwards, and then those that helpers have handed back.
    fn exit(&self, machine: &M) {
        let mut walker = self.frontier.join_last_user(machine);
        self.begin(machine);
        while let Some(claim) = self.claim(machine, &mut walker) {
            self.empty(machine, &claim.tables);
            if claim.exiting {
                self.forget(machine, &claim.tables);
            }
        }
        for tables in self.frontier.take_back(machine, Site::Exit) {
            self.empty(machine, &tables);
        }
        self.leave(machine);
    }

    /// Acts as a helper (a thread beside the last user, such as the reaper). First empties the
    /// tables that were handed back, then other tables from the highest one downwards. The helper
    /// hands back the tables for which `refuses` returns true.
    fn help(&self, machine: &M, refuses: impl Fn(u64) -> bool) {
        let Ok(mut walker) = self.frontier.join(machine) else {
            return;
        };
        self.begin(machine);
        for tables in self.frontier.take_back(machine, Site::Reap) {
            self.empty(machine, &tables);
        }
        while let Some(claim) = self.claim(machine, &mut walker) {
            for table in self.few(&claim.tables) {
                if refuses(table) {
                    self.frontier
                        .hand_back(machine, Site::Reap, table..table + 1);
                } else {
                    self.empty(machine, &(table..table + 1));
                }
            }
            if claim.exiting {
                self.forget(machine, &claim.tables);
            }
        }
        self.leave(machine);
    }

    fn tables(&self) -> u64 {
        self.emptied.len() as u64
    }

    /// Empties one table as a helper (a thread beside the last user, such as the reaper), and then
    /// leaves without emptying the other tables that it has claimed.
    fn help_a_little(&self, machine: &M) {
        let Ok(mut walker) = self.frontier.join(machine) else {
            return;
        };
        self.begin(machine);
        if let Some(claim) = self.claim(machine, &mut walker) {
            self.empty(machine, &claim.tables);
            if claim.exiting {
                self.forget(machine, &claim.tables);
            }
        }
        self.leave(machine);
    }

    /// Claims two tables while no other walker is at work, and `share` tables otherwise.
    fn claim(&self, machine: &M, walker: &mut Claimer) -> Option<Claim> {
        let share = |at_work| if at_work == 1 { 2 } else { self.share };
        let end = walker.end();
        let beyond = |table: u64| match end {
            End::Low => (table < self.tables()).then_some(table),
            End::High => table.min(self.tables()).checked_sub(1),
        };
        self.frontier.claim(machine, walker, share, beyond)
    }

    /// Returns the part of `tables` that exists.
    fn few(&self, tables: &Range<u64>) -> Range<u64> {
        tables.start..tables.end.min(self.tables())
    }

    fn begin(&self, machine: &M) {
        // Relaxed: only the frontier, by which walkers claim tables, may order the walkers'
        // accesses; see the file's header.
        self.at_work[machine.this_cpu().index()].store(machine, 1, Relaxed);
    }

    fn empty(&self, machine: &M, tables: &Range<u64>) {
        self.mark(machine, &self.emptied, tables);
    }

    /// Records that a walker (a CPU that empties tables) has dropped the mappings that begin in
    /// `tables`.
    fn forget(&self, machine: &M, tables: &Range<u64>) {
        self.mark(machine, &self.forgotten, tables);
    }

    fn mark(&self, machine: &M, marks: &[M::Word], tables: &Range<u64>) {
        for table in self.few(tables) {
            let mark = &marks[usize::try_from(table).expect("few tables")];
            // A load and a store suffice, because only the walker that claimed the table changes
            // its mark.
            let before = mark.load(machine, Relaxed);
            mark.store(machine, before + 1, Relaxed);
        }
    }

    fn leave(&self, machine: &M) {
        self.at_work[machine.this_cpu().index()].store(machine, 0, Relaxed);
        if self.frontier.leave(machine) == Left::Finish {
            self.finish(machine);
        }
    }

    /// Does the remaining work as the last walker (a CPU that empties tables) to leave. Asserts
    /// that no other walker is at work or can join, and that the stores of all walkers are visible.
    fn finish(&self, machine: &M) {
        assert_eq!(self.finished.add(machine, 1, Relaxed), 1, "one finishes");
        for emptied in &self.emptied {
            let before = emptied.load(machine, Relaxed);
            emptied.store(machine, before.max(1), Relaxed);
        }
        for at_work in &self.at_work {
            assert_eq!(at_work.load(machine, Relaxed), 0, "all others have left");
        }
        for tables in self.frontier.unforgotten(machine) {
            self.forget(machine, &tables);
        }
        let late = self.frontier.join(machine);
        assert_eq!(late, Err(NotJoined::TooLate), "it is too late to help");
    }

    fn is_done(&self, machine: &M) {
        assert_eq!(self.finished.load(machine, Relaxed), 1, "one finished");
        for emptied in &self.emptied {
            assert_eq!(emptied.load(machine, Relaxed), 1, "emptied once");
        }
        for forgotten in &self.forgotten {
            assert_eq!(forgotten.load(machine, Relaxed), 1, "forgotten once");
        }
    }
}

fn law<M: Machine>(
    name: &'static str,
    setup: fn(&M) -> FewTables<M>,
    helpers: &[Body<M, FewTables<M>>],
) -> Law<M, FewTables<M>> {
    let mut bodies: Vec<Body<M, FewTables<M>>> = vec![|machine, few| few.exit(machine)];
    bodies.extend(helpers);
    Law {
        name,
        setup,
        bodies,
        check: |machine, few| few.is_done(machine),
    }
}

/// The last user of an address space and one helper empty its page tables at the same time. Each
/// table is emptied once, and the CPU that leaves last is told to finish the address space.
#[must_use]
pub fn meeting_in_the_middle<M: Machine>() -> Law<M, FewTables<M>> {
    law(
        "every table is emptied once, and the last walker to leave is told to finish",
        |machine| FewTables::new(machine, 3, 2),
        &[|machine, few| few.help(machine, |_| false)],
    )
}

/// The last user of an address space and one helper empty its page tables at the same time. The
/// helper hands a table back, and a CPU that comes later empties this table.
#[must_use]
pub fn handing_back<M: Machine>() -> Law<M, FewTables<M>> {
    law(
        "a table that is handed back is emptied once, by a walker that comes later",
        |machine| FewTables::new(machine, 3, 2),
        &[|machine, few| few.help(machine, |table| table == 1)],
    )
}

/// The last user of an address space and one helper empty its page tables. The helper leaves before
/// it has begun all tables that it has claimed. The last user empties these tables.
#[must_use]
pub fn leaving_a_rest<M: Machine>() -> Law<M, FewTables<M>> {
    law(
        "tables that a walker has claimed and not begun are emptied by others",
        |machine| FewTables {
            share: 2,
            ..FewTables::new(machine, 3, 2)
        },
        &[|machine, few| few.help_a_little(machine)],
    )
}

/// A helper (such as the reaper) leaves before it has begun all tables that it has claimed, and
/// then comes back. Each of these tables is emptied once, by the helper or by the last user of the
/// address space.
#[must_use]
pub fn coming_back_to_a_rest<M: Machine>() -> Law<M, FewTables<M>> {
    law(
        "a walker that comes back to its claim empties it once, unless others have",
        |machine| FewTables {
            share: 2,
            ..FewTables::new(machine, 3, 2)
        },
        &[|machine, few| {
            few.help_a_little(machine);
            few.help(machine, |_| false);
        }],
    )
}

/// The last user of an address space and two helpers empty its page tables at the same time. Each
/// of the three CPUs leaves when it finds no more tables. Only the one that leaves last is told to
/// finish the address space.
#[must_use]
pub fn two_helpers<M: Machine>() -> Law<M, FewTables<M>> {
    let helper: Body<M, FewTables<M>> = |machine, few| few.help(machine, |_| false);
    law(
        "of three walkers that leave, one is told to finish, once all have left",
        |machine| FewTables::new(machine, 1, 3),
        &[helper, helper],
    )
}

/// The last user of an address space empties its page tables beside helpers that leave and join
/// again. One helper hands a table back. Exactly one CPU is told to finish.
#[must_use]
pub fn helpers_come_and_go<M: Machine>() -> Law<M, FewTables<M>> {
    let helper: Body<M, FewTables<M>> = |machine, few| few.help(machine, |_| false);
    law(
        "exactly one of many walkers is told to finish, even if others come late or hand tables back",
        |machine| FewTables::new(machine, 5, 4),
        &[
            helper,
            |machine, few| {
                few.help(machine, |table| table % 2 == 1);
                few.help(machine, |_| false);
            },
            helper,
        ],
    )
}
