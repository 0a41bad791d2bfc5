//! One choice for every mechanism that has variants.
//!
//! Two designs and nothing else is what an experiment compares. A name like
//! `linux+shepherd-phased` starts from a base and replaces variants one by one.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::counter::Counting;
use crate::oom::Selecting;
use crate::page::holds::{Batched, Bounded, BoundedPages, Holds, Unbatched};
use crate::space::reap::Reaping;
use crate::vmstat::schedule::{
    Aligned, Phased, PhasedWheel, RoundJiffies, Schedule, Slowed, Stretched,
};
use crate::vmstat::shepherd::{AtOnce, AtPhase, Shepherd};

/// A variant of each mechanism.
#[derive(Clone, Copy, Debug)]
pub struct Design {
    /// When per-CPU vmstat work fires.
    pub schedule: &'static dyn Schedule,
    /// Who kicks dormant CPUs, and when.
    pub shepherd: &'static dyn Shepherd,
    /// How many pages one zone-lock hold moves.
    pub holds: &'static dyn Holds,
    /// How resident pages are counted.
    pub counting: Counting,
    /// How a dying address space is emptied.
    pub reaping: Reaping,
    /// How a victim is chosen when memory is out.
    pub selecting: Selecting,
}

/// Every schedule.
pub const SCHEDULES: [&dyn Schedule; 6] = [
    &Aligned,
    &RoundJiffies,
    &Slowed,
    &Stretched,
    &Phased,
    &PhasedWheel,
];

/// Every shepherd.
pub const SHEPHERDS: [&dyn Shepherd; 2] = [&AtOnce, &AtPhase];

/// Every hold policy.
pub const HOLDS: [&dyn Holds; 4] = [&Unbatched, &Batched, &BoundedPages, &Bounded];

impl Default for Design {
    fn default() -> Self {
        Self::OURS
    }
}

impl Design {
    /// Linux 6.18, before the changes compared here.
    pub const LINUX: Self = Self {
        schedule: &RoundJiffies,
        shepherd: &AtOnce,
        holds: &Unbatched,
        counting: Counting::Flat,
        reaping: Reaping::Ascending,
        selecting: Selecting::Precise,
    };

    /// What the patches propose: stretched intervals, batched frees, counters in a tree, and a victim by
    /// them.
    pub const PATCHED: Self = Self {
        schedule: &Stretched,
        shepherd: &AtOnce,
        holds: &Batched,
        counting: Counting::Tree,
        reaping: Reaping::DescendingByVma,
        selecting: Selecting::TwoPass16,
    };

    /// What we would do.
    pub const OURS: Self = Self {
        schedule: &Phased,
        shepherd: &AtPhase,
        holds: &Bounded,
        counting: Counting::OneSided,
        reaping: Reaping::MeetInTheMiddle,
        selecting: Selecting::Bounded,
    };

    /// The named starting points.
    pub const BASES: [(&'static str, Self); 3] = [
        ("linux", Self::LINUX),
        ("patched", Self::PATCHED),
        ("ours", Self::OURS),
    ];

    /// The names of every variant, for listings and suggestions.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        let bases = Self::BASES.iter().map(|(name, _)| *name);
        let schedules = SCHEDULES.iter().map(|schedule| schedule.name());
        let shepherds = SHEPHERDS.iter().map(|shepherd| shepherd.name());
        bases
            .chain(schedules)
            .chain(shepherds)
            .chain(HOLDS.iter().map(|holds| holds.name()))
            .chain(Counting::ALL.iter().map(|counting| counting.name()))
            .chain(Reaping::ALL.iter().map(|reaping| reaping.name()))
            .chain(Selecting::ALL.iter().map(|selecting| selecting.name()))
            .collect()
    }

    /// The design called `name`: variants joined by `+`, each replacing its mechanism's choice;
    /// a base, if any, comes first. Without one the rest is ours.
    ///
    /// # Errors
    /// The first part that names nothing.
    pub fn named(name: &str) -> Result<Self, UnknownVariant> {
        name.split('+')
            .try_fold(Self::OURS, |design, part| design.with(part))
    }

    fn with(mut self, part: &str) -> Result<Self, UnknownVariant> {
        if let Some((_, base)) = Self::BASES.iter().find(|(name, _)| *name == part) {
            return Ok(*base);
        }
        let schedule = SCHEDULES
            .into_iter()
            .find(|schedule| schedule.name() == part);
        let shepherd = SHEPHERDS
            .into_iter()
            .find(|shepherd| shepherd.name() == part);
        let holds = HOLDS.into_iter().find(|holds| holds.name() == part);
        let counting = Counting::ALL
            .into_iter()
            .find(|counting| counting.name() == part);
        let reaping = Reaping::ALL
            .into_iter()
            .find(|reaping| reaping.name() == part);
        let selecting = Selecting::ALL
            .into_iter()
            .find(|selecting| selecting.name() == part);
        let found = [
            schedule.is_some(),
            shepherd.is_some(),
            holds.is_some(),
            counting.is_some(),
            reaping.is_some(),
            selecting.is_some(),
        ];
        if !found.contains(&true) {
            return Err(UnknownVariant(part.into()));
        }
        self.schedule = schedule.unwrap_or(self.schedule);
        self.shepherd = shepherd.unwrap_or(self.shepherd);
        self.holds = holds.unwrap_or(self.holds);
        self.counting = counting.unwrap_or(self.counting);
        self.reaping = reaping.unwrap_or(self.reaping);
        self.selecting = selecting.unwrap_or(self.selecting);
        Ok(self)
    }
}

/// A part of a design's name that names no variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownVariant(pub String);

impl fmt::Display for UnknownVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no variant is called '{}'", self.0)
    }
}

impl core::error::Error for UnknownVariant {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_replaces_variants_one_by_one() {
        let design = Design::named("linux+phased+shepherd-phased").expect("known");
        assert_eq!(design.schedule.name(), "phased");
        assert_eq!(design.shepherd.name(), "shepherd-phased");
        assert_eq!(design.holds.name(), "unbatched");
        let error = Design::named("linux+faster").expect_err("unknown");
        assert_eq!(error, UnknownVariant("faster".into()));
    }

    #[test]
    fn no_two_variants_share_a_name() {
        let mut names = Design::names();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
