//! Turns the events of a storm (a run in which memory runs out) into stalls of allocations, and
//! divides each stall into parts.
//!
//! Every nanosecond of a stall is in exactly one part. These are the parts of a stall in which the
//! stalled task selects a victim, kills it, and sleeps until the victim's pages are free:
//!
//! ```text
//! it runs:    attempts ─ looks ─ select ─ looks ┐                            ┌ attempts ─ page
//! it sleeps:                                    └ to exit ─ emptying ─ retry ┘
//! ```
//!
//! While the stalled task runs, the name of the part says what this task does. While the stalled
//! task sleeps, the name says what other tasks do. `to exit` lasts until a task begins to empty the
//! victim's memory, `emptying` until the first pages of the victim are freed, and `retry` until the
//! stalled task wakes up. A task that found the OOM lock taken sleeps in `select` or in `busy`
//! until some process is told to die.

use std::ops::Range;

use plimsoll_mm::units::CpuId;

/// An event of a storm, with its time in nanoseconds and the CPU that it happened on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimedEvent {
    pub(super) at: u64,
    pub(super) cpu: CpuId,
    pub(super) what: StormEvent,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StormEvent {
    /// An allocation stalls because it has found no page in any zone. The stall ends when the
    /// allocation has a page or fails.
    Stall(Edge),
    /// An allocation calls the last resort (here, the OOM killer).
    Ask(Edge),
    /// The last resort (here, the OOM killer) selects a victim.
    Select(Edge),
    /// A task sleeps so that other tasks can run.
    Pause(Edge),
    /// The process with this index was told to die.
    Kill(u32),
    /// A task starts to empty the memory of this victim.
    Empty(u32),
    /// Pages of this victim were freed.
    Back(u32),
    /// All memory of this victim that can be freed is free.
    Free(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    Begin,
    End,
}

/// A part of a stall. A stall lasts from the moment when an allocation finds no page until the
/// allocation has a page or fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Part {
    /// The task runs: the allocation tries the zones without success, drains page lists, and calls
    /// reclaimers (shrinkers).
    Attempts,
    /// The task runs inside the last resort (here, the OOM killer), but does not select a victim.
    /// Before and after the selection, it looks for free pages above the high watermark. It also
    /// kills the victim.
    Looks,
    /// The task selects a victim, or sleeps while another task selects one and no process is dying.
    Select,
    /// The task sleeps because it found the OOM lock taken, while no task selects a victim and no
    /// process is dying.
    Busy,
    /// The task sleeps after a victim was told to die, before any task empties the victim's memory.
    ToExit,
    /// The task sleeps while a victim's memory is being emptied and none of it has been freed yet.
    Emptying,
    /// The task still sleeps although pages of a victim have already been freed: the victim is
    /// still dying, or the last of its memory was freed during the stall.
    Retry,
}

impl Part {
    /// Every part of a stall, in the order of the enum.
    pub(crate) const ALL: [Self; 7] = [
        Self::Attempts,
        Self::Looks,
        Self::Select,
        Self::Busy,
        Self::ToExit,
        Self::Emptying,
        Self::Retry,
    ];

    /// The name of this part of a stall, as it occurs in the names of metrics.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Attempts => "attempts",
            Self::Looks => "looks",
            Self::Select => "select",
            Self::Busy => "busy",
            Self::ToExit => "to_exit",
            Self::Emptying => "emptying",
            Self::Retry => "retry",
        }
    }
}

/// The stall of one allocation. It lasts from the moment when the allocation finds no page until
/// the allocation has a page or fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stall {
    /// The CPU of the allocation.
    pub(crate) cpu: CpuId,
    /// The start and the end of the stall, in nanoseconds.
    pub(crate) span: Range<u64>,
    /// The number of times that the allocation called the last resort (here, the OOM killer).
    pub(crate) asked: usize,
    /// How many nanoseconds of the stall lie in each part, indexed by [`Part`].
    pub(crate) parts: [u64; Part::ALL.len()],
}

impl Stall {
    /// The length of the stall, in nanoseconds.
    #[must_use]
    pub(crate) const fn ns(&self) -> u64 {
        self.span.end - self.span.start
    }
}

/// The death of one process that was told to die. All times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Death {
    /// The process that was told to die.
    pub(crate) process: u32,
    /// The time at which the process was told to die.
    pub(crate) told: u64,
    /// The time at which a task began to empty the process's memory.
    pub(crate) emptying: Option<u64>,
    /// The time at which the first of the process's pages was freed.
    pub(crate) back: Option<u64>,
    /// The time at which all memory of the process was free, except memory that cannot be freed.
    pub(crate) free: Option<u64>,
}

