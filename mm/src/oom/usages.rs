//! Sums the pages of many candidates precisely and all at once, for a [`Candidates`] whose
//! candidates are address spaces or counters of address spaces.
//!
//! [`Candidates`]: super::Candidates

use super::select::Slot;
use crate::counter::{AnyCounters, precise_totals};
use crate::machine::Machine;
use crate::site::{Work, sort_comparisons};
use crate::space::AddressSpace;
use crate::space::rss::Rss;
use crate::units::count_of;

/// Adds to each of `slots` the number of pages that its candidate has, both resident and in swap.
/// Works on all slots together: sorts the slots in the order of their counters in memory, and then
/// sums CPU by CPU. Adds nothing to a slot if `rss_of` returns no counters for its candidate.
pub fn sum_rss<'r, M: Machine + 'r>(
    machine: &M,
    slots: &mut [Slot],
    rss_of: impl Fn(u32) -> Option<&'r Rss<M>>,
) {
    let counters = |slot: &Slot| Some(rss_of(slot.candidate())?.counters());
    for slot in &mut *slots {
        let position = counters(slot).map_or(0, AnyCounters::position);
        slot.set_note(position.cast_signed());
    }
    let in_order = slots.is_sorted_by_key(Slot::note);
    let comparisons = sort_comparisons(count_of(slots.len()), in_order);
    machine.spend(Work::Compare, comparisons);
    if !in_order {
        slots.sort_unstable_by_key(Slot::note);
    }
    precise_totals(machine, slots, counters, Slot::add);
}

/// Computes [`AddressSpace::usage_precise`] of many address spaces at once, CPU by CPU, for
/// [`Candidates::precise_many`]. Adds to each slot the pages of the space that `space_of` returns
/// for its candidate. Marks a candidate without a space as exited. Changes the order of the slots.
///
/// [`Counting::batch_gain`] says how many times faster this is than summing one by one.
///
/// [`Candidates::precise_many`]: super::Candidates::precise_many
/// [`Counting::batch_gain`]: crate::counter::Counting::batch_gain
pub fn sum_spaces<'s, M: Machine + 's>(
    machine: &M,
    slots: &mut [Slot],
    space_of: impl Fn(u32) -> Option<&'s AddressSpace<M>>,
) {
    for slot in &mut *slots {
        match space_of(slot.candidate()) {
            Some(space) => slot.add(space.tables(machine)),
            None => slot.exited(),
        }
    }
    sum_rss(machine, slots, |candidate| Some(space_of(candidate)?.rss()));
}
