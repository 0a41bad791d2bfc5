//! The waits for locks in a watched run: the length of each wait, the call site that requested the
//! lock, and the call site at which the holder had taken the lock.

use std::collections::BTreeMap;

use plimsoll_mm::site::{LockClass, Site};
use plimsoll_sim::Wait;

use super::course::{Between, LongWait, Pair, SiteWaits};

/// If one wait is twice as long as another, the index of its bin in the histogram is larger by this
/// number.
const STEPS: f64 = 8.0;
/// The number of bins of a histogram. The last bin has all waits of a minute or more.
const HIST: usize = 288;
/// How many of the longest waits are kept.
const LONGEST: usize = 300;
/// The largest number of groups into which CPUs are divided. For each pair of groups, the waits of
/// one group's CPUs for the other group's CPUs are summed.
const GROUPS_MAX: u32 = 64;

/// The waits of a run.
pub(super) struct Waits {
    by_site: BTreeMap<(LockClass, Site), Tally>,
    by_holder: BTreeMap<(LockClass, Site, Site), Sums>,
    /// All waits that can be among the longest. Whenever this list has twice [`LONGEST`] waits, the
    /// shorter half of the waits is removed.
    longest: Vec<Wait>,
    cpus_per_group: u32,
    groups: u32,
    /// For each pair of groups, the sum of the waits of the first group's CPUs for the second
    /// group's CPUs, in nanoseconds.
    between: Vec<u64>,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    count: u64,
    traced: u64,
    total_ns: u64,
    max_ns: u64,
}

struct Tally {
    sums: Sums,
    /// The number of waits in each of the [`HIST`] bins. The bins are in the heap, because the
    /// stacks of simulated tasks are small.
    hist: Vec<u64>,
}

impl Sums {
    fn add(&mut self, wait: &Wait) {
        let ns = length_ns(wait);
        self.count += 1;
        self.traced += u64::from(wait.traced);
        self.total_ns += ns;
        self.max_ns = self.max_ns.max(ns);
    }
}

/// The length of a wait, in nanoseconds.
pub(super) fn length_ns(wait: &Wait) -> u64 {
    wait.until.0 - wait.from.0
}

/// The bin of a wait of `ns` nanoseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the binary logarithm of a number of nanoseconds lies between 0 and 64"
)]
fn bin(ns: u64) -> usize {
    let step = (ns.max(1) as f64).log2() * STEPS;
    (step.floor() as usize).min(HIST - 1)
}

impl Waits {
    pub(super) fn new(cpus: u32) -> Self {
        let cpus_per_group = cpus.div_ceil(GROUPS_MAX).max(1);
        let groups = cpus.div_ceil(cpus_per_group);
        Self {
            by_site: BTreeMap::new(),
            by_holder: BTreeMap::new(),
            longest: Vec::new(),
            cpus_per_group,
            groups,
            between: vec![0; (groups * groups) as usize],
        }
    }

    pub(super) fn add(&mut self, wait: &Wait) {
        let Wait { class, site, .. } = *wait;
        let tally = self.by_site.entry((class, site)).or_insert_with(|| Tally {
            sums: Sums::default(),
            hist: vec![0; HIST],
        });
        tally.sums.add(wait);
        tally.hist[bin(length_ns(wait))] += 1;
        let pair = (class, site, wait.blocker_site);
        self.by_holder.entry(pair).or_default().add(wait);
        let group = |cpu: u32| (cpu / self.cpus_per_group).min(self.groups - 1);
        let cell = group(wait.cpu.0) * self.groups + group(wait.blocker.0);
        self.between[cell as usize] += length_ns(wait);
        self.longest.push(*wait);
        if self.longest.len() == 2 * LONGEST {
            self.keep_longest();
        }
    }

    fn keep_longest(&mut self) {
        let rank = |wait: &Wait| (std::cmp::Reverse(length_ns(wait)), wait.from, wait.cpu);
        // A stable sort would need a buffer on the stack, but the stacks of simulated tasks are
        // small.
        self.longest.sort_unstable_by_key(rank);
        self.longest.truncate(LONGEST);
    }

