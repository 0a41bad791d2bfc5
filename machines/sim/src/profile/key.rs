//! The keys of the costs in a profile, and the field of [`Costs`] that holds each price.

use std::fmt;
use std::str::FromStr;

use plimsoll_mm::site::Work;
use plimsoll_mm::topology::Distance;

use super::Costs;
use super::error::{join, nearest};

/// The key of one cost of a machine. It is displayed as in a profile, for example `work.fault`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CostKey {
    /// One unit of this kind of work. [`Work::Think`] is always 1 ns, and no profile may set it.
    Work(Work),
    /// The transfer of a dirty cache line over this distance.
    Transfer(Distance),
    /// The acquisition and release of a free lock that the same CPU held last
    /// ([`Costs::lock_own_ns`]).
    LockOwn,
    /// The extra price of acquiring a free lock that another CPU held last
    /// ([`Costs::lock_remote_extra_ns`]).
    LockRemoteExtra,
    /// The extra price of handing a lock to a waiter ([`Costs::lock_handover_extra_ns`]).
    LockHandoverExtra,
    /// A change of a word whose cache line the same CPU already owns ([`Costs::word_own_ns`]).
    WordOwn,
}

/// Returns whether `work` moves pages while the CPU holds the zone lock, so that its price may
/// depend on how many pages the CPU has moved since it took the lock.
pub(crate) const fn is_hold_work(work: Work) -> bool {
    matches!(work, Work::BuddyAlloc | Work::BuddyFree)
}

/// Every distance, nearest first.
pub(super) const DISTANCES: [Distance; 5] = [
    Distance::Same,
    Distance::Core,
    Distance::Llc,
    Distance::Socket,
    Distance::Remote,
];

impl CostKey {
    /// Every cost that a profile may set, in the order of the profile's sections.
    pub fn all() -> impl Iterator<Item = Self> {
        let works = Work::ALL
            .into_iter()
            .filter(|work| *work != Work::Think)
            .map(Self::Work);
        let lines = DISTANCES.into_iter().map(Self::Transfer);
        let locks = [
            Self::LockOwn,
            Self::LockRemoteExtra,
            Self::LockHandoverExtra,
            Self::WordOwn,
        ];
        works.chain(lines).chain(locks)
    }

    /// The name of the profile's table that contains the cost.
    #[must_use]
    pub const fn section(self) -> &'static str {
        match self {
            Self::Work(_) => "work",
            Self::Transfer(_) => "transfer",
            Self::LockOwn | Self::LockRemoteExtra | Self::LockHandoverExtra => "lock",
            Self::WordOwn => "word",
        }
    }

    /// The name of the cost in its table of the profile.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Work(work) => work.name(),
            Self::Transfer(Distance::Same) => "same",
            Self::Transfer(Distance::Core) => "core",
            Self::Transfer(Distance::Llc) => "llc",
            Self::Transfer(Distance::Socket) => "socket",
            Self::Transfer(Distance::Remote) => "remote",
            Self::LockOwn | Self::WordOwn => "own",
            Self::LockRemoteExtra => "remote_extra",
            Self::LockHandoverExtra => "handover_extra",
        }
    }

    /// Returns whether the cost is work of the kernel's own compiled code. Variants such as `kasan`
    /// make only such work slower. The costs of context switches, interrupts, IPIs, TLB flushes,
    /// clock readings, line transfers and locks are mostly costs of the hardware.
    #[must_use]
    pub const fn is_kernel_work(self) -> bool {
        !matches!(
            self,
            Self::Work(
                Work::ContextSwitch
                    | Work::Interrupt
                    | Work::Ipi
                    | Work::TlbFlush
                    | Work::Clock
                    | Work::Think
            ) | Self::Transfer(_)
                | Self::LockOwn
                | Self::LockRemoteExtra
                | Self::LockHandoverExtra
                | Self::WordOwn
        )
    }

    /// Returns whether the cost may be 0 ns. This is allowed only for a cost that is always added
    /// to another cost.
    #[must_use]
    pub(super) const fn may_be_zero(self) -> bool {
        matches!(self, Self::LockRemoteExtra | Self::LockHandoverExtra)
    }

    /// Returns whether the price may depend on how many pages a CPU has moved since it took the
    /// zone lock.
    #[must_use]
    pub(super) const fn depends_on_hold(self) -> bool {
        matches!(self, Self::Work(work) if is_hold_work(work))
    }

    /// The field of `costs` that holds the price. `None` for [`Work::Think`], whose price is always
    /// 1 ns.
    pub(super) const fn slot(self, costs: &mut Costs) -> Option<&mut u32> {
        match self {
            Self::Work(Work::Think) => None,
            Self::Work(work) => Some(&mut costs.work_ns[work as usize]),
            Self::Transfer(distance) => Some(&mut costs.transfer_ns[distance as usize]),
            Self::LockOwn => Some(&mut costs.lock_own_ns),
            Self::LockRemoteExtra => Some(&mut costs.lock_remote_extra_ns),
            Self::LockHandoverExtra => Some(&mut costs.lock_handover_extra_ns),
            Self::WordOwn => Some(&mut costs.word_own_ns),
        }
    }
}

impl fmt::Display for CostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.section(), self.name()))
    }
}

/// The error for a text that is not the key of a cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCost {
    name: String,
    near: Vec<String>,
}

impl fmt::Display for UnknownCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "unknown cost {:?}; did you mean {}?",
            self.name,
            join(&self.near)
        )
    }
}

impl std::error::Error for UnknownCost {}

impl FromStr for CostKey {
    type Err = UnknownCost;

    fn from_str(name: &str) -> Result<Self, UnknownCost> {
        Self::all()
            .find(|key| key.to_string() == name)
            .ok_or_else(|| {
                let names: Vec<String> = Self::all().map(|key| key.to_string()).collect();
                UnknownCost {
                    name: name.to_owned(),
                    near: nearest(name, &names),
                }
            })
    }
}
