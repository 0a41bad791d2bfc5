//! Collects the slices of a run (what each CPU and task did, and when) during the run.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::rc::Rc;

use plimsoll_mm::Manager;
use plimsoll_mm::event::{Event, Phase};
use plimsoll_mm::machine::Machine;
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::{CpuId, Nanos};
use plimsoll_sim::{Hold, LockId, Runs, Sim, Step, Wait};
use rustc_hash::FxHashMap;

use super::data::{
    Count, Counted, Disturbed, Held, Mark, Moved, PhaseSlice, Releaser, Run, Slices, Waited,
};
use super::ends::Ends;
use super::{LONGEST, Limits};

/// The shortest time between two readings of the lengths of all page lists.
const SAMPLE: Nanos = Nanos(50_000);

/// Observes one run.
#[derive(Clone)]
pub struct Tracer(Rc<RefCell<Collector>>);

struct Collector {
    limits: Limits,
    slices: Slices,
    /// For each CPU, the task or work that it runs, and the time at which this began.
    running: Vec<(Runs, Nanos)>,
    /// For each CPU, true if the task that it runs has just been preempted.
    preempted: Vec<bool>,
    /// For each lock, the task that had the lock last, and the last time at which this task is
    /// known to have had the lock.
    last: FxHashMap<LockId, (Releaser, Nanos)>,
    holds: u64,
    /// For each CPU, the index in `slices.holds` of the CPU's last hold of a zone lock.
    zone_hold: Vec<Option<usize>>,
    /// For each task, the phases of its work that have begun and have not ended yet.
    phases: FxHashMap<u32, Vec<(Phase, CpuId, Nanos)>>,
    /// For each zone, how many pages are on its free lists.
    free: Vec<i64>,
    /// The time at which the lengths of the page lists are read next.
    sample_at: Nanos,
    mm: Rc<Manager<Sim>>,
    len: usize,
}

impl Tracer {
    /// Observes the run of `sim`, whose memory `mm` manages. Call this before the run.
    #[must_use]
    pub fn attach(sim: &Sim, mm: &Rc<Manager<Sim>>, limits: Limits) -> Self {
        let cpus = sim.topology().cpus();
        let free = mm.pages().view(sim);
        let tracer = Self(Rc::new(RefCell::new(Collector {
            limits,
            slices: Slices {
                cpus,
                seed: sim.seed(),
                ..Slices::default()
            },
            running: vec![(Runs::Nothing, Nanos(0)); cpus as usize],
            preempted: vec![false; cpus as usize],
            last: FxHashMap::default(),
            holds: 0,
            zone_hold: vec![None; cpus as usize],
            phases: FxHashMap::default(),
            free: free.iter().map(|zone| i64::from(zone.free.0)).collect(),
            sample_at: Nanos(0),
            mm: Rc::clone(mm),
            len: 0,
        })));
        let of_steps = tracer.clone();
        sim.observe_steps(move |step| of_steps.0.borrow_mut().step(step));
        let of_waits = tracer.clone();
        sim.observe_waits(move |wait| of_waits.0.borrow_mut().waited(wait));
        let of_events = tracer.clone();
        sim.observe(move |sim, cpu, at, event| {
            of_events.0.borrow_mut().event(sim, cpu, at, event);
        });
        tracer
    }

    /// Returns the slices (what each CPU and task did, and when) of the run. Call this when the run
    /// has ended.
    #[must_use]
    pub fn finish(&self, sim: &Sim) -> Slices {
        let mut collector = self.0.borrow_mut();
        let stats = sim.stats();
        collector.stop(stats.now);
        collector.shorten();
        let slices = std::mem::take(&mut collector.slices);
        Slices {
            hash: stats.hash,
            ended: stats.now,
            ..slices
        }
    }
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracer").finish_non_exhaustive()
    }
}

impl Collector {
    /// Returns whether to keep a slice (one thing that a CPU or task did) from `from` to `until`.
    /// If the number of slices has reached the limit, ends all slices that have begun.
    fn wanted(&mut self, from: Nanos, until: Nanos) -> bool {
        if self.slices.cut.is_some() || !self.is_within(from, until) {
            return false;
        }
        if self.len >= self.limits.slices_max {
            self.stop(until);
            self.slices.cut = Some(until);
            return false;
        }
        self.len += 1;
        true
    }

    fn is_within(&self, from: Nanos, until: Nanos) -> bool {
        let mut windows = self.limits.windows.iter();
        windows.any(|window| window.meets(from, until))
    }

