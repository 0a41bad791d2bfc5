//! The races of the reaper experiment and their metrics.

use plimsoll_mm::topology::{Distance, Topology};
use plimsoll_mm::units::{CpuId, Nanos};
use plimsoll_sim::profile::Profile;

use crate::experiment::emptier::{self, Emptier, both};
use crate::measure::comparison::{Sample, fold_hashes};
use crate::measure::metric::{Metric, Unit};
use crate::run::cases::Case;
use crate::run::options::Effort;
use crate::workload::victim::{Help, MemoryLeft, Party, Race, Raced, Victim};

/// The metrics of the first scene beyond those that every race has.
pub(super) mod metrics {
    use crate::measure::metric::{Metric, Unit};

    pub(in super::super) const EXIT_RAN: Metric = Metric::lower("exit_ran_ns", Unit::Nanos);
    pub(in super::super) const REAPER_RAN: Metric = Metric::lower("reaper_ran_ns", Unit::Nanos);
    pub(in super::super) const LOCK: Metric = Metric::lower("table_lock_ns", Unit::Nanos);
    pub(in super::super) const EXIT_LOCK: Metric = Metric::lower("exit_table_lock_ns", Unit::Nanos);
    pub(in super::super) const REAPER_LOCK: Metric =
        Metric::lower("reaper_table_lock_ns", Unit::Nanos);
    pub(in super::super) const RMAP: Metric = Metric::lower("rmap_ns", Unit::Nanos);
    pub(in super::super) const EXIT_RMAP: Metric = Metric::lower("exit_rmap_ns", Unit::Nanos);
    pub(in super::super) const REAPER_RMAP: Metric = Metric::lower("reaper_rmap_ns", Unit::Nanos);
}

/// A victim, and the CPUs on which it is emptied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene {
    /// The prefix of its metrics' names; empty for the first scene.
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) victim: Victim,
    pub(super) exit: CpuId,
    pub(super) reaper: CpuId,
    /// The memory that the machine has left.
    pub(super) left: MemoryLeft,
}

/// The scenes of one machine.
#[derive(Clone, Debug)]
pub(super) struct Scenes {
    /// All scenes; the first is the published test.
    pub(super) all: Vec<Scene>,
    /// The position of the scene on equal cores.
    equal: usize,
}

/// The number of small mappings of the app.
const MAPPINGS: u32 = 3000;
const MAPPINGS_QUICK: u32 = 600;
/// The pages of the app for each of its small mappings, about; the scene `one` has as many pages.
const PAGES_PER_MAPPING: u64 = 50;

/// The metrics that every scene reports; the first one reports all.
pub(super) const OF_EVERY_SCENE: [Metric; 6] = [
    emptier::metrics::WALL,
    emptier::metrics::RAN,
    emptier::metrics::TABLE_WAIT,
    emptier::metrics::FORGET,
    emptier::metrics::LISTED,
    emptier::metrics::SETTLED,
];

/// Names of scenes that every machine has.
const ONE: &str = "one";
const SHORT: &str = "short";

impl Scenes {
    pub(super) fn of(profile: &Profile, effort: Effort) -> Self {
        let mappings = match effort {
            Effort::Full => MAPPINGS,
            Effort::Quick => MAPPINGS_QUICK,
        };
        let victim = Victim::App { mappings };
        let scene = |name, about, exit, reaper| Scene {
            name,
            about,
            victim,
            exit: CpuId(exit),
            reaper: CpuId(reaper),
            left: MemoryLeft::Plenty,
        };
        let (mut all, equal) = if profile.name.starts_with("phone-8") {
            let all = vec![
                scene("", "exit on the big core, reaper on a middle one", 7, 4),
                scene("equal", "both on middle cores", 4, 5),
                scene(
                    "little",
                    "exit on the big core, reaper on a little one",
                    7,
                    0,
                ),
            ];
            (all, 1)
        } else {
            let topology = &profile.topology;
            let at = |distance| first_at(topology, distance).map(|cpu| cpu.0);
            let near = at(Distance::Socket).or_else(|| at(Distance::Llc));
            let near = near.expect("a race needs two cores");
            let mut all = vec![scene(
                "",
                "exit and reaper on two cores of a socket",
                0,
                near,
            )];
            if let Some(remote) = at(Distance::Remote) {
                all.push(scene("remote", "reaper on the other socket", 0, remote));
            }
            (all, 0)
        };
        all.push(Scene {
            name: SHORT,
            about: "on equal cores, with no memory left: others have all the rest",
            left: MemoryLeft::None,
            ..all[equal]
        });
        all.push(Scene {
            name: ONE,
            about: "one mapping of about the same size, on equal cores",
            victim: Victim::One {
                pages: u64::from(mappings) * PAGES_PER_MAPPING,
            },
            ..all[equal]
        });
        Self { all, equal }
    }

