//! The key by which a selection orders candidates: a candidate's points together with its index.
//! If points are equal, the later candidate has the larger key, so no two keys are equal.

/// The points and the index of a candidate. The candidate with the largest key is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) points: i64,
    pub(super) candidate: u32,
}

impl Key {
    pub(super) const fn new(points: i64, candidate: u32) -> Self {
        Self { points, candidate }
    }

    /// Returns by how many points `other` exceeds the points of this key, if `other` is the larger
    /// key, and 0 otherwise. A victim with this key is behind `other` by this number of points.
    pub(super) fn behind(self, other: Option<Self>) -> u64 {
        match other {
            Some(other) if other > self => other.points.abs_diff(self.points),
            _ => 0,
        }
    }
}

/// The two largest keys (points, then candidate number) seen so far. They belong to two different
/// candidates.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Highest {
    first: Option<Key>,
    second: Option<Key>,
}

impl Highest {
    /// Records the key of a candidate. No key of this candidate was recorded before.
    pub(super) fn see(&mut self, key: Key) {
        if Some(key) > self.first {
            self.second = self.first.replace(key);
        } else {
            self.second = self.second.max(Some(key));
        }
    }

    /// Returns the largest key (points, then number) of any candidate other than `candidate`.
    pub(super) fn except(&self, candidate: u32) -> Option<Key> {
        match self.first {
            Some(first) if first.candidate == candidate => self.second,
            first => first,
        }
    }
}
