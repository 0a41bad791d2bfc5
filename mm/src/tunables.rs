//! All run-time knobs, with their units, bounds, defaults and names in Linux.
//!
//! A knob is an enum variant. [`Tunables`] holds one value per knob and rejects values that are out
//! of bounds. The manager copies frequently read values into shared words.

use core::fmt;

/// A setting that can be changed at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Knob {
    /// The interval at which each CPU adds its differentials to the shared counters and shrinks its
    /// page lists, in ms.
    StatInterval,
    /// log₂ of the maximum number of batches that move at once between page lists and the zone.
    BatchScaleMax,
    /// If this value is 0, `high`, the number of pages that page lists may hold, is tuned
    /// automatically. If the value is `n`, `high` is fixed: the lists of all CPUs together may hold
    /// an `n`-th of the zone's pages. But each CPU's lists may always hold four batches.
    HighFraction,
    /// The memory kept free for urgent requests, in KiB. If the value is 0, the amount is computed
    /// from the size of memory.
    MinFree,
    /// The minimum distance between two watermarks, in 10,000ths of a zone.
    WatermarkScale,
    /// The ratio that sets the reserve of the DMA zone against requests that higher zones could
    /// serve. The reserve is the number of pages of those zones divided by this ratio. A ratio of 0
    /// means no reserve.
    ReserveRatioDma,
    /// The ratio that sets the reserve of the DMA32 zone against requests that higher zones could
    /// serve. The reserve is the number of pages of those zones divided by this ratio. A ratio of 0
    /// means no reserve.
    ReserveRatioDma32,
    /// The ratio that sets the reserve of the normal zone against requests that the movable zone
    /// could serve. The reserve is the number of pages of the movable zone divided by this ratio. A
    /// ratio of 0 means no reserve.
    ReserveRatioNormal,
    /// The maximum time for which a CPU holds a zone lock once, in ns. Only some designs limit this
    /// time, such as those with [`Bounded`](crate::page::holds::Bounded). 0 sets no limit.
    HoldTimeMax,
}

/// The names, unit, default and bounds of a [`Knob`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The knob's name in Plimsoll.
    pub name: &'static str,
    /// The knob's name in Linux, or the reason why Linux does not have the knob. If the Linux
    /// setting is a list of numbers, the name ends with an index into this list, such as `[0]`.
    pub linux: &'static str,
    /// The unit of the knob's values in Linux, and the factor that converts such a value to
    /// [`Spec::unit`].
    pub linux_unit: (&'static str, u64),
    /// The unit of the knob's values.
    pub unit: &'static str,
    /// The initial value.
    pub default: u64,
    /// The smallest value that the knob accepts.
    pub min: u64,
    /// The largest value that the knob accepts.
    pub max: u64,
}

impl Knob {
    /// All knobs, in declaration order.
    pub const ALL: [Self; 9] = [
        Self::StatInterval,
        Self::BatchScaleMax,
        Self::HighFraction,
        Self::MinFree,
        Self::WatermarkScale,
        Self::ReserveRatioDma,
        Self::ReserveRatioDma32,
        Self::ReserveRatioNormal,
        Self::HoldTimeMax,
    ];

    /// Returns the knob that is called `name` in Plimsoll or in Linux.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|knob| knob.spec().name == name || knob.spec().linux == name)
    }

    /// Returns the knob that is called `name`, and `value` converted to the knob's unit. If `name`
    /// is the knob's name in Linux, `value` is taken to be in the unit of Linux. A value that is
    /// too large for the conversion becomes `u64::MAX`, which no knob accepts.
    #[must_use]
    pub fn setting(name: &str, value: u64) -> Option<(Self, u64)> {
        let knob = Self::named(name)?;
        let (_, factor) = knob.spec().linux_unit;
        let in_our_unit = knob.spec().name == name;
        let value = if in_our_unit {
            value
        } else {
            value.saturating_mul(factor)
        };
        Some((knob, value))
    }

    /// The knob's names, unit, default and bounds.
    #[must_use]
    pub const fn spec(self) -> Spec {
        match self {
            Self::StatInterval => Spec {
                linux_unit: ("s", 1000),
                ..spec(
                    "stat_interval_ms",
                    "vm.stat_interval",
                    "ms",
                    1000,
                    [1, 3_600_000],
                )
            },
            Self::BatchScaleMax => spec(
                "batch_scale_max",
                "CONFIG_PCP_BATCH_SCALE_MAX",
                "log2 batches",
                5,
                [0, 6],
            ),
            Self::HighFraction => spec(
                "high_fraction",
                "vm.percpu_pagelist_high_fraction",
                "1/n of a zone",
                0,
                [0, u32::MAX as u64],
            ),
            Self::MinFree => spec(
                "min_free_kbytes",
                "vm.min_free_kbytes",
                "KiB",
                0,
                [0, 1 << 30],
            ),
            Self::WatermarkScale => spec(
                "watermark_scale_factor",
                "vm.watermark_scale_factor",
                "1/10000 of a zone",
                10,
                [1, 3000],
            ),
            Self::ReserveRatioDma => ratio(
                "lowmem_reserve_ratio_dma",
                "vm.lowmem_reserve_ratio[0]",
                256,
            ),
            Self::ReserveRatioDma32 => ratio(
                "lowmem_reserve_ratio_dma32",
                "vm.lowmem_reserve_ratio[1]",
                256,
            ),
            Self::ReserveRatioNormal => ratio(
                "lowmem_reserve_ratio_normal",
                "vm.lowmem_reserve_ratio[2]",
                32,
            ),
            Self::HoldTimeMax => spec(
                "hold_time_max_ns",
                "none: not bounded in Linux",
                "ns",
                20_000,
                [0, 1 << 40],
            ),
        }
    }
}

