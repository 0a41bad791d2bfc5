//! The description of a simulated machine: its CPUs, its clock, its memory, and the cost of each
//! step.
//!
//! A profile is a TOML file, which [`ProfileText`] reads and `docs/machines.md` explains. Every
//! cost in it is a range with a source. A [`Card`] picks one end of all ranges, and the result is
//! the [`Profile`] on which a simulation runs. A profile that loads is sane: at least one CPU,
//! memory that fits the page frame numbers, costs in order.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use plimsoll_mm::site::Work;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::Hz;

mod builtin;
mod check;
mod cost;
mod error;
mod key;
mod read;
mod shape;
mod size;
mod speed;
mod text;

pub use builtin::Listed;
pub use cost::{Cost, Range};
pub use error::{Problem, ProfileError};
pub use key::{CostKey, UnknownCost};
pub use speed::{Cluster, Speed};
pub use text::{ProfileText, Variant};

/// One machine at one card of costs, ready to simulate.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The name, as `plimsoll machines` lists it.
    pub name: String,
    /// The card from which the costs were taken.
    pub card: Card,
    /// The CPUs and what they share.
    pub topology: Topology,
    /// Ticks per second.
    pub hz: Hz,
    /// The memory of each node, in bytes.
    pub node_bytes: Vec<u64>,
    /// The cost of each step.
    pub costs: Costs,
    /// The speed of each CPU, in percent of the core that the costs are for, and never 0. Empty if
    /// all CPUs are that core.
    pub speed_percent: Vec<u32>,
}

/// The end of each cost's range that a run uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Card {
    /// The cheapest plausible value of every cost.
    Low,
    /// The best estimate.
    Mid,
    /// The dearest plausible value.
    High,
}

/// The prices of a machine's steps, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// The price of each kind of local work, indexed by `Work as usize`.
    pub work_ns: [u32; Work::ALL.len()],
    /// The price of moving a dirty cache line, indexed by `Distance as usize`; `Same` is a cache
    /// hit.
    pub transfer_ns: [u32; 5],
    /// The price of taking and releasing a free lock last held by the same CPU.
    pub lock_own_ns: u32,
    /// The price of taking a free lock last held by another CPU, beyond one line transfer: the
    /// lock's data is a second line.
    pub lock_remote_extra_ns: u32,
    /// The price of a hand-over to a waiter, beyond one line transfer.
    pub lock_handover_extra_ns: u32,
    /// The price of a read-modify-write of a word whose line this CPU owns.
    pub word_own_ns: u32,
}

impl Profile {
    /// The built-in machines and their variants, with a description of one line each.
    #[must_use]
    pub fn list() -> Vec<Listed> {
        builtin::list()
    }

    /// The contents of a built-in machine's file, with the range and source of each cost.
    ///
    /// # Errors
    /// If the machine or variant is unknown; the error holds the nearest names.
    pub fn describe(name: &str) -> Result<ProfileText, ProfileError> {
        builtin::describe(name)
    }

    /// The built-in machine `name`, or its variant `name+variant`.
    ///
    /// # Errors
    /// If the machine or variant is unknown; the error holds the nearest names.
    pub fn load(name: &str, card: Card) -> Result<Self, ProfileError> {
        Ok(Self::describe(name)?.at(card))
    }

    /// The machine that a profile in TOML describes. Errors call the file `file`.
    ///
    /// # Errors
    /// If the profile is bad: the first mistake, with file, line and key.
    pub fn from_toml(file: &str, toml: &str, card: Card) -> Result<Self, ProfileError> {
        Ok(ProfileText::parse(file, toml)?.at(card))
    }

    /// The machine that a profile file describes, or its variant for `path+variant`.
    ///
    /// # Errors
    /// If the file cannot be read or the profile is bad.
    pub fn from_path(path: &Path, card: Card) -> Result<Self, ProfileError> {
        Ok(ProfileText::from_path(path)?.at(card))
    }

    /// This machine with one cost at `factor_percent` of its price, for a sensitivity run: 50
    /// halves it, 200 doubles it.
    ///
    /// The result need not keep the order of the distances, because a sensitivity run may ask what
    /// happens if a near line costs as much as a far one.
    #[must_use]
    pub fn with_scaled(&self, what: CostKey, factor_percent: u32) -> Self {
        let mut scaled = self.clone();
        if let Some(price_ns) = what.slot(&mut scaled.costs) {
            *price_ns = text::percent(*price_ns, factor_percent);
        }
        scaled
    }

    /// This machine with another tick.
    #[must_use]
    pub fn with_hz(&self, hz: Hz) -> Self {
        Self { hz, ..self.clone() }
    }
}

impl Card {
    /// Every card, cheapest first.
    pub const ALL: [Self; 3] = [Self::Low, Self::Mid, Self::High];

    /// The card's name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Mid => "mid",
            Self::High => "high",
        }
    }
}

impl fmt::Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a card that is not low, mid or high.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCard(pub String);

impl fmt::Display for UnknownCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown card {:?}; write low, mid or high", self.0)
    }
}

impl std::error::Error for UnknownCard {}

impl FromStr for Card {
    type Err = UnknownCard;

    fn from_str(name: &str) -> Result<Self, UnknownCard> {
        let card = Self::ALL.into_iter().find(|card| card.name() == name);
        card.ok_or_else(|| UnknownCard(name.to_owned()))
    }
}
