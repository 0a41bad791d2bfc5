//! Tables about the periodic work (`vmstat_update`): when it runs on each CPU (firings), how many
//! CPUs start it at once, and the rounds of the shepherd (`vmstat_shepherd`).

use std::collections::{BTreeMap, HashMap, HashSet};

use plimsoll_mm::units::Nanos;
use plimsoll_recording::{Event, Header, Recording, What};

use crate::measure::metric::Unit;
use crate::measure::stats::median;
use crate::report::figures::{Figures, Line, Measure, Stand};
use crate::run::testbed::crowd;

/// Everything that a recording shows about the vmstat work of the CPUs (`vmstat_update`) and about
/// the shepherd (`vmstat_shepherd`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Firings {
    /// Each run of `vmstat_update`, in order of time.
    pub firings: Vec<Firing>,
    /// The times at which the shepherd (`vmstat_shepherd`) began a round.
    pub rounds_ns: Vec<u64>,
    /// For each round, the number of CPUs whose `vmstat_update` the shepherd queued.
    pub kicks: Vec<u64>,
    /// The ticks of the recorded machine. Their interval is 0 if the recording does not state HZ.
    tick: Tick,
}

/// One run of `vmstat_update`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Firing {
    /// The time at which the run began, in nanoseconds.
    pub time_ns: u64,
    /// The CPU on which the work ran.
    pub cpu: u32,
    /// True if the shepherd (`vmstat_shepherd`) queued the work. False if the work's own timer
    /// queued it.
    pub kicked: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tick {
    phase_ns: u64,
    length_ns: u64,
}

impl Firings {
    /// The runs of `vmstat_update` (the firings) in `recording`. The recording must have the
    /// `workqueue_execute_start` events of `vmstat_update` and of `vmstat_shepherd`.
    #[must_use]
    pub fn of(recording: &Recording) -> Self {
        let header = &recording.header;
        let symbol = |name: &str| header.symbols.iter().position(|known| known == name);
        let (update, shepherd) = (symbol("vmstat_update"), symbol("vmstat_shepherd"));
        let is = |function: plimsoll_recording::event::Symbol, wanted: Option<usize>| {
            Some(function.0 as usize) == wanted
        };
        let mut found = Self {
            tick: Tick::of(recording),
            ..Self::default()
        };
        let mut kicked: HashSet<u64> = HashSet::new();
        let mut in_round: HashMap<u32, u32> = HashMap::new();
        for &Event {
            time_ns,
            cpu,
            pid,
            ref what,
        } in &recording.events
        {
            match *what {
                What::WorkStart { function, .. } if is(function, shepherd) => {
                    in_round.insert(cpu, pid);
                    found.rounds_ns.push(time_ns);
                    found.kicks.push(0);
                }
                What::WorkEnd { function, .. } if is(function, shepherd) => {
                    in_round.remove(&cpu);
                }
                What::WorkQueued { work, function }
                    if is(function, update) && in_round.get(&cpu) == Some(&pid) =>
                {
                    kicked.insert(work);
                    if let Some(kicks) = found.kicks.last_mut() {
                        *kicks += 1;
                    }
                }
                What::WorkStart { work, function } if is(function, update) => {
                    let kicked = kicked.remove(&work);
                    found.firings.push(Firing {
                        time_ns,
                        cpu,
                        kicked,
                    });
                }
                _ => {}
            }
        }
        found
    }

    /// Makes a table of the runs of `vmstat_update` on each CPU, and of the intervals between these
    /// runs. The first row is for all CPUs.
    #[must_use]
    pub fn by_cpu(&self) -> Figures {
        let mut cpus: BTreeMap<u32, Vec<Firing>> = BTreeMap::new();
        for firing in &self.firings {
            cpus.entry(firing.cpu).or_default().push(*firing);
        }
        let gaps = |firings: &[Firing]| -> Vec<f64> {
            let pairs = firings.windows(2);
            pairs
                .map(|pair| (pair[1].time_ns - pair[0].time_ns) as f64)
                .collect()
        };
        let line = |key: String, firings: &[Firing], gaps: &[f64]| {
            let kicked = firings.iter().filter(|firing| firing.kicked).count();
            let counts = [firings.len(), kicked].map(|count| Some(count as f64));
            let least = gaps.iter().copied().reduce(f64::min);
            let most = gaps.iter().copied().reduce(f64::max);
            let values = counts.into_iter().chain([least, median(gaps), most]);
            Line {
                keys: vec![key],
                values: values.collect(),
            }
        };
        let all_gaps: Vec<f64> = cpus.values().flat_map(|firings| gaps(firings)).collect();
        let by_cpu = cpus
            .iter()
            .map(|(cpu, firings)| line(cpu.to_string(), firings, &gaps(firings)));
        let all = (!cpus.is_empty()).then(|| line("all".to_owned(), &self.firings, &all_gaps));
        let nanos = |head, name| Measure::new(head, name, Unit::Nanos);
        Figures {
            name: "firings",
            title: "Runs of vmstat_update by CPU",
            note: "Intervals are between two runs on one CPU, which may have slept in between."
                .to_owned(),
            keys: vec!["cpu"],
            same: 1,
            keys_stand: Stand::Before,
            measures: vec![
                Measure::new("runs", "runs", Unit::Count),
                Measure::new("by shepherd", "by_shepherd", Unit::Count),
                nanos("least interval", "least_interval_ns"),
                nanos("median", "median_interval_ns"),
                nanos("longest", "longest_interval_ns"),
            ],
            lines: all.into_iter().chain(by_cpu).collect(),
        }
    }

