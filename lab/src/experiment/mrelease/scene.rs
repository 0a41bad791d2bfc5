//! The race of the mrelease experiment: the CPUs of the last user and the helpers, and the victim.

use plimsoll_mm::space::reap::Reaping;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::CpuId;
use plimsoll_sim::profile::{Card, Profile};

use crate::error::Error;
use crate::experiment::declared::read;
use crate::experiment::emptier::{Emptier, METRICS};
use crate::measure::comparison::Sample;
use crate::run::cases::Case;
use crate::run::options::Effort;
use crate::workload::victim::{Help, MemoryLeft, Race, Raced, Victim};

/// The report's main table compares designs at these numbers of helpers.
pub(super) const HEADLINE: [usize; 2] = [1, 8];
/// Further numbers of helpers. Only the table of times by number of helpers shows them.
pub(super) const CURVE: [usize; 3] = [2, 4, 16];

/// The CPU on which the last user exits.
pub(super) const EXIT: CpuId = CpuId(0);

/// The machine, and the victim of the race.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) profile: Profile,
    pub(super) victim: Victim,
}

/// The number of pages of the victim: 16 GiB.
const PAGES: u64 = 16 << 18;
/// The report also shows a larger victim, which has this many times as many pages.
const LARGER: u64 = 4;
/// The number of pages of the victim in a quick run: 4 GiB.
const PAGES_QUICK: u64 = 4 << 18;

impl Scene {
    pub(super) fn new(machine: &str, card: Card, effort: Effort) -> Result<Self, Error> {
        let pages = match effort {
            Effort::Full => PAGES,
            Effort::Quick => PAGES_QUICK,
        };
        Ok(Self {
            profile: Profile::load(machine, card)?,
            victim: Victim::Server { pages, huge: false },
        })
    }

    /// Returns a copy of this scene in which the victim has [`LARGER`] times as many pages.
    pub(super) fn larger(&self) -> Self {
        let mut scene = self.clone();
        if let Victim::Server { pages, .. } = &mut scene.victim {
            *pages *= LARGER;
        }
        scene
    }

    /// Returns a copy of this scene in which the victim's memory consists of huge pages.
    pub(super) fn huge(&self) -> Self {
        let mut scene = self.clone();
        if let Victim::Server { huge, .. } = &mut scene.victim {
            *huge = true;
        }
        scene
    }

    pub(super) fn measure(&self, case: &Case<Emptier>) -> (Sample, Raced) {
        let emptier = &case.design;
        let race = Race {
            victim: self.victim,
            exit: EXIT,
            helpers: helpers(&self.profile.topology, emptier.helpers),
            help: Help::Asked,
            left: MemoryLeft::Plenty,
        };
        let raced = race.run(&self.profile, &emptier.design(), case.seed);
        let sample = Sample {
            hash: raced.hash,
            metrics: read(METRICS, &raced),
        };
        (sample, raced)
    }
}

/// The ways of emptying the victim's address space to compare: by the exiting process alone; then,
/// for each of `numbers`, with this number of helpers in every way in which they can walk.
pub(super) fn emptiers(numbers: &[usize]) -> Vec<Emptier> {
    let with = |helpers: usize| {
        Reaping::ALL
            .into_iter()
            .map(move |reaping| Emptier::helped(reaping, helpers))
    };
    let helped = numbers.iter().flat_map(|number| with(*number));
    [Emptier::alone()].into_iter().chain(helped).collect()
}

/// The CPUs of `number` helpers. Each CPU has a last-level cache that neither another helper nor
/// the last user uses. The CPUs alternate between other sockets and the last user's socket, as a
/// scheduler would spread the helpers.
pub(super) fn helpers(topology: &Topology, number: usize) -> Vec<CpuId> {
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
    let cpus: Vec<CpuId> = pairs.take(number).collect();
    assert_eq!(cpus.len(), number, "the machine has caches enough");
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_are_on_caches_of_their_own_and_on_both_sockets() {
        let profile = Profile::load("epyc-9654-2s", Card::Mid).expect("built in");
        let topology = &profile.topology;
        let cpus = helpers(topology, 16);
        let mut llcs: Vec<u32> = cpus.iter().map(|cpu| topology.place(*cpu).llc).collect();
        llcs.push(topology.place(EXIT).llc);
        llcs.sort_unstable();
        llcs.dedup();
        assert_eq!(llcs.len(), 17);
        let near = cpus.iter().filter(|cpu| topology.place(**cpu).socket == 0);
        assert_eq!(near.count(), 8);
    }
}
