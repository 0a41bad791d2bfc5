//! The speeds of cores relative to each other, and how they change prices.
//!
//! The prices of a profile apply to one kind of core. A core of another speed takes more or less
//! time for everything that involves no other core: local work, and a lock or word whose line it
//! owns. Other prices are the same for all cores: a line transfer takes as long as the distance
//! requires. The price of [`Work::Think`] is also the same for all cores, because it is a time and
//! not an amount of work.

use plimsoll_mm::site::Work;
use plimsoll_mm::units::CpuId;

use super::cost::Range;
use super::error::ProfileError;
use super::read::Section;
use super::{Card, Costs};

/// One kind of core, on a machine whose profile lists several kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The name of the kind.
    pub name: String,
    /// The CPUs of this kind.
    pub cpus: Vec<CpuId>,
    /// The speed; `None` if this is the kind of core that the prices are for.
    pub speed: Option<Speed>,
}

/// The speed of a core, in percent of the speed of the core that the prices are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Speed {
    /// The speed in percent at each card, from 5 to 400. The low (cheap) card has the lowest costs,
    /// so it has the highest speeds.
    pub percent: Range,
    /// The source of the numbers. `estimate: …` means that no numbers were published.
    pub source: String,
}

/// The speed, in percent, of a core whose steps take exactly as long as the prices say.
pub(super) const ALIKE_PERCENT: u32 = 100;

/// Reads the `speed` of one cluster, that is, of one kind of core. Returns `None` if the cluster
/// has no such key.
pub(super) fn read(cluster: &Section<'_>) -> Result<Option<Speed>, ProfileError> {
    const SHAPE: &str = "write speed = { low = …, mid = …, high = …, source = \"…\" }";
    const PERCENT: std::ops::RangeInclusive<u32> = 5..=400;
    let Some(value) = cluster.get("speed") else {
        return Ok(None);
    };
    let table = value.section(SHAPE)?;
    table.only(&["low", "mid", "high", "source"])?;
    let end = |card: Card| {
        let value = table.need(card.name(), SHAPE)?;
        let percent = value.hundredths()?;
        if !PERCENT.contains(&percent) {
            return Err(value.absurd("is out of range; a speed is 0.05 to 4".to_owned()));
        }
        Ok(percent)
    };
    let percent = Range {
        low: end(Card::Low)?,
        mid: end(Card::Mid)?,
        high: end(Card::High)?,
    };
    let below = |card: &str, next: &str| {
        let why = "the low card is the cheapest, so its cores are the fastest";
        Err(table.absurd(card, format!("is slower than {next}; {why}")))
    };
    if percent.low < percent.mid {
        return below("low", "mid");
    }
    if percent.mid < percent.high {
        return below("mid", "high");
    }
    let source = "write where the numbers come from, or \"estimate: …\" and why";
    let source = table.need("source", source)?.text(source)?.to_owned();
    Ok(Some(Speed { percent, source }))
}

/// The speed of each of the `cpus` CPUs at `card` (low, middle or high), in percent. Empty if all
/// speeds are 100 percent.
pub(super) fn of_cpus(clusters: &[Cluster], cpus: u32, card: Card) -> Vec<u32> {
    let mut percents = vec![ALIKE_PERCENT; cpus as usize];
    for cluster in clusters {
        if let Some(speed) = &cluster.speed {
            for cpu in &cluster.cpus {
                percents[cpu.index()] = speed.percent.at(card);
            }
        }
    }
    if percents.iter().all(|percent| *percent == ALIKE_PERCENT) {
        percents.clear();
    }
    percents
}

impl Costs {
    /// Returns the costs for another core. The speed of that core is `percent` percent of the speed
    /// of the core that these costs describe.
    ///
    /// Each price of work that involves no other core is divided by the speed, and rounded to the
    /// nearest nanosecond; halves are rounded up. The result is at least 1 and at most `u32::MAX`.
    pub(crate) fn at_speed(&self, percent: u32) -> Self {
        let slower = |price_ns: u32| {
            let scaled = (u64::from(price_ns) * 100 + u64::from(percent) / 2) / u64::from(percent);
            u32::try_from(scaled)
                .unwrap_or(u32::MAX)
                .max(price_ns.min(1))
        };
        let mut costs = self.clone();
        costs.work_ns = self.work_ns.map(slower);
        costs.work_ns[Work::Think as usize] = self.work_ns[Work::Think as usize];
        costs.slopes = self.slopes.map(slower);
        costs.lock_own_ns = slower(self.lock_own_ns);
        costs.word_own_ns = slower(self.word_own_ns);
        costs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Slopes;

    #[test]
    fn a_price_is_divided_by_the_speed_and_rounded_and_what_is_between_cores_is_not() {
        let costs = Costs {
            work_ns: [100; Work::ALL.len()],
            slopes: Slopes::default(),
            transfer_ns: [1, 10, 30, 100, 190],
            lock_own_ns: 20,
            lock_remote_extra_ns: 40,
            lock_handover_extra_ns: 25,
            word_own_ns: 1,
        };
        assert_eq!(costs.at_speed(ALIKE_PERCENT), costs);
        let little = costs.at_speed(35);
        let think = Work::Think as usize;
        for (work, price_ns) in little.work_ns.iter().enumerate() {
            // At 35 % of the speed, 100 ns become 285.7 ns, which is rounded to 286.
            assert_eq!(*price_ns, if work == think { 100 } else { 286 }, "{work}");
        }
        assert_eq!(little.lock_own_ns, 57, "57.1");
        assert_eq!(costs.at_speed(40).word_own_ns, 3, "2.5");
        assert_eq!(costs.at_speed(400).word_own_ns, 1, "nothing is free");
        let between = |costs: &Costs| {
            let extras = [costs.lock_remote_extra_ns, costs.lock_handover_extra_ns];
            (costs.transfer_ns, extras)
        };
        assert_eq!(between(&little), between(&costs));
    }

    #[test]
    fn a_second_at_the_lowest_speed_is_as_long_as_a_price_can_be() {
        let mut costs = crate::profile::Profile::load("laptop-2", Card::Mid)
            .expect("is built in")
            .costs;
        costs.lock_own_ns = 1_000_000_000;
        assert_eq!(costs.at_speed(5).lock_own_ns, u32::MAX);
    }
}
