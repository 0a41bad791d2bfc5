//! The race of the experiment `mrelease`: the victim, and the CPUs of the exiting task and of the
//! tasks that help it to empty the victim.

use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::CpuId;
use plimsoll_sim::profile::Profile;

use crate::error::Error;
use crate::experiment::driver::{Number, Setting, Tried, read};
use crate::experiment::emptier::{HELPERS, METRICS, helpers};
use crate::measure::comparison::Sample;
use crate::run::cases::Case;
use crate::workload::victim::{Help, MemoryLeft, Race, Raced, Victim};

/// The CPU on which the victim's last task exits.
pub(super) const EXIT: CpuId = CpuId(0);

/// The machine, and the dying process whose address space several tasks empty at the same time.
#[derive(Clone, Debug)]
pub(super) struct MreleaseSetup {
    pub(super) profile: Profile,
    pub(super) victim: Victim,
    larger_times: u64,
    /// Numbers of helpers (tasks that help the exiting task). An additional table has a run for
    /// each of these numbers.
    curve: Vec<u64>,
}

/// The numbers that an experiment file gives for the workload.
pub(super) const NUMBERS: &[Number] = &[
    Number::one("pages", (1, 1 << 30), "pages of the victim"),
    Number::list(
        "curve",
        (1, 64),
        "numbers of helpers that only the table `by-helpers` shows",
    ),
    Number::one(
        "curve_seeds",
        (1, 10_000),
        "the most seeds of runs with these numbers of helpers",
    ),
    Number::one(
        "huge_seeds",
        (1, 10_000),
        "the most seeds of runs whose victim consists of huge pages",
    ),
    Number::one(
        "larger_times",
        (1, 64),
        "how many times as many pages the larger victim has",
    ),
    Number::one(
        "larger_seeds",
        (1, 10_000),
        "the most seeds of runs with the larger victim",
    ),
];

impl MreleaseSetup {
    pub(super) fn new(setting: &Setting<'_>) -> Result<Self, Error> {
        let pages = setting.get("pages");
        Ok(Self {
            profile: setting.profile()?,
            victim: Victim::Server { pages, huge: false },
            larger_times: setting.get("larger_times"),
            curve: setting.numbers.list("curve").to_vec(),
        })
    }

    /// Returns the designs to run for the table `curve`. First come the designs without helpers.
    /// Then, for each count in `self.curve`, comes each design that has one helper, changed to have
    /// this count of helpers.
    pub(super) fn on_curve(&self, designs: &[Tried]) -> Vec<Tried> {
        let with = |number: &u64| {
            let one = designs.iter().filter(|tried| helpers(tried) == 1);
            one.map(|tried| {
                let mut tried = tried.clone();
                tried.name = format!("{}, {number} helpers", tried.design.reaping.name());
                tried.numbers.set(HELPERS.name, vec![*number]);
                tried
            })
            .collect::<Vec<_>>()
        };
        let alone = designs.iter().filter(|tried| helpers(tried) == 0);
        let helped = self.curve.iter().flat_map(with);
        alone.cloned().chain(helped).collect()
    }

    /// Returns a copy of this setup in which the victim has `larger_times` times as many pages.
    pub(super) fn larger(&self) -> Self {
        let mut setup = self.clone();
        if let Victim::Server { pages, .. } = &mut setup.victim {
            *pages *= self.larger_times;
        }
        setup
    }

    /// Returns a copy of this setup in which the victim's memory consists of huge pages.
    pub(super) fn huge(&self) -> Self {
        let mut setup = self.clone();
        if let Victim::Server { huge, .. } = &mut setup.victim {
            *huge = true;
        }
        setup
    }

    pub(super) fn measure(&self, case: &Case<Tried>) -> (Sample, Raced) {
        let tried = &case.design;
        let race = Race {
            victim: self.victim,
            exit: EXIT,
            helpers: helper_cpus(&self.profile.topology, helpers(tried)),
            help: Help::Asked,
            left: MemoryLeft::Plenty,
        };
        let raced = race.run(&self.profile, &tried.design, case.seed);
        let sample = Sample {
            hash: raced.hash,
            metrics: read(METRICS, &raced),
        };
        (sample, raced)
    }
}

/// The CPUs of `number` tasks that help the exiting task. As far as possible, no two of these
/// helpers share a last-level cache, and no helper shares such a cache with the exiting task. The
/// CPUs alternate between other sockets and the exiting task's socket, because a scheduler would
/// spread the helpers in this way.
pub(super) fn helper_cpus(topology: &Topology, number: usize) -> Vec<CpuId> {
    let home = topology.place(EXIT);
    let mut first_of_llc: Vec<CpuId> = Vec::new();
    for cpu in topology.ids() {
        let llc = topology.place(cpu).llc;
        let is_new = first_of_llc
            .iter()
            .all(|known| topology.place(*known).llc != llc);
        if is_new && llc != home.llc {
            first_of_llc.push(cpu);
        }
    }
    let is_near = |cpu: &CpuId| topology.place(*cpu).socket == home.socket;
    let (near, far): (Vec<CpuId>, Vec<CpuId>) = first_of_llc.into_iter().partition(is_near);
    let pairs = far.iter().zip(&near).flat_map(|(far, near)| [*far, *near]);
    let spread: Vec<CpuId> = pairs.collect();
    // If the machine has too few last-level caches, several helper tasks share a cache. If the
    // machine also has too few CPUs, several helpers share a CPU.
    let others = topology
        .ids()
        .filter(|cpu| *cpu != EXIT && !spread.contains(cpu));
    let all: Vec<CpuId> = spread.iter().copied().chain(others).collect();
    let usual = all.iter().copied().cycle();
    usual
        .take(if all.is_empty() { 0 } else { number })
        .collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_sim::profile::Card;

    use super::*;

    #[test]
    fn helpers_are_on_caches_of_their_own_and_on_both_sockets() {
        let profile = Profile::load("epyc-9654-2s", Card::Mid).expect("built in");
        let topology = &profile.topology;
        let cpus = helper_cpus(topology, 16);
        let mut llcs: Vec<u32> = cpus.iter().map(|cpu| topology.place(*cpu).llc).collect();
        llcs.push(topology.place(EXIT).llc);
        llcs.sort_unstable();
        llcs.dedup();
        assert_eq!(llcs.len(), 17);
        let near = cpus.iter().filter(|cpu| topology.place(**cpu).socket == 0);
        assert_eq!(near.count(), 8);
    }
}
