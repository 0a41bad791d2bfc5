//! Prices that depend on how many pages one hold of the zone lock has moved so far.
//!
//! Moving many pages in one hold takes less time per page than moving few. A profile states the
//! average price of a page in a short hold and, optionally, in a long hold; see `docs/machines.md`.
//! In a hold of any length, each page up to the length of the short hold costs the average of the
//! short hold. Each further page has one lower price, chosen so that the average over the long hold
//! is the one that the profile states.

use plimsoll_mm::site::Work;

use super::Costs;

/// The average prices in long holds of the zone lock, at one card (low, middle or high). A price
/// that depends on the length of the hold has two points: its average in a short hold, which is in
/// [`Costs`], and its average in a long hold, which is here; see [`Then`](super::Then).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slopes {
    /// The average price of [`Work::BuddyAlloc`] in a long hold of the zone lock.
    pub alloc: Option<Slope>,
    /// The average price of [`Work::BuddyFree`] in a long hold of the zone lock.
    pub free: Option<Slope>,
}

/// The average price of one kind of work in a long hold of the zone lock, at one card (low, middle
/// or high).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slope {
    /// The number of pages that a short hold of the zone lock moves.
    pub at: u32,
    /// The number of pages that a long hold of the zone lock moves.
    pub pages: u32,
    /// The mean price of a page, in nanoseconds, if one hold of the zone lock moves `pages` pages.
    pub ns: u32,
}

/// The price of each page that one hold of the zone lock moves, on one CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HoldPrice {
    /// The first `at` pages of a hold of the zone lock cost `first_ns` each. `at` is [`u32::MAX`]
    /// if all pages of a hold cost the same.
    at: u32,
    first_ns: u32,
    /// Each page after the first `at` pages costs `further_ns + rest / of` nanoseconds. A fraction
    /// is charged as soon as the fractions since the CPU took the zone lock add up to a whole
    /// nanosecond.
    further_ns: u64,
    rest: u64,
    of: u64,
}

impl Slopes {
    /// The average price of `work` in a long hold of the zone lock. `None` if the price of `work`
    /// never depends on the length of a hold.
    pub(super) const fn of(&mut self, work: Work) -> Option<&mut Option<Slope>> {
        match work {
            Work::BuddyAlloc => Some(&mut self.alloc),
            Work::BuddyFree => Some(&mut self.free),
            _ => None,
        }
    }

    /// Applies `change` to each of these average prices, and returns the results.
    pub(super) fn map(self, change: impl Fn(u32) -> u32) -> Self {
        let map = |slope: Slope| Slope {
            ns: change(slope.ns),
            ..slope
        };
        Self {
            alloc: self.alloc.map(map),
            free: self.free.map(map),
        }
    }
}

impl HoldPrice {
    /// Makes the price of moving one page by `work` while a CPU holds a zone lock. `work` is one of
    /// the kinds that [`Slopes`] lists.
    pub(crate) fn new(costs: &Costs, work: Work) -> Self {
        let first_ns = costs.work_ns[work as usize];
        let mut slopes = costs.slopes;
        let Some(slope) = slopes.of(work).and_then(|slope| *slope) else {
            return Self {
                at: u32::MAX,
                first_ns,
                of: 1,
                ..Self::default()
            };
        };
        let of = u64::from(slope.pages.saturating_sub(slope.at).max(1));
        let whole_ns = u64::from(slope.pages) * u64::from(slope.ns);
        let first_part_ns = u64::from(slope.at) * u64::from(first_ns);
        // Each page after the first `slope.at` pages costs at least a nanosecond, and at most as
        // much as one of the first pages. A profile with other prices is refused when it is loaded,
        // but rounding can change low prices afterwards.
        let further_ns = whole_ns
            .saturating_sub(first_part_ns)
            .clamp(of.min(of * u64::from(first_ns)), of * u64::from(first_ns));
        Self {
            at: slope.at,
            first_ns,
            further_ns: further_ns / of,
            rest: further_ns % of,
            of,
        }
    }

    /// The price of one page that a CPU moves without holding a zone lock, in nanoseconds.
    #[inline]
    pub(crate) fn first(&self) -> u64 {
        u64::from(self.first_ns)
    }

    /// The price, in nanoseconds, of the first `pages` pages that move in one hold of the zone
    /// lock. A larger `pages` never has a lower price.
    #[inline]
    pub(crate) fn total(&self, pages: u32) -> u64 {
        if pages <= self.at {
            return u64::from(pages) * u64::from(self.first_ns);
        }
        let further = u64::from(pages - self.at);
        let at_first = u64::from(self.at) * u64::from(self.first_ns);
        at_first + further * self.further_ns + further * self.rest / self.of
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Card, Profile};

    fn price(first_ns: u32, slope: Option<Slope>) -> HoldPrice {
        let mut costs = Profile::load("laptop-2", Card::Mid)
            .expect("is built in")
            .costs;
        costs.work_ns[Work::BuddyFree as usize] = first_ns;
        costs.slopes.free = slope;
        HoldPrice::new(&costs, Work::BuddyFree)
    }

    fn slope(at: u32, pages: u32, ns: u32) -> Option<Slope> {
        Some(Slope { at, pages, ns })
    }

    #[test]
    fn both_averages_are_exact_and_the_price_of_a_page_never_rises() {
        for (first_ns, at, pages, ns) in [(42, 63, 2047, 22), (95, 63, 2047, 77), (7, 1, 2, 4)] {
            let price = price(first_ns, slope(at, pages, ns));
            assert_eq!(price.total(at), u64::from(at * first_ns));
            assert_eq!(price.total(pages), u64::from(pages * ns));
            let totals: Vec<u64> = (0..3 * pages).map(|k| price.total(k)).collect();
            let pages: Vec<u64> = totals.windows(2).map(|pair| pair[1] - pair[0]).collect();
            // If the price of a page after the first `at` is not a whole number, each such page
            // costs the whole number just below it or just above it.
            let further = &pages[at as usize..];
            let (low, high) = (further.iter().min(), further.iter().max());
            assert!(high.unwrap() - low.unwrap() <= 1);
            assert!(
                pages
                    .iter()
                    .all(|ns| (1..=u64::from(first_ns)).contains(ns))
            );
        }
    }

    #[test]
    fn a_price_without_a_second_point_is_the_same_for_every_page() {
        let price = price(42, None);
        assert_eq!([1, 63, 5000].map(|k| price.total(k)), [42, 2646, 210_000]);
    }

    #[test]
    fn rounding_never_makes_a_page_free_or_dearer_than_an_earlier_one() {
        assert_eq!(price(1, slope(63, 2047, 1)).total(2047), 2047);
        assert_eq!(price(3, slope(63, 64, 1)).total(64), 190, "a page costs 1");
        assert_eq!(price(3, slope(63, 64, 4)).total(64), 192, "or at most 3");
        assert_eq!(price(0, slope(63, 64, 4)).total(64), 0, "a test's price");
    }
}
