//! The scenes of the reaper experiment and their metrics. In each scene, exit and the OOM reaper
//! race to empty the address space of a killed process.

use plimsoll_mm::topology::{Distance, Topology};
use plimsoll_mm::units::CpuId;
use plimsoll_sim::profile::Profile;

use crate::error::Error;
use crate::experiment::driver::{Number, Reading, Setting, Tried, metrics_of, read, readings};
use crate::experiment::emptier::{METRICS, both, helpers};
use crate::measure::comparison::{Sample, fold_hashes};
use crate::measure::metric::{Metric, Unit};
use crate::run::cases::Case;
use crate::workload::victim::{Help, MemoryLeft, Party, Race, Raced, Victim};

/// The total time to acquire page-table locks, including acquisitions that do not wait.
pub(super) const LOCK: Metric = Metric::lower("table_lock_ns", Unit::Nanos);
/// The time to remove reverse mappings.
pub(super) const RMAP: Metric = Metric::lower("rmap_ns", Unit::Nanos);

/// The metrics that only the first scene has. They are rows of the mailing-list thread's table:
/// times of exit, times of the reaper, and their sums.
const BY_PARTY: &[Reading<Raced>] = readings!(|raced| {
    Metric::lower("exit_ran_ns", Unit::Nanos) => raced.ran(Party::Exit).0 as f64,
    Metric::lower("reaper_ran_ns", Unit::Nanos) => raced.ran(Party::Helpers).0 as f64,
    LOCK => both(raced, Raced::table_lock),
    Metric::lower("exit_table_lock_ns", Unit::Nanos) => raced.table_lock(Party::Exit).0 as f64,
    Metric::lower("reaper_table_lock_ns", Unit::Nanos) => raced.table_lock(Party::Helpers).0 as f64,
    RMAP => both(raced, Raced::rmap),
    Metric::lower("exit_rmap_ns", Unit::Nanos) => raced.rmap(Party::Exit).0 as f64,
    Metric::lower("reaper_rmap_ns", Unit::Nanos) => raced.rmap(Party::Helpers).0 as f64,
});

/// The first six of [`METRICS`] are metrics of every scene. The first scene has all of [`METRICS`],
/// and also [`BY_PARTY`].
const IN_EVERY_SCENE: usize = 6;

/// A race: a victim, the CPUs on which exit and the reaper empty it, and the memory that is left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene {
    /// The prefix of the names of this scene's metrics. It is empty for the first scene.
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) victim: Victim,
    pub(super) exit: CpuId,
    pub(super) reaper: CpuId,
    /// How much memory the machine has left.
    pub(super) left: MemoryLeft,
}

/// A machine, and the scenes (races) that the experiment runs on it.
#[derive(Clone, Debug)]
pub(super) struct Scenes {
    profile: Profile,
    /// All scenes. The first scene reproduces the published test.
    pub(super) all: Vec<Scene>,
    /// The index in `all` of the scene in which exit and reaper run on cores of the same kind.
    equal: usize,
}

/// The number of small mappings of the app, the victim in most scenes.
pub(super) const MAPPINGS: Number = Number::one(
    "mappings",
    (1, 100_000),
    "small mappings of the app, with about 50 pages each",
);
/// How many pages the app has for each of its small mappings, on average. In the scene `one`, the
/// victim has a single mapping with this constant times `mappings` pages, so it is about as large
/// as the app.
const PAGES_PER_MAPPING: u64 = 50;

/// The names of the scenes (workloads of this experiment) that run on every machine.
const ONE: &str = "one";
const SHORT: &str = "short";

impl Scenes {
    pub(super) fn new(setting: &Setting<'_>) -> Result<Self, Error> {
        let profile = setting.profile()?;
        let mappings = setting.numbers.small(MAPPINGS.name);
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
            let near = near.ok_or_else(|| Error::Invalid("a race needs two cores".to_owned()))?;
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
        Ok(Self {
            profile,
            all,
            equal,
        })
    }

    /// The scene in which exit and reaper run on cores of the same kind, and the machine has memory
    /// left.
    pub(super) fn equal(&self) -> &Scene {
        &self.all[self.equal]
    }

    /// The scene in which exit and reaper run on cores of the same kind, and the machine has no
    /// memory left.
    pub(super) fn short(&self) -> &Scene {
        let found = self.all.iter().find(|scene| scene.name == SHORT);
        found.expect("every machine has it")
    }

