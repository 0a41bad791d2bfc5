//! How many pages one zone-lock hold moves: the variants, side by side.
//!
//! Everybody who wants the zone waits for the hold in progress, so its length is the others'
//! latency. Linux moves up to 63 × 2⁵ = 2016 pages per hold.

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
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What one hold at `site` may move when the zone's batch is `batch`.
    fn limit(&self, site: Site, batch: Pages) -> Limit;

    /// What is moved under the lock: single pages, or blocks joined before and split after it.
    fn unit(&self) -> Unit {
        Unit::Pages
    }

    /// What becomes of the rest of a spill when the page lists are lost between two holds: a
    /// drain has them, or the caller was migrated.
    fn leftover(&self) -> Leftover;

    /// What an allocation that finds no memory does if another CPU drains all lists already.
    fn meets_drain(&self) -> MeetsDrain {
        MeetsDrain::LeavesIt
    }

    /// Whether pages that a hold moved beyond its limit count towards what is to be moved. Linux
    /// subtracts the limit.
    fn counts_excess(&self) -> bool {
        true
    }

    /// When frees of two to eight pages empty the lists.
    fn flush_from(&self) -> FlushFrom {
        FlushFrom::BatchAndHalfMin
    }
}

/// How many pages must have been freed in a row before a free of two to eight pages that follows
/// another such gives everything back (Linux: `free_high`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushFrom {
    /// A batch: Linux up to 6.12.
    Batch,
    /// A batch and half of `high_min`: Linux from 6.18, where small lists are kept for longer.
    BatchAndHalfMin,
}

/// What one zone-lock hold may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// All there is to move.
    None,
    /// This many pages; the last block may exceed it.
    About(Pages),
    /// This many pages, or a single block; and as long as the knob `HoldTimeMax` says.
    Strict(Pages),
}

/// What one operation under the zone lock moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Each page (or block of a higher-order list) by itself.
    Pages,
    /// The largest blocks that the moved pages form.
    Blocks,
}

/// What becomes of the rest of an interrupted spill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// It stays on the lists until frees reach `high` again.
    Abandoned,
    /// The next spill or decay on that CPU gives it back too.
    Owed,
}

/// What an allocation does that wants all lists drained while another CPU drains them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeetsDrain {
    /// It looks for memory at once (Linux: `mutex_trylock(&pcpu_drain_mutex)`).
    LeavesIt,
    /// It drains as well, as the other may not have come to the pages it needs.
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
