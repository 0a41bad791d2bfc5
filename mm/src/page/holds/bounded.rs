//! Ours: no hold moves more than a batch or lasts longer than a set time, anywhere.
//!
//! Refills and drains are bounded too, a block that would exceed the batch waits for the next
//! hold, and nothing that was to be given back is forgotten.

use super::{Holds, Leftover, Limit};
use crate::site::Site;
use crate::units::Pages;

/// At most a batch per hold, everywhere.
#[derive(Clone, Copy, Debug)]
pub struct Bounded;

impl Holds for Bounded {
    fn name(&self) -> &'static str {
        "bounded"
    }

    fn limit(&self, _site: Site, batch: Pages) -> Limit {
        Limit::Strict(batch)
    }

    fn leftover(&self) -> Leftover {
        Leftover::Owed
    }
}
