//! The storms of the experiment, the designs, and the metrics of a storm.

use std::fmt;

use plimsoll_mm::counter::Counting;
use plimsoll_mm::design::Design;
use plimsoll_mm::oom::Selecting;
use plimsoll_mm::space::reap::Reaping;
use plimsoll_mm::units::{Nanos, Pages};
use plimsoll_sim::profile::Profile;

use crate::measure::comparison::{Sample, fold_hashes};
use crate::measure::metric::{Metric, Unit};
use crate::measure::stats;
use crate::run::cases::Case;
use crate::run::options::Effort;
use crate::workload::storm::{Death, Ending, Headcount, Part, Storm, StormResult};

/// A selector over counters, and a way to empty victims; the rest is unpatched Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StormDesign {
    pub(super) selecting: Selecting,
    pub(super) counting: Counting,
    pub(super) reaping: Reaping,
}

/// The selectors of Linux, the patch and ours, each with the counters it belongs to.
pub(super) const SELECTORS: [(Selecting, Counting); 3] = [
    (Selecting::Precise, Counting::Flat),
    (Selecting::TwoPass16, Counting::Tree),
    (Selecting::Bounded, Counting::OneSided),
];

/// The ways of reaping: Linux before 6.18, Linux since, ours.
pub(super) const REAPINGS: [Reaping; 3] = [
    Reaping::Ascending,
    Reaping::DescendingByVma,
    Reaping::MeetInTheMiddle,
];

/// Selectors over counters of another, which tell what is due to selectors and what to counters.
const SWAPPED: [(Selecting, Counting); 4] = [
    (Selecting::Precise, Counting::Tree),
    (Selecting::Precise, Counting::OneSided),
    (Selecting::TwoPass16, Counting::OneSided),
    (Selecting::Bounded, Counting::Tree),
];

impl StormDesign {
    const fn new((selecting, counting): (Selecting, Counting), reaping: Reaping) -> Self {
        Self {
            selecting,
            counting,
            reaping,
        }
    }

    /// Each selector with each way of reaping, selector by selector.
    pub(super) fn all() -> Vec<Self> {
        let with = |selector| REAPINGS.map(|reaping| Self::new(selector, reaping));
        SELECTORS.into_iter().flat_map(with).collect()
    }

    /// Selectors over their own counters, then over those of others; all reap as Linux did.
    pub(super) fn swapped() -> Vec<Self> {
        let all = SELECTORS.into_iter().chain(SWAPPED);
        all.map(|selector| Self::new(selector, Reaping::Ascending))
            .collect()
    }

    /// Linux, the patches together, and ours: each selector with the way of reaping that came with
    /// it.
    pub(super) fn wholes() -> Vec<Self> {
        let pairs = SELECTORS.into_iter().zip(REAPINGS);
        pairs
            .map(|(selector, reaping)| Self::new(selector, reaping))
            .collect()
    }

    fn design(self) -> Design {
        Design {
            selecting: self.selecting,
            counting: self.counting,
            reaping: self.reaping,
            ..Design::UNPATCHED
        }
    }

    /// The name of its selector, for tables in which each selector has its own counters.
    pub(super) fn short(self) -> &'static str {
        let name = self.selecting.name();
        name.strip_prefix("select-").unwrap_or(name)
    }

    /// The names of its selector and counters, for tables.
    pub(super) fn selector(self) -> String {
        format!("{} over {}", self.short(), self.counting.name())
    }
}

impl fmt::Display for StormDesign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (selecting, counting) = (self.selecting.name(), self.counting.name());
        write!(f, "{selecting}+{counting}+{}", self.reaping.name())
    }
}

/// A storm with a name.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    /// The prefix of its metrics' names.
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) storm: Storm,
}

/// The time from the start of the storm until the device of a stuck thread answers.
const STUCK: Nanos = Nanos::from_ms(5000);

/// The scene in which the victim exits by itself, without helpers.
pub(super) const EXITS: usize = 0;
/// The scene in which a daemon calls `process_mrelease`.
pub(super) const HELPED: usize = 1;
/// The scene in which only the reaper can empty the victim.
pub(super) const STUCK_SCENE: usize = 2;
/// The scene in which no hog stands out.
pub(super) const CROWD: usize = 3;

impl Scene {
    /// All scenes, in the order of the positions above.
    pub(super) fn all(effort: Effort) -> [Self; 4] {
        let (sleepers, allocators, threads, free) = match effort {
            Effort::Full => (4000, 32, [8, 4], Pages(300_000)),
            Effort::Quick => (400, 12, [4, 2], Pages(60_000)),
        };
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
        [
            scene(
                "exits",
                "two hogs; a victim exits by itself",
                storm(&threads, Ending::AtOnce),
            ),
            scene(
                "helped",
                "the same, and a daemon calls process_mrelease at each kill",
                storm(&threads, Ending::Helped),
            ),
            scene(
                "stuck",
                "one hog, a thread of which waits for a device for 5 s",
                storm(&threads[..1], Ending::Stuck(STUCK)),
            ),
            scene(
                "crowd",
                "no hog: the largest process is hardly larger than others",
                crowd,
            ),
        ]
    }

    /// `metric` as measured in this scene.
    pub(super) fn metric(&self, metric: &Metric) -> Metric {
        let name = format!("{}_{}", self.name, metric.name);
        metric.clone().named(name)
    }

    /// A part of [`metrics::WAITED`] in this scene.
    pub(super) fn part(&self, part: Part) -> Metric {
        let name = format!("{}_waited_{}_ns", self.name, part.name());
        metrics::WAITED.named(name)
    }
}

/// The metrics of each storm; [`Scene::part`] has the parts of the first one.
pub(super) mod metrics {
    use crate::measure::metric::{Metric, Unit};

