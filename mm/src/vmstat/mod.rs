//! Per-CPU statistics and the periodic work that folds them and shrinks page lists.
//!
//! ```text
//! refresh (per CPU, every interval) ──nothing changed──> dormant
//!        ^                                                  │
//!        └───────── shepherd (one for all, every interval) ─┘
//! ```
//!
//! `counters`, `threshold`: the statistics. `schedule`: when a CPU's work fires. `shepherd`: who
//! wakes the dormant. `refresh`: the work itself.
//!
//! Locks: none of its own; refresh takes pcp and zone locks by way of the page lists.

pub mod counters;
mod refresh;
pub mod schedule;
pub mod shepherd;
pub mod threshold;

use alloc::boxed::Box;
use core::fmt;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use self::counters::{Counters, NodeItem, Step};
use self::schedule::{Moment, Schedule};
use self::shepherd::{Leftovers, Shepherd};
use crate::cpus::{Cpus, Hotplug};
use crate::design::Design;
use crate::event::{Changed, Event};
use crate::machine::{Job, JobState, Machine, WhenIdle, Word};
use crate::page::{Config, LayoutError, PageAllocator};
use crate::site::Work;
use crate::units::{CpuId, Pfn};

/// Physical memory with its periodic upkeep: what an embedder runs.
pub struct Manager<M: Machine> {
    pages: PageAllocator<M>,
    nodes: Box<[Counters<M>]>,
    schedule: &'static dyn Schedule,
    shepherd: &'static dyn Shepherd,
    /// The CPU the shepherd is on, [`NOT_STARTED`] or [`NOWHERE`]. The CPU that changes it defers the
    /// shepherd there; a round that finds itself elsewhere is a leftover and ends.
    shepherd_home: M::Word,
}

/// Nobody has deferred the shepherd yet.
const NOT_STARTED: i64 = -2;
/// No CPU was online when the shepherd had to move. The next CPU that comes defers it.
const NOWHERE: i64 = -1;

impl<M: Machine> fmt::Debug for Manager<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager")
            .field("pages", &self.pages)
            .field("schedule", &self.schedule)
            .field("shepherd", &self.shepherd)
            .finish_non_exhaustive()
    }
}

impl<M: Machine> Manager<M> {
    /// All memory of `config`, free, with every CPU online and nothing deferred yet.
    ///
    /// # Errors
    /// When the layout cannot be managed.
    pub fn new(machine: &M, config: Config<M>) -> Result<Self, LayoutError> {
        let Design {
            schedule, shepherd, ..
        } = config.design;
        let pages = PageAllocator::new(machine, config)?;
        let nodes = (0..machine.topology().nodes())
            .map(|_| Counters::new(machine, 0))
            .collect();
        let manager = Self {
            pages,
            nodes,
            schedule,
            shepherd,
            shepherd_home: machine.word(NOT_STARTED),
        };
        manager.recompute(machine);
        Ok(manager)
    }

    /// Physical memory.
    pub fn pages(&self) -> &PageAllocator<M> {
        &self.pages
    }

    /// Defers the shepherd for the first time (Linux: `start_shepherd_timer`). The machine must
    /// call [`Manager::run`] for each job that comes due.
    pub fn start(&self, machine: &M) {
        let here = machine.this_cpu();
        self.shepherd_home.store(machine, word_of(here), Release);
        self.defer_shepherd(machine, word_of(here));
    }

    /// Runs a job that came due, on the CPU it was deferred to.
    pub fn run(&self, machine: &M, job: Job) {
        match job {
            Job::VmstatUpdate => self.update(machine),
            Job::Shepherd => self.watch(machine),
        }
    }

    /// Folds this CPU's differentials before it goes idle; its lists stay (Linux: `quiet_vmstat`).
    /// Does nothing unless its work is pending.
    pub fn quiet(&self, machine: &M) {
        let cpu = machine.this_cpu();
        let pending = machine.job_state(cpu, Job::VmstatUpdate) == JobState::Pending;
        if pending && self.is_dirty(machine, cpu) {
            self.fold(machine, cpu);
        }
    }

