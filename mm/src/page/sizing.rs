//! The sizes of per-CPU page lists: the batch, and the bounds of `high`.
//!
//! Pure arithmetic that follows Linux (`zone_batchsize`, `zone_highsize`). The three sizes are
//! packed into one shared word, so a reader never sees half of a change.

use crate::units::{Pages, narrow};

/// The sizes of a zone's page lists, which are the same for all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The base number of pages that move at once between a list and the zone, which tuning may
    /// multiply.
    pub batch: Pages,
    /// The lower bound of `high`, in pages.
    pub high_min: Pages,
    /// The upper bound of `high`, in pages. It equals `high_min` when tuning is off.
    pub high_max: Pages,
}

/// The number of bits that a packed word has for each of `high_min` and `high_max`: enough for
/// lists of 512 GiB per CPU.
const HIGH_BITS: u32 = 27;
const HIGH_MASK: u64 = (1 << HIGH_BITS) - 1;

impl Sizes {
    /// The sizes before the zone's size is known: every free goes directly to the zone (Linux:
    /// `boot_pageset`).
    pub const BOOT: Self = Self {
        batch: Pages(1),
        high_min: Pages(0),
        high_max: Pages(0),
    };

    /// The largest batch, in pages. A packed word has ten bits for the batch.
    pub const BATCH_MAX: Pages = Pages(1023);

    /// The largest value of `high`, in pages.
    pub const HIGH_MAX: Pages = Pages(1 << 26);

    /// Returns whether lists can have these sizes: `batch` must be 1 to [`Sizes::BATCH_MAX`],
    /// `high_min` at most `high_max`, and `high_max` at most [`Sizes::HIGH_MAX`].
    #[must_use]
    pub fn is_possible(&self) -> bool {
        let batch = Pages(1)..=Self::BATCH_MAX;
        batch.contains(&self.batch)
            && self.high_min <= self.high_max
            && self.high_max <= Self::HIGH_MAX
    }

    /// Computes the sizes for a zone of `managed` pages with low watermark `low`, used by `cpus`
    /// CPUs. If `high_fraction` is not 0, tuning is off, and the lists of all CPUs together may
    /// hold `managed / high_fraction` pages.
    #[must_use]
    pub fn of(managed: Pages, low: Pages, cpus: u32, high_fraction: u64) -> Self {
        let batch = batch(managed);
        let (total_min, total_max) = match u64::from(managed.0).checked_div(high_fraction) {
            None => (low.0, managed.0 / 8),
            Some(fixed) => (narrow(fixed), narrow(fixed)),
        };
        let high = |total: u32| Pages((total / cpus.max(1)).max(4 * batch.0).min(Self::HIGH_MAX.0));
        let high_max = high(total_max);
        Self {
            batch,
            // Without `high_fraction`, `high_min` follows from the low watermark, and `high_max`
            // from an eighth of the zone. The low watermark may be the larger of the two, but
            // `high_min` must not exceed `high_max`.
            high_min: high(total_min).min(high_max),
            high_max,
        }
    }

    /// Packs the sizes into one word.
    #[must_use]
    pub const fn pack(self) -> i64 {
        let high_min = self.high_min.0 as u64 & HIGH_MASK;
        let high_max = self.high_max.0 as u64 & HIGH_MASK;
        let word = (self.batch.0 as u64) << (2 * HIGH_BITS) | high_min << HIGH_BITS | high_max;
        word.cast_signed()
    }

    /// Unpacks the sizes from a word that [`Sizes::pack`] returned.
    #[must_use]
    pub const fn unpack(word: i64) -> Self {
        let word = word.cast_unsigned();
        Self {
            batch: Pages(low_bits(word >> (2 * HIGH_BITS), 10)),
            high_min: Pages(low_bits(word >> HIGH_BITS, HIGH_BITS)),
            high_max: Pages(low_bits(word, HIGH_BITS)),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "masked to at most 27 bits")]
const fn low_bits(word: u64, bits: u32) -> u32 {
    (word & ((1 << bits) - 1)) as u32
}

/// The batch of a zone of `managed` pages: about a 4096th of them, from 1 to 63. It is one less
/// than a power of two so that successive batches do not fall on the same cache sets.
#[must_use]
pub fn batch(managed: Pages) -> Pages {
    let base = ((managed.0 >> 10).min(256) / 4).max(1);
    let rounded = base + base / 2;
    let power = 1 << rounded.ilog2();
    Pages((power - 1u32).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected sizes were read from `/proc/zoneinfo` of a 2-CPU x86-64 host.
    #[test]
    fn sizes_are_those_of_a_real_host() {
        let sizes = |managed, low| {
            let sizes = Sizes::of(Pages(managed), Pages(low), 2, 0);
            [sizes.batch.0, sizes.high_min.0, sizes.high_max.0]
        };
        assert_eq!(sizes(3840, 26), [1, 13, 240]);
        assert_eq!(sizes(772_915, 5431), [63, 2715, 48_307]);
        assert_eq!(sizes(2_228_224, 15_660), [63, 7830, 139_264]);
    }

    /// The expected `high_min` and `high_max` of these large machines with one node were reported
    /// for Linux, on its mailing list or in commits. `high_min` follows from the low watermark, and
    /// `high_max` from the size of memory.
    #[test]
    fn sizes_of_large_machines_are_as_published() {
        use crate::page::watermark::{Share, marks, min_free_kib};
        let near = |value: u32, published: u32| value.abs_diff(published) <= published / 100 + 1;
        for (gib, cpus, high_min, high_max) in [
            (62, 36, 675, 56_000),
            (251, 176, 466, 46_700),
            (754, 316, 714, 78_000),
        ] {
            let managed = Pages(gib << 18);
            let min_free = min_free_kib(u64::from(gib) << 20) / 4;
            let min_free = Pages(u32::try_from(min_free).expect("fits"));
            let low = marks(managed, managed, min_free, 10, Share::Lowmem).low;
            let sizes = Sizes::of(managed, low, cpus, 0);
            assert!(near(sizes.high_min.0, high_min), "{gib} GiB: {sizes:?}");
            assert!(near(sizes.high_max.0, high_max), "{gib} GiB: {sizes:?}");
        }
    }

    #[test]
    fn a_fixed_fraction_turns_tuning_off() {
        let sizes = Sizes::of(Pages(1 << 20), Pages(1000), 4, 8);
        assert_eq!(sizes.high_min, sizes.high_max);
        assert_eq!(sizes.high_min, Pages((1 << 20) / 8 / 4));
    }

    #[test]
    fn the_lowest_high_is_never_above_the_highest() {
        let sizes = Sizes::of(Pages(4096), Pages(4000), 2, 0);
        assert_eq!([sizes.high_min, sizes.high_max], [Pages(256); 2]);
    }

    #[test]
    fn packing_keeps_every_size() {
        for sizes in [
            Sizes::BOOT,
            Sizes {
                batch: Pages(63),
                high_min: Pages(675),
                high_max: Pages(139_264),
            },
            Sizes {
                batch: Pages(1023),
                high_min: Pages(1 << 26),
                high_max: Pages(1 << 26),
            },
        ] {
            assert_eq!(Sizes::unpack(sizes.pack()), sizes);
        }
    }
}
