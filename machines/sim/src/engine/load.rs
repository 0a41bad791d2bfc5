//! The effects of load: while many CPUs are busy, cores run at lower clock frequencies, and CPUs
//! share memory bandwidth.
//!
//! Virtual time is divided into windows. In each window, a CPU works at one *pace*, which the
//! engine determines when the CPU first spends time in the window. The pace has two parts, which
//! follow from what happened before:
//!
//! - the *speed*. It depends on the number of CPUs of the socket that were busy when the window
//!   began. Each of them counts as one busy core. It also depends on whether another CPU of the
//!   same core is busy;
//! - the *stretch*: the factor by which steps that move pages take longer. It depends on the bytes
//!   that the CPUs of the node moved in the window before. The engine multiplies the stretch of
//!   that window by the ratio of these bytes to the bytes that the node's bandwidth allows in a
//!   window. The result is never less than 1, the stretch at which steps take exactly their price.
//!
//! So feedback controls the stretch, with a delay of one window. In equilibrium, the CPUs of a node
//! together move no more bytes than the node's memory can move. If they need less bandwidth than
//! the memory has, as one CPU alone usually does, their steps take exactly their price.
//!
//! A CPU enters a window at an order point, when no other CPU has an earlier clock. From then on,
//! no CPU can move bytes in an earlier window, and no CPU can become busy or idle at a time before
//! this window. So the pace does not depend on the order in which the host simulates the CPUs, with
//! one exception: a sibling that becomes idle at the same nanosecond (see `Member::was_busy`). For
//! the host, the work for a window is one order point for each busy CPU. Single steps cause no more
//! work.
//!
//! The engine does not know on which node the page of a step lies. So all bytes count for the node
//! of the CPU that moves them.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::CpuId;

use crate::profile::{Load, LoadedClock};

/// The binary logarithm of the length of a *window*, in nanoseconds. A window is 131 µs of virtual
/// time, in which a CPU keeps one speed.
const WINDOW_BITS: u32 = 17;
/// The number of windows (spans of 131 µs of virtual time) that the engine remembers. A CPU is
/// always fewer than `WINDOWS` windows ahead of any other CPU.
const WINDOWS: usize = 16;
/// The *stretch* is the factor by which steps that move pages take longer because of limited memory
/// bandwidth. This number stands for a factor of 1, and twice this number stands for a factor of 2.
pub(crate) const UNSTRETCHED: u64 = 1 << 10;
/// The largest stretch (the factor for limited memory bandwidth). With this stretch, a step that
/// moves pages takes 1024 times its price.
const STRETCH_MAX: u64 = UNSTRETCHED << 10;

/// The speed of a CPU, and its factor for limited memory bandwidth (the stretch), in one window of
/// virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// The CPU's speed, in percent of the speed of the core for which the profile gives prices.
    pub(crate) percent: u32,
    /// The factor by which steps that move pages take longer, in units of 1 / [`UNSTRETCHED`].
    pub(crate) stretch: u64,
}

/// How busy the CPUs, sockets and nodes of a machine are now, and how busy they were in recent
/// windows of virtual time.
pub(crate) struct LoadState {
    clock: Option<LoadedClock>,
    /// For each CPU, the resources that it shares with other CPUs, and whether it is busy.
    cpus: Box<[Member]>,
    sockets: Box<[Socket]>,
    nodes: Box<[Node]>,
}

/// One CPU: the resources that it shares with other CPUs, and whether it is busy.
struct Member {
    socket: usize,
    node: usize,
    /// The other CPUs of the core to which this CPU belongs.
    siblings: Box<[usize]>,
    busy: Cell<bool>,
    /// The time at which the CPU became idle last, in nanoseconds.
    idle_since: Cell<u64>,
    /// The end of the window (interval of constant speed) that the CPU has entered last, in
    /// nanoseconds.
    until: Cell<u64>,
}

/// How many CPUs of one socket were busy when recent windows (intervals of virtual time) began.
struct Socket {
    cores: u32,
    /// The number of CPUs that were busy when window `window` (an interval of virtual time) began.
    busy: Cell<i64>,
    window: Cell<u64>,
    /// For each remembered window (interval of virtual time) after `window`: the number of busy
    /// CPUs when it begins, minus the number when the window before it began.
    changes: [Cell<i64>; WINDOWS],
}

/// The memory bandwidth of one node, and its use in recent windows of virtual time.
struct Node {
    /// The number of bytes that the memory can move in a window (131 µs of virtual time).
    capacity: u64,
    windows: [Window; WINDOWS],
}

/// One window (131 µs of virtual time) of a node: the bytes that the node's CPUs moved in the
/// window, and the factor by which steps that move pages took longer.
#[derive(Default)]
struct Window {
    number: Cell<u64>,
    moved: Cell<u64>,
    stretch: Cell<u64>,
}

