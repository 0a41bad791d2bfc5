//! Decides which tracks the trace of one run has, and which events are on each track.
//!
//! Each CPU has a track with everything that it runs and, below that, the holds of spinlocks and
//! the waits for spinlocks. A CPU that was disturbed, for example by interrupts, has a second track
//! with the disturbances. A task has a track of its own for everything during which it can lose its
//! CPU. These are the phases of its work, its holds of locks whose waiters sleep, and its waits for
//! such locks. Values that are counted over time have tracks of their own. The slices of a track
//! lie inside or beside one another, as Perfetto demands.

use std::collections::BTreeMap;

use plimsoll_mm::site::LockClass;
use plimsoll_mm::units::{CpuId, Nanos};
use plimsoll_sim::Hold;
use rustc_hash::FxHashMap;

use super::event::{Slice, What};
use crate::slices::{Counted, Held, Slices, Waited};

/// A track of a run. A viewer shows the tracks in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Track {
    Waiting(LockClass),
    Counted(Counted),
    Cpu(u32, Lane),
    Task(u32),
}

/// One of the two tracks that the trace shows for each CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Lane {
    Work,
    Disturbances,
}

impl Track {
    pub(super) fn name(self) -> String {
        match self {
            Self::Waiting(class) => format!("CPUs that wait for {}", class.name()),
            Self::Counted(Counted::Listed) => "pages on the lists of all CPUs".to_owned(),
            Self::Counted(Counted::Free(zone)) => format!("free pages of zone {zone}"),
            Self::Cpu(cpu, Lane::Work) => format!("CPU {cpu}"),
            Self::Cpu(cpu, Lane::Disturbances) => format!("disturbances of CPU {cpu}"),
            Self::Task(task) => format!("task {task}"),
        }
    }

    /// The unit of the values of this track. `None` if the track has slices (events that last some
    /// time) instead of values.
    pub(super) const fn unit(self) -> Option<&'static str> {
        match self {
            Self::Waiting(_) => Some("CPUs"),
            Self::Counted(_) => Some("pages"),
            Self::Cpu(..) | Self::Task(_) => None,
        }
    }
}

/// The tracks of a run, which are the rows in the viewer.
#[derive(Default)]
pub(super) struct Tracks {
    pub(super) slices: FxHashMap<Track, Vec<Slice>>,
    /// The values of each track that has values, in order of time.
    pub(super) values: BTreeMap<Track, Vec<(u64, i64)>>,
}

impl Tracks {
    /// Makes the tracks of a run from what its CPUs and tasks did (`slices`).
    pub(super) fn of(slices: &Slices) -> Self {
        let mut tracks = Self::default();
        for cpu in 0..slices.cpus {
            let track = Track::Cpu(cpu, Lane::Work);
            tracks.slices.insert(track, Vec::new());
        }
        tracks.add_runs(slices);
        tracks.add_locks(slices);
        for (nth, phase) in (0..).zip(&slices.phases) {
            let track = Track::Task(phase.task);
            tracks.add(track, phase.from, phase.until, What::Phase(nth));
        }
        for (nth, mark) in (0..).zip(&slices.marks) {
            let track = Track::Cpu(mark.cpu.0, Lane::Work);
            tracks.add(track, mark.at, mark.at, What::Mark(nth));
        }
        tracks.count(slices);
        tracks
    }

    fn add(&mut self, track: Track, from: Nanos, until: Nanos, what: What) {
        self.slices.entry(track).or_default().push(Slice {
            from: from.0,
            until: until.0,
            what,
        });
    }

    fn add_runs(&mut self, slices: &Slices) {
        for (nth, run) in (0..).zip(&slices.runs) {
            let track = Track::Cpu(run.cpu.0, Lane::Work);
            self.add(track, run.from, run.until, What::Run(nth));
            if run.preempted {
                self.add(track, run.until, run.until, What::Preempted);
            }
        }
        for (nth, of) in (0..).zip(&slices.disturbed) {
            let track = Track::Cpu(of.cpu.0, Lane::Disturbances);
            self.add(track, of.from, of.until, What::Disturbed(nth));
        }
    }

    /// Adds the holds and the waits. A flow (an arrow in the viewer) connects each wait with the
    /// release of the lock that let the waiter go on.
    fn add_locks(&mut self, slices: &Slices) {
        let of_hold = |hold: &Hold| track_of(hold.class, hold.cpu, hold.task);
        for (nth, Held { hold, .. }) in (0..).zip(&slices.holds) {
            self.add(of_hold(hold), hold.from, hold.until, What::Held(nth));
        }
        for (nth, Waited { wait, releaser }) in (0..).zip(&slices.waits) {
            let track = track_of(wait.class, wait.cpu, wait.task);
            self.add(track, wait.from, wait.until, What::Waited(nth));
            if let Some(held) = releaser.hold.and_then(|number| slices.hold(number)) {
                let at = held.hold.until;
                self.add(of_hold(&held.hold), at, at, What::Released(nth));
            }
        }
    }

    /// Adds the tracks of values: the values that were counted during the run, and how many CPUs
    /// wait for each class of locks.
    fn count(&mut self, slices: &Slices) {
        for count in &slices.counts {
            let track = self.values.entry(Track::Counted(count.what)).or_default();
            track.push((count.at.0, count.value));
        }
        let mut changes: BTreeMap<Track, BTreeMap<u64, i64>> = BTreeMap::new();
        for Waited { wait, .. } in &slices.waits {
            let of = changes.entry(Track::Waiting(wait.class)).or_default();
            *of.entry(wait.from.0).or_default() += 1;
            *of.entry(wait.until.0).or_default() -= 1;
        }
        for (track, changes) in changes {
            let waiting = changes.into_iter().scan(0, |waiting, (at, change)| {
                *waiting += change;
                Some((at, *waiting))
            });
            self.values.insert(track, waiting.collect());
        }
        for values in self.values.values_mut() {
            values.sort_by_key(|(at, _)| *at);
        }
    }
}

/// The track of a hold or a wait. If waiters for locks of `class` sleep, the task leaves its CPU to
/// other tasks, so its hold or wait is on the task's own track.
fn track_of(class: LockClass, cpu: CpuId, task: u32) -> Track {
    if class.sleeps() {
        Track::Task(task)
    } else {
        Track::Cpu(cpu.0, Lane::Work)
    }
}
