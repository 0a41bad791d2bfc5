//! The labels of the events of a trace: their names and values. A label is made only when its event
//! is encoded. Until then, a trace keeps, for each of its millions of events, only the slice from
//! which the event is made.

use std::fmt;

use plimsoll_mm::machine::Job;
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_sim::{Access, Runs};

use super::event::What;
use crate::slices::Slices;

/// The name of an event. It is turned into text only once, when the trace assigns an id to the
/// name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Name {
    Plain(&'static str),
    Task(u32),
    Daemon(u32),
    Hold(LockClass, Site),
    Wait(LockClass, Site),
    ReleasesTo(u32),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(name) => f.write_str(name),
            Self::Task(task) => write!(f, "task {task}"),
            Self::Daemon(task) => write!(f, "daemon {task}"),
            Self::Hold(class, site) => write!(f, "hold {} ({})", class.name(), site.name()),
            Self::Wait(class, site) => write!(f, "wait for {} ({})", class.name(), site.name()),
            Self::ReleasesTo(cpu) => write!(f, "releases to CPU {cpu}"),
        }
    }
}

/// A text or a number that a viewer shows with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Number(u64),
    Text(&'static str),
}

/// The texts and numbers that a viewer shows with an event, each with its name. There are at most
/// four. They are in an array because a trace makes millions of them, one after the other, and a
/// `Vec` would allocate memory for each.
type Values = [Option<(&'static str, Value)>; 4];

/// The name of an event, and the text and numbers that a viewer shows with it.
pub(super) struct Label {
    pub(super) name: Name,
    pub(super) category: &'static str,
    pub(super) values: Values,
    /// The id of the flow (an arrow in the viewer) that begins at this event.
    pub(super) flow: Option<u64>,
    /// The id of the flow (an arrow in the viewer) that ends at this event.
    pub(super) flow_end: Option<u64>,
}

impl Label {
    fn new(name: Name, category: &'static str) -> Self {
        Self {
            name,
            category,
            values: [None; 4],
            flow: None,
            flow_end: None,
        }
    }

    /// The label of `what`, an event of the run `slices`. The flow (an arrow in the viewer) of the
    /// first wait in `slices` has the id `first_flow`.
    pub(super) fn of(what: What, slices: &Slices, first_flow: u64) -> Self {
        match what {
            What::Run(nth) => Self::new(runs(slices.runs[nth as usize].runs), "run"),
            What::Preempted => Self::new(Name::Plain("preempted"), "run"),
            What::Disturbed(nth) => {
                let kind = slices.disturbed[nth as usize].kind.name();
                Self::new(Name::Plain(kind), "disturbance")
            }
            What::Held(nth) => Self::of_hold(slices, nth),
            What::Waited(nth) => Self::of_wait(slices, nth, first_flow),
            What::Released(nth) => {
                let to = slices.waits[nth as usize].wait.cpu.0;
                Self {
                    flow_end: Some(first_flow + u64::from(nth)),
                    ..Self::new(Name::ReleasesTo(to), "hold")
                }
            }
            What::Phase(nth) => {
                let phase = &slices.phases[nth as usize];
                let on = ("began on CPU", Value::Number(phase.cpu.0.into()));
                Self {
                    values: [Some(on), None, None, None],
                    ..Self::new(Name::Plain(phase.phase.name()), "phase")
                }
            }
            What::Mark(nth) => {
                let mark = &slices.marks[nth as usize];
                let mut label = Self::new(Name::Plain(mark.what), "event");
                debug_assert!(mark.numbers.len() <= label.values.len(), "they all fit");
                for ((name, number), value) in mark.numbers.iter().zip(&mut label.values) {
                    *value = Some((name, Value::Number(*number)));
                }
                label
            }
        }
    }

    fn of_hold(slices: &Slices, nth: u32) -> Self {
        let held = &slices.holds[nth as usize];
        let hold = &held.hold;
        let mut label = Self::new(Name::Hold(hold.class, hold.site), "hold");
        if let Some(moved) = &held.moved {
            let numbers = [
                ("pages", moved.pages.0),
                ("blocks", moved.blocks),
                ("lists of CPU", moved.lists_of.0),
            ];
            for ((name, number), value) in numbers.into_iter().zip(&mut label.values) {
                *value = Some((name, Value::Number(number.into())));
            }
        }
        if hold.access == Access::Read {
            label.values[3] = Some(("held as", Value::Text("a reader")));
        }
        label
    }

    fn of_wait(slices: &Slices, nth: u32, first_flow: u64) -> Self {
        let waited = &slices.waits[nth as usize];
        let (wait, releaser) = (&waited.wait, &waited.releaser);
        let held = releaser.hold.and_then(|number| slices.hold(number));
        Self {
            flow: held.map(|_| first_flow + u64::from(nth)),
            values: [
                Some(("released by CPU", Value::Number(releaser.cpu.0.into()))),
                Some(("released at", Value::Text(releaser.site.name()))),
                None,
                None,
            ],
            ..Self::new(Name::Wait(wait.class, wait.site), "wait")
        }
    }
}

const fn runs(runs: Runs) -> Name {
    match runs {
        Runs::Nothing => Name::Plain("idle"),
        Runs::Task(task) => Name::Task(task),
        Runs::Daemon(task) => Name::Daemon(task),
        Runs::Job(Job::VmstatUpdate) => Name::Plain("vmstat_update"),
        Runs::Job(Job::Shepherd) => Name::Plain("vmstat_shepherd"),
        Runs::Quiet => Name::Plain("quiet_vmstat"),
    }
}
