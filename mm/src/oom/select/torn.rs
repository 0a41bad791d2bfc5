//! Tests of precise sums that are taken while pages move between CPUs. If a page moves from a CPU
//! that has been read to one that has not, the sum counts the page twice. If the page moves the
//! other way, the sum misses it.

use core::cell::Cell;

use super::truth::{Member, Population, machine};
use super::*;
use crate::oom::facts::{Facts, GroupId};

/// Candidates of a test. The first `torn` sums of one of them, `candidate`, are wrong by `by`
/// pages.
struct Torn {
    population: Population,
    candidate: u32,
    by: i64,
    torn: Cell<u32>,
}

impl Torn {
    fn is_torn(&self, candidate: u32) -> bool {
        let left = self.torn.get();
        let is_torn = candidate == self.candidate && left > 0;
        self.torn.set(left - u32::from(is_torn));
        is_torn
    }
}

impl Candidates for Torn {
    fn len(&self) -> u32 {
        self.population.len()
    }

    fn facts(&self, candidate: u32) -> Option<Facts> {
        self.population.facts(candidate)
    }

    fn approximate(&self, candidate: u32) -> Option<Reading> {
        self.population.approximate(candidate)
    }

    fn precise(&self, candidate: u32) -> Option<i64> {
        let pages = self.population.precise(candidate)?;
        let by = if self.is_torn(candidate) { self.by } else { 0 };
        Some(pages + by)
    }

    fn precise_many(&self, slots: &mut [Slot]) {
        let batches = &self.population.batches;
        batches.set(batches.get() + 1);
        for slot in slots {
            match self.precise(slot.candidate()) {
                Some(pages) => slot.add(pages),
                None => slot.exited(),
            }
        }
    }

    fn batch_gain(&self) -> u32 {
        6
    }

    fn is_within(&self, group: GroupId, ancestor: GroupId) -> bool {
        self.population.is_within(group, ancestor)
    }
}

/// Makes a hundred candidates. Candidate 70 has the most points, but approximate sums cannot tell
/// the candidates apart.
fn torn(candidate: u32, by: i64) -> Torn {
    let pages = |number: i64| {
        if number == 70 {
            20_400
        } else {
            19_900 + number
        }
    };
    let members = (0..100).map(|number| Member::new(pages(number), 20_000, 500, 500));
    Torn {
        population: Population::new(members, machine()),
        candidate,
        by,
        torn: Cell::new(1),
    }
}

fn chosen(candidates: &Torn, select: Bounded) -> (Victim, u64) {
    let mut slots = [Slot::EMPTY; 100];
    let selection = select.select(candidates, &machine(), &mut slots);
    let selection = selection.expect("readings are in order");
    let Outcome::Victim(victim) = selection.outcome else {
        panic!("{selection:?}");
    };
    assert_eq!(selection.precise_sums, candidates.population.sums.get());
    assert_eq!(selection.batches, candidates.population.batches.get());
    (victim, selection.precise_sums)
}

#[test]
fn a_sum_outside_its_range_is_taken_again() {
    let (_, calm) = chosen(&torn(70, 0), Bounded::new());
    for (candidate, by) in [(3, 900), (70, -1200), (99, 900), (99, -900)] {
        let candidates = torn(candidate, by);
        let (victim, sums) = chosen(&candidates, Bounded::new());
        assert_eq!(candidates.torn.get(), 0, "it was summed");
        assert_eq!(
            (victim.candidate, victim.behind),
            (70, 0),
            "{candidate} was summed wrongly by {by}"
        );
        assert_eq!(sums, calm + 1, "one of them again");
    }
}

#[test]
fn a_budget_has_no_room_for_second_sums() {
    for budget in [1, 5, 100] {
        let (_, sums) = chosen(&torn(99, 900), Bounded::with_budget(budget));
        assert!(sums <= budget, "{sums} of {budget}");
    }
}