    /// The scene in which both cores are of the same kind.
    pub(super) fn equal(&self) -> &Scene {
        &self.all[self.equal]
    }

    /// The scene on equal cores of a machine that has no memory left.
    pub(super) fn short(&self) -> &Scene {
        let found = self.all.iter().find(|scene| scene.name == SHORT);
        found.expect("every machine has it")
    }

    /// The scene with one large mapping.
    pub(super) fn one(&self) -> &Scene {
        self.all.last().expect("it was put there")
    }

    /// Runs every scene with one emptier on one seed; returns the race of the first scene as
    /// well.
    pub(super) fn measure(&self, profile: &Profile, case: &Case<Emptier>) -> (Sample, Raced) {
        let mut metrics = Vec::new();
        let mut hashes = Vec::new();
        let mut first = None;
        for scene in &self.all {
            let raced = scene.race(profile, &case.design, case.seed);
            hashes.push(raced.hash);
            let mut common = emptier::common(&raced);
            if first.is_some() {
                common.retain(|(metric, _)| OF_EVERY_SCENE.contains(metric));
            }
            let common = common.into_iter();
            metrics.extend(common.map(|(metric, value)| (scene.metric(metric), value)));
            if first.is_none() {
                metrics.extend(by_who(&raced));
                first = Some(raced);
            }
        }
        let hash = fold_hashes(hashes);
        let first = first.expect("there is a first scene");
        (Sample { hash, metrics }, first)
    }
}

impl Scene {
    fn race(&self, profile: &Profile, emptier: &Emptier, seed: u64) -> Raced {
        let race = Race {
            victim: self.victim,
            exit: self.exit,
            helpers: vec![self.reaper; emptier.helpers],
            help: Help::Reaper,
            left: self.left,
        };
        race.run(profile, &emptier.design(), seed)
    }

    /// `metric` as measured in this scene.
    pub(super) fn metric(&self, metric: Metric) -> Metric {
        if self.name.is_empty() {
            return metric;
        }
        let name = format!("{}_{}", self.name, metric.name);
        metric.named(name)
    }
}

/// The thread's columns: each part, for the last user and for the reaper.
fn by_who(raced: &Raced) -> Vec<(Metric, f64)> {
    let of = |time: fn(&Raced, Party) -> Nanos, metrics: [Metric; 2]| {
        let [exit, reaper] = metrics;
        [
            (exit, time(raced, Party::Exit).0 as f64),
            (reaper, time(raced, Party::Helpers).0 as f64),
        ]
    };
    let mut all = Vec::new();
    all.extend(of(Raced::ran, [metrics::EXIT_RAN, metrics::REAPER_RAN]));
    all.push((metrics::LOCK, both(raced, Raced::table_lock)));
    all.extend(of(
        Raced::table_lock,
        [metrics::EXIT_LOCK, metrics::REAPER_LOCK],
    ));
    all.push((metrics::RMAP, both(raced, Raced::rmap)));
    all.extend(of(Raced::rmap, [metrics::EXIT_RMAP, metrics::REAPER_RMAP]));
    debug_assert!(all.iter().all(|(metric, _)| metric.unit == Unit::Nanos));
    all
}

/// The first CPU at this distance from CPU 0.
fn first_at(topology: &Topology, distance: Distance) -> Option<CpuId> {
    topology
        .ids()
        .find(|cpu| topology.distance(CpuId(0), *cpu) == distance)
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::space::reap::Reaping;
    use plimsoll_sim::profile::Card;

    use super::*;

    #[test]
    fn every_machine_has_its_scenes_on_cpus_it_has() {
        for (machine, scenes) in [("phone-8", 5), ("laptop-2", 3), ("epyc-9654-2s", 4)] {
            let profile = Profile::load(machine, Card::Mid).expect("built in");
            let all = Scenes::of(&profile, Effort::Quick).all;
            assert_eq!(all.len(), scenes, "{machine}");
            for scene in all {
                assert_ne!(scene.exit, scene.reaper);
                assert!(scene.reaper.0 < profile.topology.cpus());
            }
        }
    }

    #[test]
    fn parts_add_up_to_what_is_measured_of_all() {
        let profile = Profile::load("phone-8", Card::Mid).expect("built in");
        let case = Case {
            design: Emptier {
                name: String::new(),
                reaping: Reaping::Ascending,
                helpers: 1,
                bounded: false,
            },
            seed: 3,
        };
        let (sample, _) = Scenes::of(&profile, Effort::Quick).measure(&profile, &case);
        let value = |metric| sample.value(&metric).expect("measured");
        let (exit, reaper) = (value(metrics::EXIT_RAN), value(metrics::REAPER_RAN));
        assert!(exit > 0.0 && reaper > 0.0);
        let ran = value(emptier::metrics::RAN);
        assert!((ran - exit - reaper).abs() < 1.0);
        assert!(value(emptier::metrics::TABLE_WAIT) <= value(metrics::LOCK));
    }
}
