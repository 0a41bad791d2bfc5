//! The trait through which a selection asks for the facts about its candidates.

use super::facts::{Facts, GroupId};
use super::select::Slot;
use crate::counter::Reading;

/// The processes or tenants of which one may be killed, numbered from 0 in the order in which they
/// were made.
///
/// Of candidates with equal points the later one is chosen. A candidate may exit at any time. Its
/// number is not reused while the selection runs, and candidates made meanwhile are not part of it.
/// A selection asks for a candidate's facts first, and for memory only if the candidate may be
/// killed.
pub trait Candidates {
    /// The number of candidates. A selection asks for it once, when it begins.
    fn len(&self) -> u32;

    /// Returns whether there are no candidates.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All that is known of a candidate without counting its memory; `None` if it has exited.
    fn facts(&self, candidate: u32) -> Option<Facts>;

    /// A cheap reading of a candidate's memory, in pages; `None` if it has exited.
    fn approximate(&self, candidate: u32) -> Option<Reading>;

    /// The exact memory of a candidate, in pages; `None` if it has exited. May be slow.
    fn precise(&self, candidate: u32) -> Option<i64>;

    /// Takes the precise sums of several candidates at once. For each slot, calls [`Slot::add`]
    /// with parts of the memory that [`Slot::candidate`] occupies, or [`Slot::exited`] if the
    /// candidate has exited.
    ///
    /// Slots arrive in the order of their candidates and may be reordered. An implementation that
    /// keeps counters in per-CPU memory should override this method to go CPU by CPU and, on each
    /// CPU, candidate by candidate, as [`sum_spaces`](super::sum_spaces) does: it then reads memory
    /// sequentially.
    fn precise_many(&self, slots: &mut [Slot]) {
        for slot in slots {
            match self.precise(slot.candidate()) {
                Some(pages) => slot.add(pages),
                None => slot.exited(),
            }
        }
    }

    /// The factor by which one call of [`Candidates::precise_many`] for all candidates is cheaper
    /// than calls of [`Candidates::precise`] in no particular order, which do not read memory
    /// sequentially. With 1, a batch gains nothing, and none is taken.
    fn batch_gain(&self) -> u32 {
        1
    }

    /// Returns whether members of `group` belong to `ancestor` as well. An implementation whose
    /// groups are not nested need not override this.
    fn is_within(&self, group: GroupId, ancestor: GroupId) -> bool {
        group == ancestor
    }
}
