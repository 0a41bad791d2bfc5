//! The storms of the experiment (runs in which allocators wait for memory), the designs, and the
//! metrics of a storm.

use plimsoll_mm::design::Design;
use plimsoll_mm::units::{Nanos, Pages};
use plimsoll_sim::profile::Profile;

use crate::error::Error;
use crate::experiment::driver::{Number, Numbers, Reading, Setting, metrics_of, read, readings};
use crate::measure::comparison::{Sample, fold_hashes};
use crate::measure::metric::{Metric, Unit};
use crate::measure::stats;
use crate::workload::storm::{Death, Ending, Headcount, Part, Storm, StormResult};

/// The total length of an allocator's stalls (waits of an allocation because memory is out): the
/// mean over all allocators. A stall that ends with the death of the allocator does not count.
pub(super) const WAITED: Metric = Metric::lower("waited_ns", Unit::Nanos);
/// The median length of the stalls (waits of an allocation because memory is out) of all
/// allocators.
pub(super) const MEDIAN: Metric = Metric::lower("stall_median_ns", Unit::Nanos);
pub(super) const WORST: Metric = Metric::lower("stall_worst_ns", Unit::Nanos);
pub(super) const STALLS: Metric = Metric::neither("stalls", Unit::Count);
pub(super) const KILLS: Metric = Metric::lower("kills", Unit::Count);
/// The number of kills in which the largest process exceeded the victim by at least [`AS_LARGE`]
/// pages.
pub(super) const WRONG: Metric = Metric::lower("wrong_kills", Unit::Count);
/// The number of bytes by which the largest process exceeded the victim: the mean over all kills.
pub(super) const REGRET: Metric = Metric::lower("regret_bytes", Unit::Bytes);
/// The sum of the memory of all processes that were killed in a run, in bytes.
pub(super) const FREED: Metric = Metric::neither("killed_bytes", Unit::Bytes);
/// The time from a kill until all of the victim's memory is free, on average.
pub(super) const FREE: Metric = Metric::lower("kill_to_free_ns", Unit::Nanos);

/// The metrics of each storm (a run in which allocators wait for memory). A storm also has a metric
/// for each part of [`WAITED`]. [`Scene::part`] makes the names of these metrics.
const METRICS: &[Reading<Seen>] = readings!(|seen| {
    WAITED => seen.per_allocator(seen.result.stalls.iter().map(|stall| stall.ns()).sum()),
    MEDIAN => stats::median(&seen.stalls()).unwrap_or(0.0),
    WORST => seen.stalls().into_iter().fold(0.0, f64::max),
    STALLS => seen.result.stalls.len() as f64,
    KILLS => seen.result.kills.len() as f64,
    WRONG => {
        let wrong = seen.regrets().filter(|pages| *pages >= AS_LARGE);
        wrong.count() as f64
    },
    REGRET => mean(seen.regrets().map(bytes)),
    FREED => bytes(seen.result.kills.iter().map(|kill| kill.pages).sum()),
    FREE => {
        let took = |death: &Death| death.free.map(|free| (free - death.told) as f64);
        mean(seen.result.deaths.iter().filter_map(took))
    },
});

/// A choice counts as wrong if the largest process exceeds the victim by at least this number of
/// pages: 1 MiB. Smaller differences do not count, because processes grow during the selection.
const AS_LARGE: u64 = 256;

/// The observations of one storm (a run in which allocators wait for memory), from which the
/// metrics are computed.
struct Seen {
    result: StormResult,
    allocators: u32,
}

impl Seen {
    fn per_allocator(&self, ns: u64) -> f64 {
        ns as f64 / f64::from(self.allocators)
    }

    /// The length of each stall (the wait of an allocation because memory is out), in nanoseconds.
    fn stalls(&self) -> Vec<f64> {
        let stalls = self.result.stalls.iter();
        stalls.map(|stall| stall.ns() as f64).collect()
    }

    /// For each kill, by how many pages the largest process exceeded the victim.
    fn regrets(&self) -> impl Iterator<Item = u64> {
        self.result.kills.iter().map(|kill| kill.most - kill.pages)
    }
}

fn bytes(pages: u64) -> f64 {
    (pages << 12) as f64
}

