//! Properties that hold for any candidates: `Bounded` and `Precise` find the maximum, `Bounded`
//! takes no more precise sums than its documentation promises, and the maximum never exceeds the
//! victim's points by more than `Victim::behind`.

use alloc::vec;
use alloc::vec::Vec;

use proptest::collection::vec;
use proptest::prelude::*;

use super::key::Key;
use super::truth::{Member, Population, machine};
use super::*;
use crate::oom::facts::Facts;

/// Where the true value and the estimate lie in the range of a candidate's points, in thousandths
/// of the range's width.
#[derive(Clone, Copy, Debug)]
struct Place {
    truth: u64,
    estimate: u64,
}

fn place() -> impl Strategy<Value = Place> {
    let part = || prop_oneof![1 => Just(0_u64), 4 => 0_u64..=1000, 1 => Just(1000)];
    (part(), part()).prop_map(|(truth, estimate)| Place { truth, estimate })
}

/// Makes a candidate whose range begins at `min` and is `width` wide, as far as `i64` allows.
fn member(min: i64, width: u64, place: Place) -> Member {
    let max = min.saturating_add_unsigned(width);
    let width = u128::from(max.abs_diff(min));
    let at = |part: u64| {
        let part = u64::try_from(width * u128::from(part) / 1000).expect("not more than all");
        min.saturating_add_unsigned(part)
    };
    let range = Range { min, max };
    Member {
        facts: Facts::PROCESS,
        pages: at(place.truth),
        reading: Reading {
            estimate: at(place.estimate),
            range,
        },
    }
}

/// Generates candidates whose numbers of pages are close together, so that their ranges often
/// touch, overlap or are equal.
fn near() -> impl Strategy<Value = Member> {
    (
        -8_i64..8,
        0_u64..8,
        place(),
        prop_oneof![6 => Just(0), 1 => -1000_i32..=1000],
    )
        .prop_map(|(min, width, place, adj)| member(min, width, place).with_adj(adj))
}

/// Generates candidates whose numbers of pages are from the whole range of `i64`.
fn extreme() -> impl Strategy<Value = Member> {
    let min = prop_oneof![any::<i64>(), Just(i64::MIN), Just(i64::MAX), Just(0)];
    (min, any::<u64>(), place(), -1000_i32..=1000, 0_u8..40).prop_map(
        |(min, width, place, adj, origin)| {
            let mut member = member(min, width, place).with_adj(adj);
            member.facts.is_origin = origin == 0;
            member
        },
    )
}

/// Generates candidates with up to 800 MB of resident pages. The errors of their cheap readings are
/// as large as those of counters on a machine with 256 CPUs.
fn usual() -> impl Strategy<Value = Member> {
    (
        0_i64..200_000,
        0_u64..100_000,
        place(),
        prop_oneof![4 => Just(0), 1 => -50_i32..50],
    )
        .prop_map(|(min, width, place, adj)| member(min, width, place).with_adj(adj))
}

fn population() -> impl Strategy<Value = Vec<Member>> {
    prop_oneof![
        vec(near(), 0..12),
        vec(extreme(), 0..40),
        vec(usual(), 0..200)
    ]
}

fn run(
    budget: u64,
    members: &[Member],
    slots: usize,
    gain: u32,
) -> Result<(Population, Selection), TestCaseError> {
    let population = Population::new(members.iter().copied(), machine()).gaining(gain);
    let selection =
        Bounded::with_budget(budget).select(&population, &machine(), &mut vec![Slot::EMPTY; slots]);
    let selection = selection.expect("readings are in order");
    prop_assert_eq!(selection.precise_sums, population.sums.get());
    prop_assert_eq!(selection.batches, population.batches.get());
    Ok((population, selection))
}

/// Asserts that the selection chose `expected` and is sure that no candidate exceeds it, or chose
/// no candidate if `expected` is `None`.
fn assert_is(selection: &Selection, expected: Option<Key>) -> Result<(), TestCaseError> {
    match (selection.outcome, expected) {
        (Outcome::Victim(victim), Some(key)) => {
            prop_assert_eq!(victim.candidate, key.candidate);
            prop_assert_eq!(victim.behind, 0);
            prop_assert!(victim.points.contains(key.points));
        }
        (Outcome::Nobody(_), None) => {}
        (outcome, expected) => prop_assert!(false, "{:?} instead of {:?}", outcome, expected),
    }
    Ok(())
}

