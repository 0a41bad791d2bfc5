//! How many pages Linux 6.12 and 6.18 move per hold of the zone lock. Later kernels move about one
//! batch per hold, both in decays (periodically) and in spills (when a free finds that the lists
//! are too long). Linux 6.12 and 6.18 do so only in decays: a decay moves one batch per hold, and
//! drops the zone lock and the pcp lock between two holds. A spill is still a single hold.

use super::unbatched::drain_limit;
use super::{FlushFrom, Holds, Leftover, Limit};
use crate::site::Site;
use crate::units::Pages;

/// Moves as many pages per hold of the zone lock as Linux 6.12.117. The only difference from
/// [`Lists618`] is how many pages must have been freed in a row before frees of order 1 to 3 empty
/// the lists.
#[derive(Clone, Copy, Debug)]
pub struct Lists612;

impl Holds for Lists612 {
    fn name(&self) -> &'static str {
        "lists-6.12"
    }

    fn limit(&self, site: Site, batch: Pages) -> Limit {
        Lists618.limit(site, batch)
    }

    fn leftover(&self) -> Leftover {
        Lists618.leftover()
    }

    fn counts_excess(&self) -> bool {
        Lists618.counts_excess()
    }

    fn flush_from(&self) -> FlushFrom {
        FlushFrom::Batch
    }
}

/// Moves as many pages per hold of the zone lock as Linux 6.18, as of 6.18.44.
#[derive(Clone, Copy, Debug)]
pub struct Lists618;

impl Holds for Lists618 {
    fn name(&self) -> &'static str {
        "lists-6.18"
    }

    fn limit(&self, site: Site, batch: Pages) -> Limit {
        match site {
            Site::Decay => Limit::About(batch),
            _ => drain_limit(site, batch).unwrap_or(Limit::None),
        }
    }

    fn leftover(&self) -> Leftover {
        Leftover::Abandoned
    }
    fn counts_excess(&self) -> bool {
        false
    }
}
