//! The description of a simulated machine: its CPUs, its tick rate, its memory, and the cost of
//! each step.
//!
//! A profile is a TOML file. [`ProfileText`] parses it, and `docs/machines.md` explains the format.
//! Every cost in the file is a range with a source. A [`Card`] selects the low, middle or high
//! value of every range; the result is the [`Profile`] on which a simulation runs. Loading rejects
//! a profile unless it has at least one CPU, memory that fits into page frame numbers, and costs in
//! order: no cost may be higher at a lower card, and no line transfer may cost more than one over a
//! longer distance.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use plimsoll_mm::site::Work;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::Hz;

mod bandwidth;
mod builtin;
mod check;
mod clock;
mod cost;
mod error;
mod jitter;
mod key;
mod load;
mod read;
mod scaled;
mod shape;
mod size;
mod slope;
mod speed;
mod text;

pub use bandwidth::Bandwidth;
pub(crate) use bandwidth::{MOVERS, is_mover};
pub use builtin::Listed;
pub use clock::Clock;
pub use cost::{Cost, Provenance, Range, Then};
pub use error::{Problem, ProfileError};
pub use jitter::{Disturbance, Disturbed, Jitter, Rate};
pub(crate) use key::is_hold_work;
pub use key::{CostKey, UnknownCost};
pub use load::{Load, LoadedBandwidth, LoadedClock, Sourced};
pub(crate) use slope::HoldPrice;
pub use slope::{Slope, Slopes};
pub use speed::{Cluster, Speed};
pub use text::{NO_JITTER, ProfileText, Variant};

/// The description of a machine, ready to simulate. Each price (the time of one kind of step) is a
/// single number, not a range.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The name, as `plimsoll machines` lists it.
    pub name: String,
    /// The card that selected the low end, the middle or the high end of every price range.
    pub card: Card,
    /// The CPUs, and which caches, nodes and sockets they share.
    pub topology: Topology,
    /// The number of ticks per second.
    pub hz: Hz,
    /// The memory of each node, in bytes.
    pub node_bytes: Vec<u64>,
    /// The price of each step, in nanoseconds.
    pub costs: Costs,
    /// The speed of each CPU, in percent of the speed of the core that the costs describe; never 0.
    /// Empty if every CPU is as fast as that core.
    pub speed_percent: Vec<u32>,
    /// The disturbances of busy CPUs; `None` if the profile has none.
    pub jitter: Option<Jitter>,
    /// The clock speed, execution units and memory bandwidth that busy CPUs take from each other.
    /// Applies only to runs with [`SimOptions::under_load`](crate::SimOptions::under_load).
    pub load: Load,
}

/// The choice of the low end, the middle or the high end of every cost's range, for a whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Card {
    /// The cheapest plausible value of every cost.
    Low,
    /// The best estimate.
    Mid,
    /// The most expensive plausible value of every cost.
    High,
}

/// The prices of a machine's steps, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// The price of each kind of local work, indexed by `Work as usize`.
    pub work_ns: [u32; Work::ALL.len()],
    /// Some kinds of work in `work_ns` have a price per page that depends on how many pages move in
    /// a hold of the zone lock. For these kinds, the average price of a page in a hold with many
    /// pages.
    pub slopes: Slopes,
    /// The price of moving a dirty cache line, indexed by `Distance as usize`. The price of `Same`
    /// is that of a cache hit.
    pub transfer_ns: [u32; 5],
    /// The price of acquiring and releasing a free lock that the same CPU held last.
    pub lock_own_ns: u32,
    /// The price of acquiring a free lock that another CPU held last, in addition to the transfer
    /// of the lock's cache line. There is such a price because the data that the lock guards is in
    /// a second cache line.
    pub lock_remote_extra_ns: u32,
    /// The price of handing a lock to a waiter, in addition to the transfer of the lock's cache
    /// line.
    pub lock_handover_extra_ns: u32,
    /// The price of a read-modify-write of a word whose cache line the same CPU already owns.
    pub word_own_ns: u32,
}