    /// The time of all stalls of an allocator together, as the mean over allocators. Stalls in
    /// which the allocator is killed are left out.
    pub(in super::super) const WAITED: Metric = Metric::lower("waited_ns", Unit::Nanos);
    /// The median length of a stall.
    pub(in super::super) const MEDIAN: Metric = Metric::lower("stall_median_ns", Unit::Nanos);
    pub(in super::super) const WORST: Metric = Metric::lower("stall_worst_ns", Unit::Nanos);
    pub(in super::super) const STALLS: Metric = Metric::neither("stalls", Unit::Count);
    pub(in super::super) const KILLS: Metric = Metric::lower("kills", Unit::Count);
    /// The kills whose victim was not the process with the most memory.
    pub(in super::super) const WRONG: Metric = Metric::lower("wrong_kills", Unit::Count);
    /// The memory that the largest process had beyond the victim's, on average.
    pub(in super::super) const REGRET: Metric = Metric::lower("regret_bytes", Unit::Bytes);
    /// The memory of all victims together.
    pub(in super::super) const FREED: Metric = Metric::neither("killed_bytes", Unit::Bytes);
    /// The time from a kill until all the victim's memory is free, on average.
    pub(in super::super) const FREE: Metric = Metric::lower("kill_to_free_ns", Unit::Nanos);
}

/// A choice is not wrong if the largest process has less than 1 MiB more, because processes grow
/// while it is made.
const AS_LARGE: u64 = 256;

/// Runs every scene of `scenes` with one design on one seed.
pub(super) fn measure(scenes: &[Scene], profile: &Profile, case: &Case<StormDesign>) -> Sample {
    let mut metrics = Vec::new();
    let mut hashes = Vec::new();
    for scene in scenes {
        let result = scene.storm.run(profile, &case.design.design(), case.seed);
        hashes.push(result.hash);
        metrics.extend(of(scene, &result));
    }
    let hash = fold_hashes(hashes);
    Sample { hash, metrics }
}

fn of(scene: &Scene, result: &StormResult) -> Vec<(Metric, f64)> {
    let stalls = &result.stalls;
    let each: Vec<f64> = stalls.iter().map(|stall| stall.ns() as f64).collect();
    let per_allocator = |ns: u64| ns as f64 / f64::from(scene.storm.headcount.allocators);
    let kills = &result.kills;
    let bytes = |pages: u64| (pages << 12) as f64;
    let regrets = kills.iter().map(|kill| kill.most - kill.pages);
    let took = |death: &Death| death.free.map(|free| (free - death.told) as f64);
    let took: Vec<f64> = result.deaths.iter().filter_map(took).collect();
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len().max(1) as f64;
    let regret: Vec<f64> = regrets.clone().map(bytes).collect();
    let wrong = regrets.filter(|pages| *pages >= AS_LARGE).count();
    let values = [
        (
            metrics::WAITED,
            per_allocator(stalls.iter().map(|stall| stall.ns()).sum()),
        ),
        (metrics::MEDIAN, stats::median(&each).unwrap_or(0.0)),
        (metrics::WORST, each.iter().copied().fold(0.0, f64::max)),
        (metrics::STALLS, each.len() as f64),
        (metrics::KILLS, kills.len() as f64),
        (metrics::WRONG, wrong as f64),
        (metrics::REGRET, mean(&regret)),
        (
            metrics::FREED,
            bytes(kills.iter().map(|kill| kill.pages).sum()),
        ),
        (metrics::FREE, mean(&took)),
    ];
    let parts = Part::ALL.map(|part| {
        let ns = stalls.iter().map(|stall| stall.parts[part as usize]).sum();
        (scene.part(part), per_allocator(ns))
    });
    debug_assert!(metrics::WAITED.unit == Unit::Nanos);
    let values = values.into_iter();
    let values = values.map(|(metric, value)| (scene.metric(&metric), value));
    values.chain(parts).collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_sim::profile::Card;

    use super::*;

    #[test]
    fn parts_add_up_to_what_an_allocator_waited_and_a_crowd_dies_one_by_one() {
        let profile = Profile::load("epyc-9654-256", Card::Mid).expect("built in");
        let scenes = Scene::all(Effort::Quick);
        let case = Case {
            design: StormDesign::wholes()[2],
            seed: 2,
        };
        let wanted = [scenes[EXITS].clone(), scenes[CROWD].clone()];
        let sample = measure(&wanted, &profile, &case);
        for scene in &wanted {
            let value = |metric: &Metric| sample.value(metric).expect("measured");
            let waited = value(&scene.metric(&metrics::WAITED));
            let parts: f64 = Part::ALL.map(|part| value(&scene.part(part))).iter().sum();
            assert!(
                waited > 0.0 && (waited - parts).abs() < 1.0,
                "{waited} {parts}"
            );
            assert!(
                value(&scene.metric(&metrics::MEDIAN)) <= value(&scene.metric(&metrics::WORST))
            );
            assert_eq!(
                value(&scene.metric(&metrics::WRONG)),
                0.0,
                "ours is never wrong"
            );
        }
    }

    #[test]
    fn every_selector_meets_every_way_of_reaping() {
        let all = StormDesign::all();
        assert_eq!(all.len(), SELECTORS.len() * REAPINGS.len());
        assert_eq!(all[0].to_string(), "select-precise+flat+ascending");
        for whole in StormDesign::wholes() {
            assert!(all.contains(&whole), "{whole}");
        }
        for design in all.into_iter().chain(StormDesign::swapped()) {
            let name = format!("unpatched+{design}");
            let design = Design::named(&name).expect("a name that can be typed");
            assert_eq!(design.reaping, design.reaping);
            assert_eq!(design.selecting, design.selecting);
        }
    }
}
