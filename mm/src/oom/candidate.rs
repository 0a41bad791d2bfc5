//! The trait by which a selection (the search for a victim) gets the facts about its candidates.

use super::facts::{Facts, GroupId};
use super::select::Slot;
use crate::counter::Reading;

/// The processes or tenants, one of which a selection chooses to be killed. They are numbered from
/// 0, in the order in which they were created.
///
/// Among candidates with equal points, a selection chooses the one with the higher number. A
/// candidate may exit at any time. Its number is not reused while the selection runs, and
/// candidates created during the selection are not part of it. A selection reads a candidate's
/// facts first, and its memory only if the candidate may be killed.
pub trait Candidates {
    /// Returns the number of candidates. A selection calls this once, when it begins.
    fn len(&self) -> u32;

    /// Returns whether there are no candidates.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all that is known of a candidate without counting its memory; `None` if the
    /// candidate has exited.
    fn facts(&self, candidate: u32) -> Option<Facts>;

    /// Returns a cheap reading of a candidate's memory, in pages; `None` if the candidate has
    /// exited.
    fn approximate(&self, candidate: u32) -> Option<Reading>;

    /// Returns the exact memory of a candidate, in pages; `None` if the candidate has exited. This
    /// call may be slow.
    fn precise(&self, candidate: u32) -> Option<i64>;

    /// Sums the pages of several candidates precisely, all at once. For each slot, calls
    /// [`Slot::add`] with parts of the memory that [`Slot::candidate`] occupies, or
    /// [`Slot::exited`] if the candidate has exited.
    ///
    /// The slots are passed in the order of their candidates, and the method may reorder them. An
    /// implementation whose counters are in per-CPU memory should override this method. To read
    /// memory sequentially, it should go CPU by CPU and, on each CPU, candidate by candidate, as
    /// [`sum_spaces`](super::sum_spaces) does.
    fn precise_many(&self, slots: &mut [Slot]) {
        for slot in slots {
            match self.precise(slot.candidate()) {
                Some(pages) => slot.add(pages),
                None => slot.exited(),
            }
        }
    }

    /// Returns the time of one call of [`Candidates::precise`] for each candidate, in no particular
    /// order, divided by the time of one call of [`Candidates::precise_many`] for all of them. 1
    /// means that one call for many candidates saves no time, so a selection always makes single
    /// calls.
    fn batch_gain(&self) -> u32 {
        1
    }

    /// This method is called when a selection has made `comparisons` comparisons to sort slots, so
    /// that a simulated machine can add the time that these comparisons take
    /// ([`Work::Compare`](crate::site::Work::Compare)) to the CPU's clock. An implementation on
    /// another machine need not override this.
    fn compared(&self, comparisons: u32) {
        let _ = comparisons;
    }

    /// Returns whether members of `group` belong to `ancestor` as well. An implementation whose
    /// groups are not nested need not override this.
    fn is_within(&self, group: GroupId, ancestor: GroupId) -> bool {
        group == ancestor
    }
}
