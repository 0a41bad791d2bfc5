//! Physical memory together with its periodic work: the object that an embedder makes.
//!
//! ```text
//! refresh (per CPU, every interval) ──nothing changed──> dormant
//!        ^                                                  │
//!        └───────── shepherd (one for all, every interval) ─┘
//! ```
//!
//! A [`Manager`] stands above `page`, whose lists its periodic work shrinks, and `vmstat`, whose
//! differentials it folds. A schedule of `vmstat` decides when that work fires; a shepherd decides
//! which dormant CPUs are kicked, and when.
//!
//! Locks: none of its own; a refresh takes pcp and zone locks when it gives pages back.

use alloc::boxed::Box;
use core::fmt;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use crate::cpus::{Cpus, Hotplug};
use crate::design::Design;
use crate::event::{Changed, Event};
use crate::machine::{Job, JobState, Machine, WhenIdle, Word};
use crate::page::{Config, LayoutError, PageAllocator};
use crate::site::Work;
use crate::units::{CpuId, Pages, Pfn, signed};
use crate::vmstat::counters::{Counters, NodeItem, Step};
use crate::vmstat::schedule::{self, Moment, Schedule};
use crate::vmstat::shepherd::{Leftovers, Shepherd};
use crate::vmstat::threshold;

/// Physical memory and its periodic work. An embedder makes one of these and runs its jobs.
pub struct Manager<M: Machine> {
    pages: PageAllocator<M>,
    nodes: Box<[Counters<M>]>,
    schedule: &'static dyn Schedule,
    shepherd: &'static dyn Shepherd,
    /// The CPU the shepherd is on, [`NOT_STARTED`] or [`NOWHERE`]. The code that changes this word
    /// defers the shepherd to the new CPU. A round that runs on another CPU than this one is stale
    /// and ends at once.
    shepherd_home: M::Word,
}

