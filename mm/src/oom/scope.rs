//! The extent of a shortage, and which candidates may be killed for it.

use super::badness::{self, TotalPages};
use super::candidate::Candidates;
use super::facts::{Facts, GroupId, Kind, Memory};
use super::standing::Standing;
use crate::topology::NodeSet;

/// The extent of a shortage: which memory is short, how large it is, and why a victim is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The amount of memory and swap that the shortage affects, in pages.
    pub total: TotalPages,
    /// The nodes or the group that are short of memory.
    pub constraint: Constraint,
    /// The reason why a victim is selected.
    pub trigger: Trigger,
}

impl Scope {
    /// Makes the scope of a shortage that affects the whole machine.
    #[must_use]
    pub const fn machine(total: TotalPages) -> Self {
        Self {
            total,
            constraint: Constraint::Machine,
            trigger: Trigger::Shortage,
        }
    }
}

/// The part of the memory that is short (Linux: `enum oom_constraint`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constraint {
    /// The machine as a whole.
    Machine,
    /// These nodes. Killing a process that may use none of them would not help.
    Nodes(NodeSet),
    /// This memory group and the groups inside it. The memory of other processes does not count.
    Group(GroupId),
}

/// The reason why a victim is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// An allocation failed. No process is chosen while a victim is dying.
    Shortage,
    /// An operator wants a process to be killed now (Linux: sysrq-f).
    Operator,
}

impl Standing {
    /// Returns the standing of a candidate, which says how a selection treats the candidate. The
    /// tests have the same order as in Linux (`oom_evaluate_task`). `candidates` says which groups
    /// are inside which.
    pub fn of<C: Candidates + ?Sized>(candidates: &C, scope: &Scope, facts: &Facts) -> Self {
        if facts.kind != Kind::Process || !may_help(candidates, scope.constraint, facts) {
            return Self::Exempt;
        }
        if facts.is_victim && scope.trigger == Trigger::Shortage {
            return match facts.memory {
                Memory::Reaped => Self::Exempt,
                _ => Self::Dying,
            };
        }
        if facts.is_origin {
            return Self::Origin;
        }
        if badness::is_killable(facts) {
            Self::Counted(facts.adj)
        } else {
            Self::Exempt
        }
    }
}

/// Returns whether killing the candidate would free memory where it is short.
fn may_help<C: Candidates + ?Sized>(candidates: &C, constraint: Constraint, facts: &Facts) -> bool {
    match constraint {
        Constraint::Machine => true,
        Constraint::Nodes(nodes) => facts.nodes.meets(nodes),
        Constraint::Group(group) => candidates.is_within(facts.group, group),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::Reading;
    use crate::oom::facts::ScoreAdj;
    use crate::units::NodeId;

    /// Candidates of a test with nested groups: groups 10 to 19 are within group 1, and groups 20
    /// to 29 within group 2.
    struct Nested;

    impl Candidates for Nested {
        fn len(&self) -> u32 {
            0
        }
        fn facts(&self, _: u32) -> Option<Facts> {
            None
        }
        fn approximate(&self, _: u32) -> Option<Reading> {
            None
        }
        fn precise(&self, _: u32) -> Option<i64> {
            None
        }
        fn is_within(&self, group: GroupId, ancestor: GroupId) -> bool {
            group == ancestor || group.0 / 10 == ancestor.0
        }
    }

    fn machine() -> Scope {
        Scope::machine(TotalPages::new(1 << 20).expect("some"))
    }

    fn standing(facts: Facts) -> Standing {
        Standing::of(&Nested, &machine(), &facts)
    }

    const USUAL: Facts = Facts::PROCESS;
    const COUNTED: Standing = Standing::Counted(ScoreAdj::ZERO);

    #[test]
    fn the_first_process_and_kernel_threads_are_exempt_whatever_else_they_are() {
        for kind in [Kind::Init, Kind::KernelThread] {
            let facts = Facts {
                kind,
                is_victim: true,
                is_origin: true,
                ..USUAL
            };
            assert_eq!(standing(facts), Standing::Exempt);
        }
        assert_eq!(standing(USUAL), COUNTED);
    }

    #[test]
    fn a_dying_victim_is_waited_for_until_it_is_reaped() {
        let dying = Facts {
            is_victim: true,
            ..USUAL
        };
        for memory in [Memory::Own, Memory::Gone, Memory::Parents] {
            assert_eq!(standing(Facts { memory, ..dying }), Standing::Dying);
        }
        let reaped = Facts {
            memory: Memory::Reaped,
            ..dying
        };
        assert_eq!(standing(reaped), Standing::Exempt);
        // A selection for an operator does not wait for the dying victim, and may even choose it
        // again.
        let asked = Scope {
            trigger: Trigger::Operator,
            ..machine()
        };
        assert_eq!(Standing::of(&Nested, &asked, &dying), COUNTED);
    }

    #[test]
    fn an_origin_comes_first_even_if_its_adjustment_is_never() {
        let origin = Facts {
            is_origin: true,
            adj: ScoreAdj::NEVER,
            ..USUAL
        };
        assert_eq!(standing(origin), Standing::Origin);
        assert_eq!(
            standing(Facts {
                is_origin: false,
                ..origin
            }),
            Standing::Exempt
        );
        assert_eq!(
            standing(Facts {
                is_victim: true,
                ..origin
            }),
            Standing::Dying
        );
    }

    #[test]
    fn only_those_who_use_the_short_nodes_are_counted_or_waited_for() {
        let node = |node| NodeSet::NONE.with(NodeId(node)).expect("below 128");
        let scope = Scope {
            constraint: Constraint::Nodes(node(1)),
            ..machine()
        };
        let on = |nodes, is_victim| {
            Standing::of(
                &Nested,
                &scope,
                &Facts {
                    nodes,
                    is_victim,
                    ..USUAL
                },
            )
        };
        assert_eq!(
            on(node(1).with(NodeId(127)).expect("below 128"), false),
            COUNTED
        );
        assert_eq!(on(node(0), false), Standing::Exempt);
        assert_eq!(on(node(0), true), Standing::Exempt);
        assert_eq!(on(node(1), true), Standing::Dying);
        assert_eq!(NodeSet::NONE.with(NodeId(128)), None);
        assert!(!NodeSet::NONE.meets(NodeSet::ALL));
    }

    #[test]
    fn only_members_of_the_group_and_of_groups_within_are_counted() {
        let scope = Scope {
            constraint: Constraint::Group(GroupId(1)),
            ..machine()
        };
        let of = |group| {
            Standing::of(
                &Nested,
                &scope,
                &Facts {
                    group: GroupId(group),
                    ..USUAL
                },
            )
        };
        assert_eq!(
            [of(1), of(12), of(21)],
            [COUNTED, COUNTED, Standing::Exempt]
        );
    }
}