const fn spec(
    name: &'static str,
    linux: &'static str,
    unit: &'static str,
    default: u64,
    [min, max]: [u64; 2],
) -> Spec {
    Spec {
        name,
        linux,
        linux_unit: (unit, 1),
        unit,
        default,
        min,
        max,
    }
}

const fn ratio(name: &'static str, linux: &'static str, default: u64) -> Spec {
    spec(name, linux, "ratio", default, [0, 1 << 20])
}

/// One value per [`Knob`], each within its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    values: [u64; Knob::ALL.len()],
}

impl Default for Tunables {
    fn default() -> Self {
        Self {
            values: Knob::ALL.map(|knob| knob.spec().default),
        }
    }
}

impl Tunables {
    /// Returns the current value of `knob`.
    #[must_use]
    pub const fn get(&self, knob: Knob) -> u64 {
        self.values[knob as usize]
    }

    /// Sets the value of `knob`.
    ///
    /// # Errors
    /// If the value is out of bounds. In that case, nothing changes.
    pub fn set(&mut self, knob: Knob, value: u64) -> Result<(), TunableError> {
        let Spec { min, max, .. } = knob.spec();
        // Linux rejects values from 1 to 7, because the lists of all CPUs could then hold more than
        // an eighth of a zone.
        let too_large_a_share = knob == Knob::HighFraction && (1..8).contains(&value);
        if value < min || value > max || too_large_a_share {
            return Err(TunableError { knob, value });
        }
        self.values[knob as usize] = value;
        Ok(())
    }
}

/// A value that was rejected because it is outside a knob's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunableError {
    /// The knob whose value was to be set.
    pub knob: Knob,
    /// The value that was rejected.
    pub value: u64,
}

impl fmt::Display for TunableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spec {
            name,
            unit,
            min,
            max,
            ..
        } = self.knob.spec();
        write!(f, "{name} cannot be {} ({unit}): it takes ", self.value)?;
        match self.knob {
            Knob::HighFraction => write!(f, "0, or 8 to {max}"),
            _ => write!(f, "{min} to {max}"),
        }
    }
}

impl core::error::Error for TunableError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_refused_value_changes_nothing_and_says_what_is_possible() {
        let mut tunables = Tunables::default();
        let error = tunables.set(Knob::HighFraction, 7).expect_err("below 8");
        assert_eq!(
            error.to_string(),
            "high_fraction cannot be 7 (1/n of a zone): it takes 0, or 8 to 4294967295"
        );
        assert_eq!(tunables, Tunables::default());
        assert_eq!(tunables.set(Knob::HighFraction, 8), Ok(()));
        assert_eq!(tunables.get(Knob::HighFraction), 8);
    }

    #[test]
    fn every_default_is_within_its_bounds_and_every_name_is_found() {
        for knob in Knob::ALL {
            let Spec { name, default, .. } = knob.spec();
            assert_eq!(Tunables::default().set(knob, default), Ok(()));
            assert_eq!(Knob::named(name), Some(knob));
            assert_eq!(Knob::named(knob.spec().linux), Some(knob));
        }
    }

    #[test]
    fn a_value_with_the_name_in_linux_has_the_unit_of_linux() {
        let knob = Knob::StatInterval;
        assert_eq!(Knob::setting("vm.stat_interval", 2), Some((knob, 2000)));
        assert_eq!(Knob::setting("stat_interval_ms", 2), Some((knob, 2)));
        let most = Knob::setting("vm.stat_interval", u64::MAX);
        assert_eq!(most, Some((knob, u64::MAX)));
        assert_eq!(Knob::setting("vm.swappiness", 60), None);
    }
}