impl LoadState {
    /// Creates the state of a machine on which no CPU is busy. If `load` has no effects, the lists
    /// of CPUs, sockets and nodes are not needed, and stay empty.
    pub(crate) fn new(load: &Load, topology: &Topology) -> Self {
        let mut state = Self {
            clock: load.clock,
            cpus: Box::default(),
            sockets: Box::default(),
            nodes: Box::default(),
        };
        if *load == Load::default() {
            return state;
        }
        // The numbers of sockets in a profile may have gaps. `nth` numbers the sockets without
        // gaps.
        let mut sockets: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        let mut cores: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for cpu in topology.ids() {
            let place = topology.place(cpu);
            sockets.entry(place.socket).or_default().insert(place.core);
            cores.entry(place.core).or_default().push(cpu.index());
        }
        let nth: BTreeMap<u32, usize> = sockets.keys().copied().zip(0..).collect();
        let member = |cpu: CpuId| {
            let place = topology.place(cpu);
            let of_core = cores[&place.core].iter().copied();
            Member {
                socket: nth[&place.socket],
                node: place.node.index(),
                siblings: of_core.filter(|other| *other != cpu.index()).collect(),
                busy: Cell::new(false),
                idle_since: Cell::new(0),
                until: Cell::new(0),
            }
        };
        let gb_per_s = load
            .bandwidth
            .as_ref()
            .map(|bandwidth| bandwidth.node_gb_per_s);
        let capacity = gb_per_s.map_or(u64::MAX, |bytes_per_ns| {
            u64::from(bytes_per_ns) << WINDOW_BITS
        });
        let node = |_| Node {
            capacity,
            windows: Default::default(),
        };
        let socket =
            |cores: &BTreeSet<u32>| Socket::new(u32::try_from(cores.len()).unwrap_or(u32::MAX));
        state.cpus = topology.ids().map(member).collect();
        state.sockets = sockets.values().map(socket).collect();
        state.nodes = (0..topology.nodes()).map(node).collect();
        state
    }

    /// The end of the window (interval of constant speed) that `cpu` has entered last, in
    /// nanoseconds.
    #[inline]
    pub(crate) fn until(&self, cpu: usize) -> u64 {
        self.cpus[cpu].until.get()
    }

    /// Records that `cpu` is busy, or idle, from `now` on.
    pub(crate) fn note(&self, cpu: usize, busy: bool, now: u64) {
        let member = &self.cpus[cpu];
        if member.busy.replace(busy) == busy {
            return;
        }
        if !busy {
            member.idle_since.set(now);
        }
        self.sockets[member.socket].change(now >> WINDOW_BITS, if busy { 1 } else { -1 });
    }

    /// Records that `cpu` has moved `bytes` bytes. These bytes count for the window of virtual time
    /// that `cpu` has entered last.
    pub(crate) fn moved(&self, cpu: usize, bytes: u64) {
        let member = &self.cpus[cpu];
        let number = (member.until.get() >> WINDOW_BITS).saturating_sub(1);
        let moved = &self.nodes[member.node].window(number).moved;
        moved.set(moved.get() + bytes);
    }

    /// Lets `cpu`, which has the smallest key (time and CPU number) of all CPUs, enter the window
    /// (interval of constant speed) that contains the time `now`. Returns the pace of `cpu` in this
    /// window: the speed, and the factor for limited memory bandwidth. `percent` is the speed of
    /// `cpu` on an idle machine.
    pub(crate) fn enter(&self, cpu: usize, now: u64, percent: u32) -> Pace {
        let member = &self.cpus[cpu];
        let number = now >> WINDOW_BITS;
        member.until.set((number + 1) << WINDOW_BITS);
        Pace {
            percent: self.percent(member, now, percent),
            stretch: self.nodes[member.node].stretch(number),
        }
    }

    fn percent(&self, member: &Member, now: u64, percent: u32) -> u32 {
        let Some(clock) = self.clock else {
            return percent;
        };
        let socket = &self.sockets[member.socket];
        let of_cores = clock.percent(socket.busy_at(now >> WINDOW_BITS), socket.cores);
        let is_busy = |other: &usize| self.cpus[*other].was_busy(now);
        let of_core = match member.siblings.iter().any(is_busy) {
            true => clock.sibling_percent,
            false => 100,
        };
        ((percent * of_cores * of_core + 5_000) / 10_000).max(1)
    }
}

impl Member {
    /// Returns whether the CPU of this entry was busy at time `now`. The running CPU has the
    /// smallest key (time and CPU number), so no CPU has anything left to do before `now`. If the
    /// CPU of this entry was idle at `now`, it still is, because a CPU wakes only when it has the
    /// smallest key.
    ///
    /// Suppose that the CPU of this entry became idle exactly at `now`. If its clock had run ahead
    /// of other CPUs until then, the CPU counts as idle. Otherwise it counts as busy if its number
    /// is larger than that of the running CPU.
    fn was_busy(&self, now: u64) -> bool {
        self.busy.get() || self.idle_since.get() > now
    }
}

impl Socket {
    fn new(cores: u32) -> Self {
        Self {
            cores,
            busy: Cell::new(0),
            window: Cell::new(0),
            changes: Default::default(),
        }
    }

