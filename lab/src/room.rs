//! A simulated machine with a memory manager in it, watched while it runs.
//!
//! Every run of every experiment starts here, so that all are watched alike: what fires when,
//! how many pages each hold moves, and whether a design keeps its promises.

use std::cell::RefCell;
use std::rc::Rc;

use plimsoll_mm::design::Design;
use plimsoll_mm::event::Event;
use plimsoll_mm::machine::{Job, Machine};
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::units::{CpuId, Nanos, Pages};
use plimsoll_mm::vmstat::Manager;
use plimsoll_sim::profile::Profile;
use plimsoll_sim::{Faults, Sim, SimOptions, Stats};

use crate::holds::HoldLog;

/// A machine, its memory manager, and what was seen.
pub struct Room {
    /// The machine.
    pub sim: Sim,
    /// Its memory manager.
    pub mm: Rc<Manager<Sim>>,
    log: Rc<RefCell<Log>>,
}

/// What was seen during a run.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// When each vmstat work started, and on which CPU, in order of time.
    pub starts: Vec<(Nanos, CpuId)>,
    /// Refreshes that ran.
    pub refreshes: u64,
    /// Pages that refreshes gave back.
    pub decayed: u64,
    /// Dormant CPUs that were kicked.
    pub kicks: u64,
    /// Blocks asked for in vain.
    pub out_of_memory: u64,
    /// Pages per hold of a zone lock.
    pub holds: HoldLog,
}

impl Room {
    /// The machine of `profile` with all its memory free, managed as `design` says.
    ///
    /// # Panics
    /// When the profile's memory cannot be managed: profiles are checked when they are loaded.
    #[must_use]
    pub fn new(profile: &Profile, design: Design, seed: u64) -> Self {
        Self::with_faults(profile, design, seed, Faults::default())
    }

    /// The same, with things going wrong on purpose.
    ///
    /// # Panics
    /// As [`Room::new`].
    #[must_use]
    pub fn with_faults(profile: &Profile, design: Design, seed: u64, faults: Faults) -> Self {
        let options = SimOptions {
            seed,
            faults,
            ..SimOptions::default()
        };
        let sim = Sim::new(profile, options);
        let mut config = Config::new(Layout::of_nodes(&profile.node_bytes).lazily());
        config.design = design;
        let mm = Manager::new(&sim, config).expect("a loaded profile has memory to manage");
        let room = Self {
            sim,
            mm: Rc::new(mm),
            log: Rc::default(),
        };
        room.watch();
        room.mm.start(&room.sim);
        room
    }

    fn watch(&self) {
        let (mm, log) = (Rc::clone(&self.mm), Rc::clone(&self.log));
        self.sim.on_job(move |sim, job| {
            if job == Job::VmstatUpdate {
                let start = (sim.now(), sim.this_cpu());
                log.borrow_mut().starts.push(start);
            }
            mm.run(sim, job);
        });
        let mm = Rc::clone(&self.mm);
        self.sim.on_idle(move |sim| mm.quiet(sim));
        let log = Rc::clone(&self.log);
        self.sim
            .observe(Box::new(move |_: &Sim, _, _, event: &Event| {
                log.borrow_mut().note(event);
            }));
    }

    /// Ends the run: what the machine counted, and what was seen.
    #[must_use]
    pub fn finish(self) -> (Stats, Log) {
        let stats = self.sim.stats();
        let mut log = self.log.take();
        // CPUs run ahead of each other, so starts come almost in order.
        log.starts.sort_unstable();
        (stats, log)
    }
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room").finish_non_exhaustive()
    }
}

impl Log {
    fn note(&mut self, event: &Event) {
        match *event {
            Event::Refresh { decayed, .. } => {
                self.refreshes += 1;
                self.decayed += u64::from(decayed.0);
            }
            Event::Kick { .. } => self.kicks += 1,
            Event::OutOfMemory { .. } => self.out_of_memory += 1,
            Event::ZoneHold {
                site,
                pages: Pages(pages),
                blocks,
                batch,
                ..
            } => self.holds.note(site, pages, blocks, batch.0),
            Event::PageAlloc { .. } | Event::PageFree { .. } => {}
        }
    }

    /// The most CPUs whose work started within `window` of each other, from `from` on.
    #[must_use]
    pub fn crowd(&self, window: Nanos, from: Nanos) -> usize {
        let starts: Vec<Nanos> = self.after(from).collect();
        let mut first = 0;
        let mut most = 0;
        for (last, &start) in starts.iter().enumerate() {
            while starts[first].0 + window.0 <= start.0 {
                first += 1;
            }
            most = most.max(last + 1 - first);
        }
        most
    }

    /// The most CPUs whose work started in one tick of `hz` ticks per second.
    #[must_use]
    pub fn crowd_on_one_tick(&self, hz: plimsoll_mm::units::Hz, from: Nanos) -> usize {
        let ticks: Vec<_> = self.after(from).map(|start| hz.jiffies(start)).collect();
        let same_tick = ticks.chunk_by(|one, next| one == next);
        same_tick.map(<[_]>::len).max().unwrap_or(0)
    }

    fn after(&self, from: Nanos) -> impl Iterator<Item = Nanos> {
        let starts = self.starts.iter().map(|(start, _)| *start);
        starts.skip_while(move |start| *start < from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_mm::units::Hz;

    fn log(starts: &[u64]) -> Log {
        let starts = starts.iter().map(|&ns| (Nanos(ns), CpuId(0))).collect();
        Log {
            starts,
            ..Log::default()
        }
    }

    #[test]
    fn a_crowd_is_the_fullest_window() {
        let log = log(&[0, 5, 9, 10, 11, 40]);
        assert_eq!(log.crowd(Nanos(10), Nanos(0)), 4);
        assert_eq!(log.crowd(Nanos(1), Nanos(0)), 1);
        assert_eq!(log.crowd(Nanos(10), Nanos(40)), 1);
        assert_eq!(log.crowd(Nanos(10), Nanos(41)), 0);
    }

    #[test]
    fn a_tick_counts_those_between_two_ticks() {
        let hz = Hz::new(1000).expect("in range");
        let log = log(&[999_999, 1_000_000, 1_999_999, 2_000_000]);
        assert_eq!(log.crowd_on_one_tick(hz, Nanos(0)), 2);
    }
}
