//! Timers: what the per-CPU vmstat work and the shepherd ask for, and where the kernel's wheel puts
//! it, beside `round-jiffies` and the wheel of `mm`.
//!
//! `chain`: takes the firings from a recording. `crowding`: how late they came and how many CPUs
//! started together, beside a simulated machine of as many CPUs.

mod chain;
mod crowding;

use plimsoll_mm::cpus::Rank;
use plimsoll_mm::machine::Due;
use plimsoll_mm::units::{CpuId, Hz, Jiffies, Nanos};
use plimsoll_mm::vmstat::schedule::{Moment, RoundJiffies, Schedule};
use plimsoll_mm::wheel::Wheel;
use plimsoll_recording::{Header, Recording};

use self::chain::{Armed, Chain, Kind};
use super::{Judge, Judgement};
use crate::report::Table;

/// Linux's rounding and Linux's wheel.
#[derive(Clone, Copy, Debug)]
pub struct Timers<'a> {
    /// What the vmstat work asks for; [`RoundJiffies`] in Linux.
    pub schedule: &'a dyn Schedule,
    /// At which jiffy a wheel fires a timer that is armed at the first for the second.
    pub fires_at: fn(Wheel, Jiffies, Jiffies) -> Jiffies,
}

impl Timers<'_> {
    /// As Plimsoll has them.
    pub const OURS: Timers<'static> = Timers {
        schedule: &RoundJiffies,
        fires_at: Wheel::fires_at,
    };
}

impl Judge for Timers<'_> {
    fn name(&self) -> &'static str {
        "timers"
    }

    fn judge(&self, recording: &Recording) -> Option<Judgement> {
        let (clock, chain) = taken(recording)?;
        let mut judgement = self.compare(&clock, &chain);
        judgement.tables.push(lateness(&chain));
        judgement
            .tables
            .extend(crowding::table(clock.hz, &recording.header, &chain));
        Some(judgement)
    }
}

impl Timers<'_> {
    /// The firings alone, without what they come to and what a simulated machine shows.
    #[must_use]
    pub fn firings(&self, recording: &Recording) -> Option<Judgement> {
        let (clock, chain) = taken(recording)?;
        Some(self.compare(&clock, &chain))
    }
}

/// The firings of a recording; `None` if it has none, or does not say how often the kernel ticked.
fn taken(recording: &Recording) -> Option<(Clock, Chain)> {
    let clock = Clock::of(&recording.header)?;
    let chain = Chain::of(recording);
    (!chain.armed.is_empty()).then_some((clock, chain))
}

/// What the recorded kernel's time is made of.
struct Clock {
    hz: Hz,
    interval: Nanos,
    cpus: u32,
}

impl Clock {
    /// `None` if the recording does not say how often the kernel ticked.
    fn of(header: &Header) -> Option<Self> {
        const DEFAULT_INTERVAL_S: u64 = 1;
        let asked = header.text("stat_interval");
        let seconds = asked.and_then(|text| text.trim().parse::<u32>().ok());
        let seconds = seconds.map_or(DEFAULT_INTERVAL_S, u64::from);
        Some(Self {
            hz: Hz::new(header.hz)?,
            interval: Nanos(seconds * Nanos::SECOND.0),
            cpus: header.cpus,
        })
    }

    /// `None` for a jiffy that no kernel reaches.
    fn moment(&self, armed: &Armed) -> Option<Moment> {
        const YEARS_MAX: u64 = 200;
        let ticks_max = YEARS_MAX * 365 * 24 * 3600 * u64::from(self.hz.get());
        (armed.now < ticks_max).then(|| Moment {
            now: self.hz.nanos(Jiffies(armed.now)),
            hz: self.hz,
            interval: self.interval,
            cpu: CpuId(armed.cpu),
            rank: Rank {
                rank: armed.cpu,
                of: self.cpus.max(1),
            },
            online: self.cpus,
        })
    }
}

/// What Plimsoll says of one firing.
struct Verdict {
    /// The jiffy that is asked for.
    expires: Option<u64>,
    /// The jiffy of the wheel for what the kernel asked for.
    bucket: u64,
}

