//! The choice of the CPU that runs next: a binary winner tree over packed `(time, CPU)` keys.
//!
//! Each CPU has one leaf, which is [`NEVER`] if the CPU has nothing to do. Every inner node holds
//! the smaller key of its two children, so the root holds the key of the next CPU. An update visits
//! one path to the root, without branches that depend on the keys. The leaf of the running CPU is
//! stale until the CPU stops. No code reads it then, because [`Tree::earliest_but`] skips it.

use std::cell::Cell;

/// The key (time and CPU number) of a CPU that has nothing to do.
pub(crate) const NEVER: u64 = u64::MAX;
/// The number of low bits of a key that hold the CPU.
const CPU_BITS: u32 = 12;
/// The largest number of CPUs of a machine.
pub(crate) const CPUS_MAX: usize = 1 << CPU_BITS;
/// All times are below this number of nanoseconds (26 days), so that a key never overflows.
pub(crate) const TIME_MAX_NS: u64 = 1 << (63 - CPU_BITS);

/// The key of `cpu` at `time_ns`. Keys are ordered by time, then by CPU.
#[inline]
pub(crate) const fn key(time_ns: u64, cpu: usize) -> u64 {
    time_ns << CPU_BITS | cpu as u64
}

/// Returns the time of a key, in nanoseconds. A key is a time and a CPU in one integer.
#[inline]
pub(crate) const fn time_of(key: u64) -> u64 {
    key >> CPU_BITS
}

/// Returns the CPU number in `key`, which consists of a time and a CPU number.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "masked to 12 bits")]
pub(crate) const fn cpu_of(key: u64) -> usize {
    key as usize & (CPUS_MAX - 1)
}

/// The number of nodes of the largest tree. Every tree allocates this many, so that indexing needs
/// no bounds check.
const NODES: usize = 2 * CPUS_MAX;

/// A binary winner tree over the keys of all CPUs. A key is the time at which a CPU runs next,
/// together with the index of the CPU.
pub(crate) struct Tree {
    /// Node 1 is the root; the children of `i` are `2i` and `2i + 1`.
    nodes: Box<[Cell<u64>; NODES]>,
    leaves: usize,
}

impl Tree {
    pub(crate) fn new(cpus: usize) -> Self {
        let nodes: Box<[Cell<u64>]> = vec![Cell::new(NEVER); NODES].into();
        let nodes = nodes.try_into().expect("made with this length");
        Self {
            nodes,
            leaves: cpus.next_power_of_two().max(2),
        }
    }

    #[inline(always)]
    fn node(&self, index: usize) -> &Cell<u64> {
        &self.nodes[index % NODES]
    }

    /// The smallest key (time and CPU number) of all CPUs.
    #[inline]
    pub(crate) fn earliest(&self) -> u64 {
        self.node(1).get()
    }

    /// The smallest key (time and CPU number) of all CPUs except `cpu`.
    #[inline]
    pub(crate) fn earliest_but(&self, cpu: usize) -> u64 {
        let mut node = self.leaves + cpu;
        let mut earliest = NEVER;
        while node > 1 {
            earliest = earliest.min(self.node(node ^ 1).get());
            node >>= 1;
        }
        earliest
    }

    /// The key (time and CPU number) of `cpu` that the last call of [`Tree::set`] stored.
    #[inline]
    pub(crate) fn leaf(&self, cpu: usize) -> u64 {
        self.node(self.leaves + cpu).get()
    }

    /// Sets the key of `cpu` (the time at which the CPU runs next, with the CPU's index), and
    /// updates the nodes between the CPU's leaf and the root.
    #[inline]
    pub(crate) fn set(&self, cpu: usize, key: u64) {
        let mut node = self.leaves + cpu;
        let mut earliest = key;
        self.node(node).set(key);
        while node > 1 {
            earliest = earliest.min(self.node(node ^ 1).get());
            node >>= 1;
            self.node(node).set(earliest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_the_smallest_key_and_ties_go_to_the_lower_cpu() {
        let tree = Tree::new(5);
        let mut keys = [NEVER; 5];
        let mut state = 1_u64;
        for _ in 0..10_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let cpu = (state >> 33) as usize % 5;
            keys[cpu] = key(state >> 60, cpu);
            tree.set(cpu, keys[cpu]);
            assert_eq!(tree.earliest(), *keys.iter().min().expect("five keys"));
            let others = keys.iter().enumerate().filter(|&(other, _)| other != cpu);
            assert_eq!(
                tree.earliest_but(cpu),
                *others.map(|(_, key)| key).min().expect("four")
            );
        }
    }
}
