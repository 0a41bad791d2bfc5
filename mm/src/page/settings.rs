//! The settings of a zone: sizes of page lists, watermarks, reserves, and the zone's state.
//!
//! CPUs read the settings without a lock. The methods that read and change the settings of a zone
//! are in `settled.rs`.

use core::sync::atomic::Ordering::Relaxed;

use super::layout::ZoneKind;
use super::sizing::Sizes;
use crate::machine::{Machine, Word};
use crate::units::{Pages, count_in};

/// A zone's settings and hints. Each setting that can change is a separate word, which CPUs read
/// without a lock.
pub(super) struct Settings<M: Machine> {
    /// The batch of page lists and the bounds of their `high`, packed by [`Sizes::pack`].
    pub(super) sizes: M::Word,
    pub(super) scale_max: M::Word,
    /// The longest time, in ns, that one hold of the zone lock may last if the design limits holds
    /// strictly. 0 means that there is no such limit.
    pub(super) hold_time_max: M::Word,
    pub(super) min: M::Word,
    pub(super) low: M::Word,
    pub(super) high: M::Word,
    /// The number of free pages that this zone withholds from a request, indexed by the highest
    /// kind of zone that the request may use (its `class`; Linux: `lowmem_reserve`).
    pub(super) reserve: [M::Word; ZoneKind::ALL.len()],
    /// If the zone has fewer free pages than this, readers of the free-page counter must also read
    /// all CPUs' differentials and include them in the result.
    pub(super) drift_mark: M::Word,
    /// 1 from the moment when an allocation finds the zone below its high watermark, until a free
    /// that returns pages to the zone finds it above that watermark; otherwise 0.
    pub(super) below_high: M::Word,
    /// The number of free pages in blocks kept for atomic requests.
    pub(super) free_kept: M::Word,
    /// 1 while reclaim is active in the zone; otherwise 0.
    pub(super) reclaiming: M::Word,
    /// The version of the settings. Each change of a setting that
    /// [`TuningInput`](super::pcp::TuningInput) contains adds 1.
    pub(super) version: M::Word,
    /// One CPU's share of the last-level data cache, in pages.
    pub(super) cache_slice: Pages,
}

// Accesses of settings are relaxed: no setting depends on another, and acting on an old value is
// harmless.
impl<M: Machine> Settings<M> {
    pub(super) fn new(machine: &M, cache_slice: Pages) -> Self {
        let word = |value| machine.word(value);
        Self {
            sizes: word(Sizes::BOOT.pack()),
            scale_max: word(0),
            hold_time_max: word(0),
            min: word(0),
            low: word(0),
            high: word(0),
            reserve: core::array::from_fn(|_| word(0)),
            drift_mark: word(0),
            below_high: word(0),
            free_kept: word(0),
            reclaiming: word(0),
            version: word(1),
            cache_slice,
        }
    }

    pub(super) fn pages(machine: &M, word: &M::Word) -> Pages {
        Pages(count_in(word.load(machine, Relaxed)))
    }
}
