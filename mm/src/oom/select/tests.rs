//! Tests of single cases: which candidate each selector chooses.

use alloc::vec;
use alloc::vec::Vec;

use super::truth::{Member, Population, machine};
use super::*;
use crate::oom::facts::{Facts, GroupId, Kind};
use crate::oom::scope::Constraint;
use crate::topology::NodeSet;
use crate::units::NodeId;

fn select(selecting: Selecting, population: &Population, scope: &Scope) -> Selection {
    let mut slots = [Slot::EMPTY; 64];
    let selection = selecting.select(population, scope, &mut slots);
    let selection = selection.expect("readings are in order");
    assert_eq!(
        selection.precise_sums,
        population.sums.get(),
        "it says what it took"
    );
    assert_eq!(selection.batches, population.batches.get());
    selection
}

/// Runs every selector on the candidates `members`, and returns the outcomes.
fn outcomes(members: &[Member], scope: &Scope) -> Vec<Outcome> {
    let outcome = |selecting| {
        let population = Population::new(members.iter().copied(), *scope);
        select(selecting, &population, scope).outcome
    };
    Selecting::ALL.into_iter().map(outcome).collect()
}

/// Asserts that every selector chooses `candidate`.
fn assert_all_choose(candidate: u32, members: &[Member], scope: &Scope) {
    for outcome in outcomes(members, scope) {
        let Outcome::Victim(victim) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(victim.candidate, candidate);
    }
}

fn assert_nobody(why: NoVictim, members: &[Member], scope: &Scope) {
    let expected = vec![Outcome::Nobody(why); Selecting::ALL.len()];
    assert_eq!(outcomes(members, scope), expected);
}

fn killable(facts: Facts) -> Member {
    Member {
        facts,
        ..Member::exactly(100)
    }
}

const USUAL: Facts = Facts::PROCESS;

#[test]
fn of_nobody_nobody_is_chosen() {
    assert_nobody(NoVictim::Empty, &[], &machine());
    let exempt = [
        killable(Facts {
            kind: Kind::Init,
            ..USUAL
        }),
        Member::exactly(1 << 40).with_adj(-1000),
    ];
    assert_nobody(NoVictim::NoneKillable, &exempt, &machine());
}

#[test]
fn a_hog_is_chosen_without_a_precise_sum() {
    let mut members = vec![Member::new(1000, 900, 500, 500); 50];
    members[17] = Member::new(100_000, 99_000, 5000, 5000);
    let population = Population::new(members.iter().copied(), machine());
    let selection = select(Selecting::Bounded, &population, &machine());
    assert_eq!(selection.precise_sums, 0);
    let Outcome::Victim(victim) = selection.outcome else {
        panic!("{selection:?}");
    };
    assert_eq!((victim.candidate, victim.behind), (17, 0));
    let points = Range {
        min: 94_000,
        max: 104_000,
    };
    assert_eq!(victim.points, points);
    // Every selector is sure that no candidate exceeds the hog (`behind` is 0), although the hog's
    // range is wide.
    for selecting in Selecting::ALL {
        let population = Population::new(members.iter().copied(), machine());
        let selection = select(selecting, &population, &machine());
        assert!(matches!(selection.outcome, Outcome::Victim(victim) if victim.behind == 0));
    }
    assert_all_choose(17, &members, &machine());
}

#[test]
fn of_equal_candidates_the_later_one_is_chosen() {
    assert_all_choose(2, &[Member::exactly(7); 3], &machine());
    let members = [Member::new(7, 5, 9, 2); 3];
    assert_all_choose(2, &members, &machine());
}

#[test]
fn a_negative_sum_of_points_can_win() {
    let members = [-900, -10, -500].map(|adj| Member::exactly(100).with_adj(adj));
    assert_all_choose(1, &members, &machine());
}