/// All deaths, in the order in which the processes were told to die.
pub(super) fn deaths(notes: &[TimedEvent]) -> Vec<Death> {
    let mut deaths: Vec<Death> = Vec::new();
    for note in sorted(notes) {
        let mut of = |process: u32, set: fn(&mut Death) -> &mut Option<u64>| {
            let death = deaths.iter_mut().find(|death| death.process == process);
            // During a storm, tasks empty only the memory of processes that were told to die.
            if let Some(death) = death {
                set(death).get_or_insert(note.at);
            }
        };
        match note.what {
            StormEvent::Empty(process) => of(process, |death| &mut death.emptying),
            StormEvent::Back(process) => of(process, |death| &mut death.back),
            StormEvent::Free(process) => of(process, |death| &mut death.free),
            StormEvent::Kill(process) => deaths.push(Death {
                process,
                told: note.at,
                emptying: None,
                back: None,
                free: None,
            }),
            _ => {}
        }
    }
    deaths
}

/// All stalls that have ended. The time of each stall is divided into parts, such as the selection
/// of a victim.
pub(super) fn stalls(notes: &[TimedEvent], deaths: &[Death]) -> Vec<Stall> {
    let notes = sorted(notes);
    let selecting = spans(&notes, |what| edge(what, StormEvent::Select));
    let [stalls, asks, pauses] = [StormEvent::Stall, StormEvent::Ask, StormEvent::Pause]
        .map(|kind| spans(&notes, |what| edge(what, kind)));
    let of = |(cpu, span): &(CpuId, Range<u64>)| {
        let here = |spans: &[(CpuId, Range<u64>)]| -> Vec<Range<u64>> {
            let own = spans.iter().filter(|(at, other)| {
                at == cpu && other.start < span.end && other.end > span.start
            });
            own.map(|(_, span)| span.clone()).collect()
        };
        let story = Story {
            asks: here(&asks),
            selects: here(&selecting),
            pauses: here(&pauses),
            selecting: &selecting,
            deaths,
            since: span.start,
        };
        Stall {
            cpu: *cpu,
            span: span.clone(),
            asked: story.asks.len(),
            parts: story.parts(span),
        }
    };
    stalls.iter().map(of).collect()
}

/// The data from which the parts of a stall are computed: spans of time, and the deaths of victims.
struct Story<'a> {
    asks: Vec<Range<u64>>,
    selects: Vec<Range<u64>>,
    pauses: Vec<Range<u64>>,
    /// For each selection of a victim, its CPU, and its start and end in nanoseconds.
    selecting: &'a [(CpuId, Range<u64>)],
    deaths: &'a [Death],
    since: u64,
}

impl Story<'_> {
    fn parts(&self, span: &Range<u64>) -> [u64; Part::ALL.len()] {
        let own = [&self.asks, &self.selects, &self.pauses];
        let mut cuts: Vec<u64> = own
            .into_iter()
            .flatten()
            .flat_map(|span| [span.start, span.end])
            .collect();
        let others = self.selecting.iter();
        cuts.extend(others.flat_map(|(_, span)| [span.start, span.end]));
        for death in self.deaths {
            cuts.push(death.told);
            cuts.extend(
                [death.emptying, death.back, death.free]
                    .into_iter()
                    .flatten(),
            );
        }
        cuts.retain(|cut| span.contains(cut));
        cuts.extend([span.start, span.end]);
        cuts.sort_unstable();
        let mut parts = [0; Part::ALL.len()];
        for pair in cuts.windows(2) {
            parts[self.part(pair[0]) as usize] += pair[1] - pair[0];
        }
        parts
    }

    /// The part that the stall is in at the time `at`.
    fn part(&self, at: u64) -> Part {
        let is_in = |spans: &[Range<u64>]| spans.iter().any(|span| span.contains(&at));
        if is_in(&self.pauses) {
            return self.pausing(at);
        }
        if is_in(&self.selects) {
            Part::Select
        } else if is_in(&self.asks) {
            Part::Looks
        } else {
            Part::Attempts
        }
    }

    fn pausing(&self, at: u64) -> Part {
        let is_past = |time: Option<u64>| time.is_some_and(|time| time <= at);
        let dying = |death: &&Death| death.told <= at && !is_past(death.free);
        let dying: Vec<&Death> = self.deaths.iter().filter(dying).collect();
        let any = |of: fn(&Death) -> Option<u64>| dying.iter().any(|death| is_past(of(death)));
        if any(|death| death.back) {
            Part::Retry
        } else if any(|death| death.emptying) {
            Part::Emptying
        } else if !dying.is_empty() {
            Part::ToExit
        } else if self.selecting.iter().any(|(_, span)| span.contains(&at)) {
            Part::Select
        } else if self
            .deaths
            .iter()
            .any(|death| is_past(death.free) && death.free >= Some(self.since))
        {
            Part::Retry
        } else {
            Part::Busy
        }
    }
}

fn edge(what: StormEvent, kind: fn(Edge) -> StormEvent) -> Option<Edge> {
    [Edge::Begin, Edge::End]
        .into_iter()
        .find(|edge| kind(*edge) == what)
}

