//! Controls that differ from another policy only in the rule for drains.
//!
//! [`Bounded`] differs from [`Unbatched`] in two ways: in how much a hold moves, and in whether an
//! allocation drains all lists although another CPU is draining them. With these controls, an
//! experiment can measure each difference alone.

use super::bounded::Bounded;
use super::unbatched::Unbatched;
use super::{FlushFrom, Holds, Leftover, Limit, MeetsDrain, Unit};
use crate::site::Site;
use crate::units::Pages;

/// The holds of another policy, with a rule for drains of its own.
#[derive(Clone, Copy, Debug)]
pub struct DrainRule {
    name: &'static str,
    holds: &'static dyn Holds,
    meets_drain: MeetsDrain,
}

/// The holds of [`Bounded`], with Linux's rule that only one CPU at a time drains all lists.
pub const BOUNDED_ONE_DRAIN: DrainRule = DrainRule {
    name: "bounded-one-drain",
    holds: &Bounded,
    meets_drain: MeetsDrain::LeavesIt,
};

/// The holds of [`Unbatched`], but an allocation drains all lists although another CPU is draining
/// them.
pub const UNBATCHED_ALL_DRAIN: DrainRule = DrainRule {
    name: "unbatched-all-drain",
    holds: &Unbatched,
    meets_drain: MeetsDrain::DrainsToo,
};

impl Holds for DrainRule {
    fn name(&self) -> &'static str {
        self.name
    }

    fn limit(&self, site: Site, batch: Pages) -> Limit {
        self.holds.limit(site, batch)
    }

    fn unit(&self) -> Unit {
        self.holds.unit()
    }

    fn pages_per_pcp_hold(&self, site: Site, batch: Pages) -> Option<Pages> {
        self.holds.pages_per_pcp_hold(site, batch)
    }

    fn leftover(&self) -> Leftover {
        self.holds.leftover()
    }

    fn meets_drain(&self) -> MeetsDrain {
        self.meets_drain
    }

    fn counts_excess(&self) -> bool {
        self.holds.counts_excess()
    }

    fn flush_from(&self) -> FlushFrom {
        self.holds.flush_from()
    }
}