impl Profile {
    /// Lists the built-in machines and their variants, each with a description in one line.
    #[must_use]
    pub fn list() -> Vec<Listed> {
        builtin::list()
    }

    /// Parses the file of a built-in machine, with the range and source of each cost.
    ///
    /// # Errors
    /// If the machine or variant is unknown; the error holds the nearest names.
    pub fn describe(name: &str) -> Result<ProfileText, ProfileError> {
        builtin::describe(name)
    }

    /// Returns the text of the file of the built-in machine `name`. The file also describes the
    /// machine's variants. A user copies the text to describe another machine.
    ///
    /// # Errors
    /// If the machine is unknown, or `name` has a variant; the error holds the nearest names.
    pub fn toml_of(name: &str) -> Result<&'static str, ProfileError> {
        builtin::toml(name)
    }

    /// Loads the built-in machine `name`, or its variant `name+variant`. Each `@price=percent` at
    /// the end of the name scales one price, as [`Profile::with_scaled`] does.
    ///
    /// # Errors
    /// If the machine, the variant or a price is unknown, the error holds the nearest names. It is
    /// also an error if a percentage is not a number from 1 to 10000.
    pub fn load(name: &str, card: Card) -> Result<Self, ProfileError> {
        let (machine, scaled) = scaled::split(name)?;
        let plain = Self::describe(machine)?.at(card);
        let scale = |profile: Self, (key, percent)| profile.with_scaled(key, percent);
        let mut profile = scaled.into_iter().fold(plain, scale);
        name.clone_into(&mut profile.name);
        Ok(profile)
    }

    /// Parses a profile in TOML. Error messages call the file `file`.
    ///
    /// # Errors
    /// If the profile is invalid: the first mistake, with file, line and key.
    pub fn from_toml(file: &str, toml: &str, card: Card) -> Result<Self, ProfileError> {
        Ok(ProfileText::parse(file, toml)?.at(card))
    }

    /// Loads the machine that a profile file describes, or its variant if `path` ends in
    /// `+variant`.
    ///
    /// # Errors
    /// If the file cannot be read or the profile is invalid.
    pub fn from_path(path: &Path, card: Card) -> Result<Self, ProfileError> {
        Ok(ProfileText::from_path(path)?.at(card))
    }

    /// Returns this machine with one cost at `factor_percent` of its price, for a sensitivity run:
    /// 50 halves the price, 200 doubles it. If the price depends on how many pages one hold of the
    /// zone lock moves, the factor applies for every number of pages.
    ///
    /// In the result, moving a line over a short distance may cost more than over a long one. A
    /// profile file with such prices would be refused, but a sensitivity run may test them.
    #[must_use]
    pub fn with_scaled(&self, what: CostKey, factor_percent: u32) -> Self {
        let mut scaled = self.clone();
        let percent = |price_ns| text::percent(price_ns, factor_percent);
        if let Some(price_ns) = what.slot(&mut scaled.costs) {
            *price_ns = percent(*price_ns);
        }
        if let CostKey::Work(work) = what
            && let Some(Some(slope)) = scaled.costs.slopes.of(work)
        {
            slope.ns = percent(slope.ns);
        }
        scaled
    }

    /// Returns this machine as its variant [`NO_JITTER`]: without interrupts, softirqs and steals.
    #[must_use]
    pub fn without_jitter(self) -> Self {
        Self {
            name: format!("{}+{NO_JITTER}", self.name),
            jitter: None,
            ..self
        }
    }

    /// Returns this machine with another tick rate.
    #[must_use]
    pub fn with_hz(&self, hz: Hz) -> Self {
        Self { hz, ..self.clone() }
    }
}

impl Card {
    /// Every price card (low, middle and high), the one with the lowest prices first.
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

/// The error for a name that is not `low`, `mid` or `high`.
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
