//! A simulated machine with a memory manager, and a log of events while the machine runs.
//!
//! Every run that uses the page allocator has a testbed. So the lab observes all these runs in the
//! same way. The log has the times at which vmstat work starts, how many pages each hold of a zone
//! lock moves, and how many holds move more than one batch.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::event::Event;
use plimsoll_mm::machine::{Job, Machine};
use plimsoll_mm::page::holds::Limit;
use plimsoll_mm::page::owned::Owning;
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::page::{Config, Grouping, LastResort, Layout, Request};
use plimsoll_mm::site::Site;
use plimsoll_mm::tunables::Tunables;
use plimsoll_mm::units::{CpuId, Hz, Nanos, NodeId, Order, Pages};
use plimsoll_sim::profile::Profile;
use plimsoll_sim::{Faults, Sim, SimOptions, Stats};

use crate::measure::holds::HoldLog;
use crate::run::as_recording::Recorder;
use crate::run::pressure::{Pressure, ReclaimLog};
use crate::watch::{self, Watcher};

/// A simulated machine, its memory manager, and a log of both.
pub struct Testbed {
    /// The simulated machine.
    pub sim: Sim,
    /// The memory manager that runs on the machine.
    pub mm: Rc<Manager<Sim>>,
    log: Rc<RefCell<Log>>,
    recorder: Rc<RefCell<Option<Recorder>>>,
    watcher: Option<Watcher>,
    /// The variant of each mechanism that the manager uses.
    pub design: Design,
    /// The address spaces whose pages are reclaimed. `None` if there are no such address spaces.
    pub pressure: Option<Rc<Pressure>>,
}

/// The options of the simulator for a run of an experiment with `seed`. The run has the interrupts
/// and other disturbances of the machine's profile, and its CPUs become slower under load.
pub(crate) fn simulated(seed: u64) -> SimOptions {
    SimOptions {
        seed,
        jitter: true,
        under_load: true,
        ..SimOptions::default()
    }
}

/// The events and counts that were observed on the simulated machine during a run.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// The starts of vmstat work on all CPUs, in order of time.
    pub starts: Vec<Start>,
    /// The CPUs whose vmstat work the shepherd has queued and that have not started the work yet.
    kicked: BTreeSet<CpuId>,
    /// The number of runs of the vmstat work on all CPUs. Each of these runs is called a refresh.
    pub refreshes: u64,
    /// The number of pages that the vmstat work returned from page lists to zones.
    pub decayed: u64,
    /// The number of times that the shepherd (Linux: `vmstat_shepherd`) restarted a CPU's vmstat
    /// work.
    pub kicks: u64,
    /// The number of allocated pages. It is 0 unless [`Testbed::count_pages`] was called.
    pub allocated: u64,
    /// The number of allocations that no zone could serve.
    pub out_of_memory: u64,
    /// For each call site that takes a zone lock, how many pages moved while the lock was held.
    pub holds: HoldLog,
    /// Counts of the events of reclaim.
    pub reclaim: ReclaimLog,
}

/// A start of the vmstat work on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Start {
    /// The virtual time at which the work started.
    pub at: Nanos,
    /// The CPU that ran the work.
    pub cpu: CpuId,
    /// The cause of this start of the vmstat work.
    pub by: Cause,
}

/// The causes that can start a CPU's vmstat work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The CPU's own schedule (its timer) started the work.
    Schedule,
    /// The shepherd (Linux: `vmstat_shepherd`) restarted the work.
    Shepherd,
}

impl Testbed {
    /// Creates the machine of `profile` with all its memory free, and a manager of this memory that
    /// has the variants of `design`.
    ///
    /// # Panics
    /// If the profile's memory cannot be managed. This is not the case for any profile that has
    /// been loaded.
    #[must_use]
    pub fn new(profile: &Profile, design: Design, seed: u64) -> Self {
        Self::with_faults(profile, design, seed, Faults::default())
    }

    /// Creates a testbed as [`Testbed::new`] does. Its simulator injects the faults that `faults`
    /// describes.
    ///
    /// # Panics
    /// As [`Testbed::new`].
    #[must_use]
    pub fn with_faults(profile: &Profile, design: Design, seed: u64, faults: Faults) -> Self {
        let options = SimOptions {
            faults,
            ..simulated(seed)
        };
        Self::with_options(profile, design, options)
    }