#[test]
fn an_adjustment_moves_both_ends_of_a_range() {
    // An adjustment of 1 adds 4194 points, which is more than the widths of the ranges.
    let members = [
        Member::new(5000, 5000, 900, 900),
        Member::new(900, 1000, 900, 900).with_adj(1),
    ];
    assert_all_choose(1, &members, &machine());
    assert_all_choose(0, &[members[0], members[1].with_adj(0)], &machine());
}

#[test]
fn an_origin_comes_before_all_and_the_last_of_several() {
    let origin = killable(Facts {
        is_origin: true,
        ..USUAL
    });
    let giant = Member::exactly(i64::MAX).with_adj(1000);
    assert_all_choose(0, &[origin, giant], &machine());
    assert_all_choose(1, &[giant, origin], &machine());
    assert_all_choose(2, &[origin, giant, origin, giant], &machine());
    let wide = Member::new(0, 0, 1 << 62, 1 << 62);
    assert_all_choose(1, &[wide, origin, giant], &machine());
}

#[test]
fn as_long_as_a_victim_is_dying_nobody_else_is_chosen() {
    let dying = killable(Facts {
        is_victim: true,
        ..USUAL
    });
    let members = [Member::exactly(1000), dying, Member::exactly(2000)];
    assert_nobody(NoVictim::Aborted { dying: 1 }, &members, &machine());
    let mut reaped = members;
    reaped[1].facts.memory = crate::oom::Memory::Reaped;
    assert_all_choose(2, &reaped, &machine());
    let asked = Scope {
        trigger: crate::oom::Trigger::Operator,
        ..machine()
    };
    assert_all_choose(2, &members, &asked);
}

#[test]
fn a_constraint_leaves_out_whose_memory_would_not_help() {
    let node = |node| NodeSet::NONE.with(NodeId(node)).expect("below 128");
    let here = Facts {
        nodes: node(3),
        group: GroupId(5),
        ..USUAL
    };
    let members = [
        Member::exactly(1000),
        killable(here),
        Member::exactly(1 << 30),
    ]
    .map(|member| {
        let nodes = if member.facts == here {
            here.nodes
        } else {
            node(1)
        };
        Member {
            facts: Facts {
                nodes,
                ..member.facts
            },
            ..member
        }
    });
    let scope = |constraint| Scope {
        constraint,
        ..machine()
    };
    assert_all_choose(1, &members, &scope(Constraint::Nodes(node(3))));
    assert_all_choose(1, &members, &scope(Constraint::Group(GroupId(5))));
    let none = scope(Constraint::Group(GroupId(6)));
    assert_nobody(NoVictim::NoneKillable, &members, &none);
}

#[test]
fn a_range_that_is_not_in_order_is_an_error_that_says_whose() {
    let wrong = [
        Reading {
            estimate: 5,
            range: Range { min: 6, max: 4 },
        },
        Reading {
            estimate: 5,
            range: Range { min: 6, max: 9 },
        },
        Reading {
            estimate: 5,
            range: Range { min: 1, max: 4 },
        },
        Reading {
            estimate: 0,
            range: Range {
                min: i64::MAX,
                max: i64::MIN,
            },
        },
    ];
    for reading in wrong {
        let members = [
            Member::exactly(9),
            Member {
                reading,
                ..Member::exactly(5)
            },
        ];
        for selecting in [
            Selecting::Approximate,
            Selecting::TwoPass16,
            Selecting::Bounded,
        ] {
            let population = Population::new(members, machine());
            let error = selecting.select(&population, &machine(), &mut [Slot::EMPTY; 2]);
            assert_eq!(
                error,
                Err(SelectError::Reading {
                    candidate: 1,
                    reading
                })
            );
        }
        assert_eq!(population_of_who_may_not_be_killed(reading), Ok(nobody(1)));
    }
}

