//! Laws (tests for threads, model checkers and the simulator) of counters: what a reader may see
//! while several CPUs add, and that nothing is lost.
//!
//! The machine has three CPUs, because with three or more the trees have a level below their roots.
//! The batch is 2, so almost every addition passes an amount up the tree. A reader may miss any of
//! the additions in progress, so the tests accept a sum that lacks any subset of these additions.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::{Body, Law};
use crate::counter::{
    Accuracy, AnyCounters, Area, Batch, Counters, Counting, Flat, InitError, Items, OneSidedTree,
    Shape, Shared, Tree, precise_totals,
};
use crate::machine::{Line, Machine, Word};
use crate::units::count_in;

/// The number of CPUs that a machine needs for the tests in this file.
pub const CPUS: u32 = 3;

/// For each CPU, the amounts that it adds, in order. CPU 1 adds nothing; it only reads. The amounts
/// are large enough to make a CPU add its part of a flat counter to the shared value.
const ADDED: [&[i64]; CPUS as usize] = [&[41], &[], &[-34]];
/// The amount that the set-up adds to the counter, before the CPUs run.
const BEFORE: i64 = 5;
/// The value that one CPU sets while others add.
const SET: i64 = 10;

/// The state of the tests in this file: a counter, the parts it was made of, and for each CPU the
/// number of its additions that have returned.
pub struct Counted<M: Machine> {
    how: Start,
    area: Arc<Area<M>>,
    shape: Arc<Shape>,
    counters: AnyCounters<M>,
    returned: Vec<M::Word>,
}

/// How the counter of a test starts. A [`OneSidedTree`] begins as one shared cache line and later
/// grows into a tree, so it has two ways to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    As(Counting),
    /// The counter is a [`OneSidedTree`] that has grown into a tree before the test begins.
    Grown,
}

/// A function that makes a counter for a test.
pub type Setup<M> = fn(&M) -> Counted<M>;

/// A set-up for each variant of the counter. A [`OneSidedTree`] begins as one shared cache line. So
/// [`OneSidedTree`] has a second set-up, in which it has grown into a tree before the test begins.
#[must_use]
pub fn setups<M: Machine>() -> [Setup<M>; 5] {
    [
        |machine| Counted::new(machine, Start::As(Counting::Shared)),
        |machine| Counted::new(machine, Start::As(Counting::Flat)),
        |machine| Counted::new(machine, Start::As(Counting::Tree)),
        |machine| Counted::new(machine, Start::As(Counting::OneSided)),
        |machine| Counted::new(machine, Start::Grown),
    ]
}

impl<M: Machine> Counted<M> {
    fn new(machine: &M, how: Start) -> Self {
        let batch = Batch::new(2).expect("two is a power of two");
        let cpus = machine.topology();
        let shape = match how {
            Start::As(Counting::OneSided) | Start::Grown => Shape::of_topology(cpus, batch, 2),
            Start::As(_) => Shape::published(cpus.cpus(), batch),
        };
        let shape = Arc::new(shape.expect("a few CPUs have a shape"));
        let area = Arc::new(Area::new(machine, 1).expect("one counter fits"));
        let made = Self::make(machine, how, &area, &shape);
        made.expect("there is memory").destroy_many(machine);
        let counters = Self::make(machine, how, &area, &shape).expect("there is memory");
        counters.add(machine, 0, BEFORE);
        Self {
            how,
            area,
            shape,
            counters,
            returned: ADDED.iter().map(|_| machine.word(0)).collect(),
        }
    }

    fn make(
        machine: &M,
        how: Start,
        area: &Arc<Area<M>>,
        shape: &Arc<Shape>,
    ) -> Result<AnyCounters<M>, InitError> {
        let one_sided = || OneSidedTree::init_many(machine, area, shape);
        Ok(match how {
            Start::As(Counting::Shared) => AnyCounters::Shared(Shared::init_many(machine, 1)?),
            Start::As(Counting::Flat) => AnyCounters::Flat(Flat::init_many(machine, area)?),
            Start::As(Counting::Tree) => {
                let items = Items::new(machine, Tree::<M>::items_lines(shape, 1))?;
                AnyCounters::Tree(Tree::init_many(machine, area, shape, items)?)
            }
            Start::As(Counting::OneSided) => AnyCounters::OneSided(one_sided()?),
            Start::Grown => {
                let tree = one_sided()?;
                tree.grow(machine)?;
                AnyCounters::OneSided(tree)
            }
        })
    }