/// The mean of `values`, or 0 if there are none.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// A storm (a run in which allocators wait for memory) with a name.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    /// The prefix of the names of this scene's metrics.
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) storm: Storm,
}

/// A thread of the victim waits for a device, which responds this long after the start of the run.
const DEVICE_ANSWERS: Nanos = Nanos::from_ms(5000);

// The names of the scenes.

/// The scene in which the victim exits without helpers.
pub(super) const EXITS: &str = "exits";
/// The scene in which a daemon calls `process_mrelease` for each victim.
pub(super) const HELPED: &str = "helped";
/// The scene in which a thread of the victim waits for a device, so that only the reaper can empty
/// the victim.
pub(super) const STUCK: &str = "stuck";
/// The scene in which no process is much larger than all others.
pub(super) const CROWD: &str = "crowd";

/// The numbers that an experiment file gives for the workload.
pub(super) const NUMBERS: &[Number] = &[
    Number::one(
        "sleepers",
        (10, 100_000),
        "processes that sleep; a tenth of them in the scene `crowd`",
    ),
    Number::one(
        "allocators",
        (1, 4096),
        "processes that allocate, each on a CPU of its own",
    ),
    Number::list("hog_threads", (1, 64), "threads of each of the two hogs"),
    Number::one(
        "free_pages",
        (1000, 1 << 30),
        "pages that are free at the beginning; a tenth of them in the scene `crowd`",
    ),
    Number::one(
        "swapped_seeds",
        (1, 10_000),
        "the most seeds of runs that only the table `swapped` shows",
    ),
];

/// A machine and the storms (runs in which allocators wait for memory) on it.
#[derive(Clone, Debug)]
pub(super) struct Scenes {
    profile: Profile,
    pub(super) all: Vec<Scene>,
}

impl Scenes {
    pub(super) fn new(setting: &Setting<'_>) -> Result<Self, Error> {
        let profile = setting.profile()?;
        let all = Scene::all(setting.numbers)?.to_vec();
        // The reaper and the daemon that calls `process_mrelease` each have a CPU of their own.
        let threads: u64 = setting.numbers.list("hog_threads").iter().sum();
        let needed = u64::from(setting.numbers.small("allocators")) + threads + 2;
        let cpus = profile.topology.cpus();
        if needed > u64::from(cpus) {
            let why = format!("allocators and hogs need {needed} CPUs, and the machine has {cpus}");
            return Err(Error::Invalid(why));
        }
        Ok(Self { profile, all })
    }

    /// Returns this machine with only the scenes whose names are in `names`.
    pub(super) fn only(mut self, names: &[&str]) -> Self {
        self.all.retain(|scene| names.contains(&scene.name));
        self
    }

    /// The scene (a storm with a name) that is called `name`.
    pub(super) fn scene(&self, name: &str) -> &Scene {
        let found = self.all.iter().find(|scene| scene.name == name);
        found.unwrap_or_else(|| panic!("no scene is called `{name}`"))
    }

    /// Every metric of every scene, in the order of the scenes.
    pub(super) fn metrics(&self) -> Vec<Metric> {
        let of = |scene: &Scene| {
            let metrics = metrics_of(METRICS).into_iter();
            let metrics = metrics.map(|metric| scene.metric(&metric));
            metrics
                .chain(Part::ALL.map(|part| scene.part(part)))
                .collect::<Vec<_>>()
        };
        self.all.iter().flat_map(of).collect()
    }

    /// Runs every scene (a storm with a name) with one design on one seed, and collects the metrics
    /// of all scenes.
    pub(super) fn measure(&self, design: &Design, seed: u64) -> Sample {
        let mut metrics = Vec::new();
        let mut hashes = Vec::new();
        for scene in &self.all {
            let result = scene.storm.run(&self.profile, design, seed);
            hashes.push(result.hash);
            metrics.extend(scene.values(result));
        }
        let hash = fold_hashes(hashes);
        Sample { hash, metrics }
    }
}