    /// The waits for locks, added up by class and call site. The entry with the longest waits in
    /// total comes first.
    pub(super) fn sites(&self) -> Vec<SiteWaits> {
        let row = |((class, site), tally): (&(LockClass, Site), &Tally)| SiteWaits {
            lock: class.name().to_owned(),
            sleeps: class.sleeps(),
            site: site.name().to_owned(),
            count: tally.sums.count,
            traced: tally.sums.traced,
            total_ns: tally.sums.total_ns,
            max_ns: tally.sums.max_ns,
            hist: (0_u16..)
                .zip(tally.hist.iter().copied())
                .filter(|(_, count)| *count > 0)
                .collect(),
        };
        let mut rows: Vec<SiteWaits> = self.by_site.iter().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.total_ns));
        rows
    }

    /// The waits, grouped by lock class and by the call sites of the waiter and the holder. The
    /// group with the longest total wait comes first.
    pub(super) fn pairs(&self) -> Vec<Pair> {
        let row = |((class, site, holder), sums): (&(LockClass, Site, Site), &Sums)| Pair {
            lock: class.name().to_owned(),
            site: site.name().to_owned(),
            holder: holder.name().to_owned(),
            count: sums.count,
            total_ns: sums.total_ns,
            max_ns: sums.max_ns,
        };
        let mut rows: Vec<Pair> = self.by_holder.iter().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.total_ns));
        rows
    }

    /// The longest waits, the longest first.
    pub(super) fn longest(&mut self) -> Vec<LongWait> {
        self.keep_longest();
        let row = |wait: &Wait| LongWait {
            from_ns: wait.from.0,
            wait_ns: length_ns(wait),
            cpu: wait.cpu.0,
            lock: wait.class.name().to_owned(),
            site: wait.site.name().to_owned(),
            holder_cpu: wait.blocker.0,
            holder: wait.blocker_site.name().to_owned(),
        };
        self.longest.iter().map(row).collect()
    }

    /// How long the groups of CPUs waited for each other. `None` if no CPU waited.
    pub(super) fn between(&self) -> Option<Between> {
        let cells: Vec<(u32, u32, u64)> = (0..)
            .zip(&self.between)
            .filter(|(_, ns)| **ns > 0)
            .map(|(nth, ns)| (nth / self.groups, nth % self.groups, *ns))
            .collect();
        (!cells.is_empty()).then_some(Between {
            cpus_per_group: self.cpus_per_group,
            cells,
        })
    }

    /// The waits for spinning locks, summed by class, call site of the waiter, and call site of the
    /// holder.
    pub(super) fn spinning(&self) -> impl Iterator<Item = (LockClass, Site, Site, u64, u64)> {
        let spins = self
            .by_holder
            .iter()
            .filter(|((class, ..), _)| !class.sleeps());
        spins.map(|((class, site, holder), sums)| {
            (*class, *site, *holder, sums.count, sums.total_ns)
        })
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::units::{CpuId, Nanos};
    use plimsoll_sim::{Access, LockId};

    use super::*;

    fn wait(cpu: u32, from: u64, length: u64) -> Wait {
        Wait {
            lock: LockId::new(0),
            class: LockClass::Zone,
            site: Site::Refill,
            access: Access::Spin,
            cpu: CpuId(cpu),
            task: 0,
            from: Nanos(from),
            until: Nanos(from + length),
            blocker: CpuId(99),
            blocker_site: Site::Drain,
            traced: length > 100,
        }
    }

    #[test]
    fn the_longest_waits_are_kept_with_their_holders() {
        let mut waits = Waits::new(100);
        for nth in 0..5000 {
            waits.add(&wait(nth % 7, u64::from(nth), u64::from(nth * 37 % 5000)));
        }
        let longest = waits.longest();
        let lengths: Vec<u64> = longest.iter().map(|wait| wait.wait_ns).collect();
        let want: Vec<u64> = (5000 - LONGEST as u64..5000).rev().collect();
        assert_eq!(lengths, want);
        let (holder, site) = (longest[0].holder_cpu, &*longest[0].holder);
        assert_eq!((holder, site), (99, "drain_pages_zone"));
        let all: u64 = waits.sites()[0].hist.iter().map(|(_, count)| count).sum();
        assert_eq!((all, waits.sites()[0].count), (5000, 5000));
        assert_eq!(waits.sites()[0].traced, 4899);
        let between = waits.between().expect("CPUs waited");
        assert_eq!(between.cpus_per_group, 2);
        let total: u64 = between.cells.iter().map(|cell| cell.2).sum();
        assert_eq!(total, waits.pairs()[0].total_ns);
        assert!(between.cells.iter().all(|cell| cell.1 == 49));
    }

    #[test]
    fn a_bin_holds_an_eighth_of_a_doubling() {
        assert_eq!([0, 1, 2, 4, 1024].map(bin), [0, 0, 8, 16, 80]);
        assert_eq!(bin(u64::MAX), HIST - 1);
    }

    #[test]
    fn no_wait_is_no_row() {
        let mut waits = Waits::new(4);
        assert!(waits.sites().is_empty() && waits.longest().is_empty());
        assert_eq!(waits.between(), None);
    }
}
