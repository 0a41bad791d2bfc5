//! A design: one variant of every mechanism that has variants, such as the counters of resident
//! pages or the choice of a victim.
//!
//! Two runs that are compared differ only in their designs. A name like `linux+shepherd-phased`
//! consists of a base design (`linux`) and of variants that replace those of the base.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::counter::Counting;
use crate::oom::Selecting;
use crate::page::holds::{
    BOUNDED_ONE_DRAIN, Batched, BatchedDrains, BatchedZoneLock, Bounded, BoundedPages, Holds,
    Lists612, Lists618, UNBATCHED_ALL_DRAIN, Unbatched,
};
use crate::page::owned::Owning;
use crate::space::reap::Reaping;
use crate::vmstat::schedule::{
    Aligned, Phased, PhasedWheel, RoundJiffies, Schedule, Slowed, Stretched,
};
use crate::vmstat::shepherd::{AtOnce, AtPhase, Shepherd};

/// A choice of one variant (implementation) for each mechanism of the memory manager that has
/// several.
#[derive(Clone, Copy, Debug)]
pub struct Design {
    /// The rule for when per-CPU vmstat work fires.
    pub schedule: &'static dyn Schedule,
    /// The rule by which the shepherd restarts the vmstat work of CPUs that have stopped it (Linux:
    /// `vmstat_shepherd`).
    pub shepherd: &'static dyn Shepherd,
    /// The rule that says how many pages a CPU moves in one hold of a zone lock.
    pub holds: &'static dyn Holds,
    /// Whether CPUs own blocks of memory, so that a freed page goes to the owner of the block
    /// around it.
    pub owning: Owning,
    /// The kind of counter used for resident pages.
    pub counting: Counting,
    /// How the memory of a dying address space is emptied.
    pub reaping: Reaping,
    /// How the OOM killer chooses a process when memory has run out.
    pub selecting: Selecting,
}

/// All schedules.
pub const SCHEDULES: [&dyn Schedule; 6] = [
    &Aligned,
    &RoundJiffies,
    &Slowed,
    &Stretched,
    &Phased,
    &PhasedWheel,
];

/// All shepherds.
pub const SHEPHERDS: [&dyn Shepherd; 2] = [&AtOnce, &AtPhase];

/// All rules that say how many pages a CPU moves in one hold of a zone lock.
pub const HOLDS: [&dyn Holds; 10] = [
    &Unbatched,
    &UNBATCHED_ALL_DRAIN,
    &Lists612,
    &Lists618,
    &BatchedZoneLock,
    &BatchedDrains,
    &Batched,
    &BoundedPages,
    &BOUNDED_ONE_DRAIN,
    &Bounded,
];

impl Default for Design {
    fn default() -> Self {
        Self::OURS
    }
}

impl Design {
    /// The variants of Linux 6.12, as of 6.12.117, whose OOM killer compares processes by
    /// approximate counts of their pages.
    pub const LINUX_6_12: Self = Self {
        holds: &Lists612,
        reaping: Reaping::Ascending,
        selecting: Selecting::Approximate,
        ..Self::LINUX_6_18
    };

    /// The variants of Linux 6.18, as of 6.18.44.
    pub const LINUX_6_18: Self = Self {
        schedule: &RoundJiffies,
        shepherd: &AtOnce,
        holds: &Lists618,
        owning: Owning::None,
        counting: Counting::Flat,
        reaping: Reaping::DescendingByVma,
        selecting: Selecting::Precise,
    };

    /// The variants of Linux 6.19, in which a free that shortens the page lists moves one batch of
    /// pages per hold of the zone lock. In earlier versions, only the periodic decay of the lists
    /// did so.
    pub const LINUX_6_19: Self = Self {
        holds: &Batched,
        ..Self::LINUX_6_18
    };

    /// The variants of the newest Linux release whose behaviour was checked against a real kernel.
    pub const LINUX: Self = Self::LINUX_6_18;

    /// Linux without any of the compared patches, even without those that a release already
    /// contains. The published measurements of these patches have this design as their baseline.
    pub const UNPATCHED: Self = Self {
        schedule: &RoundJiffies,
        shepherd: &AtOnce,
        holds: &Unbatched,
        owning: Owning::None,
        counting: Counting::Flat,
        reaping: Reaping::Ascending,
        selecting: Selecting::Precise,
    };

