//! Reads and changes the settings of a zone.
//!
//! Each change of a setting that affects page lists raises the version of the zone's settings. By
//! this version a CPU notices that a result that it computed from the settings is out of date.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::layout::ZoneKind;
use super::pcp::TuningInput;
use super::settings::Settings;
use super::sizing::Sizes;
use super::watermark::Watermarks;
use super::zone::{Kswapd, Reclaiming, Zone};
use crate::machine::{Machine, Word};
use crate::site::Work;
use crate::units::{Nanos, Pages, count_in, signed};
use crate::vmstat::counters::ZoneItem;
use crate::vmstat::threshold;

impl<M: Machine> Zone<M> {
    /// The current values of all settings and hints on which decisions about page lists depend.
    #[inline]
    pub(super) fn tuning_input(&self, machine: &M) -> TuningInput {
        let settings = &self.settings;
        let sizes = Sizes::unpack(settings.sizes.load(machine, Relaxed));
        TuningInput {
            sizes,
            scale_max: count_in(settings.scale_max.load(machine, Relaxed)),
            below_high: settings.below_high.load(machine, Relaxed) != 0,
            reclaiming: settings.reclaiming.load(machine, Relaxed) != 0,
            flush_from: self.flush_from,
            large_cache: settings.cache_slice.0 > 3 * sizes.batch.0,
        }
    }

    /// The batch of each CPU's lists and the bounds of their `high`.
    pub(super) fn sizes(&self, machine: &M) -> Sizes {
        Sizes::unpack(self.settings.sizes.load(machine, Relaxed))
    }

    /// The zone's current min, low and high watermarks, in pages.
    pub(super) fn watermarks(&self, machine: &M) -> Watermarks {
        let of = |word| Settings::<M>::pages(machine, word);
        let Settings { min, low, high, .. } = &self.settings;
        Watermarks {
            min: of(min),
            low: of(low),
            high: of(high),
        }
    }

    /// The number of free pages. If the shared word alone shows that the zone is well above its
    /// watermarks, only that word is read; otherwise every CPU's differential is added.
    pub(super) fn free_pages(&self, machine: &M) -> u64 {
        let item = ZoneItem::FreePages as usize;
        let cheap = self.counters.approximate(machine, item);
        let drift_mark = u64::from(Settings::<M>::pages(machine, &self.settings.drift_mark).0);
        if cheap >= drift_mark {
            cheap
        } else {
            machine.spend(Work::ScanCpu, machine.topology().cpus());
            self.counters.snapshot(machine, item)
        }
    }

    pub(super) fn set_watermarks(&self, machine: &M, marks: Watermarks, drift: Option<Pages>) {
        let store = |word: &M::Word, pages: Pages| word.store(machine, i64::from(pages.0), Relaxed);
        store(&self.settings.min, marks.min);
        store(&self.settings.low, marks.low);
        store(&self.settings.high, marks.high);
        store(&self.settings.drift_mark, drift.unwrap_or(Pages::ZERO));
    }

    /// Sets the threshold at which CPUs add their differentials to the counters, which depends on
    /// whether kswapd is awake. Does nothing unless the differentials of all CPUs together could
    /// hide that the zone's free memory is below the min watermark.
    pub(super) fn set_kswapd(&self, machine: &M, kswapd: Kswapd, online: u32) {
        if Settings::<M>::pages(machine, &self.settings.drift_mark) == Pages::ZERO {
            return;
        }
        let marks = self.watermarks(machine);
        let threshold = match kswapd {
            Kswapd::Asleep => threshold::normal(online, self.managed()),
            Kswapd::Awake => threshold::pressure(online, marks.low.saturating_sub(marks.min)),
        };
        self.counters.set_threshold(machine, threshold);
    }

    pub(super) fn set_reserve(&self, machine: &M, class: ZoneKind, pages: Pages) {
        self.settings.reserve[class as usize].store(machine, i64::from(pages.0), Relaxed);
    }

    pub(super) fn set_sizes(&self, machine: &M, sizes: Sizes, scale_max: u64, hold: Nanos) {
        let settings = &self.settings;
        settings.sizes.store(machine, sizes.pack(), Relaxed);
        let (scale_max, hold) = (signed(scale_max), signed(hold.0));
        settings.scale_max.store(machine, scale_max, Relaxed);
        settings.hold_time_max.store(machine, hold, Relaxed);
        self.settings_changed(machine);
    }

    /// Makes CPUs forget what they computed from the settings of their page lists. Called after
    /// each change of a setting that [`TuningInput`] has.
    pub(super) fn settings_changed(&self, machine: &M) {
        if !M::PRICES_LOADS {
            // Release pairs with the Acquire in `version_before_load`: a CPU that reads the new
            // version then reads the new setting too.
            self.settings.version.add(machine, 1, Release);
        }
    }

    /// Returns the version of the settings. A call of [`Zone::tuning_input`] after this one reads
    /// settings of this version, or newer ones.
    #[inline]
    pub(super) fn version_before_load(&self, machine: &M) -> i64 {
        self.settings.version.load(machine, Acquire)
    }

    /// The version of the settings, to be compared with an earlier one. Acting on an old version is
    /// as harmless as acting on an old setting.
    #[inline]
    pub(super) fn version(&self, machine: &M) -> i64 {
        self.settings.version.load(machine, Relaxed)
    }

    pub(super) fn set_reclaiming(&self, machine: &M, reclaiming: Reclaiming) {
        self.settings
            .reclaiming
            .store(machine, reclaiming as i64, Relaxed);
        self.settings_changed(machine);
    }
}
