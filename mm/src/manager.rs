//! Physical memory together with its periodic work: the object that an embedder creates.
//!
//! ```text
//! refresh (per CPU, every interval) ──nothing changed──> dormant
//!        ^                                                  │
//!        └───────── shepherd (one for all, every interval) ─┘
//! ```
//!
//! A [`Manager`] is layered above `page` and `vmstat`: its periodic work shrinks the page lists of
//! `page` and folds the differentials of `vmstat`. A schedule from `vmstat` decides when that work
//! fires. A shepherd restarts the refreshes of dormant CPUs: those whose last refresh found nothing
//! to do.
//!
//! Locks: a manager has no lock of its own. A refresh takes pcp and zone locks when it returns
//! pages to zones.

use alloc::boxed::Box;
use core::fmt;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use crate::counter::{CounterRow, CounterSpec};
use crate::cpus::{Cpus, Hotplug};
use crate::design::Design;
use crate::event::{Changed, Event};
use crate::machine::{Due, Job, JobState, Machine, WhenIdle, Word};
use crate::page::{Config, LayoutError, PageAllocator, ResizeError};
use crate::site::Work;
use crate::units::{CpuId, Pages, Pfn, count_of, signed};
use crate::vmstat::counters::{Counters, Direction, NodeItem, ZoneItem};
use crate::vmstat::schedule::{self, Moment, Schedule};
use crate::vmstat::shepherd::{Leftovers, Shepherd};
use crate::vmstat::threshold;

/// Physical memory and its periodic work. An embedder creates one manager and runs its jobs.
pub struct Manager<M: Machine> {
    pages: PageAllocator<M>,
    nodes: Box<[Counters<M>]>,
    schedule: &'static dyn Schedule,
    shepherd: &'static dyn Shepherd,
    /// The CPU on which the shepherd (Linux: `vmstat_shepherd`) is scheduled, or [`NOT_STARTED`] or
    /// [`NOWHERE`]. The code that changes this word also schedules the shepherd on the new CPU. A
    /// shepherd round on any other CPU is stale and ends at once.
    shepherd_home: M::Word,
}