    /// Makes the additions that [`ADDED`] lists for this CPU.
    fn count(&self, machine: &M) {
        let cpu = machine.this_cpu().index();
        for &delta in ADDED[cpu] {
            self.add(machine, delta);
            // Release pairs with the Acquire in `returned`: a reader that sees the new number of
            // additions also sees these additions.
            self.returned[cpu].add(machine, 1, Release);
        }
    }

    /// Adds `delta` to the counter. CPU 2 adds to a grown tree through [`OneSidedTree::local`], all
    /// other CPUs through the group.
    fn add(&self, machine: &M, delta: i64) {
        match &self.counters {
            AnyCounters::OneSided(tree)
                if self.how == Start::Grown && machine.this_cpu().0 == 2 =>
            {
                tree.local(machine, machine.this_cpu())
                    .add(machine, 0, delta);
            }
            counters => counters.add_growing(machine, 0, delta),
        }
    }

    /// Returns `BEFORE` plus all additions whose calls have returned, as far as this CPU knows.
    /// Also returns the amounts of all other additions.
    fn returned(&self, machine: &M) -> (i64, Vec<i64>) {
        let (mut sum, mut late) = (BEFORE, Vec::new());
        for (deltas, returned) in ADDED.iter().zip(&self.returned) {
            if deltas.is_empty() {
                continue; // Skip it, to keep the number of steps for the checker small.
            }
            let returned = count_in(returned.load(machine, Acquire)) as usize;
            sum += deltas[..returned].iter().sum::<i64>();
            late.extend(&deltas[returned..]);
        }
        (sum, late)
    }

    fn look_precisely(&self, machine: &M) {
        let (sum, late) = self.returned(machine);
        let precise = self.counters.precise_sum(machine, 0);
        assert!(
            sums(sum, &late).any(|sum| sum == precise),
            "{self:?}: {precise} is not {sum} with some of {late:?}"
        );
    }

    fn look_cpu_by_cpu(&self, machine: &M) {
        let (sum, late) = self.returned(machine);
        let total = self.total(machine);
        assert!(
            sums(sum, &late).any(|sum| sum == total),
            "{self:?}: {total} is not {sum} with some of {late:?}"
        );
    }

    /// Returns the counter's precise sum three times, as computed by `precise_sum`, by
    /// `precise_total` and by `precise_totals`.
    fn sums(&self, machine: &M) -> [i64; 3] {
        let counters = &self.counters;
        let (sum, total) = (
            counters.precise_sum(machine, 0),
            counters.precise_total(machine),
        );
        [sum, total, self.total(machine)]
    }

    /// Asserts that each way of summing gives the wrapped sum: two CPUs have added `i64::MAX` each,
    /// which together wraps to −2.
    fn has_wrapped(&self, machine: &M) {
        assert_eq!(self.sums(machine), [BEFORE - 2; 3]);
    }

    /// Returns the sum that [`precise_totals`] gives for this counter; that function sums many
    /// groups of counters together.
    fn total(&self, machine: &M) -> i64 {
        let mut totals = [0];
        let group = |_: &i64| Some(&self.counters);
        precise_totals(machine, &mut totals, group, |total, more| {
            *total = total.wrapping_add(more);
        });
        totals[0]
    }

    fn look_approximately(&self, machine: &M) {
        let (sum, late) = self.returned(machine);
        let approximate = self.counters.approximate_sum(machine, 0);
        let accuracy = self.counters.accuracy(machine, 0);
        let slack = self.slack(&late);
        assert!(
            sums(sum, &late).any(|sum| (accuracy + slack).allows(approximate, sum)),
            "{self:?}: {approximate} is too far from {sum} with some of {late:?}: {accuracy:?}"
        );
    }

    fn look_at_range(&self, machine: &M) {
        let (sum, late) = self.returned(machine);
        let range = self.counters.min_max(machine, 0);
        let slack = self.slack(&late);
        let (min, max) = (slack.range(range.min).min, slack.range(range.max).max);
        assert!(
            sums(sum, &late).any(|sum| min <= sum && sum <= max),
            "{self:?}: {range:?} is too far from {sum} with some of {late:?}"
        );
    }

    /// Adds 2 and subtracts it again, if this CPU is one of two CPUs that share an item. In a tree,
    /// each CPU counts in a cell of its own, and an *item* adds up what several cells pass upwards.
    /// The item keeps the 2, and passes nothing to the root.
    fn go_and_return(&self, machine: &M) {
        let neighbour = u32::from(self.how == Start::Grown);
        if [neighbour, 2].contains(&machine.this_cpu().0) {
            self.add(machine, 2);
            self.add(machine, -2);
        }
    }