/// Runs a selection on one candidate that must not be killed and has the wrong reading `reading`.
/// No selection reads the memory of such a candidate.
fn population_of_who_may_not_be_killed(reading: Reading) -> Result<Outcome, SelectError> {
    let member = Member {
        reading,
        ..Member::exactly(5)
    }
    .with_adj(-1000);
    let population = Population::new([member], machine());
    let selection = Selecting::Bounded.select(&population, &machine(), &mut [Slot::EMPTY; 2]);
    selection.map(|selection| selection.outcome)
}

#[test]
fn no_slot_is_an_error_unless_there_is_nobody_to_put_there() {
    let select = |population: Population| Bounded::new().select(&population, &machine(), &mut []);
    let one = Population::new([Member::exactly(1)], machine());
    assert_eq!(select(one), Err(SelectError::NoSlot));
    let empty = select(Population::new([], machine())).map(|selection| selection.outcome);
    assert_eq!(empty, Ok(Outcome::Nobody(NoVictim::Empty)));
}

#[test]
fn a_budget_bounds_the_sums_and_the_answer_says_how_far_it_may_be() {
    // All ranges are 0 to 1000, so only sums show which candidate is the largest.
    let member = |pages: i64| Member::new(pages, 500, 500, 500);
    let members: Vec<_> = [200, 990, 300, 700, 100].map(member).into();
    let expected = [(4, 1000), (4, 900), (3, 300), (3, 300), (1, 10), (1, 0)];
    for (budget, (candidate, behind)) in (0..).zip(expected) {
        let population = Population::new(members.iter().copied(), machine());
        let rules = Bounded::with_budget(budget);
        let selection = rules.select(&population, &machine(), &mut [Slot::EMPTY; 8]);
        let selection = selection.expect("readings are in order");
        assert_eq!(selection.precise_sums, budget);
        let Outcome::Victim(victim) = selection.outcome else {
            panic!("{selection:?}");
        };
        assert_eq!(
            (victim.candidate, victim.behind),
            (candidate, behind),
            "budget {budget}"
        );
    }
}

#[test]
fn a_hundred_thousand_candidates_need_a_few_slots() {
    // Each estimate is larger than all before it. So each candidate may have the most points when
    // it is read.
    let member = |nth: i64| Member::new(nth, nth, 40, 40);
    let population = Population::new((0..100_000).map(member), machine());
    let selection = select(Selecting::Bounded, &population, &machine());
    assert_eq!(
        selection.outcome,
        Outcome::Victim(Victim {
            candidate: 99_999,
            points: Range::exactly(99_999),
            behind: 0,
        })
    );
    // Only the 39 candidates before the last one may be above the last one. The pages of these 39
    // candidates and of the last one are summed.
    assert_eq!((population.least_sums(), selection.precise_sums), (40, 40));
}

/// Makes 2000 candidates whose ranges are all the same, so that only precise sums can tell them
/// apart.
fn all_in_the_band() -> impl Iterator<Item = Member> {
    (0..2000).map(|nth| Member::new(nth * 37 % 2000, 1000, 1000, 1000))
}

#[test]
fn if_all_are_in_the_band_most_are_summed_together() {
    let population = Population::new(all_in_the_band(), machine()).gaining(8);
    let mut slots = vec![Slot::EMPTY; 2000];
    let selection = Selecting::Bounded.select(&population, &machine(), &mut slots);
    let selection = selection.expect("readings are in order");
    assert_eq!(population.regret(&selection), Some(0));
    assert_eq!(selection.batches, 1);
    // After 16 sums it is clear that no other candidate can be ruled out without summing its pages.
    // So the pages of all other candidates are summed together, as one batch.
    let together = population.batch_max.get() as u64;
    assert_eq!((selection.precise_sums - together, together), (16, 1984));
}