    /// Creates a testbed as [`Testbed::new`] does, but with the simulator options `options`.
    ///
    /// # Panics
    /// As [`Testbed::new`].
    #[must_use]
    pub fn with_options(profile: &Profile, design: Design, options: SimOptions) -> Self {
        Self::with_last_resort(profile, design, options, None)
    }

    /// Creates a testbed as [`Testbed::with_options`] does, with a last resort that an allocation
    /// calls when nothing more can be reclaimed.
    ///
    /// # Panics
    /// As [`Testbed::new`].
    #[must_use]
    pub fn with_last_resort(
        profile: &Profile,
        design: Design,
        options: SimOptions,
        last_resort: Option<Box<dyn LastResort<Sim>>>,
    ) -> Self {
        let mut config = Config::new(Layout::of_nodes(&profile.node_bytes).lazily());
        config.last_resort = last_resort;
        Self::with_config(profile, design, options, config)
    }

    /// Creates the machine of `profile`, but with the zones of `layout` in place of the profile's
    /// memory, and with pages grouped by migrate type.
    ///
    /// # Panics
    /// If this memory cannot be managed.
    #[must_use]
    pub fn laid_out(profile: &Profile, design: Design, seed: u64, layout: Layout) -> Self {
        let mut config = Config::new(layout);
        config.grouping = Grouping::Huge;
        Self::with_config(profile, design, simulated(seed), config)
    }

    fn with_config(
        profile: &Profile,
        design: Design,
        options: SimOptions,
        mut config: Config<Sim>,
    ) -> Self {
        config.design = design;
        Self::with_sim(Sim::new(profile, options), design, config)
    }

    /// Creates a testbed as [`Testbed::new`] does, with `swap` slots of swap space. The testbed
    /// also has address spaces whose pages are reclaimed when memory is short.
    ///
    /// # Panics
    /// As [`Testbed::new`].
    #[must_use]
    pub fn with_pressure(profile: &Profile, design: Design, seed: u64, swap: u32) -> Self {
        Self::tuned(profile, design, seed, Some(swap), Tunables::default())
    }

    /// Creates a testbed as [`Testbed::new`] does if `swap` is `None`, and otherwise as
    /// [`Testbed::with_pressure`] does. The knobs have the values of `tunables` from the start.
    ///
    /// # Panics
    /// As [`Testbed::new`].
    #[must_use]
    pub fn tuned(
        profile: &Profile,
        design: Design,
        seed: u64,
        swap: Option<u32>,
        tunables: Tunables,
    ) -> Self {
        let mut config = Config::new(Layout::of_nodes(&profile.node_bytes).lazily());
        config.tunables = tunables;
        let Some(swap) = swap else {
            return Self::with_config(profile, design, simulated(seed), config);
        };
        let sim = Sim::new(profile, simulated(seed));
        let reclaim = Pressure::reclaim(&sim, &config.layout);
        config.design = design;
        config.pressure = Some(plimsoll_sim::pressure(&reclaim));
        let mut testbed = Self::with_sim(sim, design, config);
        let pressure = Pressure::new(&testbed.sim, &testbed.mm, &design, swap, &reclaim);
        testbed.pressure = Some(pressure);
        testbed
    }

    fn with_sim(sim: Sim, design: Design, config: Config<Sim>) -> Self {
        let mm = Manager::new(&sim, config).expect("there is memory to manage");
        let testbed = Self {
            mm: Rc::new(mm),
            log: Rc::default(),
            recorder: Rc::default(),
            watcher: watch::attach(&sim),
            sim,
            design,
            pressure: None,
        };
        testbed.watch();
        // If page lists have inboxes (pages that other CPUs have freed for the lists' owner),
        // reading the length of a list takes virtual time. The watcher must not change the run, so
        // it does not read such lists here.
        if let Some(watcher) = &testbed.watcher
            && design.owning != Owning::Inbox
        {
            watcher.read_lists(&testbed.mm);
        }
        testbed.mm.start(&testbed.sim);
        testbed
    }

