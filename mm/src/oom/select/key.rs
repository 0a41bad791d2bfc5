//! Points with the number of whom they belong to: of equal points the later candidate comes first,
//! so no two keys are equal.

/// Points of a candidate. The largest is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) points: i64,
    pub(super) candidate: u32,
}

impl Key {
    pub(super) const fn new(points: i64, candidate: u32) -> Self {
        Self { points, candidate }
    }

    /// How many points a victim that has at least these may be behind `other`.
    pub(super) fn behind(self, other: Option<Self>) -> u64 {
        match other {
            Some(other) if other > self => other.points.abs_diff(self.points),
            _ => 0,
        }
    }
}

/// The two largest of the keys it was shown, each of another candidate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Highest {
    first: Option<Key>,
    second: Option<Key>,
}

impl Highest {
    /// Shows it the key of a candidate it has not seen.
    pub(super) fn see(&mut self, key: Key) {
        if Some(key) > self.first {
            self.second = self.first.replace(key);
        } else {
            self.second = self.second.max(Some(key));
        }
    }

    /// The largest of all others than `candidate`.
    pub(super) fn except(&self, candidate: u32) -> Option<Key> {
        match self.first {
            Some(first) if first.candidate == candidate => self.second,
            first => first,
        }
    }
}
