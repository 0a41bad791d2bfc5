//! Laws (tests for threads, model checkers and the simulator) of budgets while several CPUs charge
//! them at the same time.
//!
//! Two budgets are under a third, the root. Each CPU charges pages, counts the pages that it has
//! charged, and asserts that all CPUs together never exceed the limit of the root.

use alloc::sync::Arc;
use alloc::vec;
use core::fmt;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::{Body, Law};
use crate::machine::{Machine, Word};
use crate::space::budget::Budget;

/// The limit of the root budget, in pages: enough for the pages of one CPU, but not for those of
/// two.
const ROOT_LIMIT: u64 = 4;
/// The limit of the tight budget, in pages.
const TIGHT_LIMIT: u64 = 3;
/// The number of pages that a CPU charges.
const WANTED: u64 = 3;

/// The state of the tests in this file: a root budget with two budgets under it, one without a
/// limit and one with a tight limit.
pub struct FewBudgets<M: Machine> {
    root: Arc<Budget<M>>,
    wide: Arc<Budget<M>>,
    tight: Arc<Budget<M>>,
    /// The number of pages that CPUs have charged and not yet uncharged.
    held: M::Word,
    /// A CPU sets this to 1 before it uncharges its pages. A CPU whose charge succeeds only because
    /// of that uncharge must see the 1.
    done: M::Word,
}

impl<M: Machine> fmt::Debug for FewBudgets<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FewBudgets").finish_non_exhaustive()
    }
}

impl<M: Machine> FewBudgets<M> {
    fn new(machine: &M) -> Self {
        let root = Arc::new(Budget::new(machine, ROOT_LIMIT));
        let under = |limit| Arc::new(Budget::under(machine, limit, Arc::clone(&root)));
        Self {
            wide: under(u64::MAX),
            tight: under(TIGHT_LIMIT),
            held: machine.word(0),
            done: machine.word(0),
            root,
        }
    }

    /// Charges `pages` to `budget`. If there is room, counts them in `held`, and asserts that all
    /// CPUs together do not exceed the root's limit. Returns whether there was room.
    fn enters(&self, machine: &M, budget: &Budget<M>, pages: u64) -> bool {
        let let_in = budget.charge(machine, pages).is_ok();
        if let_in {
            let held = self.held.add(machine, pages.cast_signed(), AcqRel);
            let limit = ROOT_LIMIT.cast_signed();
            assert!(held <= limit, "{held} pages are in, {limit} may be");
        }
        let_in
    }

    fn leaves(&self, machine: &M, budget: &Budget<M>, pages: u64) {
        self.held.add(machine, -pages.cast_signed(), AcqRel);
        budget.uncharge(machine, pages);
    }

    /// Charges pages and uncharges them again. Then charges one page, which stays charged.
    fn churns(&self, machine: &M) {
        if self.enters(machine, &self.wide, WANTED) {
            self.leaves(machine, &self.wide, WANTED);
        }
        self.enters(machine, &self.wide, 1);
    }

    /// Charges a page. Then two further charges are refused: one by the tight budget, and one by
    /// the root, after the wide budget has accepted it.
    fn squeezes(&self, machine: &M) {
        if self.enters(machine, &self.tight, 1) {
            let too_many = self.enters(machine, &self.tight, TIGHT_LIMIT);
            assert!(!too_many, "its own limit is less");
        }
        let too_many = self.enters(machine, &self.wide, ROOT_LIMIT + 1);
        assert!(!too_many, "the root's limit is less");
    }

    /// Makes the budgets, and charges [`WANTED`] pages to the budget `wide`.
    fn with_one_in(machine: &M) -> Self {
        let budgets = Self::new(machine);
        assert!(budgets.enters(machine, &budgets.wide, WANTED));
        budgets
    }

    /// Sets `done`, and then uncharges the pages that were charged in the set-up.
    fn does_and_leaves(&self, machine: &M) {
        // Relaxed: the uncharge in `leaves`, on the next line, publishes this store.
        self.done.store(machine, 1, Relaxed);
        self.leaves(machine, &self.wide, WANTED);
    }

    /// Tries to charge pages. This succeeds only if the other CPU has uncharged its pages, because
    /// the root has no room for the pages of both CPUs. If the charge succeeds, asserts that this
    /// CPU sees `done` set.
    fn follows(&self, machine: &M) {
        if self.wide.charge(machine, WANTED).is_ok() {
            let done = self.done.load(machine, Relaxed);
            assert_eq!(done, 1, "a CPU that is admitted sees what was done before");
            self.wide.uncharge(machine, WANTED);
        }
    }

    /// Asserts that the root budget counts exactly the charged pages, and that the two budgets
    /// below it together count the same pages.
    fn is_exact(&self, machine: &M) {
        let held = self.held.load(machine, Acquire).cast_unsigned();
        let [root, wide, tight] =
            [&self.root, &self.wide, &self.tight].map(|budget| budget.used(machine));
        assert_eq!(root, held, "nothing is lost");
        assert_eq!(wide + tight, root, "every level has the same");
        assert!(root <= ROOT_LIMIT && tight <= TIGHT_LIMIT);
    }
}

/// Two CPUs together try to charge more pages than the root's limit. The charged pages never exceed
/// a limit, and no page is lost.
#[must_use]
pub fn charging_at_once<M: Machine>() -> Law<M, FewBudgets<M>> {
    let churns: Body<M, FewBudgets<M>> = |machine, budgets| budgets.churns(machine);
    Law {
        name: "admitted charges never exceed a limit, and no page is lost",
        setup: FewBudgets::new,
        bodies: vec![churns, churns],
        check: |machine, budgets| budgets.is_exact(machine),
    }
}

/// Two CPUs charge at the same time. The root refuses one charge after the budget below has
/// accepted it, and then neither budget counts any page of that charge.
#[must_use]
pub fn refused_on_the_way_up<M: Machine>() -> Law<M, FewBudgets<M>> {
    Law {
        name: "a refused charge leaves nothing behind on any level",
        setup: FewBudgets::new,
        bodies: vec![
            |machine, budgets| budgets.churns(machine),
            |machine, budgets| budgets.squeezes(machine),
        ],
        check: |machine, budgets| budgets.is_exact(machine),
    }
}

/// A CPU stores a flag and then uncharges pages. Another CPU, whose charge can succeed only after
/// this uncharge, sees that the flag is set.
#[must_use]
pub fn following<M: Machine>() -> Law<M, FewBudgets<M>> {
    Law {
        name: "a CPU that is admitted because another left sees what the other did before it left",
        setup: FewBudgets::with_one_in,
        bodies: vec![
            |machine, budgets| budgets.does_and_leaves(machine),
            |machine, budgets| budgets.follows(machine),
        ],
        check: |machine, budgets| budgets.is_exact(machine),
    }
}
