//! Derives from the kernel's events by how much each zone's watermarks are boosted (raised for a
//! while).
//!
//! When an allocation tries to claim a partly free page block of another type, Linux adds the size
//! of a page block to the boost of the zone, up to a limit. All watermarks of the zone are higher
//! by the boost. When a round of kswapd ends, kswapd removes the boost that the zone had when the
//! round began.

use super::zoneinfo::ZoneInfo;

/// The number of pages in a page block.
const BLOCK_PAGES: u64 = 1 << BLOCK_ORDER;
const BLOCK_ORDER: u8 = 9;
/// The largest boost of a watermark, in ten-thousandths of the high watermark. This is Linux's
/// default, which is used if the recording does not state `watermark_boost_factor`.
pub(super) const FACTOR: u64 = 15_000;

/// The current watermark boosts of all zones, as derived from the events.
#[derive(Clone, Debug)]
pub(super) struct Boosts {
    zones: Vec<Boost>,
    /// The index of the first event after the recorder read `/proc/zoneinfo`.
    read_at: usize,
}

#[derive(Clone, Copy, Debug)]
struct Boost {
    node: u32,
    most: u64,
    now: u64,
    /// The zone's boost, in pages, when the current round of the node's kswapd began.
    of_round: u64,
    /// The zone's boost that `/proc/zoneinfo` shows, in pages.
    told: u64,
}

impl Boosts {
    /// Starts with no zone boosted. The recorder read `zones` from `/proc/zoneinfo` just before
    /// event `read_at`, so the boosts in `zones` apply from that event on. `factor` is
    /// `watermark_boost_factor`, in ten-thousandths of the high watermark. If `factor` is 0, there
    /// are no boosts.
    pub(super) fn new(zones: &[ZoneInfo], factor: u64, read_at: usize) -> Self {
        let most = |zone: &ZoneInfo| {
            let large = zone.managed >= BLOCK_PAGES * 4;
            let most = zone.marks[2] * factor / 10_000;
            if large && most > 0 {
                most.max(BLOCK_PAGES)
            } else {
                0
            }
        };
        let boost = |zone: &ZoneInfo| Boost {
            node: zone.node,
            most: most(zone),
            now: 0,
            of_round: 0,
            told: zone.boost,
        };
        Self {
            zones: zones.iter().map(boost).collect(),
            read_at,
        }
    }

    /// If event `index` is the first event after the recorder read `/proc/zoneinfo`, takes over the
    /// boosts that `/proc/zoneinfo` shows. Returns the zones whose boosts changed, with their new
    /// boosts in pages.
    pub(super) fn read(&mut self, index: usize) -> Vec<(u8, u64)> {
        let mut changed = Vec::new();
        for (zone, boost) in (0..).zip(&mut self.zones) {
            if index == self.read_at && boost.now != boost.told {
                boost.now = boost.told;
                changed.push((zone, boost.now));
            }
        }
        changed
    }

    /// Updates the zone's boost after an allocation found a free block of `order` in a page block
    /// of another type. Returns the zone's new boost in pages, or `None` if the boost has not
    /// changed.
    pub(super) fn claim(&mut self, zone: u8, order: u8) -> Option<u64> {
        let boost = self.zones.get_mut(usize::from(zone))?;
        // If the page block is entirely free, Linux changes its type without a boost.
        if order >= BLOCK_ORDER || boost.now >= boost.most {
            return None;
        }
        boost.now = (boost.now + BLOCK_PAGES).min(boost.most);
        Some(boost.now)
    }

    /// Stores the boost of each zone of `node` when a round of this node's kswapd begins. The end
    /// of the round removes only the stored boost.
    pub(super) fn round_begins(&mut self, node: u32) {
        for boost in self.zones.iter_mut().filter(|boost| boost.node == node) {
            boost.of_round = boost.now;
        }
    }

    /// Called at the end of a round of the kswapd of `node`. Removes the boosts that the node's
    /// zones had when the round began. Returns the zones whose boosts changed, with their new
    /// boosts in pages.
    pub(super) fn round_ends(&mut self, node: u32) -> Vec<(u8, u64)> {
        let mut changed = Vec::new();
        let zones = (0..).zip(&mut self.zones);
        for (zone, boost) in zones.filter(|(_, boost)| boost.node == node) {
            let made_up_for = std::mem::take(&mut boost.of_round).min(boost.now);
            if made_up_for > 0 {
                boost.now -= made_up_for;
                changed.push((zone, boost.now));
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boosts() -> Boosts {
        let zone = |managed, high| ZoneInfo {
            managed,
            marks: [0, 0, high],
            ..ZoneInfo::default()
        };
        Boosts::new(&[zone(1000, 100), zone(1 << 20, 1000)], FACTOR, 0)
    }

    #[test]
    fn a_claim_of_a_part_of_a_block_boosts_up_to_the_limit() {
        let mut boosts = boosts();
        assert_eq!(boosts.claim(1, 9), None, "all of a block is free");
        let claims = [0, 4, 8, 8].map(|order| boosts.claim(1, order));
        assert_eq!(claims, [Some(512), Some(1024), Some(1500), None]);
        assert_eq!(boosts.claim(0, 3), None, "a small zone");
        assert_eq!(boosts.claim(2, 3), None, "no such zone");
    }

    /// A boost is limited to a fraction of the high watermark, but the limit is at least the size
    /// of a page block. A zone gets no boost if its high watermark is 0 or `watermark_boost_factor`
    /// is 0.
    #[test]
    fn the_limit_is_at_least_a_page_block_unless_there_is_none() {
        let zone = |high| ZoneInfo {
            managed: BLOCK_PAGES * 4,
            marks: [0, 0, high],
            ..ZoneInfo::default()
        };
        let mut boosts = Boosts::new(&[zone(100), zone(0)], FACTOR, 0);
        assert_eq!(boosts.claim(0, 0), Some(512));
        assert_eq!(boosts.claim(0, 0), None);
        assert_eq!(boosts.claim(1, 0), None);
        let mut off = Boosts::new(&[zone(1000)], 0, 0);
        assert_eq!(off.claim(0, 0), None, "boosts are switched off");
    }

    /// The end of a round removes only the boost that the zone had when the round began. A boost
    /// that is added during the round stays.
    #[test]
    fn a_round_takes_away_what_there_was_at_its_beginning() {
        let mut boosts = boosts();
        boosts.claim(1, 3);
        boosts.round_begins(0);
        boosts.claim(1, 3);
        assert_eq!(boosts.round_ends(0), [(1, 512)]);
        assert_eq!(boosts.round_ends(0), []);
        boosts.round_begins(0);
        assert_eq!(boosts.round_ends(0), [(1, 0)]);
    }

    #[test]
    fn a_round_leaves_the_boosts_of_other_nodes() {
        let zone = |node| ZoneInfo {
            node,
            managed: 1 << 20,
            marks: [0, 0, 1000],
            ..ZoneInfo::default()
        };
        let mut boosts = Boosts::new(&[zone(0), zone(1)], FACTOR, 0);
        boosts.claim(0, 3);
        boosts.claim(1, 3);
        boosts.round_begins(0);
        boosts.round_begins(1);
        assert_eq!(boosts.round_ends(1), [(1, 0)]);
        assert_eq!(boosts.round_ends(0), [(0, 0)]);
    }
}