    /// Ends all slices that have begun: everything that CPUs and tasks are doing. A slice ends at
    /// the time `at`, or later if a slice of the same CPU that was kept before ends later.
    fn stop(&mut self, at: Nanos) {
        if self.slices.cut.is_some() {
            return;
        }
        let ends = Ends::of(&self.slices, at);
        for cpu in (0..self.slices.cpus).map(CpuId) {
            let (runs, from) = self.running[cpu.index()];
            let until = ends.of_cpu(cpu);
            if runs != Runs::Nothing && from < until && self.is_within(from, until) {
                self.slices.runs.push(Run {
                    cpu,
                    runs,
                    from,
                    until,
                    preempted: false,
                });
            }
        }
        let phases = std::mem::take(&mut self.phases);
        for (task, open) in phases {
            let until = ends.of_task(task);
            for (phase, cpu, from) in open {
                if from < until && self.is_within(from, until) {
                    self.slices.phases.push(PhaseSlice {
                        task,
                        cpu,
                        phase,
                        from,
                        until,
                    });
                }
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Switch { cpu, at, runs } => self.switched(cpu, at, runs),
            Step::Preempted { cpu, .. } => self.preempted[cpu.index()] = true,
            Step::Disturbed {
                cpu,
                kind,
                from,
                until,
            } => {
                if from < until && self.wanted(from, until) {
                    self.slices.disturbed.push(Disturbed {
                        cpu,
                        kind,
                        from,
                        until,
                    });
                }
            }
            Step::Held(hold) => self.held(hold),
        }
    }

    fn switched(&mut self, cpu: CpuId, at: Nanos, runs: Runs) {
        let (before, from) = std::mem::replace(&mut self.running[cpu.index()], (runs, at));
        let preempted = std::mem::take(&mut self.preempted[cpu.index()]);
        if before != Runs::Nothing && from < at && self.wanted(from, at) {
            self.slices.runs.push(Run {
                cpu,
                runs: before,
                from,
                until: at,
                preempted,
            });
        }
    }

    fn held(&mut self, hold: Hold) {
        self.holds += 1;
        if hold.class == LockClass::Zone {
            self.zone_hold[hold.cpu.index()] = None;
        }
        // A task whose wait lies in a window gets the lock in this window or later. So a hold of
        // the lock that ended before the window does not matter for this wait.
        if !self.is_within(hold.from, hold.until) || self.slices.cut.is_some() {
            return;
        }
        let is_kept = hold.from < hold.until && self.wanted(hold.from, hold.until);
        let releaser = Releaser {
            cpu: hold.cpu,
            site: hold.site,
            hold: is_kept.then_some(self.holds),
        };
        self.last.insert(hold.lock, (releaser, hold.until));
        if is_kept {
            if hold.class == LockClass::Zone {
                self.zone_hold[hold.cpu.index()] = Some(self.slices.holds.len());
            }
            self.slices.holds.push(Held {
                number: self.holds,
                hold,
                moved: None,
            });
        }
    }

    fn waited(&mut self, wait: &Wait) {
        self.slices.longest.push(*wait);
        if self.slices.longest.len() >= 64 * LONGEST {
            self.shorten();
        }
        if !self.is_within(wait.from, wait.until) {
            return;
        }
        // The waiter now has the lock. The simulator does not report a hold that takes no time, so
        // assume for now that the waiter's hold takes none.
        let mine = Releaser {
            cpu: wait.cpu,
            site: wait.site,
            hold: None,
        };
        let before = self.last.insert(wait.lock, (mine, wait.until));
        if self.wanted(wait.from, wait.until) {
            // If the last reported hold of the lock ended before the wait began, the waiter waited
            // for a later hold. The later hold took no time, so it was not reported.
            let before = before.filter(|(_, until)| *until >= wait.from);
            let releaser = before.map(|(releaser, _)| releaser);
            let releaser = releaser.unwrap_or(Releaser {
                cpu: wait.blocker,
                site: wait.blocker_site,
                hold: None,
            });
            self.slices.waits.push(Waited {
                wait: *wait,
                releaser,
            });
        }
    }

    /// Shortens the list `longest` to the [`LONGEST`] longest waits.
    fn shorten(&mut self) {
        let longest = &mut self.slices.longest;
        longest.sort_by_key(|wait| (Reverse(wait.until.0 - wait.from.0), wait.from, wait.cpu));
        longest.truncate(LONGEST);
    }

    fn event(&mut self, sim: &Sim, cpu: CpuId, at: Nanos, event: &Event) {
        let mark = |what, numbers: &[(&'static str, u64)]| Some((what, numbers.to_vec()));
        let mark = match *event {
            Event::ZoneHold { .. } => return self.zone_hold(sim, cpu, at, event),
            Event::Begin(phase) => {
                let task = sim.this_task().unwrap_or(u32::MAX);
                return self.phases.entry(task).or_default().push((phase, cpu, at));
            }
            Event::End(phase) => return self.ended(sim, at, phase),
            Event::Refresh { decayed, .. } => {
                mark("vmstat refreshed", &[("decayed pages", decayed.0.into())])
            }
            Event::Kick { cpu } => mark("the shepherd kicks a CPU", &[("cpu", cpu.0.into())]),
            Event::OutOfMemory { .. } => mark("an allocation failed", &[]),
            Event::OomKill(id) => mark("a process is killed", &[("process", id.0.into())]),
            Event::MarkVictim(id) => mark("a victim may use reserves", &[("process", id.0.into())]),
            Event::WakeReaper(id) => mark("the reaper is woken", &[("process", id.0.into())]),
            Event::StartTaskReaping(id) => mark("the reaper starts", &[("process", id.0.into())]),
            Event::FinishTaskReaping(id) => {
                mark("the reaper has finished", &[("process", id.0.into())])
            }
            Event::SkipTaskReaping(id) => mark("the reaper gives up", &[("process", id.0.into())]),
            Event::KswapdWake(node) => mark("kswapd wakes", &[("node", node.0.into())]),
            Event::KswapdSleep(node) => mark("kswapd sleeps", &[("node", node.0.into())]),
            Event::ShrinkInactive {
                scanned, reclaimed, ..
            } => {
                let pages = [
                    ("scanned", scanned.0.into()),
                    ("reclaimed", reclaimed.0.into()),
                ];
                mark("inactive pages were scanned", &pages)
            }
            Event::ShrinkActive { deactivated, .. } => {
                mark("pages became inactive", &[("pages", deactivated.0.into())])
            }
            Event::PageAlloc { .. }
            | Event::PageFree { .. }
            | Event::PageSplit { .. }
            | Event::ZoneLocked { .. }
            | Event::PcpuDrain { .. } => None,
        };
        if let Some((what, numbers)) = mark
            && self.wanted(at, at)
        {
            self.slices.marks.push(Mark {
                cpu,
                at,
                what,
                numbers,
            });
        }
    }

    fn ended(&mut self, sim: &Sim, until: Nanos, phase: Phase) {
        let task = sim.this_task().unwrap_or(u32::MAX);
        let open = self.phases.get_mut(&task);
        let Some((begun, cpu, from)) = open.and_then(Vec::pop) else {
            return;
        };
        debug_assert_eq!(begun, phase, "the phases of a task nest");
        if from < until && self.wanted(from, until) {
            self.slices.phases.push(PhaseSlice {
                task,
                cpu,
                phase,
                from,
                until,
            });
        }
    }

    /// Records how many pages a hold of the zone lock has moved: in the entry of the last hold by
    /// `cpu`, and in the counts over time.
    fn zone_hold(&mut self, sim: &Sim, cpu: CpuId, at: Nanos, event: &Event) {
        let Event::ZoneHold {
            zone,
            site,
            cpu: lists_of,
            pages,
            blocks,
            ..
        } = *event
        else {
            return;
        };
        let signed = match site {
            Site::Refill | Site::AllocDirect => -i64::from(pages.0),
            _ => i64::from(pages.0),
        };
        let free = &mut self.free[zone as usize];
        *free += signed;
        let value = *free;
        if let Some(nth) = self.zone_hold[cpu.index()].take() {
            let held = &mut self.slices.holds[nth];
            if held.hold.site == site {
                held.moved = Some(Moved {
                    pages,
                    blocks,
                    lists_of,
                });
            }
        }
        let mut count = |what, value| {
            if self.wanted(at, at) {
                self.slices.counts.push(Count { at, what, value });
            }
        };
        count(Counted::Free(zone), value);
        if at >= self.sample_at && self.is_within(at, at) {
            self.sample_at = at + SAMPLE;
            let cpus = (0..self.slices.cpus).map(CpuId);
            let listed = cpus.map(|cpu| i64::from(self.mm.pages().listed(sim, cpu).0));
            let value = listed.sum();
            if self.wanted(at, at) {
                let what = Counted::Listed;
                self.slices.counts.push(Count { at, what, value });
            }
        }
    }
}
