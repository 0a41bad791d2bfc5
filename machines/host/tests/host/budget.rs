//! Tests of budgets: a comparison with a model, the errors of exhausted budgets, and which
//! processes die together.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use plimsoll_host::Host;
use plimsoll_mm::laws;
use plimsoll_mm::space::budget::{Budget, OverBudget};
use plimsoll_mm::topology::Topology;
use proptest::prelude::*;

use crate::support::law::run_law;

const ROUNDS: u32 = 2000;

type Shared = Arc<Budget<Host>>;

fn host() -> Host {
    Host::with_topology(Topology::flat(2))
}

/// Creates a budget for each entry of `limits`. An entry has the budget's limit and the index of
/// its parent, which is an earlier budget. The first budget has no parent.
fn tree(host: &Host, limits: &[(u64, usize)]) -> Vec<Shared> {
    let mut all: Vec<Shared> = Vec::new();
    for &(limit, parent) in limits {
        let budget = match all.len() {
            0 => Budget::new(host, limit),
            len => Budget::under(host, limit, Arc::clone(&all[parent % len])),
        };
        all.push(Arc::new(budget));
    }
    all
}

/// A simple model of budgets: for each budget the limit, the parent and the number of pages.
struct Model {
    limits: Vec<u64>,
    parents: Vec<Option<usize>>,
    used: Vec<u64>,
}

impl Model {
    fn new(limits: &[(u64, usize)]) -> Self {
        let parent = |nth: usize| (nth > 0).then(|| limits[nth].1 % nth);
        Self {
            limits: limits.iter().map(|limit| limit.0).collect(),
            parents: (0..limits.len()).map(parent).collect(),
            used: vec![0; limits.len()],
        }
    }

    fn upwards(&self, nth: usize) -> Vec<usize> {
        std::iter::successors(Some(nth), |&nth| self.parents[nth]).collect()
    }

    fn charge(&mut self, nth: usize, pages: u64) -> Result<(), OverBudget> {
        for (level, at) in (0..).zip(self.upwards(nth)) {
            let (limit, used) = (self.limits[at], self.used[at]);
            if pages > 0 && used.saturating_add(pages) > limit {
                return Err(OverBudget { level, limit, used });
            }
        }
        for at in self.upwards(nth) {
            self.used[at] += pages;
        }
        Ok(())
    }

    fn uncharge(&mut self, nth: usize, pages: u64) {
        for at in self.upwards(nth) {
            self.used[at] -= pages;
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Charge(usize, u64),
    /// Undoes one of the charges (pages counted against a budget) that have not been undone yet.
    /// The index is taken modulo the number of these charges.
    Uncharge(usize),
    Limit(usize, u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (any::<usize>(), 0..40_u64).prop_map(|(nth, pages)| Op::Charge(nth, pages)),
        3 => any::<usize>().prop_map(Op::Uncharge),
        1 => (any::<usize>(), limit()).prop_map(|(nth, limit)| Op::Limit(nth, limit)),
    ]
}

fn limit() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0..100_u64, 1 => Just(u64::MAX)]
}

proptest! {
    #[test]
    fn a_tree_of_budgets_is_a_table_of_numbers(
        limits in prop::collection::vec((limit(), any::<usize>()), 1..8),
        ops in prop::collection::vec(op(), 0..200),
    ) {
        let host = host();
        let budgets = tree(&host, &limits);
        let mut model = Model::new(&limits);
        let mut held: Vec<(usize, u64)> = Vec::new();
        for op in ops {
            match op {
                Op::Charge(nth, pages) => {
                    let nth = nth % budgets.len();
                    let expected = model.charge(nth, pages);
                    prop_assert_eq!(budgets[nth].charge(&host, pages), expected);
                    if expected.is_ok() {
                        held.push((nth, pages));
                    }
                }
                Op::Uncharge(which) if !held.is_empty() => {
                    let (nth, pages) = held.swap_remove(which % held.len());
                    budgets[nth].uncharge(&host, pages);
                    model.uncharge(nth, pages);
                }
                Op::Uncharge(_) => {}
                Op::Limit(nth, limit) => {
                    let nth = nth % budgets.len();
                    budgets[nth].set_limit(limit);
                    model.limits[nth] = limit;
                    prop_assert_eq!(budgets[nth].limit(), limit);
                }
            }
            let used: Vec<u64> = budgets.iter().map(|budget| budget.used(&host)).collect();
            prop_assert_eq!(&used, &model.used, "after {:?}", op);
        }
    }
}