    /// Records that the number of busy CPUs changes by `by` during window `number`, an interval of
    /// virtual time. The change takes effect when the next window begins. If the field `busy` is
    /// already the count of the next window, the change takes effect at once.
    fn change(&self, number: u64, by: i64) {
        let from = (number + 1).min(self.window.get() + WINDOWS as u64 - 1);
        let slot = match from > self.window.get() {
            true => &self.changes[slot(from)],
            false => &self.busy,
        };
        slot.set(slot.get() + by);
    }

    /// The number of CPUs that were busy when the window with the index `number` began. A window is
    /// an interval of virtual time.
    fn busy_at(&self, number: u64) -> u32 {
        let window = self.window.get();
        for later in (window + 1..=number).take(WINDOWS) {
            let change = self.changes[slot(later)].take();
            self.busy.set(self.busy.get() + change);
        }
        self.window.set(window.max(number));
        u32::try_from(self.busy.get()).unwrap_or(0)
    }
}

impl Node {
    /// The record of window `number`, an interval of virtual time. If a later window has taken over
    /// the record, returns the record of the later window.
    fn window(&self, number: u64) -> &Window {
        let window = &self.windows[slot(number)];
        if window.number.get() < number {
            window.number.set(number);
            window.moved.set(0);
            window.stretch.set(0);
        }
        window
    }

    /// The stretch of window `number`: the factor by which steps that move pages take longer. The
    /// result is final: when a CPU asks for it, no CPU can move bytes in an earlier window any
    /// more.
    fn stretch(&self, number: u64) -> u64 {
        let window = self.window(number);
        if window.stretch.get() == 0 {
            window.stretch.set(self.stretch_after(number));
        }
        window.stretch.get()
    }

    /// Returns the stretch (the factor for steps that move pages) of window `number`. It follows
    /// from the window before.
    fn stretch_after(&self, number: u64) -> u64 {
        let Some(before) = number.checked_sub(1) else {
            return UNSTRETCHED;
        };
        let last = &self.windows[slot(before)];
        if last.number.get() != before {
            return UNSTRETCHED;
        }
        let stretch = last.stretch.get().max(UNSTRETCHED);
        let wanted = u128::from(stretch) * u128::from(last.moved.get());
        let next = wanted.div_ceil(u128::from(self.capacity));
        u64::try_from(next)
            .unwrap_or(STRETCH_MAX)
            .clamp(UNSTRETCHED, STRETCH_MAX)
    }
}

/// The index of window `number`, an interval of virtual time, among the remembered windows.
#[expect(clippy::cast_possible_truncation, reason = "below WINDOWS")]
const fn slot(number: u64) -> usize {
    (number % WINDOWS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(gb_per_s: u64) -> Node {
        Node {
            capacity: gb_per_s << WINDOW_BITS,
            windows: Default::default(),
        }
    }

    /// Runs `cpus` CPUs that do nothing but steps of `step_ns` nanoseconds, each of which moves
    /// `bytes` bytes. Returns the number of bytes that the CPUs moved in the last window (131 µs of
    /// virtual time), and the number of bytes that the memory can move in a window.
    fn settled(cpus: u64, step_ns: u64, bytes: u64) -> (u64, u64) {
        let node = node(100);
        for number in 0..200 {
            let stretched_ns = step_ns * node.stretch(number);
            let steps = cpus * (UNSTRETCHED << WINDOW_BITS) / stretched_ns;
            node.window(number).moved.set(steps * bytes);
        }
        (node.window(199).moved.get(), node.capacity)
    }

    #[test]
    fn a_node_moves_what_it_can_and_no_more() {
        for excess in [2, 3, 10, 100] {
            let (moved, capacity) = settled(excess * 10, 1000, 10_000);
            assert!(moved.abs_diff(capacity) < capacity / 20, "{excess} {moved}");
        }
        let (moved, capacity) = settled(5, 1000, 10_000);
        assert!(moved < capacity, "nothing is stretched below the capacity");
        assert_eq!(moved, 655 * 10_000, "5 CPUs in 131 µs");
    }

    #[test]
    fn a_node_that_rested_is_not_slow() {
        let node = node(1);
        node.window(7).moved.set(node.capacity * 5);
        assert_eq!(node.stretch(8), 5 * UNSTRETCHED);
        assert_eq!(node.stretch(10), UNSTRETCHED);
        assert_eq!(node.stretch(7 + WINDOWS as u64), UNSTRETCHED);
    }

    #[test]
    fn a_change_counts_from_the_next_window() {
        let socket = Socket::new(4);
        socket.change(0, 1);
        socket.change(3, 1);
        socket.change(4, -1);
        let at: Vec<u32> = [0, 1, 3, 4, 5, 900].map(|at| socket.busy_at(at)).into();
        assert_eq!(at, [0, 1, 1, 2, 1, 1]);
        socket.change(2, 1);
        assert_eq!(socket.busy_at(900), 2, "a late change counts at once");
        socket.change(5000, -1);
        assert_eq!(socket.busy_at(6000), 1, "a far one is not lost");
    }
}