/// The spans between the events `Begin` and `End` that `edge` selects. An `End` closes the span
/// that was opened last on the same CPU. Spans that have not ended are left out.
fn spans(
    notes: &[TimedEvent],
    edge: impl Fn(StormEvent) -> Option<Edge>,
) -> Vec<(CpuId, Range<u64>)> {
    let mut open: Vec<(CpuId, u64)> = Vec::new();
    let mut spans = Vec::new();
    for note in notes {
        match edge(note.what) {
            Some(Edge::Begin) => open.push((note.cpu, note.at)),
            Some(Edge::End) => {
                let begun = open.iter().rposition(|(cpu, _)| *cpu == note.cpu);
                let (cpu, start) = open.remove(begun.expect("a stall that ends has begun"));
                spans.push((cpu, start..note.at));
            }
            None => {}
        }
    }
    spans.sort_by_key(|(cpu, span)| (span.start, *cpu));
    spans
}

/// The events in order of time. They are recorded only roughly in this order, because a simulated
/// CPU can run while the clocks of other CPUs are earlier. Events of one CPU keep their order.
fn sorted(notes: &[TimedEvent]) -> Vec<TimedEvent> {
    let mut sorted = notes.to_vec();
    sorted.sort_by_key(|note| note.at);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(at: u64, cpu: u32, what: StormEvent) -> TimedEvent {
        let cpu = CpuId(cpu);
        TimedEvent { at, cpu, what }
    }

    /// The events of two stalls. CPU 0 selects a victim and kills it, CPU 1 finds the OOM lock
    /// taken, and both CPUs' tasks sleep until pages of the victim are free.
    fn two() -> Vec<TimedEvent> {
        use Edge::{Begin, End};
        vec![
            note(10, 0, StormEvent::Stall(Begin)),
            note(15, 1, StormEvent::Stall(Begin)),
            note(20, 0, StormEvent::Ask(Begin)),
            note(24, 0, StormEvent::Select(Begin)),
            note(25, 1, StormEvent::Ask(Begin)),
            note(26, 1, StormEvent::Pause(Begin)),
            note(54, 0, StormEvent::Select(End)),
            note(60, 0, StormEvent::Kill(7)),
            note(61, 0, StormEvent::Pause(Begin)),
            note(70, 5, StormEvent::Empty(7)),
            note(75, 5, StormEvent::Back(7)),
            // CPU 5's clock is ahead of the clocks of the other CPUs, so its event comes before
            // their earlier events.
            note(99, 5, StormEvent::Free(7)),
            note(80, 1, StormEvent::Pause(End)),
            note(80, 0, StormEvent::Pause(End)),
            note(81, 0, StormEvent::Ask(End)),
            note(81, 1, StormEvent::Ask(End)),
            note(90, 0, StormEvent::Stall(End)),
            note(95, 1, StormEvent::Stall(End)),
        ]
    }

    fn of(notes: &[TimedEvent]) -> Vec<Stall> {
        stalls(notes, &deaths(notes))
    }

    #[test]
    fn every_moment_of_a_stall_is_in_one_part() {
        let [first, second] = &of(&two())[..] else {
            panic!("two stalls");
        };
        // The parts are in the order of [`Part::ALL`]: attempts, looks, select, busy, to exit,
        // emptying, retry.
        assert_eq!(first.parts, [10 + 9, 4 + 7 + 1, 30, 0, 9, 5, 5]);
        assert_eq!(second.parts, [10 + 14, 1 + 1, 28, 6, 10, 5, 5]);
        for stall in [first, second] {
            assert_eq!(stall.parts.iter().sum::<u64>(), stall.ns());
            assert_eq!(stall.asked, 1);
        }
    }

    /// A task sleeps in the last resort (the OOM killer), while no victim is dying and no task
    /// selects a victim. This time counts as the part [`Part::Busy`] of the task's stall.
    #[test]
    fn who_pauses_while_nobody_dies_or_selects_found_the_lock_busy() {
        let mut notes = two();
        notes.retain(|note| !matches!(note.what, StormEvent::Kill(_) | StormEvent::Select(_)));
        let parts = of(&notes)[1].parts;
        assert_eq!(parts[Part::Busy as usize], 54);
        assert!(deaths(&notes).is_empty());
    }

    /// The stalls do not depend on the order in which the events of different CPUs were recorded.
    #[test]
    fn the_order_in_which_cpus_tell_does_not_matter() {
        let mut notes = two();
        notes.sort_by_key(|note| (note.cpu, note.at));
        assert_eq!(of(&notes), of(&two()));
    }

    #[test]
    #[should_panic(expected = "a stall that ends has begun")]
    fn an_end_without_a_beginning_is_a_bug() {
        of(&[note(1, 0, StormEvent::Stall(Edge::End))]);
    }
}