/// The value of `shepherd_home` before the shepherd is scheduled for the first time.
const NOT_STARTED: i64 = -2;
/// The value of `shepherd_home` if no CPU was online when the shepherd had to move. The next CPU to
/// go online schedules the shepherd.
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
    /// Creates a manager in which all memory of `config` is free, every CPU is online, and no job
    /// is scheduled yet.
    ///
    /// # Errors
    /// If the layout of `config` is invalid: see [`LayoutError`].
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

    /// The page allocator, which manages all physical memory.
    pub fn pages(&self) -> &PageAllocator<M> {
        &self.pages
    }

    /// Schedules the shepherd for the first time (Linux: `start_shepherd_timer`). From then on the
    /// machine must call [`Manager::run`] for each job that becomes due.
    pub fn start(&self, machine: &M) {
        let here = machine.this_cpu();
        self.shepherd_home.store(machine, word_of(here), Release);
        self.defer_shepherd(machine, word_of(here));
    }

    /// Runs a job that has become due. Must be called on the CPU that the job was scheduled on.
    pub fn run(&self, machine: &M, job: Job) {
        match job {
            Job::VmstatUpdate => self.update(machine),
            Job::Shepherd => self.watch(machine),
        }
    }

    /// Folds this CPU's differentials before the CPU goes idle, and leaves its page lists unchanged
    /// (Linux: `quiet_vmstat`). Does nothing unless the CPU's vmstat work is pending.
    pub fn quiet(&self, machine: &M) {
        let cpu = machine.this_cpu();
        let pending = machine.job_state(cpu, Job::VmstatUpdate) == JobState::Pending;
        if pending && self.is_dirty(machine, cpu) {
            self.fold(machine, cpu);
        }
    }

    /// Records that `cpu` runs tasks again. The CPU's vmstat work is not scheduled until the
    /// shepherd (Linux: `vmstat_shepherd`) finds a reason to restart it.
    pub fn cpu_online(&self, machine: &M, cpu: CpuId) {
        self.pages.hotplug(machine, cpu, Hotplug::Online);
        self.recompute(machine);
        // As in `cpu_going`, this must be a read-modify-write even though it adds 0. If another
        // CPU's `compare_exchange` comes after this addition and sets the word to `NOWHERE`, that
        // CPU then sees that `cpu` is online, and schedules the shepherd itself.
        if self.shepherd_home.add(machine, 0, AcqRel) == NOWHERE {
            self.defer_shepherd(machine, NOWHERE);
        }
    }

    /// Records that `cpu` is about to go offline. Cancels the vmstat work of `cpu`, and moves the
    /// shepherd to another CPU if the shepherd is scheduled on `cpu`.
    pub fn cpu_going(&self, machine: &M, cpu: CpuId) {
        // The CPU is marked offline first, so that new shepherd rounds skip it. A round that still
        // saw the CPU online may schedule the CPU's vmstat work once more. When that work runs,
        // `update` does not schedule it again.
        self.pages.hotplug(machine, cpu, Hotplug::Offline);
        machine.cancel(cpu, Job::VmstatUpdate);
        // This must be a read-modify-write even though it adds 0. If another CPU's
        // `compare_exchange` comes after this addition and moves the shepherd to `cpu`, that CPU
        // then sees that `cpu` is offline, and moves the shepherd on.
        if self.shepherd_home.add(machine, 0, AcqRel) == word_of(cpu) {
            machine.cancel(cpu, Job::Shepherd);
            self.defer_shepherd(machine, word_of(cpu));
        }
    }

    /// Drains the page lists of `cpu`, which no longer runs anything, and adds its differentials to
    /// the shared counters. Must be called on another CPU.
    pub fn cpu_dead(&self, machine: &M, cpu: CpuId) {
        self.pages.drain_cpu(machine, cpu);
        self.pages.disown(machine, cpu);
        self.fold(machine, cpu);
        self.recompute(machine);
    }

    /// Adds memory to a zone: the frames from `first` on, which were a hole so far, become free
    /// pages (Linux: `online_pages`). `first` and `pages` must be multiples of 1024. Recomputes
    /// watermarks, sizes of page lists, reserves and thresholds for the new size of the zone.
    ///
    /// The layout decides how far a zone can grow: its span has to include the frames
    /// ([`Layout::arena_up_to`](crate::page::Layout::arena_up_to)).
    ///
    /// Allocates heap memory, and waits for locks. So this function must not be called by an OOM
    /// notifier, by the OOM killer, or by a thread that holds a lock that an allocation may need.
    ///
    /// # Errors
    /// If the range is not a hole of a zone, or if the records of the new pages cannot be
    /// allocated. In both cases, nothing changes.
    pub fn memory_online(&self, machine: &M, first: Pfn, pages: Pages) -> Result<(), ResizeError> {
        self.pages.memory_online(machine, first, pages)?;
        self.recompute(machine);
        Ok(())
    }

    /// Removes memory from a zone: the frames from `first` on, all of them free, become a hole
    /// (Linux: `offline_pages`). `first` and `pages` must be multiples of 1024. If the first page
    /// that is not free is on a page list, drains the page lists of all CPUs and tries once more.
    /// Does not move the contents of pages that are in use: [`ResizeError`] lists the reasons why a
    /// block stays. Pages on page lists do not count as free pages of the zone;
    /// [`PageAllocator::drain_all_sync`] returns them to the zone.
    ///
    /// Waits for locks. So this function must not be called by a
    /// [`Reclaimer`](crate::page::Reclaimer), by an OOM notifier, by the OOM killer, or by a thread
    /// that holds a lock that an allocation may need.
    ///
    /// # Errors
    /// If a page of the range is in use, or the zone would fall below its high watermark. In both
    /// cases, the zone keeps its memory, but page lists may have been drained. A range of several
    /// blocks is checked as a whole before the first block is removed. If another CPU takes a page
    /// of the range after this check, the blocks that were already removed are put back. Until they
    /// are put back, no CPU can allocate them.
    pub fn memory_offline(&self, machine: &M, first: Pfn, pages: Pages) -> Result<(), ResizeError> {
        self.pages.memory_offline(machine, first, pages)?;
        self.recompute(machine);
        Ok(())
    }

    /// Adds `delta` to the counter of `item` on this CPU's node.
    #[inline]
    pub fn count_node(&self, machine: &M, item: NodeItem, delta: i64) {
        self.node_here(machine).add(machine, item as usize, delta);
    }

    /// For each of `pfns`, adds `each` to the counter of `item` on the node of that frame, which
    /// may differ from this CPU's node (Linux: `mod_node_page_state` of `page_pgdat`). If a frame's
    /// node comes after the last node that has CPUs, the frame counts for that last node. Frames in
    /// no zone are skipped.
    pub fn count_each_on_nodes(&self, machine: &M, pfns: &[Pfn], item: NodeItem, each: i64) {
        let node = |pfn: &Pfn| self.pages.node_of(*pfn);
        for run in pfns.chunk_by(|one, next| node(one) == node(next)) {
            let Some(node) = node(&run[0]) else { continue };
            let counters = &self.nodes[node.index().min(self.nodes.len() - 1)];
            let delta = each.saturating_mul(signed(run.len() as u64));
            counters.add(machine, item as usize, delta);
        }
    }

    /// Adds one to the counter of `item` on this CPU's node or subtracts one, as `step` says.
    #[inline]
    pub fn step_node(&self, machine: &M, item: NodeItem, step: Direction) {
        self.node_here(machine).step(machine, item as usize, step);
    }

    /// The total of `item` over all nodes, differentials included.
    pub fn counted_on_nodes(&self, machine: &M, item: NodeItem) -> u64 {
        self.nodes
            .iter()
            .map(|node| node.snapshot(machine, item as usize))
            .fold(0, u64::saturating_add)
    }

    /// Lists the manager's own counters, each summed over all zones or nodes, differentials
    /// included (Linux: `/proc/vmstat`). All of them count pages.
    pub fn vmstat(&self, machine: &M) -> impl Iterator<Item = CounterRow> {
        let row = |name, value| CounterRow {
            spec: CounterSpec {
                name,
                unit: "pages",
            },
            value: signed(value),
        };
        let zones = ZoneItem::ALL.map(|item| row(item.name(), self.pages.counted(machine, item)));
        let nodes =
            NodeItem::ALL.map(|item| row(item.name(), self.counted_on_nodes(machine, item)));
        zones.into_iter().chain(nodes)
    }

    /// Returns whether `cpu` has differentials that are not in the shared counters yet (Linux:
    /// `need_update`).
    pub fn is_dirty(&self, machine: &M, cpu: CpuId) -> bool {
        let mut zones = self.pages.zones().iter().map(|zone| &zone.counters);
        zones.any(|counters| counters.is_dirty(machine, cpu))
            || self
                .nodes
                .iter()
                .any(|counters| counters.is_dirty(machine, cpu))
    }

    /// Does this CPU's periodic work: runs a refresh, and schedules the next one if
    /// [`Manager::refresh`] returned [`Changed::Yes`] (Linux: `vmstat_update`).
    fn update(&self, machine: &M) {
        let cpu = machine.this_cpu();
        let refreshed = self.refresh(machine);
        let Some(moment) = self.moment(machine, cpu) else {
            return;
        };
        if refreshed == Changed::Yes {
            let due = self.schedule.next(&moment);
            defer_update(machine, cpu, due, WhenIdle::Defer);
        }
    }

    /// Folds this CPU's differentials and decays its page lists. Returns [`Changed::Yes`] if
    /// anything changed, or if the next interval may find more to do.
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

    /// Folds all differentials of `cpu`, and leaves its page lists unchanged.
    fn fold(&self, machine: &M, cpu: CpuId) {
        for zone in self.pages.zones() {
            machine.spend(Work::RefreshZone, 1);
            zone.counters.fold(machine, cpu);
        }
        for node in &self.nodes {
            node.fold(machine, cpu);
        }
    }

    /// One round of the shepherd: restarts the vmstat work of CPUs that have stopped it and have
    /// something to do, and schedules itself again (Linux: `vmstat_shepherd`).
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
                defer_update(machine, cpu, due, idle);
            }
        }
        self.defer_shepherd(machine, word_of(here));
    }

    /// Returns what a refresh would find to do on `cpu`, a CPU on which no refresh is scheduled.
    /// Reads the lengths of the CPU's page lists only if the design's shepherd restarts the work of
    /// a CPU because of its pages. Linux's shepherd does not do so.
    fn leftovers(&self, machine: &M, cpu: CpuId) -> Leftovers {
        let counters = self.pages.zones().len() + self.nodes.len();
        machine.spend(Work::ScanCpu, count_of(counters));
        if self.is_dirty(machine, cpu) {
            Leftovers::Differentials
        } else if !self.shepherd.wakes(Leftovers::Pages) {
            Leftovers::Nothing
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

    /// Schedules the shepherd on CPU `from`, or on some online CPU if CPU `from` is offline or
    /// `from` is [`NOWHERE`]. Does nothing if `shepherd_home` is no longer `from`, because in that
    /// case another CPU has moved the shepherd. In every design, the shepherd's timer follows
    /// Linux's schedule (`RoundJiffies`).
    fn defer_shepherd(&self, machine: &M, mut from: i64) {
        let cpus: &Cpus<M> = self.pages.cpus();
        let moment = |cpu| self.moment(machine, cpu);
        // The loop ends, because each further iteration means that another CPU went online or
        // offline during the iteration before.
        loop {
            let first = || cpus.iter(machine).find_map(moment);
            let there = u32::try_from(from).ok().map(CpuId);
            let next = there.and_then(moment).or_else(first);
            let to = next.as_ref().map_or(NOWHERE, |moment| word_of(moment.cpu));
            // AcqRel pairs with the additions in `cpu_going` and `cpu_online`: of any two of these
            // operations, the later one sees everything that preceded the earlier one.
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

    /// The inputs with which a schedule computes when the vmstat work of `cpu` runs next, or `None`
    /// if `cpu` is offline.
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

    /// Sets the threshold of each node's counters to the largest threshold of the node's zones
    /// (Linux: `stat_threshold`).
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

/// Schedules the periodic work of `cpu`. If `due` is [`Due::At`], it was computed from the clock,
/// so this function accounts for the time of reading the clock. For [`Due::Wheel`] the current
/// jiffy is enough, and reading it costs nothing.
fn defer_update<M: Machine>(machine: &M, cpu: CpuId, due: Due, idle: WhenIdle) {
    if matches!(due, Due::At(_)) {
        machine.spend(Work::Clock, 1);
    }
    machine.defer(cpu, Job::VmstatUpdate, due, idle);
}

fn word_of(cpu: CpuId) -> i64 {
    i64::from(cpu.0)
}