    /// `cpu` runs tasks again. Its work stays dormant until the shepherd finds a reason.
    pub fn cpu_online(&self, machine: &M, cpu: CpuId) {
        self.pages.hotplug(machine, cpu, Hotplug::Online);
        self.recompute(machine);
        // An exchange even when it changes nothing, as in `cpu_going`: a CPU that leaves the shepherd
        // nowhere later sees by its own exchange that this CPU came.
        if self.shepherd_home.add(machine, 0, AcqRel) == NOWHERE {
            self.defer_shepherd(machine, NOWHERE);
        }
    }

    /// `cpu` is about to go: its work is not deferred any more.
    pub fn cpu_going(&self, machine: &M, cpu: CpuId) {
        // Offline first: a shepherd that looks now passes it over, and one that looked before
        // defers work that `update` then declines to repeat.
        self.pages.hotplug(machine, cpu, Hotplug::Offline);
        machine.cancel(cpu, Job::VmstatUpdate);
        // An exchange even when it changes nothing: whoever brings the shepherd here later sees by
        // its own exchange that this CPU went, and moves on.
        if self.shepherd_home.add(machine, 0, AcqRel) == word_of(cpu) {
            machine.cancel(cpu, Job::Shepherd);
            self.defer_shepherd(machine, word_of(cpu));
        }
    }

    /// `cpu` runs nothing any more; its pages and differentials come back. Runs on another CPU.
    pub fn cpu_dead(&self, machine: &M, cpu: CpuId) {
        self.pages.drain_cpu(machine, cpu);
        self.fold(machine, cpu);
        self.recompute(machine);
    }

    /// Counts `delta` more or fewer of an item on this CPU's node.
    #[inline]
    pub fn count_node(&self, machine: &M, item: NodeItem, delta: i64) {
        self.node_here(machine).add(machine, item as usize, delta);
    }

    /// Counts `each` more or fewer of an item for each of `pfns`, on the node it is in, whichever
    /// this CPU is on (Linux: `mod_node_page_state` of `page_pgdat`). Nodes without CPUs count as the
    /// last one; frames in no zone are passed over.
    pub fn count_each_on_nodes(&self, machine: &M, pfns: &[Pfn], item: NodeItem, each: i64) {
        let node = |pfn: &Pfn| self.pages.node_of(*pfn);
        for run in pfns.chunk_by(|one, next| node(one) == node(next)) {
            let Some(node) = node(&run[0]) else { continue };
            let counters = &self.nodes[node.index().min(self.nodes.len() - 1)];
            let count = i64::try_from(run.len()).unwrap_or(i64::MAX);
            counters.add(machine, item as usize, each.saturating_mul(count));
        }
    }

    /// Counts one more or one fewer of an item on this CPU's node.
    #[inline]
    pub fn step_node(&self, machine: &M, item: NodeItem, step: Step) {
        self.node_here(machine).step(machine, item as usize, step);
    }

    /// The sum of an item over all nodes, differentials included.
    pub fn counted_on_nodes(&self, machine: &M, item: NodeItem) -> u64 {
        self.nodes
            .iter()
            .map(|node| node.snapshot(machine, item as usize))
            .fold(0, u64::saturating_add)
    }

    /// Whether `cpu` has differentials to fold (Linux: `need_update`).
    pub fn is_dirty(&self, machine: &M, cpu: CpuId) -> bool {
        let mut zones = self.pages.zones().iter().map(|zone| &zone.counters);
        zones.any(|counters| counters.is_dirty(machine, cpu))
            || self
                .nodes
                .iter()
                .any(|counters| counters.is_dirty(machine, cpu))
    }

    /// The per-CPU work (Linux: `vmstat_update`).
    fn update(&self, machine: &M) {
        let cpu = machine.this_cpu();
        let refreshed = self.refresh(machine);
        let Some(moment) = self.moment(machine, cpu) else {
            return;
        };
        if refreshed == Changed::Yes {
            let due = self.schedule.next(&moment);
            machine.defer(cpu, Job::VmstatUpdate, due, WhenIdle::Defer);
        }
    }

