//! The two kinds of shortages for which a process may be killed: the machine has too little memory,
//! or a budget has no room.

use alloc::sync::Arc;

use super::badness::TotalPages;
use super::census::INSIDE;
use super::scope::{Constraint, Scope, Trigger};
use crate::machine::Machine;
use crate::page::{PageAllocator, Relief, Request};
use crate::space::budget::Budget;
use crate::topology::NodeSet;

/// A shortage: the machine lacks memory for a request, or a budget has no room.
pub(super) enum Shortage<'a, M: Machine> {
    Machine(&'a PageAllocator<M>, Request),
    /// A group's budget has no room for this number of further pages.
    Group(&'a Arc<Budget<M>>, u64),
}

impl<M: Machine> Shortage<'_, M> {
    /// Returns the next step of the allocation if enough memory has become free; `None` if the
    /// shortage continues.
    pub(super) fn is_over(&self, machine: &M) -> Option<Relief> {
        match self {
            Self::Machine(pages, request) => pages
                .alloc_if_plenty(machine, *request)
                .map(Relief::Allocated),
            Self::Group(budget, pages) => {
                let wanted = budget.used(machine).saturating_add(*pages);
                (wanted <= budget.limit()).then_some(Relief::Retry)
            }
        }
    }

    pub(super) const fn domain(&self) -> Option<&Arc<Budget<M>>> {
        match self {
            Self::Machine(..) => None,
            Self::Group(budget, _) => Some(budget),
        }
    }

    /// Returns the memory that is short, as the scope in which a selection looks for a victim;
    /// `None` if the allowed nodes have no memory.
    pub(super) fn scope(&self, allowed: Option<NodeSet>, swap_pages: u64) -> Option<Scope> {
        let (constraint, total) = match self {
            Self::Machine(pages, _) => {
                let nodes = allowed.unwrap_or(NodeSet::ALL);
                let memory = pages.managed_on(nodes).saturating_add(swap_pages);
                (
                    allowed.map_or(Constraint::Machine, Constraint::Nodes),
                    memory,
                )
            }
            Self::Group(budget, _) => (Constraint::Group(INSIDE), budget.limit().max(1)),
        };
        Some(Scope {
            total: TotalPages::new(total).ok()?,
            constraint,
            trigger: Trigger::Shortage,
        })
    }
}
