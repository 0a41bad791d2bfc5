//! Variants of how many pages one zone-lock hold moves.
//!
//! Every CPU that wants the zone lock waits for the hold in progress, so the length of holds is
//! latency for the other CPUs. Linux moves up to 63 × 2⁵ = 2016 pages per hold.

mod batched;
mod bounded;
mod by_version;
mod unbatched;

use core::fmt;

pub use self::batched::Batched;
pub use self::bounded::{Bounded, BoundedPages};
pub use self::by_version::{Lists612, Lists618};
pub use self::unbatched::Unbatched;
use crate::site::Site;
use crate::units::Pages;

/// A policy for zone-lock holds.
pub trait Holds: fmt::Debug + Sync {
    /// The policy's name on the command line.
    fn name(&self) -> &'static str;

    /// The limit of one hold at `site` when the zone's batch is `batch`.
    fn limit(&self, site: Site, batch: Pages) -> Limit;

    /// The unit that is moved under the lock: single pages, or blocks that are joined before the
    /// hold or split after it.
    fn unit(&self) -> Unit {
        Unit::Pages
    }

    /// The fate of the rest of a spill when the caller cannot continue it after a hold, because a
    /// drain has the pcp lock or because the caller was migrated.
    fn leftover(&self) -> Leftover;

    /// The behaviour of an allocation that finds no memory while another CPU is draining all lists.
    fn meets_drain(&self) -> MeetsDrain {
        MeetsDrain::LeavesIt
    }

    /// Returns whether pages that a hold moved beyond its limit count towards the pages still to be
    /// moved. If false, only the limit is subtracted, as Linux 6.12 and 6.18 do.
    fn counts_excess(&self) -> bool {
        true
    }

    /// The rule for when frees of blocks of two to eight pages empty the lists.
    fn flush_from(&self) -> FlushFrom {
        FlushFrom::BatchAndHalfMin
    }
}

/// The number of pages that must have been freed in a row before a free of order 1 to 3 empties the
/// lists, provided the free before it was of order 1 to 3 too (Linux: `free_high`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushFrom {
    /// One batch, as in Linux up to 6.12.
    Batch,
    /// One batch plus half of `high_min`, as in Linux from 6.18, which keeps small lists for
    /// longer.
    BatchAndHalfMin,
}

/// The limit of one zone-lock hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// No limit: one hold moves all there is to move.
    None,
    /// This many pages; the last block may exceed the limit.
    About(Pages),
    /// At most this many pages, or a single larger block; and the hold also ends once it has lasted
    /// for the time set by [`HoldTimeMax`](crate::tunables::Knob::HoldTimeMax).
    Strict(Pages),
}

/// The unit that one operation under the zone lock moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// One page, or one block of a higher-order list.
    Pages,
    /// One of the largest blocks that the moved pages form.
    Blocks,
}

/// The fate of the rest of an interrupted spill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// The rest stays on the lists until frees reach `high` again.
    Abandoned,
    /// The rest is recorded, and the next spill or decay on that CPU gives it back too.
    Owed,
}

/// The behaviour of an allocation that wants all lists drained while another CPU is already
/// draining them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeetsDrain {
    /// The allocation does not drain, and looks for memory again at once (Linux:
    /// `mutex_trylock(&pcpu_drain_mutex)`).
    LeavesIt,
    /// The allocation drains as well, because the other drain may not have reached the lists that
    /// have pages yet, or may already have passed them.
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
        assert_eq!(Lists612.flush_from(), FlushFrom::Batch);
        assert_eq!(Lists618.flush_from(), FlushFrom::BatchAndHalfMin);
    }
}