    /// Asserts two things. No inner node (item) of the tree still holds an amount that was added
    /// and later subtracted. No amount is on its way up the tree.
    fn is_back(&self, machine: &M) {
        self.is_exactly(machine, BEFORE);
        let arrived = match self.how {
            Start::Grown => self.counters.min_max(machine, 0).min,
            Start::As(_) => self.counters.approximate_sum(machine, 0),
        };
        // The items of the first level pass multiples of 4 to the root.
        let kept = match (&self.counters, self.how) {
            (_, Start::As(Counting::Shared)) => 0,
            // A CPU that cannot add to its own cell adds to the first cache line of the group
            // instead. An amount in this line counts as arrived at the root, so the items keep the
            // remainder of everything else.
            (AnyCounters::OneSided(tree), _) => {
                let in_line = tree.first.load(machine, 0, Relaxed);
                (BEFORE - in_line).rem_euclid(4)
            }
            _ => BEFORE % 4,
        };
        assert_eq!(arrived, BEFORE - kept, "{self:?}: a carry is lost");
    }

    /// Returns the largest error that the additions in `late` can add to an approximate sum while
    /// they are under way.
    fn slack(&self, late: &[i64]) -> Accuracy {
        let slack = late.iter().map(|&delta| self.shape.in_flight(delta)).sum();
        Accuracy {
            under: slack,
            over: slack,
        }
    }

    /// Asserts that no addition is under way and that the sum is `sum`.
    fn is_exactly(&self, machine: &M, sum: i64) {
        assert_eq!(self.counters.precise_sum(machine, 0), sum, "{self:?}");
        assert_eq!(self.total(machine), sum, "{self:?}, CPU by CPU");
        let approximate = self.counters.approximate_sum(machine, 0);
        let accuracy = self.counters.accuracy(machine, 0);
        assert!(
            accuracy.allows(approximate, sum),
            "{self:?}: {approximate} is not within {accuracy:?} of {sum}"
        );
        let range = self.counters.min_max(machine, 0);
        assert!(range.contains(sum), "{self:?}: {sum} is not in {range:?}");
    }

    fn has_counted_all(&self, machine: &M) {
        let (sum, late) = self.returned(machine);
        assert!(late.is_empty(), "every body has returned");
        self.is_exactly(machine, sum);
    }

    fn has_set(&self, machine: &M) {
        let precise = self.counters.precise_sum(machine, 0);
        let added: Vec<i64> = ADDED.concat();
        assert!(
            sums(SET, &added).any(|sum| sum == precise),
            "{self:?}: {precise} is not {SET} with some of {added:?}"
        );
        self.is_exactly(machine, precise);
        self.counters.set(machine, 0, -SET);
        self.is_exactly(machine, -SET);
    }

    fn grow(&self, machine: &M) {
        if let AnyCounters::OneSided(tree) = &self.counters {
            tree.grow(machine).expect("there is memory");
        }
    }

    /// Makes a separate group of counters, adds to it and destroys it.
    fn make_and_end(&self, machine: &M) {
        let own = Self::make(machine, self.how, &self.area, &self.shape).expect("there is memory");
        own.add(machine, 0, 3);
        assert_eq!(own.precise_sum(machine, 0), 3, "{self:?}: others see none");
        own.destroy_many(machine);
    }

    /// Asserts that the test's counter still has its sum, and that no other group of counters uses
    /// the per-CPU memory.
    fn is_alone(&self, machine: &M) {
        self.is_exactly(machine, BEFORE);
        let has_none =
            Start::As(Counting::Shared) == self.how || Start::As(Counting::OneSided) == self.how;
        let held = self.area.groups(machine);
        assert_eq!(held, usize::from(!has_none), "{self:?}");
    }

    fn has_one_tree(&self, machine: &M) {
        assert_eq!(
            self.area.groups(machine),
            1,
            "the CPU that came late has given its cells back"
        );
    }
}

/// Returns every value that a reader may see: `sum` plus any subset of the additions in `late`.
fn sums(sum: i64, late: &[i64]) -> impl Iterator<Item = i64> {
    (0..1_u32 << late.len()).map(move |subset| {
        let chosen = (0..late.len()).filter(|nth| subset >> nth & 1 != 0);
        sum + chosen.map(|nth| late[nth]).sum::<i64>()
    })
}

fn count<M: Machine>(machine: &M, counted: &Counted<M>) {
    counted.count(machine);
}

fn go_and_return<M: Machine>(machine: &M, counted: &Counted<M>) {
    counted.go_and_return(machine);
}

fn grow<M: Machine>(machine: &M, counted: &Counted<M>) {
    counted.grow(machine);
}

fn make_and_end<M: Machine>(machine: &M, counted: &Counted<M>) {
    counted.make_and_end(machine);
}