#[test]
fn as_long_as_a_band_shrinks_fast_a_batch_waits_until_a_quarter_of_its_price_is_spent() {
    // The first sum shows that 500 candidates with smaller ranges cannot have the most points. So a
    // few more sums may be enough, and the selection does not yet sum all other candidates
    // together.
    let first = Member::new(1500, 1000, 9000, 0);
    let out = (0..500).map(|_| Member::new(1000, 1000, 400, 0));
    let others = all_in_the_band().take(1499);
    let others = others.map(|member| Member {
        pages: member.pages % 1500,
        ..member
    });
    let members = others.chain(out).chain([first]);
    let population = Population::new(members, machine()).gaining(8);
    let mut slots = vec![Slot::EMPTY; 2000];
    let selection = Selecting::Bounded.select(&population, &machine(), &mut slots);
    let selection = selection.expect("readings are in order");
    assert_eq!(population.regret(&selection), Some(0));
    // Summing all candidates together costs as much as 2000 / 8 = 250 single sums. The selection
    // does so after a quarter of that number of single sums.
    let together = population.batch_max.get() as u64;
    assert_eq!((selection.precise_sums - together, together), (62, 1438));
}

#[test]
fn a_band_that_is_cheaper_one_by_one_is_not_summed_together() {
    // Of 2000 candidates, 100 may have the most points, and summing all together costs as much as
    // 250 single sums. So the pages of these 100 candidates are summed one by one.
    let small = (0..1900).map(|_| Member::exactly(1));
    let members = all_in_the_band().take(100).chain(small);
    let population = Population::new(members, machine()).gaining(8);
    let mut slots = vec![Slot::EMPTY; 2000];
    let selection = Selecting::Bounded.select(&population, &machine(), &mut slots);
    let selection = selection.expect("readings are in order");
    assert_eq!((selection.precise_sums, selection.batches), (100, 0));
    assert_eq!(population.regret(&selection), Some(0));
}

#[test]
fn a_budget_forbids_a_batch_that_is_larger() {
    for budget in [70, 1999] {
        let population = Population::new(all_in_the_band(), machine()).gaining(8);
        let rules = Bounded::with_budget(budget);
        let selection = rules.select(&population, &machine(), &mut vec![Slot::EMPTY; 2000]);
        let selection = selection.expect("readings are in order");
        assert!(
            selection.precise_sums <= budget,
            "{} of {budget}",
            selection.precise_sums
        );
        let regret = population.regret(&selection).expect("all are killable");
        assert!(matches!(selection.outcome, Outcome::Victim(victim) if regret <= victim.behind));
    }
}

#[test]
fn with_one_slot_the_best_is_not_summed_twice_and_a_budget_is_kept() {
    let member = |pages: i64| Member::new(pages, 500, 500, 500);
    let mut members = [200, 990, 300, 700, 100].map(member);
    members[2].reading.range.max = 1200;
    // The only slot holds candidate 2, whose range reaches highest. After the pages of candidate 2
    // have been summed, the pages of each candidate whose range reaches above this sum are summed,
    // in the order of the candidates' numbers.
    let expected = [(2, 1000), (2, 700), (2, 700), (1, 10), (1, 10), (1, 0)];
    for (budget, (candidate, behind)) in (0..).zip(expected) {
        let population = Population::new(members, machine());
        let rules = Bounded::with_budget(budget);
        let selection = rules.select(&population, &machine(), &mut [Slot::EMPTY]);
        let selection = selection.expect("readings are in order");
        assert_eq!(selection.precise_sums, budget);
        let Outcome::Victim(victim) = selection.outcome else {
            panic!("{selection:?}");
        };
        assert_eq!(
            (victim.candidate, victim.behind),
            (candidate, behind),
            "budget {budget}"
        );
    }
}

#[test]
fn few_slots_make_batches_of_all_of_them() {
    let population = Population::new(all_in_the_band(), machine()).gaining(8);
    let selection = select(Selecting::Bounded, &population, &machine());
    assert_eq!(population.regret(&selection), Some(0));
    assert_eq!(population.batch_max.get(), 64);
    assert!(selection.precise_sums < 2000 + 64);
}

#[test]
fn names_differ() {
    let mut names = Selecting::ALL.map(Selecting::name);
    names.sort_unstable();
    assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
}
