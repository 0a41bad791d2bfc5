//! The records by which reclaim chooses between a node's anonymous pages and its pages of files:
//! the costs of each kind, and the age of the node (Linux: `lru_note_cost`, `workingset.c`).
//!
//! The age of a node grows by one for each page that reclaim takes out of memory, and for each page
//! that becomes active. Both kinds of pages count (Linux: `nonresident_age`). When a page of a file
//! leaves, its file keeps the age in the page's place, as a *shadow*. If the page is needed again,
//! its *refault distance* is the difference between the node's age at that time and the age in the
//! shadow. The distance says how many more pages of memory would have sufficed to keep the page.

use super::kind::Kind;

/// The costs of reclaiming each kind of pages of one NUMA node, and a count of the node's reclaimed
/// and activated pages (its age). The lock of the node's lists guards both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Balance {
    /// The recent cost of reclaiming pages of each kind, in pages.
    cost: [u64; Kind::ALL.len()],
    /// The age of the node: the number of pages that reclaim has taken out of memory, or that have
    /// become active, so far.
    pub(crate) age: u64,
    /// The number of pages of files that were needed again soon after they had left memory.
    refaults: u64,
    /// The value of `refaults` when reclaim last ended.
    refaults_seen: u64,
}

/// What stays in a file in place of a dropped page: the node of the page, and the node's age when
/// the page left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shadow {
    pub(crate) node: u32,
    pub(crate) age: u64,
    /// True if the page was active at some time before it left memory.
    pub(crate) was_active: bool,
}

/// The cost, in pages, of each page that is written to swap or is needed again. It is added to the
/// cost of the page's kind (Linux: `SWAP_CLUSTER_MAX`).
const COST: u64 = 32;

impl Balance {
    /// Adds the cost of reclaiming from a batch of pages, of which `scanned` pages were looked at,
    /// `written` pages were written to swap, and `freed` pages were freed. `pages` is the number of
    /// pages on the active and inactive LRU lists of the node.
    pub(crate) fn note_batch(
        &mut self,
        kind: Kind,
        (scanned, written, freed): (u64, u64, u64),
        pages: u64,
    ) {
        self.note(kind, COST * written + scanned.saturating_sub(freed), pages);
    }

    fn note(&mut self, kind: Kind, cost: u64, pages: u64) {
        self.cost[kind as usize] += cost;
        if self.cost.iter().sum::<u64>() > pages / 4 {
            self.cost.iter_mut().for_each(|cost| *cost /= 2);
        }
    }

    pub(crate) const fn costs(&self) -> [u64; Kind::ALL.len()] {
        self.cost
    }

    /// Records that a page of a file is back in memory. `shadow` is what the page left in the file
    /// when it was dropped. `working` is the number of pages with which the page competes for
    /// memory. The page becomes active if its refault distance is at most `working`. Returns
    /// whether the page becomes active. `pages` is the number of pages on the active and inactive
    /// LRU lists of the node.
    pub(crate) fn refault(&mut self, shadow: Shadow, working: u64, pages: u64) -> bool {
        if self.age.saturating_sub(shadow.age) > working {
            return false;
        }
        self.age += 1;
        self.refaults += 1;
        if shadow.was_active {
            self.note(Kind::File, COST, pages);
        }
        true
    }

    /// Returns whether pages of files were needed again since reclaim last ended.
    pub(crate) const fn has_refaulted(&self) -> bool {
        self.refaults != self.refaults_seen
    }

    /// Records that reclaim has ended.
    pub(crate) fn note_end(&mut self) {
        self.refaults_seen = self.refaults;
    }
}

impl Shadow {
    /// The bit that tells encoded shadows (records of dropped pages) from frames in the index of a
    /// file. It is set in every shadow, and in no frame number.
    pub(crate) const MARK: u64 = 1 << 63;
    const WAS_ACTIVE: u64 = 1 << 62;
    const NODE_SHIFT: u32 = 48;
    const NODE_MASK: u64 = (1 << 14) - 1;
    const AGE_MASK: u64 = (1 << Self::NODE_SHIFT) - 1;

    pub(crate) const fn encode(self) -> u64 {
        let was_active = if self.was_active { Self::WAS_ACTIVE } else { 0 };
        let node = (self.node as u64 & Self::NODE_MASK) << Self::NODE_SHIFT;
        Self::MARK | was_active | node | self.age & Self::AGE_MASK
    }

    /// Returns the shadow that [`Shadow::encode`] turned into `bits`, or `None` if these are not
    /// the bits of a shadow.
    pub(crate) const fn decode(bits: u64) -> Option<Self> {
        if bits & Self::MARK == 0 {
            return None;
        }
        Some(Self {
            node: (bits >> Self::NODE_SHIFT & Self::NODE_MASK) as u32,
            age: bits & Self::AGE_MASK,
            was_active: bits & Self::WAS_ACTIVE != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shadow_survives_its_bits() {
        for (node, age, was_active) in
            [(0, 0, false), (5, 77, true), ((1 << 14) - 1, 1 << 47, true)]
        {
            let shadow = Shadow {
                node,
                age,
                was_active,
            };
            assert_eq!(Shadow::decode(shadow.encode()), Some(shadow));
        }
        assert_eq!(Shadow::decode(1 << 32), None, "a frame is no shadow");
    }

    #[test]
    fn a_page_that_is_needed_soon_becomes_active_and_one_that_was_active_costs() {
        let shadow = |age, was_active| Shadow {
            node: 0,
            age,
            was_active,
        };
        let mut balance = Balance {
            age: 100,
            ..Balance::default()
        };
        assert!(
            !balance.refault(shadow(49, true), 50, 1000),
            "51 pages too late"
        );
        assert!(!balance.has_refaulted());
        assert!(balance.refault(shadow(50, false), 50, 1000));
        assert_eq!((balance.age, balance.costs()), (101, [0, 0]));
        assert!(balance.refault(shadow(60, true), 50, 1000));
        assert_eq!(balance.costs(), [0, COST]);
        assert!(balance.has_refaulted());
        balance.note_end();
        assert!(!balance.has_refaulted());
    }

    #[test]
    fn costs_are_halved_when_they_exceed_a_quarter_of_the_lists() {
        let mut balance = Balance::default();
        balance.note_batch(Kind::Anon, (32, 1, 1), 1000);
        assert_eq!(balance.costs(), [32 + 31, 0]);
        balance.note_batch(Kind::File, (200, 0, 0), 1000);
        assert_eq!(balance.costs(), [31, 100]);
    }
}