    /// The variants that the compared Linux patches propose: longer intervals of the vmstat work,
    /// frees in batches, counters of resident pages in the form of a tree, and an OOM killer that
    /// uses these counters.
    pub const PATCHED: Self = Self {
        schedule: &Stretched,
        shepherd: &AtOnce,
        holds: &Batched,
        owning: Owning::None,
        counting: Counting::Tree,
        reaping: Reaping::DescendingByVma,
        selecting: Selecting::TwoPass16,
    };

    /// Plimsoll's own variants, which are the default.
    pub const OURS: Self = Self {
        schedule: &Phased,
        shepherd: &AtPhase,
        holds: &Bounded,
        owning: Owning::None,
        counting: Counting::OneSided,
        reaping: Reaping::MeetInTheMiddle,
        selecting: Selecting::Bounded,
    };

    /// The designs whose names can be the first part of a design's name, such as `linux` in
    /// `linux+shepherd-phased`.
    pub const BASES: [(&'static str, Self); 7] = [
        ("linux", Self::LINUX),
        ("linux-6.12", Self::LINUX_6_12),
        ("linux-6.18", Self::LINUX_6_18),
        ("linux-6.19", Self::LINUX_6_19),
        ("unpatched", Self::UNPATCHED),
        ("patched", Self::PATCHED),
        ("ours", Self::OURS),
    ];

    /// Returns the names of all bases ([`Design::BASES`]) and variants, for listings and
    /// suggestions.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        let bases = Self::BASES.iter().map(|(name, _)| *name);
        let schedules = SCHEDULES.iter().map(|schedule| schedule.name());
        let shepherds = SHEPHERDS.iter().map(|shepherd| shepherd.name());
        bases
            .chain(schedules)
            .chain(shepherds)
            .chain(HOLDS.iter().map(|holds| holds.name()))
            .chain(Owning::ALL.iter().map(|owning| owning.name()))
            .chain(Counting::ALL.iter().map(|counting| counting.name()))
            .chain(Reaping::ALL.iter().map(|reaping| reaping.name()))
            .chain(Selecting::ALL.iter().map(|selecting| selecting.name()))
            .collect()
    }

    /// Returns the design called `name`. A name consists of parts joined by `+`. The first part may
    /// name a base; otherwise the base is [`Design::OURS`]. Every part that is not a base names a
    /// variant, which replaces the base's variant of the same mechanism.
    ///
    /// # Errors
    /// Returns the first part of the name that is wrong. A part is wrong if it is unknown, if it is
    /// a base but not the first part, or if it names a variant of the same mechanism as an earlier
    /// part.
    pub fn named(name: &str) -> Result<Self, BadName> {
        let mut parts = name.split('+').peekable();
        let is_base = |part: &&str| Self::BASES.iter().find(|(name, _)| name == part);
        let base = parts.peek().and_then(is_base);
        let mut design = base.map_or(Self::OURS, |(_, base)| *base);
        let mut replaced = [false; MECHANISMS];
        for part in parts.skip(usize::from(base.is_some())) {
            if is_base(&part).is_some() {
                return Err(BadName::LateBase(part.into()));
            }
            let mechanism = design.replace(part).ok_or(BadName::Unknown(part.into()))?;
            if replaced[mechanism] {
                return Err(BadName::Twice(part.into()));
            }
            replaced[mechanism] = true;
        }
        Ok(design)
    }

    /// Returns the names of the design's variants, in the order of the fields of [`Design`].
    #[must_use]
    pub fn variants(&self) -> [&'static str; MECHANISMS] {
        [
            self.schedule.name(),
            self.shepherd.name(),
            self.holds.name(),
            self.owning.name(),
            self.counting.name(),
            self.reaping.name(),
            self.selecting.name(),
        ]
    }

