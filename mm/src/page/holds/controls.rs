//! Rules for holds of the zone lock that serve as controls in experiments. Each differs from one of
//! the other rules only in one point: whether an allocation drains all lists although another CPU
//! is already draining them.
//!
//! [`Bounded`] differs from [`Unbatched`] both in this point and in how many pages one hold of the
//! zone lock moves. With these controls, an experiment can measure the effect of each difference
//! alone.

use super::bounded::Bounded;
use super::unbatched::Unbatched;
use super::{FlushFrom, Holds, Leftover, Limit, MeetsDrain, Unit};
use crate::site::Site;
use crate::units::Pages;

/// Limits the holds of the zone lock as `holds` does, but has its own rule for an allocation that
/// finds no memory while another CPU is draining all lists.
#[derive(Clone, Copy, Debug)]
pub struct DrainRule {
    name: &'static str,
    holds: &'static dyn Holds,
    meets_drain: MeetsDrain,
}

/// Limits holds as [`Bounded`] does. As in Linux, only one CPU at a time drains all lists.
pub const BOUNDED_ONE_DRAIN: DrainRule = DrainRule {
    name: "bounded-one-drain",
    holds: &Bounded,
    meets_drain: MeetsDrain::LeavesIt,
};

/// This rule limits holds of the zone lock as [`Unbatched`] does. But an allocation drains all
/// lists even if another CPU is draining them.
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
