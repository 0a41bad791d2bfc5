//! Plimsoll's policy: no hold of the zone lock moves more than a batch of pages (or a single block
//! that is larger), or lasts longer than a set time. This is true of every transfer of pages
//! between page lists and the zone.
//!
//! A block that would exceed the batch waits for the next hold. If a free that returns pages to the
//! zone is interrupted between two holds, the number of pages left to move is recorded. Later, the
//! same number of pages returns to the zone.
//!
//! Shorter holds mean that the lock changes hands more often, and each change costs the transfer of
//! a cache line. To compensate, freed buddies are joined before the lock is taken, and refilled
//! blocks are split after it is released. A batch then takes only a few operations under the lock.
//!
//! An allocation that finds no memory drains all lists even if another CPU is already draining
//! them. The drain of the other CPU may already have passed the lists that have pages. With short
//! holds, the second drain delays other CPUs only briefly.

use super::{Holds, Leftover, Limit, MeetsDrain, Unit};
use crate::site::Site;
use crate::units::Pages;

/// Moves at most a batch of pages per hold of the zone lock, as whole blocks.
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

/// A control for experiments: limits the holds of the zone lock as [`Bounded`] does, but moves page
/// by page.
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
