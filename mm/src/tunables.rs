//! Every run-time knob: its unit, bounds, default and Linux name.
//!
//! A knob is an enum variant; [`Tunables`] holds one value per knob and refuses what is out of
//! bounds. The manager copies values it reads often into shared words.

use core::fmt;

/// A run-time knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Knob {
    /// How often per-CPU differentials are folded and page lists decay.
    StatInterval,
    /// log₂ of how many batches one refill, spill or drain may grow to.
    BatchScaleMax,
    /// Fixes `high` at this fraction of a zone; 0 tunes it automatically.
    HighFraction,
    /// Memory kept free for those who cannot wait; 0 computes it from the machine's size.
    MinFree,
    /// Distance between watermarks in fractions of 10,000 of a zone.
    WatermarkScale,
    /// The DMA zone keeps 1/ratio of the zones above it from their users; 0 keeps nothing.
    ReserveRatioDma,
    /// The same for the DMA32 zone.
    ReserveRatioDma32,
    /// The same for the normal zone against users of the movable zone.
    ReserveRatioNormal,
    /// How long one zone-lock hold may last under the bounded policy; 0 sets no limit.
    HoldTimeMax,
}

/// What a [`Knob`] is called and may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Its name here.
    pub name: &'static str,
    /// Its name in Linux, or why it has none.
    pub linux: &'static str,
    /// What a value counts.
    pub unit: &'static str,
    /// The value it starts with.
    pub default: u64,
    /// The smallest value.
    pub min: u64,
    /// The largest value.
    pub max: u64,
}

impl Knob {
    /// Every knob, in declaration order.
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

    /// The knob called `name`, here or in Linux.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|knob| knob.spec().name == name || knob.spec().linux == name)
    }

    /// Its name, unit, default and bounds.
    #[must_use]
    pub const fn spec(self) -> Spec {
        match self {
            Self::StatInterval => spec(
                "stat_interval_ms",
                "vm.stat_interval (there in s)",
                "ms",
                1000,
                [1, 3_600_000],
            ),
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
            Self::ReserveRatioDma => ratio("lowmem_reserve_ratio_dma", 256),
            Self::ReserveRatioDma32 => ratio("lowmem_reserve_ratio_dma32", 256),
            Self::ReserveRatioNormal => ratio("lowmem_reserve_ratio_normal", 32),
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
        unit,
        default,
        min,
        max,
    }
}

const fn ratio(name: &'static str, default: u64) -> Spec {
    spec(
        name,
        "vm.lowmem_reserve_ratio",
        "ratio",
        default,
        [0, 1 << 20],
    )
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
    /// The value of `knob`.
    #[must_use]
    pub const fn get(&self, knob: Knob) -> u64 {
        self.values[knob as usize]
    }

    /// Sets `knob`.
    ///
    /// # Errors
    /// When the value is out of bounds; nothing is changed.
    pub fn set(&mut self, knob: Knob, value: u64) -> Result<(), TunableError> {
        let Spec { min, max, .. } = knob.spec();
        // Linux refuses fractions below 8: more than an eighth of a zone would hide in lists.
        let too_large_a_share = knob == Knob::HighFraction && (1..8).contains(&value);
        if value < min || value > max || too_large_a_share {
            return Err(TunableError { knob, value });
        }
        self.values[knob as usize] = value;
        Ok(())
    }
}

/// A value outside a knob's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunableError {
    /// Which knob.
    pub knob: Knob,
    /// The value it was to get.
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
        write!(
            f,
            "{name} cannot be {} ({unit}): it takes {min} to {max}",
            self.value
        )?;
        if self.knob == Knob::HighFraction {
            write!(f, ", and 0 or at least 8")?;
        }
        Ok(())
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
            "high_fraction cannot be 7 (1/n of a zone): it takes 0 to 4294967295, and 0 or at least 8"
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
        }
    }
}
