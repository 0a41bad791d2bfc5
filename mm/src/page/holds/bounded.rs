//! Ours: no hold moves more than a batch or lasts longer than a set time, anywhere.
//!
//! Refills and drains are bounded too, a block that would exceed the batch waits for the next
//! hold, and nothing that was to be given back is forgotten. Shorter holds mean more hand-overs,
//! each of which costs a cache line's way; what pays for them is that neighbours are joined before
//! the lock is taken and split after it is released, so that a batch is a few operations under it.
//!
//! An allocation that finds no memory drains all lists even if another CPU is at it: with short holds
//! that delays nobody for long, and a drain under way may have passed the pages it needs.

use super::{Holds, Leftover, Limit, MeetsDrain, Unit};
use crate::site::Site;
use crate::units::Pages;

/// At most a batch per hold, everywhere, as whole blocks.
#[derive(Clone, Copy, Debug)]
pub struct Bounded;

impl Holds for Bounded {
    fn name(&self) -> &'static str {
        "bounded"
    }

    fn limit(&self, _site: Site, batch: Pages) -> Limit {
        Limit::Strict(batch)
    }

    fn unit(&self) -> Unit {
        Unit::Blocks
    }

    fn leftover(&self) -> Leftover {
        Leftover::Owed
    }

    fn meets_drain(&self) -> MeetsDrain {
        MeetsDrain::DrainsToo
    }
}

/// A control for experiments: the same bound, page by page.
#[derive(Clone, Copy, Debug)]
pub struct BoundedPages;

impl Holds for BoundedPages {
    fn name(&self) -> &'static str {
        "bounded-pages"
    }

    fn limit(&self, site: Site, batch: Pages) -> Limit {
        Bounded.limit(site, batch)
    }

    fn leftover(&self) -> Leftover {
        Bounded.leftover()
    }

    fn meets_drain(&self) -> MeetsDrain {
        Bounded.meets_drain()
    }
}