#[test]
fn without_a_limit_numbers_still_cannot_wrap() {
    let host = host();
    let root = Arc::new(Budget::new(&host, u64::MAX));
    let child = Budget::under(&host, u64::MAX, Arc::clone(&root));
    let most = 1 << 48;
    assert_eq!(child.charge(&host, most), Ok(()));
    for pages in [1, most, u64::MAX] {
        let (level, limit, used) = (0, u64::MAX, most);
        let why = Err(OverBudget { level, limit, used });
        assert_eq!(child.charge(&host, pages), why);
        assert_eq!((root.used(&host), child.used(&host)), (most, most));
    }
    child.uncharge(&host, most);
    assert_eq!((root.used(&host), child.used(&host)), (0, 0));
}

#[test]
fn an_error_says_how_much_and_whose() {
    let (limit, used) = (100, 99);
    let told = |level| OverBudget { level, limit, used }.to_string();
    assert_eq!(
        told(0),
        "over budget: 99 of 100 pages are used: give some back, or raise the limit"
    );
    assert_eq!(
        told(1),
        "over budget: 99 of 100 pages of the parent budget are used: give some back, or raise \
         the limit"
    );
    assert_eq!(
        told(2),
        "over budget: 99 of 100 pages of the budget 2 levels above are used: give some back, or \
         raise the limit"
    );
}

#[test]
fn uncharging_too_much_stops_a_debug_build_and_leaves_nothing_otherwise() {
    let host = host();
    let root = Arc::new(Budget::new(&host, 10));
    let child = Budget::under(&host, 10, Arc::clone(&root));
    child.charge(&host, 3).expect("there is room");
    let done = catch_unwind(AssertUnwindSafe(|| child.uncharge(&host, 5)));
    assert_eq!(done.is_err(), cfg!(debug_assertions));
    if done.is_ok() {
        assert_eq!((root.used(&host), child.used(&host)), (0, 0));
        assert_eq!(child.charge(&host, 10), Ok(()));
    }
}

/// Creates a line of four budgets, of which each is the parent of the next, and a fifth budget
/// whose parent is the first. The fifth budget kills its processes together, and so does each
/// budget of the line for which `together` is true.
fn family(host: &Host, together: [bool; 4]) -> ([Shared; 4], Shared) {
    let made = |budget: Budget<Host>, nth: usize| {
        Arc::new(if together[nth] {
            budget.killed_together()
        } else {
            budget
        })
    };
    let under = |parent: &Shared| Budget::under(host, u64::MAX, Arc::clone(parent));
    let root = made(Budget::new(host, u64::MAX), 0);
    let first = made(under(&root), 1);
    let second = made(under(&first), 2);
    let third = made(under(&second), 3);
    let beside = Arc::new(under(&root).killed_together());
    ([root, first, second, third], beside)
}

#[test]
fn the_highest_group_within_the_domain_dies_together() {
    let host = host();
    for bits in 0..16_u32 {
        let together = [0, 1, 2, 3].map(|nth| bits >> nth & 1 == 1);
        let (line, beside) = family(&host, together);
        for victim in 0..4 {
            for domain in [None, Some(0), Some(1), Some(2), Some(3)] {
                let found = line[victim].dies_together(domain.map(|nth: usize| &line[nth]));
                let top = domain.unwrap_or(0);
                let expected = (top..=victim).find(|&nth| together[nth]);
                let found =
                    found.map(|found| line.iter().position(|each| Arc::ptr_eq(each, &found)));
                assert_eq!(
                    found,
                    expected.map(Some),
                    "{together:?} {victim} {domain:?}"
                );
            }
            let elsewhere = line[victim].dies_together(Some(&beside));
            assert!(elsewhere.is_none(), "it is not under that domain");
        }
        let alone = beside.dies_together(Some(&beside));
        assert!(alone.is_some_and(|budget| Arc::ptr_eq(&budget, &beside)));
    }
}

#[test]
fn those_who_were_let_in_are_never_beyond_a_limit() {
    run_law(&laws::budget::charging_at_once(), 2, ROUNDS);
}

#[test]
fn who_gets_in_sees_what_was_done_before_somebody_left() {
    run_law(&laws::budget::following(), 2, ROUNDS);
}

#[test]
fn who_is_refused_leaves_nothing_behind() {
    run_law(&laws::budget::refused_on_the_way_up(), 2, ROUNDS);
}
