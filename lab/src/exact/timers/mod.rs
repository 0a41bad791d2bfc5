//! Timers: compares the kernel's timers of the per-CPU vmstat work and of the shepherd with
//! Plimsoll's timers. This module compares two jiffies of each timer. The jiffy for which the
//! kernel arms the timer must equal the jiffy that Plimsoll's schedule `round-jiffies` gives. The
//! jiffy at which the kernel's timer wheel fires the timer must equal the jiffy that the wheel of
//! `mm` gives.
//!
//! `chain` finds the firings in a recording. `crowding` compares how many CPUs start their work
//! together in the recording and on a simulated machine with the same number of CPUs.

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

/// Compares the kernel's timers with the timers of a schedule (a rule for when vmstat work runs
/// next) and of a timer wheel. [`Timers::OURS`] has Plimsoll's schedule and wheel.
#[derive(Clone, Copy, Debug)]
pub struct Timers<'a> {
    /// The schedule that gives the jiffy for which the vmstat work arms its timer. In Linux, this
    /// is [`RoundJiffies`].
    pub schedule: &'a dyn Schedule,
    /// The function that returns the jiffy at which a timer wheel fires a timer. Its arguments are
    /// the wheel, the jiffy in which the timer is armed, and the jiffy for which the timer is
    /// armed.
    pub fires_at: fn(Wheel, Jiffies, Jiffies) -> Jiffies,
}

impl Timers<'_> {
    /// Plimsoll's schedule (a rule for when vmstat work runs next) and Plimsoll's timer wheel,
    /// which both work as in Linux.
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
    /// Compares the kernel's timer firings with the predicted firings, but makes no tables of late
    /// firings and of CPUs that fire together. Returns `None` if the recording has no firings or
    /// does not state the kernel's HZ.
    #[must_use]
    pub fn firings(&self, recording: &Recording) -> Option<Judgement> {
        let (clock, chain) = taken(recording)?;
        Some(self.compare(&clock, &chain))
    }
}

/// The clock of a recording, and its runs of the vmstat work. `None` if the recording has no such
/// run or does not state the kernel's HZ.
fn taken(recording: &Recording) -> Option<(Clock, Chain)> {
    let clock = Clock::of(&recording.header)?;
    let chain = Chain::of(recording);
    (!chain.armed.is_empty()).then_some((clock, chain))
}

/// The facts about the kernel's timers in a recording's header: HZ, the time between two runs of
/// the vmstat work, and the number of CPUs.
struct Clock {
    hz: Hz,
    interval: Nanos,
    cpus: u32,
}

impl Clock {
    /// The clock of a recording. `None` if its header does not state the kernel's HZ.
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

    /// The moment at which a timer was armed, in the form that a schedule accepts. Returns `None`
    /// if the jiffy is so large that no kernel can reach it.
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

/// The jiffies that Plimsoll chooses for a timer that fired in the recording.
struct Verdict {
    /// The jiffy for which the schedule arms the timer. `None` if the schedule does not use the
    /// timer wheel.
    expires: Option<u64>,
    /// The jiffy at which Plimsoll's timer wheel fires a timer that is armed for the jiffy that the
    /// kernel chose.
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

/// Returns a table that counts the timers that fired on time, one jiffy late, and two or more
/// jiffies late. A timer is on time if it fires at the jiffy that the kernel's wheel had chosen.
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
