//! Linux before holds were bounded: a refill, spill or decay is one hold, whatever its size.

use super::{Holds, Leftover, Limit};
use crate::site::Site;
use crate::units::Pages;

/// One hold for each refill, spill or decay, which may move up to 2016 pages.
#[derive(Clone, Copy, Debug)]
pub struct Unbatched;

impl Holds for Unbatched {
    fn name(&self) -> &'static str {
        "unbatched"
    }

    fn limit(&self, site: Site, batch: Pages) -> Limit {
        drain_limit(site, batch).unwrap_or(Limit::None)
    }

    fn leftover(&self) -> Leftover {
        Leftover::Abandoned
    }
}

/// The limit for the sites that drain lists, or `None` for other sites. In every Linux release, a
/// hold of a drain moves 32 batches, and a hold that returns pages to the zone of a remote node
/// moves one batch.
pub(super) fn drain_limit(site: Site, batch: Pages) -> Option<Limit> {
    match site {
        Site::Drain => Some(Limit::About(Pages(batch.0 << 5))),
        Site::DrainRemoteNode => Some(Limit::About(batch)),
        _ => None,
    }
}