/// Returns whether sums of the candidates in the bit set `summed` prove which candidate has the
/// most points.
fn proves(keys: &[(Key, Key, Key)], summed: usize) -> bool {
    let known = |(nth, &(low, key, high)): (usize, &(Key, Key, Key))| {
        if summed >> nth & 1 == 1 {
            (key, key)
        } else {
            (low, high)
        }
    };
    let known: Vec<_> = keys.iter().enumerate().map(known).collect();
    known.is_empty()
        || known.iter().enumerate().any(|(nth, (low, _))| {
            let mut others = known.iter().enumerate().filter(|(other, _)| *other != nth);
            others.all(|(_, (_, high))| low > high)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn bounded_finds_the_maximum_with_at_most_one_sum_more_than_the_least(
        members in population(),
    ) {
        let (population, selection) = run(u64::MAX, &members, members.len(), 1)?;
        assert_is(&selection, population.maximum())?;
        let least = population.least_sums();
        prop_assert!(selection.precise_sums <= least + 1, "{} of {least}", selection.precise_sums);
        prop_assert_eq!(selection.batches, 0);
    }

    #[test]
    fn a_batch_is_taken_only_when_many_sums_were_needed_and_many_are_left(
        members in population(),
        gain in 2_u32..40,
    ) {
        let (population, selection) = run(u64::MAX, &members, members.len(), gain)?;
        assert_is(&selection, population.maximum())?;
        let (sums, least) = (selection.precise_sums, population.least_sums());
        let all = members.len() as u64 / u64::from(gain);
        let together = population.batch_max.get() as u64;
        prop_assert!(sums <= least + 1 || least + 1 >= 16, "{sums} of {least}");
        prop_assert!(selection.batches <= 1);
        prop_assert!(together == 0 || together > all);
        let singles = sums - together;
        prop_assert!(singles <= 16.max(all / 4) + all, "{singles} one by one, {all}");
    }

    #[test]
    fn with_few_slots_it_is_as_right_and_sums_nobody_more_than_twice(
        members in population(),
        slots in 1_usize..20,
        gain in 1_u32..40,
    ) {
        let (population, selection) = run(u64::MAX, &members, slots, gain)?;
        assert_is(&selection, population.maximum())?;
        prop_assert!(selection.precise_sums <= 2 * members.len() as u64);
        prop_assert!(population.batch_max.get() <= slots);
    }

    #[test]
    fn the_least_number_of_sums_is_the_least(members in vec(near(), 0..7)) {
        let population = Population::new(members, machine());
        let keys = population.keys();
        let subsets = (0..1_usize << keys.len()).filter(|summed| proves(&keys, *summed));
        let least = subsets.map(|summed| u64::from(summed.count_ones())).min();
        prop_assert_eq!(Some(population.least_sums()), least);
    }

    #[test]
    fn nobody_is_further_behind_than_was_said(
        members in population(),
        budget in 0_u64..20,
        slots in 1_usize..40,
        gain in 1_u32..40,
    ) {
        let (population, selection) = run(budget, &members, slots, gain)?;
        prop_assert!(selection.precise_sums <= budget);
        check_bound(&population, &selection)?;
        for selecting in Selecting::ALL {
            let population = Population::new(members.iter().copied(), machine());
            let selection = selecting.select(&population, &machine(), &mut vec![Slot::EMPTY; slots]);
            let selection = selection.expect("readings are in order");
            prop_assert_eq!(selection.precise_sums, population.sums.get());
            check_bound(&population, &selection)?;
        }
    }

    #[test]
    fn more_budget_never_makes_the_bound_worse(members in population()) {
        let mut before = u64::MAX;
        for budget in 0..=members.len() as u64 {
            let (_, selection) = run(budget, &members, members.len(), 1)?;
            if let Outcome::Victim(victim) = selection.outcome {
                prop_assert!(victim.behind <= before, "{} > {before}", victim.behind);
                before = victim.behind;
            }
        }
    }

    #[test]
    fn precise_finds_the_maximum_with_a_sum_each(members in population()) {
        let population = Population::new(members.iter().copied(), machine());
        let selection = Precise.select(&population, &machine()).expect("no cheap look");
        assert_is(&selection, population.maximum())?;
        let is_counted = |(_, key, _): &(Key, Key, Key)| key.points != i64::MAX;
        let counted = population.keys().into_iter().filter(is_counted).count();
        prop_assert_eq!(selection.precise_sums, counted as u64);
    }
}

fn check_bound(population: &Population, selection: &Selection) -> Result<(), TestCaseError> {
    match (population.regret(selection), selection.outcome) {
        (Some(regret), Outcome::Victim(victim)) => {
            prop_assert!(
                regret <= victim.behind,
                "{regret} points, said {}",
                victim.behind
            );
        }
        _ => prop_assert_eq!(population.maximum(), None),
    }
    Ok(())
}
