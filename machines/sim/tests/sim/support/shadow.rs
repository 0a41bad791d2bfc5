//! Promise: a device that keeps translations is notified before a page is unmapped, whatever the
//! reason.
//!
//! A shadow is such a device. After a fault the shadow records the frame of the page. When Plimsoll
//! notifies the shadow of a range, the shadow drops the frames of that range. After every step of
//! the swarm, the check compares the shadow's remaining translations with the page tables.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_mm::space::{AddressSpace, Notified, Refused};
use plimsoll_mm::units::{Pfn, Vpn};
use plimsoll_sim::Sim;

/// The translations that a device keeps for one address space.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shadow(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    frames: BTreeMap<Vpn, Pfn>,
    /// The ranges whose notification has begun and has not ended.
    open: Vec<Range<Vpn>>,
    /// The number of notifications so far. If two readings of this number are equal, there was no
    /// notification between them.
    told: u64,
    /// The number of translations that notifications have made the device drop.
    given_up: u64,
    is_released: bool,
}

impl Known {
    fn may_know(&self, page: Vpn) -> bool {
        !self.is_released && !self.open.iter().any(|range| range.contains(&page))
    }

    fn give_up(&mut self, pages: Range<Vpn>) {
        let gone = self.frames.extract_if(pages, |_, _| true).count();
        self.told += 1;
        self.given_up += gone as u64;
    }
}

impl Shadow {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up the frame of `page`, and records it unless `page` may be about to be unmapped. That
    /// is possible if a notification began during the lookup, or if the notification of a range
    /// that contains `page` has begun and has not ended.
    pub(crate) fn learn(&self, sim: &Sim, space: &AddressSpace<Sim>, page: Vpn) {
        let told = self.known().told;
        let Some(frame) = space.frame_of(sim, page) else {
            return;
        };
        let mut known = self.known();
        if known.told == told && known.may_know(page) {
            known.frames.insert(page, frame);
        }
    }

    /// Asserts that every translation of this device agrees with the page tables.
    pub(crate) fn compare(&self, sim: &Sim, space: &AddressSpace<Sim>) {
        let all: Vec<Vpn> = self.known().frames.keys().copied().collect();
        for page in all {
            let told = self.known().told;
            let there = space.frame_of(sim, page);
            let known = self.known();
            if known.told == told
                && let Some(&frame) = known.frames.get(&page)
            {
                assert_eq!(
                    there,
                    Some(frame),
                    "{page} is known to be in {frame:?}, and no event said that it left"
                );
            }
        }
    }

    /// Returns the number of translations that notifications have made the device drop so far.
    pub(crate) fn given_up(&self) -> u64 {
        self.known().given_up
    }
}

impl Notified<Sim> for Shadow {
    fn start(&self, _: &Sim, pages: &Range<Vpn>, _may_wait: bool) -> Result<(), Refused> {
        let mut known = self.known();
        known.give_up(pages.clone());
        known.open.push(pages.clone());
        Ok(())
    }

    fn end(&self, _: &Sim, pages: &Range<Vpn>) {
        let mut known = self.known();
        let at = known.open.iter().position(|open| open == pages);
        known
            .open
            .swap_remove(at.expect("a change that ends was begun"));
    }

    fn release(&self, _: &Sim) {
        let mut known = self.known();
        known.give_up(Vpn(0)..Vpn(u64::MAX));
        known.is_released = true;
    }
}
