//! A control for experiments: CPUs have Linux's phases, but fire as rarely as the average CPU does
//! under the patch `vmstat_spread_delay` (see [`Stretched`](super::Stretched)).
//!
//! The patch changes two things at once: CPUs get different phases, and most of them fire less
//! often. This control changes only the rate, so that the two effects can be measured separately.

use super::round_jiffies::rounded;
use super::{Moment, Schedule};
use crate::machine::Due;

/// The schedule [`RoundJiffies`](super::RoundJiffies), but with a longer interval. The vmstat work
/// of each CPU starts as often as that of the average CPU under [`Stretched`](super::Stretched).
#[derive(Clone, Copy, Debug)]
pub struct Slowed;

impl Schedule for Slowed {
    fn name(&self) -> &'static str {
        "slowed"
    }

    fn next(&self, moment: &Moment) -> Due {
        let n = u64::from(moment.online.max(1));
        // Under the schedule `Stretched`, a CPU fires on average (1/n) Σ 1/(1 + k/n) times per
        // interval. As n grows, this number tends to ln 2.
        let rate_ppm = (0..n).map(|k| 1_000_000 * n / (n + k)).sum::<u64>() / n;
        let interval = moment.interval_jiffies() * 1_000_000 / rate_ppm.max(1);
        Due::Wheel(rounded(moment, interval, interval))
    }
}
