//! Two earlier forms of the change that made holds of the zone lock shorter in Linux. They were
//! posted before the form that was merged, [`Batched`](super::Batched), and are for comparison
//! only.

use super::unbatched::drain_limit;
use super::{Holds, Leftover, Limit};
use crate::site::Site;
use crate::units::Pages;

/// Drains move only one batch in each hold of the zone lock. Every other return of pages to the
/// zone is one hold, as in [`Unbatched`](super::Unbatched). The second patch in the first two
/// versions of a patch series changed `drain_pages_zone` in this way. Linux merged a later version
/// of the series, without this patch.
#[derive(Clone, Copy, Debug)]
pub struct BatchedDrains;

impl Holds for BatchedDrains {
    fn name(&self) -> &'static str {
        "batched-drains"
    }

    fn limit(&self, site: Site, batch: Pages) -> Limit {
        match site {
            Site::Drain | Site::DrainRemoteNode => Limit::About(batch),
            _ => Limit::None,
        }
    }

    fn leftover(&self) -> Leftover {
        Leftover::Abandoned
    }
}

/// A patch that was posted before the series of patches that Linux merged. A CPU that returns pages
/// to the zone releases the zone lock after each batch, but keeps the pcp lock. So other CPUs can
/// use the zone in between, but not these page lists.
///
/// The posted patch released the zone lock only if another CPU was waiting for the lock. This
/// policy always releases it: if no CPU waits, taking a free lock again costs little.
#[derive(Clone, Copy, Debug)]
pub struct BatchedZoneLock;

impl Holds for BatchedZoneLock {
    fn name(&self) -> &'static str {
        "batched-zone-lock"
    }

    fn limit(&self, site: Site, batch: Pages) -> Limit {
        match site {
            Site::Spill | Site::Decay | Site::Drain | Site::DrainRemoteNode => Limit::About(batch),
            _ => Limit::None,
        }
    }

    fn pages_per_pcp_hold(&self, site: Site, batch: Pages) -> Option<Pages> {
        match drain_limit(site, batch) {
            Some(Limit::About(most) | Limit::Strict(most)) => Some(most),
            _ => Some(Pages(u32::MAX)),
        }
    }

    fn leftover(&self) -> Leftover {
        Leftover::Abandoned
    }
}