    /// The largest number of runs of `vmstat_update` that began at once, for several definitions of
    /// "at once".
    #[must_use]
    pub fn crowding(&self) -> Figures {
        let starts = || self.firings.iter().map(|firing| Nanos(firing.time_ns));
        let windows = [("1 ms", 1), ("4 ms", 4), ("32 ms", 32)];
        let windows = windows.map(|(name, ms)| (name, crowd(starts(), Nanos::from_ms(ms))));
        let on_tick = (self.tick.length_ns > 0).then(|| ("one tick", self.on_one_tick()));
        let lines = on_tick.into_iter().chain(windows);
        let lines = lines.map(|(name, most)| Line::full(vec![name.to_owned()], [most as f64]));
        Figures {
            name: "crowding",
            title: "Most runs of vmstat_update that began together",
            note: String::new(),
            keys: vec!["within"],
            same: 1,
            keys_stand: Stand::Before,
            measures: vec![Measure::new("runs", "runs", Unit::Cpus)],
            lines: if self.firings.is_empty() {
                Vec::new()
            } else {
                lines.collect()
            },
        }
    }

    fn on_one_tick(&self) -> usize {
        let jiffies: Vec<u64> = self
            .firings
            .iter()
            .map(|firing| self.tick.jiffy(firing.time_ns))
            .collect();
        let same = jiffies.chunk_by(|one, next| one == next);
        same.map(<[_]>::len).max().unwrap_or(0)
    }

    /// Makes a table of the rounds of the shepherd (`vmstat_shepherd`): the number of rounds, the
    /// intervals between them, and the number of CPUs that the shepherd woke.
    #[must_use]
    pub fn shepherd(&self) -> Figures {
        let between = self
            .rounds_ns
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64);
        let between: Vec<f64> = between.collect();
        let most = self.kicks.iter().copied().max().unwrap_or(0);
        let line = Line {
            keys: vec!["shepherd".to_owned()],
            values: vec![
                Some(self.rounds_ns.len() as f64),
                Some(self.kicks.iter().sum::<u64>() as f64),
                Some(most as f64),
                median(&between),
            ],
        };
        Figures {
            name: "shepherd",
            title: "Rounds of vmstat_shepherd, and CPUs it woke",
            note: String::new(),
            keys: vec!["work"],
            same: 1,
            keys_stand: Stand::Before,
            measures: vec![
                Measure::new("rounds", "rounds", Unit::Count),
                Measure::new("woken", "woken", Unit::Cpus),
                Measure::new("most in a round", "most_woken_in_a_round", Unit::Cpus),
                Measure::new("between rounds", "between_rounds_ns", Unit::Nanos),
            ],
            lines: if self.rounds_ns.is_empty() {
                Vec::new()
            } else {
                vec![line]
            },
        }
    }
}

impl Tick {
    /// Computes the times of the ticks of a recording from the jiffies that timer events print. If
    /// there are no such events, assumes that a tick was at time 0 of the recorded clock.
    fn of(Recording { header, events }: &Recording) -> Self {
        let Header { hz, .. } = header;
        let length_ns = 1_000_000_000_u64.checked_div(u64::from(*hz)).unwrap_or(0);
        let phase = |event: &Event| match event.what {
            What::TimerExpire { now, .. } | What::TimerStart { now, .. } => {
                let behind = u128::from(now) * u128::from(length_ns);
                let apart = i128::from(event.time_ns) - i128::try_from(behind).ok()?;
                Some(apart)
            }
            _ => None,
        };
        // An event prints the current jiffy, so it happened at the tick of this jiffy or later.
        // Subtract the length of `now` jiffies from the event's time. The result is smallest for
        // the event that followed its tick most closely.
        let earliest = events.iter().filter_map(phase).min().unwrap_or(0);
        let phase_ns = earliest.rem_euclid(i128::from(length_ns.max(1)));
        Self {
            phase_ns: u64::try_from(phase_ns).unwrap_or(0),
            length_ns,
        }
    }

    fn jiffy(self, time_ns: u64) -> u64 {
        (time_ns + self.length_ns - self.phase_ns) / self.length_ns
    }
}
