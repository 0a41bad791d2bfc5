//! The policies for zone-lock holds. They differ in how many pages one hold moves.
//!
//! Every CPU that needs the zone lock waits for the hold in progress, so long holds delay other
//! CPUs. In Linux, one hold moves up to 63 × 2⁵ = 2016 pages.

mod batched;
mod bounded;
mod by_version;
mod controls;
mod posted;
mod unbatched;

use core::fmt;

pub use self::batched::Batched;
pub use self::bounded::{Bounded, BoundedPages};
pub use self::by_version::{Lists612, Lists618};
pub use self::controls::{BOUNDED_ONE_DRAIN, DrainRule, UNBATCHED_ALL_DRAIN};
pub use self::posted::{BatchedDrains, BatchedZoneLock};
pub use self::unbatched::Unbatched;
use crate::site::Site;
use crate::units::Pages;

/// A policy for holds of the zone lock: the rule for how many pages a CPU moves while it holds the
/// lock once.
pub trait Holds: fmt::Debug + Sync {
    /// The policy's name on the command line.
    fn name(&self) -> &'static str;

    /// Returns how many pages one hold of the zone lock at `site` may move if the zone's batch is
    /// `batch`.
    fn limit(&self, site: Site, batch: Pages) -> Limit;

    /// The unit that one operation under the zone lock moves: single pages, or blocks that are
    /// joined before the hold or split after it.
    fn unit(&self) -> Unit {
        Unit::Pages
    }

    /// The number of pages that an operation at `site`, such as a drain, may return to the zone, in
    /// one or more holds of the zone lock, before it releases the pcp lock. `None` means that the
    /// operation releases the pcp lock after each hold of the zone lock.
    fn pages_per_pcp_hold(&self, _site: Site, _batch: Pages) -> Option<Pages> {
        None
    }

    /// After a hold of the zone lock, a free cannot continue if a drain holds the pcp lock or the
    /// caller has migrated. Returns what then happens to the pages that the free still has to
    /// return to the zone.
    fn leftover(&self) -> Leftover;

    /// Returns what an allocation does if it finds no memory while another CPU is draining all
    /// lists.
    fn meets_drain(&self) -> MeetsDrain {
        MeetsDrain::LeavesIt
    }

    /// A block can make a hold of the zone lock move more pages than its limit. If true, all moved
    /// pages are subtracted from the pages still to be moved. If false, at most the limit is
    /// subtracted for each hold, as in Linux 6.12 and 6.18.
    fn counts_excess(&self) -> bool {
        true
    }

    /// The rule for when frees of order 1 to 3 empty the lists.
    fn flush_from(&self) -> FlushFrom {
        FlushFrom::BatchAndHalfMin
    }
}

/// If two successive frees are of order 1 to 3, the second one can empty the lists (Linux:
/// `free_high`). This is how many pages must have been freed in a row before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushFrom {
    /// One batch, as in Linux up to 6.12.
    Batch,
    /// One batch plus half of `high_min`, as in Linux from 6.18. Therefore short lists are emptied
    /// later.
    BatchAndHalfMin,
}

/// How many pages one zone-lock hold may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// No limit: one hold moves everything.
    None,
    /// About this number of pages: the last block may exceed the limit.
    About(Pages),
    /// At most this number of pages, or a single larger block. The hold also ends when it has
    /// lasted for the time set by [`HoldTimeMax`](crate::tunables::Knob::HoldTimeMax).
    Strict(Pages),
}

/// The unit that one operation under the zone lock moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// One page, or one block if the page list is for blocks of a higher order.
    Pages,
    /// One block. The pages to move are joined into as few and as large blocks as possible.
    Blocks,
}

/// The fate of the pages that an interrupted free still had to return to the zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// The pages stay on the lists, and return to the zone only after the lists have reached `high`
    /// again.
    Abandoned,
    /// The number of pages still to return is recorded. The same number of pages returns to the
    /// zone when the CPU's lists are next shortened.
    Owed,
}

/// The next step of an allocation that wants all lists drained while another CPU is already
/// draining them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeetsDrain {
    /// The allocation does not drain, and looks for memory again at once (Linux:
    /// `mutex_trylock(&pcpu_drain_mutex)`).
    LeavesIt,
    /// The allocation drains as well, because the other drain may not have reached the lists with
    /// pages yet, or may have passed them already.
    DrainsToo,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_bounds_what_its_kernel_bounds() {
        use Site::{Decay, Drain, DrainRemoteNode, Refill, Spill};
        let sites = [Refill, Spill, Decay, Drain, DrainRemoteNode];
        let limits = |holds: &dyn Holds| sites.map(|site| holds.limit(site, Pages(63)));
        let (none, batch) = (Limit::None, Limit::About(Pages(63)));
        let drain = Limit::About(Pages(2016));
        assert_eq!(limits(&Unbatched), [none, none, none, drain, batch]);
        let long_term = [none, none, batch, drain, batch];
        assert_eq!(limits(&Lists612), long_term);
        assert_eq!(limits(&Lists618), long_term);
        assert_eq!(limits(&Batched), [none, batch, batch, drain, batch]);
        assert_eq!(limits(&BatchedDrains), [none, none, none, batch, batch]);
        assert_eq!(limits(&BatchedZoneLock), [none, batch, batch, batch, batch]);
        assert_eq!(limits(&BOUNDED_ONE_DRAIN), limits(&Bounded));
        assert_eq!(limits(&UNBATCHED_ALL_DRAIN), limits(&Unbatched));
        assert_eq!(Lists612.flush_from(), FlushFrom::Batch);
        assert_eq!(Lists618.flush_from(), FlushFrom::BatchAndHalfMin);
    }

    #[test]
    fn a_control_differs_from_its_policy_only_in_the_rule_for_drains() {
        let pairs: [(&dyn Holds, &dyn Holds); 2] = [
            (&BOUNDED_ONE_DRAIN, &Bounded),
            (&UNBATCHED_ALL_DRAIN, &Unbatched),
        ];
        for (control, policy) in pairs {
            assert_ne!(control.meets_drain(), policy.meets_drain(), "{control:?}");
            let rest = |of: &dyn Holds| {
                let kept = of.pages_per_pcp_hold(Site::Drain, Pages(63));
                let (unit, leftover) = (of.unit(), of.leftover());
                (unit, leftover, of.counts_excess(), of.flush_from(), kept)
            };
            assert_eq!(rest(control), rest(policy), "{control:?}");
        }
    }
}