    /// The scene with one large mapping.
    pub(super) fn one(&self) -> &Scene {
        self.all.last().expect("it was put there")
    }

    /// Every metric of every scene (a race to empty a victim's memory), in the order of the scenes.
    pub(super) fn metrics(&self) -> Vec<Metric> {
        let (first, others) = self.all.split_first().expect("there is a first scene");
        let of_first = metrics_of(METRICS).into_iter().chain(metrics_of(BY_PARTY));
        let of_first = of_first.map(|metric| first.metric(metric));
        let of_others = others.iter().flat_map(|scene| {
            let metrics = metrics_of(&METRICS[..IN_EVERY_SCENE]).into_iter();
            metrics.map(|metric| scene.metric(metric))
        });
        of_first.chain(of_others).collect()
    }

    /// Runs every scene once, with the seed and the design of `case`. Returns the metrics of all
    /// scenes, and the measurements of the race in the first scene.
    pub(super) fn measure(&self, case: &Case<Tried>) -> (Sample, Raced) {
        let races = self.all.iter();
        let races = races.map(|scene| scene.race(&self.profile, &case.design, case.seed));
        let mut races: Vec<Raced> = races.collect();
        let mut metrics = read(METRICS, &races[0]);
        metrics.extend(read(BY_PARTY, &races[0]));
        for (scene, raced) in self.all.iter().zip(&races).skip(1) {
            let values = read(&METRICS[..IN_EVERY_SCENE], raced).into_iter();
            metrics.extend(values.map(|(metric, value)| (scene.metric(metric), value)));
        }
        let hash = fold_hashes(races.iter().map(|raced| raced.hash));
        (Sample { hash, metrics }, races.swap_remove(0))
    }
}

impl Scene {
    fn race(&self, profile: &Profile, tried: &Tried, seed: u64) -> Raced {
        let race = Race {
            victim: self.victim,
            exit: self.exit,
            helpers: vec![self.reaper; helpers(tried)],
            help: Help::Reaper,
            left: self.left,
        };
        race.run(profile, &tried.design, seed)
    }

    /// Returns `metric` with the name that it has in this scene: if the scene has a name, this name
    /// comes before the metric's name.
    pub(super) fn metric(&self, metric: Metric) -> Metric {
        if self.name.is_empty() {
            return metric;
        }
        let name = format!("{}_{}", self.name, metric.name);
        metric.named(name)
    }
}

/// The first CPU whose distance from CPU 0 is `distance`.
fn first_at(topology: &Topology, distance: Distance) -> Option<CpuId> {
    topology
        .ids()
        .find(|cpu| topology.distance(CpuId(0), *cpu) == distance)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_mm::design::Design;
    use plimsoll_sim::profile::Card;

    use crate::experiment::driver::Numbers;
    use crate::experiment::emptier::{HELPERS, RAN, TABLE_WAIT};

    fn scenes_on(machine: &str) -> Scenes {
        let setting = Setting {
            machine,
            card: Card::Mid,
            numbers: &Numbers::of(&[(MAPPINGS.name, &[600])]),
            memory: None,
        };
        Scenes::new(&setting).expect("built in")
    }

    #[test]
    fn every_machine_has_its_scenes_on_cpus_it_has() {
        for (machine, scenes) in [("phone-8", 5), ("laptop-2", 3), ("epyc-9654-2s", 4)] {
            let Scenes { profile, all, .. } = scenes_on(machine);
            assert_eq!(all.len(), scenes, "{machine}");
            for scene in all {
                assert_ne!(scene.exit, scene.reaper);
                assert!(scene.reaper.0 < profile.topology.cpus());
            }
        }
    }

    #[test]
    fn parts_add_up_to_what_is_measured_of_all() {
        let case = Case {
            design: Tried {
                name: String::new(),
                design: Design::UNPATCHED,
                numbers: Numbers::of(&[(HELPERS.name, &[1])]),
            },
            seed: 3,
        };
        let scenes = scenes_on("phone-8");
        let (sample, _) = scenes.measure(&case);
        let value = |name: &str| {
            let mut metrics = sample.metrics.iter();
            metrics
                .find(|(metric, _)| metric.name == name)
                .expect("measured")
                .1
        };
        let (exit, reaper) = (value("exit_ran_ns"), value("reaper_ran_ns"));
        assert!(exit > 0.0 && reaper > 0.0);
        assert!((value(&RAN.name) - exit - reaper).abs() < 1.0);
        assert!(value(&TABLE_WAIT.name) <= value(&LOCK.name));
    }
}
