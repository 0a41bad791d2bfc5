//! The policy of Linux before holds of the zone lock were limited. Each transfer of pages between
//! page lists and the zone, except a drain, is one hold of the zone lock, however many pages move.

use super::{Holds, Leftover, Limit};
use crate::site::Site;
use crate::units::Pages;

/// Each transfer of pages between page lists and the zone is one hold of the zone lock, which moves
/// up to 2016 pages. Only a drain can take several holds.
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

/// Returns the limit of one hold of the zone lock in a drain, or `None` if the code at `site` is no
/// drain. The limit is the same in every Linux release: 32 batches, or one batch if the pages
/// return to the zone of a remote node.
pub(super) fn drain_limit(site: Site, batch: Pages) -> Option<Limit> {
    match site {
        Site::Drain => Some(Limit::About(Pages(batch.0 << 5))),
        Site::DrainRemoteNode => Some(Limit::About(batch)),
        _ => None,
    }
}
