//! Which tracks a trace of one run has, and what is on them.
//!
//! Each CPU has a track: what it runs, and below that, the holds of spinlocks and the waits for
//! them. A CPU that was disturbed has a second track, with the disturbances. What a task does over
//! several switches is on a track of the task: phases, and the holds of and waits for locks whose
//! waiters sleep. Counters have tracks of their own. The slices of a track nest, as Perfetto
//! demands.

use std::collections::BTreeMap;

use plimsoll_mm::machine::Job;
use plimsoll_mm::site::LockClass;
use plimsoll_mm::units::{CpuId, Nanos};
use plimsoll_sim::{Access, Runs};

use super::event::{Label, Slice, Value};
use crate::slices::{Counted, Slices};

/// A track of a run. The order is the one in which a viewer shows the tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Track {
    Waiting(LockClass),
    Counted(Counted),
    Cpu(u32, Lane),
    Task(u32),
}

/// One of the two tracks of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

    /// The unit of a track of values; `None` if the track has slices.
    pub(super) const fn unit(self) -> Option<&'static str> {
        match self {
            Self::Waiting(_) => Some("CPUs"),
            Self::Counted(_) => Some("pages"),
            Self::Cpu(..) | Self::Task(_) => None,
        }
    }
}

/// The tracks of a run.
#[derive(Default)]
pub(super) struct Tracks {
    pub(super) slices: BTreeMap<Track, Vec<Slice>>,
    /// The values of each track in order of time.
    pub(super) values: BTreeMap<Track, Vec<(u64, i64)>>,
}

impl Tracks {
    /// Lays out the slices of a run. `first_flow` is added to the number of each flow, so that the
    /// flows of several runs differ.
    pub(super) fn of(slices: &Slices, first_flow: u64) -> Self {
        let mut tracks = Self::default();
        for cpu in 0..slices.cpus {
            let track = Track::Cpu(cpu, Lane::Work);
            tracks.slices.insert(track, Vec::new());
        }
        tracks.add_runs(slices);
        tracks.add_holds(slices);
        tracks.add_waits(slices, first_flow);
        tracks.add_phases(slices);
        tracks.add_marks(slices);
        tracks.count(slices);
        tracks
    }

    fn add(&mut self, track: Track, from: Nanos, until: Nanos, label: Label) {
        self.slices.entry(track).or_default().push(Slice {
            from: from.0,
            until: until.0,
            label,
        });
    }

    fn add_runs(&mut self, slices: &Slices) {
        for run in &slices.runs {
            let track = Track::Cpu(run.cpu.0, Lane::Work);
            self.add(track, run.from, run.until, label(runs(run.runs), "run"));
            if run.preempted {
                let label = label("preempted".to_owned(), "run");
                self.add(track, run.until, run.until, label);
            }
        }
        for of in &slices.disturbed {
            let label = label(of.kind.name().to_owned(), "disturbance");
            let track = Track::Cpu(of.cpu.0, Lane::Disturbances);
            self.add(track, of.from, of.until, label);
        }
    }

    fn add_holds(&mut self, slices: &Slices) {
        for held in &slices.holds {
            let hold = &held.hold;
            let name = format!("hold {} ({})", hold.class.name(), hold.site.name());
            let mut label = label(name, "hold");
            let mut value = |name, value| label.values.push((name, Value::Number(value)));
            if let Some(moved) = &held.moved {
                value("pages", moved.pages.0.into());
                value("blocks", moved.blocks.into());
                value("lists of CPU", moved.lists_of.0.into());
            }
            if hold.access == Access::Read {
                label
                    .values
                    .push(("held as", Value::Text("a reader".to_owned())));
            }
            let track = track_of(hold.class, hold.cpu, hold.task);
            self.add(track, hold.from, hold.until, label);
        }
    }

    /// Adds the waits. A flow goes from each wait to the end of the hold that let the waiter go on.
    fn add_waits(&mut self, slices: &Slices, first_flow: u64) {
        for (flow, waited) in (first_flow..).zip(&slices.waits) {
            let (wait, releaser) = (&waited.wait, &waited.releaser);
            let name = format!("wait for {} ({})", wait.class.name(), wait.site.name());
            let held = releaser.hold.and_then(|number| slices.hold(number));
            let mut label = Label {
                flow: held.map(|_| flow),
                ..label(name, "wait")
            };
            label.values = vec![
                ("released by CPU", Value::Number(releaser.cpu.0.into())),
                ("released at", Value::Text(releaser.site.name().to_owned())),
            ];
            let track = track_of(wait.class, wait.cpu, wait.task);
            self.add(track, wait.from, wait.until, label);
            if let Some(held) = held {
                let hold = &held.hold;
                let end = Label {
                    name: format!("releases to CPU {}", wait.cpu.0),
                    category: "hold",
                    flows_end: vec![flow],
                    ..Label::default()
                };
                let track = track_of(hold.class, hold.cpu, hold.task);
                self.add(track, hold.until, hold.until, end);
            }
        }
    }

    fn add_phases(&mut self, slices: &Slices) {
        for phase in &slices.phases {
            let mut label = label(phase.phase.name().to_owned(), "phase");
            label.values = vec![("began on CPU", Value::Number(phase.cpu.0.into()))];
            self.add(Track::Task(phase.task), phase.from, phase.until, label);
        }
    }

    fn add_marks(&mut self, slices: &Slices) {
        for mark in &slices.marks {
            let mut label = label(mark.what.to_owned(), "event");
            let numbers = mark.numbers.iter();
            label.values = numbers
                .map(|(name, value)| (*name, Value::Number(*value)))
                .collect();
            let track = Track::Cpu(mark.cpu.0, Lane::Work);
            self.add(track, mark.at, mark.at, label);
        }
    }

    /// Adds the values, and how many CPUs wait for each class of locks.
    fn count(&mut self, slices: &Slices) {
        for count in &slices.counts {
            let track = self.values.entry(Track::Counted(count.what)).or_default();
            track.push((count.at.0, count.value));
        }
        let mut changes: BTreeMap<Track, BTreeMap<u64, i64>> = BTreeMap::new();
        for Wait { class, from, until } in slices.waits.iter().map(Wait::of) {
            let of = changes.entry(Track::Waiting(class)).or_default();
            *of.entry(from).or_default() += 1;
            *of.entry(until).or_default() -= 1;
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

/// The class and the times of a wait.
struct Wait {
    class: LockClass,
    from: u64,
    until: u64,
}

impl Wait {
    fn of(waited: &crate::slices::Waited) -> Self {
        let wait = &waited.wait;
        Self {
            class: wait.class,
            from: wait.from.0,
            until: wait.until.0,
        }
    }
}

/// The track of a hold or a wait. A task that sleeps while it waits leaves its CPU to other tasks.
fn track_of(class: LockClass, cpu: CpuId, task: u32) -> Track {
    if class.sleeps() {
        Track::Task(task)
    } else {
        Track::Cpu(cpu.0, Lane::Work)
    }
}

fn label(name: String, category: &'static str) -> Label {
    Label {
        name,
        category,
        ..Label::default()
    }
}

fn runs(runs: Runs) -> String {
    match runs {
        Runs::Nothing => "idle".to_owned(),
        Runs::Task(task) => format!("task {task}"),
        Runs::Daemon(task) => format!("daemon {task}"),
        Runs::Job(Job::VmstatUpdate) => "vmstat_update".to_owned(),
        Runs::Job(Job::Shepherd) => "vmstat_shepherd".to_owned(),
        Runs::Quiet => "quiet_vmstat".to_owned(),
    }
}
