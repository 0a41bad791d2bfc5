//! The largest amount that a CPU may count on its own before it adds the amount to the shared word.
//!
//! Pure arithmetic that follows Linux (`calculate_normal_threshold`,
//! `refresh_zone_stat_thresholds`).

use crate::units::Pages;

/// The largest threshold. Linux stores a differential in a signed 8-bit integer and leaves some
/// headroom.
pub const THRESHOLD_MAX: u32 = 125;

/// The usual threshold of a CPU's differential. It grows with the logarithm of the number of online
/// CPUs, and with the logarithm of the zone's memory in units of 128 MiB.
#[must_use]
pub fn normal(online: u32, managed: Pages) -> u32 {
    let bits = |value: u32| u32::BITS - value.leading_zeros();
    (2 * bits(online) * (1 + bits(managed.0 >> 15))).min(THRESHOLD_MAX)
}

/// The threshold of a CPU's differential under memory pressure, at least 1. The differentials of
/// all CPUs together cannot exceed the distance between the low and the min watermark, unless this
/// distance is less than a page per CPU.
#[must_use]
pub fn pressure(online: u32, low_minus_min: Pages) -> u32 {
    (low_minus_min.0 / online.max(1)).clamp(1, THRESHOLD_MAX)
}

/// If fewer pages than this are free, a reader of the counter must read all CPUs' differentials
/// too, and not only the shared word (Linux: `percpu_drift_mark`). `None` if the differentials are
/// too small to hide that free memory is below the min watermark.
#[must_use]
pub(crate) fn drift_mark(
    online: u32,
    normal: u32,
    low_minus_min: Pages,
    high: Pages,
) -> Option<Pages> {
    let drift = online.saturating_mul(normal);
    (drift > low_minus_min.0).then(|| Pages(high.0.saturating_add(drift)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first three thresholds were read from `/proc/zoneinfo` of a 2-CPU host. The others were
    /// reported for Linux, on its mailing list or in commits.
    #[test]
    fn thresholds_are_those_of_real_hosts() {
        let of = |pages, cpus| normal(cpus, Pages(pages));
        assert_eq!([of(3840, 2), of(772_915, 2), of(2_228_224, 2)], [4, 24, 32]);
        assert_eq!(of(16 << 18, 8), 72);
        assert_eq!(of(62 << 18, 36), 120);
        assert_eq!(of(251 << 18, 176), 125);
        assert_eq!(of(1 << 28, 316), 125);
    }

    #[test]
    fn drift_of_large_machines_is_as_published() {
        assert_eq!(
            drift_mark(176, 125, Pages(0), Pages(0)),
            Some(Pages(22_000))
        );
        assert_eq!(
            drift_mark(316, 125, Pages(0), Pages(0)),
            Some(Pages(39_500))
        );
        assert_eq!(drift_mark(2, 32, Pages(64), Pages(0)), None);
    }

    #[test]
    fn pressure_shares_the_distance_of_the_watermarks() {
        assert_eq!(pressure(316, Pages(3160)), 10);
        assert_eq!(pressure(316, Pages(100)), 1);
        assert_eq!(pressure(1, Pages(1_000_000)), 125);
    }
}