/// The shepherd was not deferred yet.
const NOT_STARTED: i64 = -2;
/// No CPU was online when the shepherd had to move. The next CPU that goes online defers it.
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
    /// Makes a manager in which all memory of `config` is free, every CPU is online and no job is
    /// deferred yet.
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

    /// Defers the shepherd for the first time (Linux: `start_shepherd_timer`). From then on the
    /// machine must call [`Manager::run`] for each job that comes due.
    pub fn start(&self, machine: &M) {
        let here = machine.this_cpu();
        self.shepherd_home.store(machine, word_of(here), Release);
        self.defer_shepherd(machine, word_of(here));
    }

    /// Runs a job that came due. To be called on the CPU that the job was deferred to.
    pub fn run(&self, machine: &M, job: Job) {
        match job {
            Job::VmstatUpdate => self.update(machine),
            Job::Shepherd => self.watch(machine),
        }
    }

    /// Folds this CPU's differentials before it goes idle; its page lists stay (Linux:
    /// `quiet_vmstat`). Does nothing unless the CPU's vmstat work is pending.
    pub fn quiet(&self, machine: &M) {
        let cpu = machine.this_cpu();
        let pending = machine.job_state(cpu, Job::VmstatUpdate) == JobState::Pending;
        if pending && self.is_dirty(machine, cpu) {
            self.fold(machine, cpu);
        }
    }

    /// Notes that `cpu` runs tasks again. Its vmstat work stays dormant until the shepherd finds a
    /// reason to kick it.
    pub fn cpu_online(&self, machine: &M, cpu: CpuId) {
        self.pages.hotplug(machine, cpu, Hotplug::Online);
        self.recompute(machine);
        // This read-modify-write is needed even though it adds 0, as in `cpu_going`: a CPU that
        // later sets the word to `NOWHERE` sees, by its own exchange, that this CPU came online.
        if self.shepherd_home.add(machine, 0, AcqRel) == NOWHERE {
            self.defer_shepherd(machine, NOWHERE);
        }
    }

    /// Notes that `cpu` is about to go offline. Its vmstat work is cancelled, and the shepherd
    /// moves to another CPU.
    pub fn cpu_going(&self, machine: &M, cpu: CpuId) {
        // The CPU is marked offline first: a shepherd round from now on skips it, and a round that
        // saw it online before may defer its work once more, which `update` then does not repeat.
        self.pages.hotplug(machine, cpu, Hotplug::Offline);
        machine.cancel(cpu, Job::VmstatUpdate);
        // This read-modify-write is needed even though it adds 0: a CPU that later moves the
        // shepherd here sees, by its own exchange, that this CPU went offline, and moves the
        // shepherd on.
        if self.shepherd_home.add(machine, 0, AcqRel) == word_of(cpu) {
            machine.cancel(cpu, Job::Shepherd);
            self.defer_shepherd(machine, word_of(cpu));
        }
    }

    /// Takes back the pages and differentials of `cpu`, which runs nothing any more. To be called
    /// on another CPU.
    pub fn cpu_dead(&self, machine: &M, cpu: CpuId) {
        self.pages.drain_cpu(machine, cpu);
        self.fold(machine, cpu);
        self.recompute(machine);
    }

    /// Adds `delta` to an item's counter on this CPU's node.
    #[inline]
    pub fn count_node(&self, machine: &M, item: NodeItem, delta: i64) {
        self.node_here(machine).add(machine, item as usize, delta);
    }

    /// For each of `pfns`, adds `each` to an item's counter on the node of that frame, which need
    /// not be this CPU's (Linux: `mod_node_page_state` of `page_pgdat`). Nodes numbered past the
    /// last node with CPUs count as that one; frames in no zone are skipped.
    pub fn count_each_on_nodes(&self, machine: &M, pfns: &[Pfn], item: NodeItem, each: i64) {
        let node = |pfn: &Pfn| self.pages.node_of(*pfn);
        for run in pfns.chunk_by(|one, next| node(one) == node(next)) {
            let Some(node) = node(&run[0]) else { continue };
            let counters = &self.nodes[node.index().min(self.nodes.len() - 1)];
            let delta = each.saturating_mul(signed(run.len() as u64));
            counters.add(machine, item as usize, delta);
        }
    }

    /// Adds one to an item's counter on this CPU's node, or subtracts one.
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

    /// Returns whether `cpu` has differentials to fold (Linux: `need_update`).
    pub fn is_dirty(&self, machine: &M, cpu: CpuId) -> bool {
        let mut zones = self.pages.zones().iter().map(|zone| &zone.counters);
        zones.any(|counters| counters.is_dirty(machine, cpu))
            || self
                .nodes
                .iter()
                .any(|counters| counters.is_dirty(machine, cpu))
    }

    /// The periodic work of this CPU: refreshes, and defers itself again if anything changed
    /// (Linux: `vmstat_update`).
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

    /// Folds this CPU's differentials and decays its page lists. Returns whether anything changed
    /// or the next interval may find more to do.
    pub fn refresh(&self, machine: &M) -> Changed {
        let cpu = machine.this_cpu();
        let mut changed = false;
        let mut given = Pages::ZERO;
        for zone in self.pages.zones() {
            machine.spend(Work::RefreshZone, 1);
            let used = zone.counters.fold(machine, cpu);
            let decayed = zone.decay(machine, cpu);
            let expired = zone.expire(machine, cpu, used);
            changed |= used || decayed.more || expired.more;
            given += decayed.pages + expired.pages;
        }
        for node in &self.nodes {
            changed |= node.fold(machine, cpu);
        }
        let changed = if changed { Changed::Yes } else { Changed::No };
        machine.emit(Event::Refresh {
            changed,
            decayed: given,
        });
        changed
    }

    /// Folds every differential of `cpu`; its page lists stay.
    fn fold(&self, machine: &M, cpu: CpuId) {
        for zone in self.pages.zones() {
            machine.spend(Work::RefreshZone, 1);
            zone.counters.fold(machine, cpu);
        }
        for node in &self.nodes {
            node.fold(machine, cpu);
        }
    }

    /// One round of the shepherd: kicks dormant CPUs that have a reason, and defers itself again
    /// (Linux: `vmstat_shepherd`).
    fn watch(&self, machine: &M) {
        let here = machine.this_cpu();
        if self.shepherd_home.load(machine, Acquire) != word_of(here) {
            return; // The shepherd moved after this round came due.
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

    /// Defers the shepherd to the CPU of the word `from`, or to an online CPU if that one is
    /// offline, unless another CPU has moved the shepherd already. The shepherd follows Linux's
    /// rounding in every design, because it is a single timer.
    fn defer_shepherd(&self, machine: &M, mut from: i64) {
        let cpus: &Cpus<M> = self.pages.cpus();
        let moment = |cpu| self.moment(machine, cpu);
        // The loop ends: each further turn means that one more CPU went online or offline in the
        // meantime.
        loop {
            let first = || cpus.iter(machine).find_map(moment);
            let there = u32::try_from(from).ok().map(CpuId);
            let next = there.and_then(moment).or_else(first);
            let to = next.as_ref().map_or(NOWHERE, |moment| word_of(moment.cpu));
            // AcqRel pairs with the additions in `cpu_going` and `cpu_online`: the later of any two
            // of these operations sees what preceded the earlier one.
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

    /// Sets each node's threshold to the largest of its zones' thresholds (Linux: `pgdat`
    /// thresholds).
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
