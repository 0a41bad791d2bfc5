//! Linux before holds were bounded: a refill, spill or decay is one hold, whatever its size.

use super::{Holds, Leftover, Limit};
use crate::site::Site;
use crate::units::Pages;

/// One hold per operation, of up to 2016 pages.
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

/// The limit of drains, or `None` for other sites. All Linux variants drain 32 batches per hold,
/// and one batch per hold from the lists of a remote node's zone.
pub(super) fn drain_limit(site: Site, batch: Pages) -> Option<Limit> {
    match site {
        Site::Drain => Some(Limit::About(Pages(batch.0 << 5))),
        Site::DrainRemoteNode => Some(Limit::About(batch)),
        _ => None,
    }
}