    /// Allocates memory until few pages of each zone are free. In the highest zone of each node,
    /// the zone's low watermark plus `above` pages stay free. In every other zone, as many pages as
    /// its low watermark stay free. Call this before the run. The allocated blocks have all sizes
    /// down to one page, so exactly these numbers of pages stay free.
    ///
    /// # Panics
    /// If a zone has less memory than its view says, which is a bug in the manager.
    pub fn fill_to_low(&self, above: Pages) {
        let zones = self.mm.pages().view(&self.sim);
        let highest = |of: NodeId| {
            let kinds = zones.iter().filter(|zone| zone.node == of);
            kinds.map(|zone| zone.kind).max()
        };
        for (index, zone) in (0..).zip(&zones) {
            let is_highest = highest(zone.node) == Some(zone.kind);
            let above = if is_highest { above } else { Pages::ZERO };
            let mut left = zone.free.saturating_sub(zone.watermarks.low + above).0;
            for order in Order::all().rev() {
                let request = Request::new(order)
                    .urgent(Urgency::Reserve)
                    .from_zone(index);
                while left >= order.pages().0 {
                    let block = self.mm.pages().alloc(&self.sim, request);
                    block.expect("the zone was seen to have this many");
                    left -= order.pages().0;
                }
            }
        }
        // Filling memory is not part of the run, so remove its holds of zone locks from the log.
        self.forget_log();
    }

    /// Removes everything that was logged so far, such as the work of preparing memory.
    pub(crate) fn forget_log(&self) {
        self.log.take();
        if let Some(watcher) = &self.watcher {
            watcher.forget(&self.sim);
        }
    }

    /// Starts to record the events that a kernel would have printed, up to `events_max` events.
    #[must_use]
    pub fn record(&self, events_max: usize) -> Recorder {
        let recorder = Recorder::attach(&self.sim, events_max);
        self.recorder.replace(Some(recorder.clone()));
        recorder
    }

    /// Counts allocated pages from now on. Counting makes the run take longer on this computer.
    pub fn count_pages(&self) {
        self.sim.observe_pages();
    }

    fn watch(&self) {
        let (mm, log) = (Rc::clone(&self.mm), Rc::clone(&self.log));
        let recorder = Rc::clone(&self.recorder);
        let watcher = self.watcher.clone();
        self.sim.on_job(move |sim, job| {
            if job == Job::VmstatUpdate {
                log.borrow_mut().start(sim.now(), sim.this_cpu());
            }
            let recorder = recorder.borrow().clone();
            if let Some(recorder) = &recorder {
                recorder.job_starts(sim, job);
            }
            if let Some(watcher) = &watcher {
                watcher.job_starts(sim, job);
            }
            mm.run(sim, job);
            if let Some(recorder) = &recorder {
                recorder.job_ends(sim, job);
            }
            if let Some(watcher) = &watcher {
                watcher.job_ends(sim, job);
            }
        });
        let mm = Rc::clone(&self.mm);
        self.sim.on_idle(move |sim| mm.quiet(sim));
        let log = Rc::clone(&self.log);
        self.sim
            .observe(Box::new(move |_: &Sim, _, _, event: &Event| {
                log.borrow_mut().note(event);
            }));
    }

    /// Ends the run and returns the machine's statistics and the log.
    ///
    /// # Panics
    /// If `design` limits every hold of a zone lock strictly to one batch of pages, but a hold
    /// moved more than a batch in several blocks. Every hold of every run is checked.
    #[must_use]
    pub fn finish(self) -> (Stats, Log) {
        let stats = self.sim.stats();
        if let Some(watcher) = &self.watcher {
            watcher.ended(&stats);
        }
        let mut log = self.log.take();
        let limit = self.design.holds.limit(Site::Refill, Pages(63));
        assert!(
            !matches!(limit, Limit::Strict(_)) || log.holds.over_batch == 0,
            "{} holds of {} moved more than a batch (seed {})",
            log.holds.over_batch,
            self.design.holds.name(),
            self.sim.seed()
        );
        // A simulated CPU can log a start of vmstat work although the clocks of other CPUs are
        // earlier. So the log is not quite in order of time, and has to be sorted.
        log.starts.sort_unstable();
        (stats, log)
    }
}