impl Scene {
    fn all(numbers: &Numbers) -> Result<[Self; 4], Error> {
        let (sleepers, allocators) = (numbers.small("sleepers"), numbers.small("allocators"));
        let free = Pages(numbers.small("free_pages"));
        let threads = numbers.list("hog_threads").iter();
        let threads: Vec<u32> = threads
            .map(|threads| u32::try_from(*threads).expect("at most 64"))
            .collect();
        if threads.len() != 2 {
            let why = "give the numbers of threads of two hogs, as in hog_threads = [8, 4]";
            return Err(Error::Invalid(why.to_owned()));
        }
        let headcount = |hogs: &[u32]| Headcount {
            sleepers,
            pages: 64..=192,
            allocators,
            hogs: hogs.to_vec(),
        };
        let storm = |hogs: &[u32], ending| Storm {
            headcount: headcount(hogs),
            free,
            bursts: 64,
            ending,
        };
        let scene = |name, about, storm| Scene { name, about, storm };
        let crowd = Storm {
            headcount: Headcount {
                sleepers: sleepers / 10,
                pages: 1..=2048,
                ..headcount(&[])
            },
            free: Pages(free.0 / 10),
            ..storm(&[], Ending::AtOnce)
        };
        Ok([
            scene(
                EXITS,
                "two hogs; a victim exits by itself",
                storm(&threads, Ending::AtOnce),
            ),
            scene(
                HELPED,
                "the same, and a daemon calls process_mrelease at each kill",
                storm(&threads, Ending::Helped),
            ),
            scene(
                STUCK,
                "one hog, a thread of which waits for a device for 5 s",
                storm(&threads[..1], Ending::Stuck(DEVICE_ANSWERS)),
            ),
            scene(
                CROWD,
                "no hog: the largest process is hardly larger than others",
                crowd,
            ),
        ])
    }

    /// Returns `metric` with its name in this scene, which begins with the scene's own name.
    pub(super) fn metric(&self, metric: &Metric) -> Metric {
        let name = format!("{}_{}", self.name, metric.name);
        metric.clone().named(name)
    }

    /// The metric for the time that an allocator spends in one part of its stalls in this scene.
    pub(super) fn part(&self, part: Part) -> Metric {
        let name = format!("{}_waited_{}_ns", self.name, part.name());
        WAITED.named(name)
    }

    fn values(&self, result: StormResult) -> Vec<(Metric, f64)> {
        let seen = Seen {
            result,
            allocators: self.storm.headcount.allocators,
        };
        let values = read(METRICS, &seen).into_iter();
        let values = values.map(|(metric, value)| (self.metric(&metric), value));
        let parts = Part::ALL.map(|part| {
            let stalls = seen.result.stalls.iter();
            let ns = stalls.map(|stall| stall.parts[part as usize]).sum();
            (self.part(part), seen.per_allocator(ns))
        });
        values.chain(parts).collect()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_sim::profile::Card;

    use super::*;
    use crate::catalog::designs;

    #[test]
    fn parts_add_up_to_what_an_allocator_waited_and_a_crowd_dies_one_by_one() {
        let numbers = Numbers::of(&[
            ("sleepers", &[400]),
            ("allocators", &[12]),
            ("hog_threads", &[4, 2]),
            ("free_pages", &[60_000]),
        ]);
        let setting = Setting {
            machine: "epyc-9654-256",
            card: Card::Mid,
            numbers: &numbers,
            memory: None,
        };
        let scenes = Scenes::new(&setting).expect("built in");
        let scenes = scenes.only(&[EXITS, CROWD]);
        let ours = "unpatched+select-bounded+one-sided+meet-in-the-middle";
        let ours = designs::find(ours).expect("a design").design;
        let sample = scenes.measure(&ours, 2);
        for scene in &scenes.all {
            let value = |metric: &Metric| sample.value(metric).expect("measured");
            let waited = value(&scene.metric(&WAITED));
            let parts: f64 = Part::ALL.map(|part| value(&scene.part(part))).iter().sum();
            assert!(
                waited > 0.0 && (waited - parts).abs() < 1.0,
                "{waited} {parts}"
            );
            assert!(value(&scene.metric(&MEDIAN)) <= value(&scene.metric(&WORST)));
            assert_eq!(value(&scene.metric(&WRONG)), 0.0, "ours is never wrong");
        }
    }
}