impl Timers<'_> {
    fn verdict(&self, clock: &Clock, armed: &Armed) -> Verdict {
        let moment = clock.moment(armed);
        let due = moment.map(|moment| self.schedule.next(&moment));
        let expires = due.and_then(|due| match due {
            Due::Wheel(ahead) => Some(armed.now.saturating_add(ahead.0)),
            Due::Now | Due::At(_) => None,
        });
        let wheel = Wheel::new(clock.hz);
        let bucket = (self.fires_at)(wheel, Jiffies(armed.now), Jiffies(armed.expires));
        Verdict {
            expires,
            bucket: bucket.0,
        }
    }

    fn compare(&self, clock: &Clock, chain: &Chain) -> Judgement {
        let mut judgement = Judgement {
            subject: "timer wheel".to_owned(),
            unit: "firings",
            ..Judgement::default()
        };
        let (mut asked, mut placed, mut unprinted) = (0_u64, 0_u64, 0_u64);
        for armed in &chain.armed {
            let verdict = self.verdict(clock, armed);
            let is_asked = verdict.expires == Some(armed.expires);
            let is_placed = armed.bucket.is_none_or(|bucket| bucket == verdict.bucket);
            unprinted += u64::from(armed.bucket.is_none());
            judgement.compared += 1;
            asked += u64::from(is_asked);
            placed += u64::from(is_placed);
            judgement.identical += u64::from(is_asked && is_placed);
            if judgement.first_difference.is_empty() && !(is_asked && is_placed) {
                judgement.first_difference = difference(armed, &verdict);
            }
        }
        judgement.notes.push(format!(
            "Of {} timers of the vmstat work and its shepherd, {asked} are armed for the jiffy \
         that {} gives, and {placed} are on the jiffy of Plimsoll's wheel.",
            judgement.compared,
            self.schedule.name()
        ));
        if unprinted > 0 {
            judgement.notes.push(format!(
                "For {unprinted} of them the recorded kernel does not print the jiffy of its wheel, so \
             only the jiffy that they are armed for is compared."
            ));
        }
        judgement
    }
}

fn difference(armed: &Armed, verdict: &Verdict) -> Vec<String> {
    let say = |jiffy: Option<u64>| jiffy.map_or("nothing".to_owned(), |jiffy| jiffy.to_string());
    vec![
        format!(
            "{:.6} s, CPU {}: {} is armed at jiffy {}",
            armed.time_ns as f64 / 1e9,
            armed.cpu,
            armed.kind.function(),
            armed.now
        ),
        format!(
            "asked for: Linux {}, Plimsoll {}",
            armed.expires,
            say(verdict.expires)
        ),
        format!(
            "on the wheel: Linux {}, Plimsoll {}",
            say(armed.bucket),
            verdict.bucket
        ),
    ]
}

/// How many jiffies after that of the wheel timers fired.
fn lateness(chain: &Chain) -> Table {
    let row = |kind: Kind| {
        let armed = || chain.armed.iter().filter(|armed| armed.kind == kind);
        let late: Vec<u64> = armed().filter_map(Armed::late_jiffies).collect();
        let count = |wanted: fn(u64) -> bool| late.iter().filter(|&&late| wanted(late)).count();
        let cells = [
            armed().count(),
            late.len(),
            count(|late| late == 0),
            count(|late| late == 1),
            count(|late| late > 1),
        ];
        let mut row = vec![kind.function().to_owned()];
        row.extend(cells.map(|cell| cell.to_string()));
        row
    };
    Table {
        title: "Firings, in jiffies after the wheel's".to_owned(),
        note: "A timer fires late if its CPU ticks before the CPU that keeps time has counted the \
               jiffy, and later still if its CPU is idle."
            .to_owned(),
        columns: ["work", "armed", "fired", "on it", "1 later", "more"]
            .map(str::to_owned)
            .to_vec(),
        rows: Kind::ALL.into_iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests;
