//! The page lists of the recorded kernel, tracked frame by frame from the kernel's events.

use std::collections::{BTreeMap, HashMap};

/// The number of migrate types that have their own lists (Linux: `MIGRATE_PCPTYPES`).
pub(crate) const TYPES: u8 = 3;
/// The number of lists that one CPU has in one zone: one for each of three types and orders 0 to 3,
/// and two for huge pages.
pub(crate) const LISTS: usize = 14;

/// Identifies one of a CPU's lists in a zone by the list's index in Linux (`order_to_pindex`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ListId(pub(crate) u8);

impl ListId {
    /// Returns the list of blocks of `order` and migrate type `mobility`, or `None` if no list
    /// takes blocks of that order. A block whose type is above 2, such as HIGHATOMIC, is on the
    /// list of movable blocks.
    pub(crate) fn of(order: u8, mobility: u8) -> Option<Self> {
        let kind = if mobility < TYPES { mobility } else { MOVABLE };
        match order {
            0..=3 => Some(Self(order * TYPES + kind)),
            9 => Some(Self(12 + u8::from(kind == MOVABLE))),
            _ => None,
        }
    }

    pub(crate) fn order(self) -> u8 {
        if self.0 >= 12 { 9 } else { self.0 / TYPES }
    }

    /// The migrate type of the list's blocks. For the list of huge pages that are not movable, this
    /// is unmovable.
    pub(crate) fn mobility(self) -> u8 {
        match self.0 {
            13 => MOVABLE,
            12 => 0,
            list => list % TYPES,
        }
    }

    pub(crate) fn pages(self) -> u32 {
        1 << self.order()
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The value of `MIGRATE_UNMOVABLE` in Linux.
pub(crate) const UNMOVABLE: u8 = 0;
/// The value of `MIGRATE_MOVABLE` in Linux.
pub(crate) const MOVABLE: u8 = 1;
/// The value of `MIGRATE_RECLAIMABLE` in Linux.
pub(crate) const RECLAIMABLE: u8 = 2;

/// Identifies a page list by its CPU, its zone, and its index among the CPU's lists in the zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) cpu: u32,
    pub(crate) zone: u8,
    pub(crate) list: ListId,
}

/// All lists of the recorded kernel, with the frames on them. A block that was on a list before the
/// recording is not in `Lists` until an event shows it.
#[derive(Default)]
pub(crate) struct Lists {
    frames: HashMap<Place, BTreeMap<i64, u64>>,
    places: HashMap<u64, (Place, i64)>,
}

impl Lists {
    /// Puts a block on the hot end of a list, so that it is allocated first.
    pub(crate) fn push(&mut self, place: Place, pfn: u64) {
        self.remove(pfn);
        let list = self.frames.entry(place).or_default();
        let at = list.last_key_value().map_or(0, |(at, _)| at + 1);
        list.insert(at, pfn);
        self.places.insert(pfn, (place, at));
    }

    /// Puts a block on the cold end of a list, so that it is allocated last.
    pub(crate) fn push_cold(&mut self, place: Place, pfn: u64) {
        self.remove(pfn);
        let list = self.frames.entry(place).or_default();
        let at = list.first_key_value().map_or(0, |(at, _)| at - 1);
        list.insert(at, pfn);
        self.places.insert(pfn, (place, at));
    }

    /// The list that a frame is on, if any.
    pub(crate) fn place(&self, pfn: u64) -> Option<Place> {
        self.places.get(&pfn).map(|(place, _)| *place)
    }

    /// Removes a block from any position of its list, and returns the list.
    pub(crate) fn remove(&mut self, pfn: u64) -> Option<Place> {
        let (place, at) = self.places.remove(&pfn)?;
        self.frames.get_mut(&place)?.remove(&at);
        Some(place)
    }

    /// The blocks of a list that will be allocated before `pfn`, the next block first. If `pfn` is
    /// `None` or not on the list, returns all blocks of the list.
    pub(crate) fn above(&self, place: Place, pfn: Option<u64>) -> Vec<u64> {
        let Some(list) = self.frames.get(&place) else {
            return Vec::new();
        };
        let limit = pfn.and_then(|pfn| self.places.get(&pfn));
        let limit = limit.filter(|(found, _)| *found == place);
        let above = list.iter().rev();
        let hotter = |at: &i64| limit.is_none_or(|(_, limit)| at > limit);
        above
            .take_while(|(at, _)| hotter(at))
            .map(|(_, pfn)| *pfn)
            .collect()
    }

    /// The blocks on the list `place` that return to the zone before the block `pfn` does. There
    /// are none if `pfn` is not on this list.
    pub(crate) fn below(&self, place: Place, pfn: u64) -> Vec<u64> {
        let at = self.places.get(&pfn).filter(|(found, _)| *found == place);
        let list = at.and_then(|(_, at)| Some((self.frames.get(&place)?, *at)));
        let colder = list.map(|(list, at)| list.range(..at).map(|(_, pfn)| *pfn).collect());
        colder.unwrap_or_default()
    }

    /// Returns whether `pfn` is the block of its list that will be returned to the zone next.
    pub(crate) fn is_coldest(&self, pfn: u64) -> bool {
        self.places.get(&pfn).is_some_and(|(place, at)| {
            let coldest = self.frames[place].first_key_value();
            coldest.is_some_and(|(first, _)| first == at)
        })
    }

    /// The number of blocks on a list.
    pub(crate) fn len(&self, place: Place) -> usize {
        self.frames.get(&place).map_or(0, BTreeMap::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_numbered_as_linux_does() {
        assert_eq!(ListId::of(0, 1), Some(ListId(1)));
        assert_eq!(ListId::of(3, 2), Some(ListId(11)));
        assert_eq!(ListId::of(9, 0), Some(ListId(12)));
        assert_eq!(ListId::of(9, 1), Some(ListId(13)));
        assert_eq!(ListId::of(0, 3), Some(ListId(1)));
        assert_eq!(ListId::of(4, 0), None);
        for list in (0..12).map(ListId) {
            assert_eq!(ListId::of(list.order(), list.mobility()), Some(list));
        }
    }

    #[test]
    fn what_is_pushed_last_is_handed_out_first() {
        let place = Place {
            cpu: 0,
            zone: 0,
            list: ListId(1),
        };
        let mut lists = Lists::default();
        lists.push(place, 10);
        lists.push_cold(place, 5);
        lists.push(place, 20);
        assert_eq!(lists.above(place, Some(5)), [20, 10]);
        assert_eq!(lists.above(place, None), [20, 10, 5]);
        assert!(lists.is_coldest(5) && !lists.is_coldest(20));
        assert_eq!(lists.remove(10), Some(place));
        assert_eq!((lists.len(place), lists.place(10)), (2, None));
    }
}