impl std::fmt::Debug for Testbed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Testbed").finish_non_exhaustive()
    }
}

impl Log {
    fn start(&mut self, at: Nanos, cpu: CpuId) {
        let kicked = self.kicked.remove(&cpu);
        let by = if kicked {
            Cause::Shepherd
        } else {
            Cause::Schedule
        };
        self.starts.push(Start { at, cpu, by });
    }

    fn note(&mut self, event: &Event) {
        match *event {
            Event::Refresh { decayed, .. } => {
                self.refreshes += 1;
                self.decayed += u64::from(decayed.0);
            }
            Event::Kick { cpu } => {
                self.kicks += 1;
                self.kicked.insert(cpu);
            }
            Event::PageAlloc { order, .. } => self.allocated += u64::from(order.pages().0),
            Event::OutOfMemory { .. } => self.out_of_memory += 1,
            Event::ZoneHold {
                site,
                pages: Pages(pages),
                blocks,
                batch,
                ..
            } => self.holds.note(site, pages, blocks, batch.0),
            // The reclaim log counts the events of reclaim and ignores other events, such as frees,
            // phases and kills. A workload that needs these other events observes the machine
            // directly.
            ref other => self.reclaim.note(other),
        }
    }

    /// The times at which vmstat work started, at or after `from`. If `by` is not `None`, returns
    /// only starts with this cause.
    pub fn starts(&self, from: Nanos, by: Option<Cause>) -> impl Iterator<Item = Nanos> {
        let late = self.starts.iter().skip_while(move |start| start.at < from);
        late.filter(move |start| by.is_none_or(|by| by == start.by))
            .map(|start| start.at)
    }
}

/// Returns the largest number of `starts` within any interval of length `window`. `starts` are
/// times at which vmstat work started, in ascending order.
#[must_use]
pub fn crowd(starts: impl Iterator<Item = Nanos>, window: Nanos) -> usize {
    let mut recent = VecDeque::new();
    let mut most = 0;
    for start in starts {
        recent.push_back(start);
        while recent
            .front()
            .is_some_and(|first| first.0 + window.0 <= start.0)
        {
            recent.pop_front();
        }
        most = most.max(recent.len());
    }
    most
}

/// Returns the largest number of `starts` between two successive ticks. `starts` are times at which
/// vmstat work started, in ascending order.
#[must_use]
pub fn crowd_on_one_tick(starts: impl Iterator<Item = Nanos>, hz: Hz) -> usize {
    let ticks: Vec<_> = starts.map(|start| hz.jiffies(start)).collect();
    let same_tick = ticks.chunk_by(|one, next| one == next);
    same_tick.map(<[_]>::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_the_fullest_window() {
        let starts = || [0, 5, 9, 10, 11, 40].map(Nanos).into_iter();
        assert_eq!(crowd(starts(), Nanos(10)), 4);
        assert_eq!(crowd(starts(), Nanos(1)), 1);
        assert_eq!(crowd(starts().skip(6), Nanos(10)), 0);
    }

    #[test]
    fn a_tick_counts_those_between_two_ticks() {
        let hz = Hz::new(1000).expect("in range");
        let starts = [999_999, 1_000_000, 1_999_999, 2_000_000].map(Nanos);
        assert_eq!(crowd_on_one_tick(starts.into_iter(), hz), 2);
    }

    #[test]
    fn a_start_after_a_kick_is_the_shepherd_s_doing() {
        let mut log = Log::default();
        log.note(&Event::Kick { cpu: CpuId(1) });
        for (at, cpu) in [(1, 0), (2, 1), (3, 1)] {
            log.start(Nanos(at), CpuId(cpu));
        }
        let scheduled: Vec<Nanos> = log.starts(Nanos(0), Some(Cause::Schedule)).collect();
        assert_eq!(scheduled, [Nanos(1), Nanos(3)]);
        assert_eq!(log.starts(Nanos(2), None).count(), 2);
    }
}