    /// The shepherd's round (Linux: `vmstat_shepherd`).
    fn watch(&self, machine: &M) {
        let here = machine.this_cpu();
        if self.shepherd_home.load(machine, Acquire) != word_of(here) {
            return; // It moved after this round was due.
        }
        let cpus: &Cpus<M> = self.pages.cpus();
        for cpu in cpus.iter(machine) {
            machine.spend(Work::ScanCpu, 1);
            let dormant = machine.job_state(cpu, Job::VmstatUpdate) == JobState::Dormant;
            if dormant && self.shepherd.wakes(self.leftovers(machine, cpu)) {
                let Some(moment) = self.moment(machine, cpu) else {
                    continue;
                };
                let (due, idle) = self.shepherd.kick(&moment);
                machine.emit(Event::Kick { cpu });
                machine.defer(cpu, Job::VmstatUpdate, due, idle);
            }
        }
        self.defer_shepherd(machine, word_of(here));
    }

    fn leftovers(&self, machine: &M, cpu: CpuId) -> Leftovers {
        if self.is_dirty(machine, cpu) {
            Leftovers::Differentials
        } else if self
            .pages
            .zones()
            .iter()
            .any(|zone| zone.hoards(machine, cpu))
        {
            Leftovers::Pages
        } else {
            Leftovers::Nothing
        }
    }

    /// The shepherd follows Linux's rounding in every design: it is one timer. It moves from
    /// the CPU of the word `from` to an online CPU when its own goes, unless another CPU has moved it
    /// already.
    fn defer_shepherd(&self, machine: &M, mut from: i64) {
        let cpus: &Cpus<M> = self.pages.cpus();
        let moment = |cpu| self.moment(machine, cpu);
        // Ends: a further turn means that yet another CPU came or went just now.
        loop {
            let first = || cpus.iter(machine).find_map(moment);
            let there = u32::try_from(from).ok().map(CpuId);
            let next = there.and_then(moment).or_else(first);
            let to = next.as_ref().map_or(NOWHERE, |moment| word_of(moment.cpu));
            // AcqRel pairs with the exchanges in `cpu_going` and `cpu_online`: of any two, the later
            // sees the other.
            let home = &self.shepherd_home;
            if home.compare_exchange(machine, from, to, AcqRel).is_err() {
                return;
            }
            let is_settled = match next {
                Some(moment) => {
                    let due = schedule::RoundJiffies.next(&moment);
                    machine.defer(moment.cpu, Job::Shepherd, due, WhenIdle::Defer);
                    cpus.is_online(machine, moment.cpu)
                }
                None => cpus.iter(machine).next().is_none(),
            };
            if is_settled {
                return;
            }
            from = to;
        }
    }

    fn moment(&self, machine: &M, cpu: CpuId) -> Option<Moment> {
        let cpus = self.pages.cpus();
        Some(Moment {
            now: machine.now(),
            hz: machine.hz(),
            interval: self.pages.stat_interval(machine),
            cpu,
            rank: cpus.rank(machine, cpu)?,
            online: cpus.online(machine),
        })
    }

    fn node_here(&self, machine: &M) -> &Counters<M> {
        &self.nodes[machine.topology().place(machine.this_cpu()).node.index()]
    }

    /// Node thresholds are the largest of the node's zones (Linux: `pgdat` thresholds).
    fn recompute(&self, machine: &M) {
        let online = self.pages.cpus().online(machine);
        for (node, counters) in (0..).zip(&self.nodes) {
            let zones = self
                .pages
                .zones()
                .iter()
                .filter(|zone| zone.node().0 == node);
            let threshold = zones
                .map(|zone| threshold::normal(online, zone.managed()))
                .max();
            counters.set_threshold(machine, threshold.unwrap_or(0));
        }
    }
}

fn word_of(cpu: CpuId) -> i64 {
    i64::from(cpu.0)
}