/// Three CPUs add at the same time. Afterwards precise sums are exact, and approximate sums differ
/// from the exact sum by at most their accuracy.
#[must_use]
pub fn nothing_is_lost<M: Machine>(setup: Setup<M>) -> Law<M, Counted<M>> {
    Law {
        name: "when no CPU adds any more, sums are exact and approximate sums within accuracy",
        setup,
        bodies: vec![count, count, count],
        check: |machine, counted| counted.has_counted_all(machine),
    }
}

/// Two CPUs whose cells are below the same item of a tree add an amount and subtract it again. No
/// cell or item keeps any part of the amount.
///
/// This law is only for counters whose carries (the amounts passed up the tree) have the same total
/// in every order of additions. Flat counters and a tree that has yet to grow are not among them.
#[must_use]
pub fn going_and_returning<M: Machine>() -> [Law<M, Counted<M>>; 3] {
    let [shared, _, tree, _, grown] = setups();
    [shared, tree, grown].map(|setup| Law {
        name: "additions that are taken back leave nothing behind in a tree",
        setup,
        bodies: vec![go_and_return, go_and_return, go_and_return],
        check: |machine, counted| counted.is_back(machine),
    })
}

/// One CPU reads a counter while two others add to it. The value contains each addition as a whole
/// or not at all. There is one test for each way of reading.
#[must_use]
pub fn looking_while_adding<M: Machine>(setup: Setup<M>) -> [Law<M, Counted<M>>; 4] {
    let law = |name, look| Law {
        name,
        setup,
        bodies: vec![count, look, count],
        check: |machine, counted| counted.has_counted_all(machine),
    };
    [
        law(
            "a precise sum misses at most additions under way",
            |machine, counted| {
                counted.look_precisely(machine);
            },
        ),
        law(
            "a sum taken CPU by CPU misses at most additions under way",
            |machine, counted| {
                counted.look_cpu_by_cpu(machine);
            },
        ),
        law(
            "an approximate sum is within accuracy but for additions under way",
            |machine, counted| {
                counted.look_approximately(machine);
            },
        ),
        law(
            "a range has the sum in it but for additions under way",
            |machine, counted| {
                counted.look_at_range(machine);
            },
        ),
    ]
}

/// One CPU sets a counter while two others add to it. Each addition is kept or lost as a whole.
#[must_use]
pub fn setting_while_adding<M: Machine>(setup: Setup<M>) -> Law<M, Counted<M>> {
    Law {
        name: "a counter that is set keeps or loses each addition under way as a whole",
        setup,
        bodies: vec![
            count,
            |machine, counted| counted.counters.set(machine, 0, SET),
            count,
        ],
        check: |machine, counted| counted.has_set(machine),
    }
}

/// Two CPUs create the tree of the same counter at the same time, while a third CPU adds. One of
/// the trees is used, and nothing is lost.
#[must_use]
pub fn growing_at_once<M: Machine>() -> Law<M, Counted<M>> {
    Law {
        name: "of two CPUs that make a tree grow at once, one does, and nothing is lost",
        setup: |machine| Counted::new(machine, Start::As(Counting::OneSided)),
        bodies: vec![
            |machine, counted| {
                counted.grow(machine);
                counted.count(machine);
            },
            grow,
            count,
        ],
        check: |machine, counted| {
            counted.has_counted_all(machine);
            counted.has_one_tree(machine);
        },
    }
}

/// Two CPUs make groups of counters and destroy them. Groups that exist at the same time share no
/// memory. A destroyed group returns its memory.
#[must_use]
pub fn making_and_ending<M: Machine>(setup: Setup<M>) -> Law<M, Counted<M>> {
    Law {
        name: "groups that are made at once share nothing, and their places come back",
        setup,
        bodies: vec![make_and_end, make_and_end],
        check: |machine, counted| counted.is_alone(machine),
    }
}

impl<M: Machine> fmt::Debug for Counted<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counted").field(&self.how).finish()
    }
}

/// Two CPUs each add more than half of what a counter can hold, while a third CPU sums the counter
/// with every function that can sum it. The sum wraps, and nothing panics.
#[must_use]
pub fn summing_while_it_wraps<M: Machine>(setup: Setup<M>) -> Law<M, Counted<M>> {
    let much: Body<M, Counted<M>> = |machine, counted| {
        counted.counters.add_growing(machine, 0, i64::MAX);
    };
    Law {
        name: "a counter wraps, also while its parts are too large to be added up",
        setup,
        bodies: vec![
            much,
            |machine, counted| {
                counted.sums(machine);
                counted.counters.approximate_sum(machine, 0);
                counted.counters.min_max(machine, 0);
            },
            much,
        ],
        check: |machine, counted| counted.has_wrapped(machine),
    }
}
