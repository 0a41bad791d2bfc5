//! Linux from 6.19: spill and decay take one batch per hold and drop both locks in between.
//!
//! This is the change as merged: refills and drains still move up to 2016 pages per hold, and a
//! spill that cannot get the pcp lock again between two holds abandons the rest.

use super::unbatched::drain_limit;
use super::{Holds, Leftover, Limit};
use crate::site::Site;
use crate::units::Pages;

/// About one batch per hold of a spill or decay; all other holds as in `Unbatched`.
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