    /// Chooses the variant with the name `part`. Returns the index of the variant's mechanism among
    /// the fields of [`Design`]. Returns `None` if there is no such variant.
    fn replace(&mut self, part: &str) -> Option<usize> {
        if let Some(schedule) = SCHEDULES
            .into_iter()
            .find(|schedule| schedule.name() == part)
        {
            self.schedule = schedule;
            return Some(0);
        }
        if let Some(shepherd) = SHEPHERDS
            .into_iter()
            .find(|shepherd| shepherd.name() == part)
        {
            self.shepherd = shepherd;
            return Some(1);
        }
        if let Some(holds) = HOLDS.into_iter().find(|holds| holds.name() == part) {
            self.holds = holds;
            return Some(2);
        }
        if let Some(owning) = Owning::ALL.into_iter().find(|owning| owning.name() == part) {
            self.owning = owning;
            return Some(3);
        }
        if let Some(counting) = Counting::ALL
            .into_iter()
            .find(|counting| counting.name() == part)
        {
            self.counting = counting;
            return Some(4);
        }
        if let Some(reaping) = Reaping::ALL
            .into_iter()
            .find(|reaping| reaping.name() == part)
        {
            self.reaping = reaping;
            return Some(5);
        }
        let selecting = Selecting::ALL
            .into_iter()
            .find(|selecting| selecting.name() == part)?;
        self.selecting = selecting;
        Some(6)
    }
}

/// The number of mechanisms that have variants.
const MECHANISMS: usize = 7;

/// The reason why a name is not the name of a design, together with the part of the name that is
/// wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadName {
    /// This part of the design's name is not the name of a variant.
    Unknown(String),
    /// This part of the design's name is a base (see [`Design::BASES`]) but not the first part. The
    /// base would override the parts before it.
    LateBase(String),
    /// This part of the design's name is a variant of a mechanism for which an earlier part has
    /// already named a variant.
    Twice(String),
}

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(part) if part.is_empty() => {
                f.write_str("a variant's name is missing beside a `+`")
            }
            Self::Unknown(part) => write!(f, "no variant is called `{part}`"),
            Self::LateBase(part) => write!(f, "`{part}` is a base: name it first"),
            Self::Twice(part) => write!(
                f,
                "`{part}` is of the same mechanism as a variant before it: name one of them"
            ),
        }
    }
}

impl core::error::Error for BadName {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_replaces_variants_one_by_one() {
        let design = Design::named("linux+phased+shepherd-phased").expect("known");
        assert_eq!(design.schedule.name(), "phased");
        assert_eq!(design.shepherd.name(), "shepherd-phased");
        assert_eq!(design.holds.name(), "lists-6.18");
        let error = Design::named("linux+faster").expect_err("unknown");
        assert_eq!(error, BadName::Unknown("faster".into()));
    }

    /// The name of a design is refused if one part of the name would override an earlier part.
    #[test]
    fn no_part_of_a_name_takes_another_one_back() {
        let refused = |name| {
            Design::named(name)
                .map(|design| design.variants())
                .unwrap_err()
        };
        assert_eq!(refused("bounded+linux"), BadName::LateBase("linux".into()));
        let twice = BadName::Twice("batched".into());
        assert_eq!(refused("linux+bounded+batched"), twice);
        assert_eq!(refused("linux+"), BadName::Unknown(String::new()));
        let linux = Design::named("linux").map(|design| design.variants());
        assert_eq!(linux, Ok(Design::LINUX.variants()));
    }

    #[test]
    fn every_variant_has_the_name_by_which_it_is_known() {
        let bases = Design::BASES.len();
        let expected = [
            "aligned",
            "round-jiffies",
            "slowed",
            "stretched",
            "phased",
            "phased-wheel",
            "shepherd-at-once",
            "shepherd-phased",
            "unbatched",
            "unbatched-all-drain",
            "lists-6.12",
            "lists-6.18",
            "batched-zone-lock",
            "batched-drains",
            "batched",
            "bounded-pages",
            "bounded-one-drain",
            "bounded",
            "block-unowned",
            "block-owned-rfc",
            "block-owned",
            "shared",
            "flat",
            "tree",
            "one-sided",
            "ascending",
            "descending-by-vma",
            "descending-chunks",
            "meet-in-the-middle",
            "select-approximate",
            "select-precise",
            "select-two-pass",
            "select-bounded",
        ];
        assert_eq!(Design::names()[bases..], expected);
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
