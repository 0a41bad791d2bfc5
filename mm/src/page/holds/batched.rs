//! Linux from 6.19: a CPU that returns pages from its lists to the zone moves one batch of pages
//! per hold of the zone lock. It returns pages because the lists are too long (a spill), or in its
//! periodic work (a decay). Between two holds, it drops the zone lock and the pcp lock.
//!
//! This is the change as merged upstream. Refills and drains still move up to 2016 pages per hold.
//! If a spill cannot take the pcp lock again after a hold, the pages not moved yet stay on the
//! lists.

use super::unbatched::drain_limit;
use super::{Holds, Leftover, Limit};
use crate::site::Site;
use crate::units::Pages;

/// Moves about one batch per hold of the zone lock when page lists are too long (a spill) or shrink
/// periodically (a decay). All other holds are as in `Unbatched`: they move up to 2016 pages.
#[derive(Clone, Copy, Debug)]
pub struct Batched;

impl Holds for Batched {
    fn name(&self) -> &'static str {
        "batched"
    }

    fn limit(&self, site: Site, batch: Pages) -> Limit {
        match site {
            Site::Spill | Site::Decay => Limit::About(batch),
            _ => drain_limit(site, batch).unwrap_or(Limit::None),
        }
    }

    fn leftover(&self) -> Leftover {
        Leftover::Abandoned
    }
}
