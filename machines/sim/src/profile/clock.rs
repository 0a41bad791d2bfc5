//! The table `[clock]` of a profile: how much slower a core is while other CPUs are busy.
//!
//! A processor runs at a higher clock frequency while few of its cores are busy. Also, two CPUs of
//! one core share the core's execution units. The prices of a profile are those of a single busy
//! CPU, so both effects raise the price of work on a busy machine.

use plimsoll_mm::topology::Topology;

use super::Card;
use super::error::ProfileError;
use super::load::{Cards, LoadedClock, Sourced, entry};
use super::read::{Section, Value};

/// The speeds of busy cores, as written in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The speed of a core while all cores of its socket are busy, in percent of its speed while it
    /// alone is busy.
    pub all_core: Sourced,
    /// The speed of a CPU while the other CPU of its core is busy as well, in percent of its speed
    /// while it has the core to itself. `None` if each core has one CPU.
    pub sibling: Option<Sourced>,
}

/// Parses the table `[clock]` of a profile. Returns `None` if the profile has no such table.
pub(super) fn read(root: &Section<'_>, topology: &Topology) -> Result<Option<Clock>, ProfileError> {
    const TABLE: &str = "write a [clock] table";
    let Some(value) = root.get("clock") else {
        return Ok(None);
    };
    let section = value.section(TABLE)?;
    section.only(&["all_core", "sibling"])?;
    let all_core = speed(&section, "all_core")?;
    let cores = topology.ids().map(|cpu| topology.place(cpu).core).max();
    let shared = cores.is_some_and(|last| last + 1 < topology.cpus());
    let sibling = match section.get("sibling") {
        Some(value) if !shared => {
            let why = "no core has two CPUs, so leave it out";
            return Err(value.absurd(why.to_owned()));
        }
        None if !shared => None,
        _ => Some(speed(&section, "sibling")?),
    };
    Ok(Some(Clock { all_core, sibling }))
}

fn speed(section: &Section<'_>, key: &str) -> Result<Sourced, ProfileError> {
    const PERCENT: std::ops::RangeInclusive<u32> = 5..=100;
    let end = |value: &Value<'_>| {
        let percent = value.hundredths()?;
        if !PERCENT.contains(&percent) {
            return Err(value.absurd("is out of range; such a speed is 0.05 to 1".to_owned()));
        }
        Ok(percent)
    };
    entry(section, key, Cards::Fall, end)
}

impl Clock {
    /// The speeds of busy cores at `card`: at the low end, in the middle or at the high end of
    /// their ranges.
    pub(super) fn at(&self, card: Card) -> LoadedClock {
        let sibling = self.sibling.as_ref();
        LoadedClock {
            all_core_percent: self.all_core.range.at(card),
            sibling_percent: sibling.map_or(100, |speed| speed.range.at(card)),
        }
    }
}

impl LoadedClock {
    /// The speed of a core, in percent, while `busy` of the `cores` cores of its socket are busy.
    /// The speed falls linearly, from 100 with one busy core to `all_core_percent` with all cores
    /// busy.
    #[must_use]
    pub fn percent(&self, busy: u32, cores: u32) -> u32 {
        let others = busy.clamp(1, cores.max(1)) - 1;
        let most = cores.saturating_sub(1).max(1);
        let loss = 100 - self.all_core_percent.min(100);
        100 - (loss * others + most / 2) / most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_falls_from_one_busy_core_to_all() {
        let clock = LoadedClock {
            all_core_percent: 80,
            sibling_percent: 100,
        };
        let at = |busy| clock.percent(busy, 11);
        assert_eq!([0, 1, 2, 6, 11, 22].map(at), [100, 100, 98, 90, 80, 80]);
        assert_eq!(
            clock.percent(1, 1),
            100,
            "the only core is never one of many"
        );
    }
}
