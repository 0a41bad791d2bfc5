//! What a simulated machine is: its CPUs, its clock, its memory, and what each step costs.

use plimsoll_mm::site::Work;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::Hz;

/// One machine at one card of costs, ready to simulate.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Its name, as `plimsoll machines` lists it.
    pub name: String,
    /// Which card the costs were taken from.
    pub card: Card,
    /// CPUs and what they share.
    pub topology: Topology,
    /// Ticks per second.
    pub hz: Hz,
    /// Memory of each node in bytes.
    pub node_bytes: Vec<u64>,
    /// What each step costs.
    pub costs: Costs,
}

/// Which end of each cost's range a run uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Card {
    /// The cheapest plausible value of every cost.
    Low,
    /// The best estimate.
    Mid,
    /// The dearest plausible value.
    High,
}

/// Prices in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Each kind of local work, indexed by `Work as usize`.
    pub work_ns: [u32; Work::ALL.len()],
    /// Moving a dirty cache line, indexed by `Distance as usize`; `Same` is a cache hit.
    pub transfer_ns: [u32; 5],
    /// Taking and releasing a free lock last held by the same CPU.
    pub lock_own_ns: u32,
    /// What taking a free lock last held by another CPU costs beyond one line transfer: the
    /// lock's data is a second line.
    pub lock_remote_extra_ns: u32,
    /// What a hand-over to a waiter costs beyond one line transfer.
    pub lock_handover_extra_ns: u32,
    /// A read-modify-write of a word whose line this CPU owns.
    pub word_own_ns: u32,
}
