//! The reaping of victims that do not exit. This module compares the reaper's events, and the
//! ranges that the reaper empties, in order. For `process_mrelease`, it compares the emptied ranges
//! and the return value.

pub(super) mod mappings;
mod perform;

use std::ops::Range;

use plimsoll_mm::space::reap::Reaping as How;
use plimsoll_recording::Recording;
use plimsoll_recording::event::{Event, What};

use self::mappings::{Mapping, joined, pages};
use super::{Judge, Judgement};

/// The name of the recording's text that holds the results of `process_mrelease`, in lines of the
/// form `release CASE flags=N ERRNO`.
pub(crate) const RELEASES: &str = "oom releases";

/// Compares the ranges that the kernel's OOM reaper empties, and the order of these ranges, with
/// the ranges that Plimsoll's reaper empties.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reaping {
    /// The order in which the reaper empties the ranges of a victim. `None` stands for the order of
    /// the recorded kernel's version.
    pub reaping: Option<How>,
}

/// A step of the kernel's reaper or of Plimsoll's: an event about the victim, or the emptying of a
/// range.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ReapEvent {
    Mark,
    Wake,
    Skip,
    Start,
    /// The reaper or `process_mrelease` removes the pages of this range from the victim's page
    /// tables.
    Range(Range<u64>),
    Finish,
}

impl Judge for Reaping {
    fn name(&self) -> &'static str {
        "reaping"
    }

    fn judge(&self, recording: &Recording) -> Option<Judgement> {
        let how = self
            .reaping
            .unwrap_or_else(|| how_of(&recording.header.release));
        let (victims, unreadable) = mappings::of(recording);
        let mut comparison = Comparison::default();
        for victim in reaped(recording) {
            let real = steps_of(recording, victim);
            let known = victims.iter().find(|(pid, _)| *pid == victim);
            comparison.reaper(victim, &real, known.map(|(_, mappings)| &mappings[..]), how);
        }
        for (victim, mappings) in &victims {
            comparison.release(recording, *victim, mappings, how);
        }
        comparison.cases(recording.header.text(RELEASES).unwrap_or_default());
        if comparison.compared == 0 {
            return None;
        }
        if unreadable > 0 {
            comparison.notes.push(format!(
                "{unreadable} lines of `{}` could not be read.",
                mappings::TEXT
            ));
        }
        comparison.notes.extend(times(recording));
        comparison.notes.push(
            "Neighbouring mappings that differ only in their permissions count as one, because Plimsoll \
             merges them."
                .to_owned(),
        );
        Some(Judgement {
            subject: "reaping".to_owned(),
            unit: "steps",
            compared: comparison.compared,
            identical: comparison.identical,
            first_difference: comparison.first_difference,
            notes: comparison.notes,
            ..Judgement::default()
        })
    }
}

/// Returns the order in which the kernel `release` reaps mappings. Before 6.18, the order is
/// ascending. From 6.18 on, or if the release is unknown, the kernel begins with the highest
/// mapping.
fn how_of(release: &str) -> How {
    let mut numbers = release
        .split(['.', '-', '+'])
        .map(|part| part.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) if (major, minor) < (6, 18) => How::Ascending,
        _ => How::DescendingByVma,
    }
}

/// The victims for which the reaper was woken, in the order of the wake-up events.
fn reaped(recording: &Recording) -> Vec<u32> {
    let events = recording.events.iter();
    let woken = events.filter_map(|event| match event.what {
        What::WakeReaper { victim } => Some(victim),
        _ => None,
    });
    woken.collect()
}

/// The recorded steps of `victim`. A range is a step if the reaper's thread empties it between the
/// start and the finish of one attempt to reap the victim.
fn steps_of(recording: &Recording, victim: u32) -> Vec<ReapEvent> {
    let (mut steps, mut reaper) = (Vec::new(), None);
    for event in &recording.events {
        match event.what {
            What::MarkVictim { victim: other } if other == victim => steps.push(ReapEvent::Mark),
            What::WakeReaper { victim: other } if other == victim => steps.push(ReapEvent::Wake),
            What::SkipReaping { victim: other } if other == victim => steps.push(ReapEvent::Skip),
            What::StartReaping { victim: other } if other == victim => {
                reaper = Some(event.pid);
                steps.push(ReapEvent::Start);
            }
            What::FinishReaping { victim: other } if other == victim => {
                reaper = None;
                steps.push(ReapEvent::Finish);
            }
            What::Unmap { start, end } if reaper == Some(event.pid) => {
                steps.push(ReapEvent::Range(pages(start, end)));
            }
            _ => {}
        }
    }
    steps
}

/// Separates `steps` into the events about the victim, in order, and the emptied ranges. Adjacent
/// ranges are merged.
fn apart(steps: &[ReapEvent]) -> (Vec<ReapEvent>, Vec<Range<u64>>) {
    let ranges = steps.iter().filter_map(|step| match step {
        ReapEvent::Range(range) => Some(range.clone()),
        _ => None,
    });
    let ranges = joined(ranges);
    let rest = steps
        .iter()
        .filter(|step| !matches!(step, ReapEvent::Range(_)));
    (rest.cloned().collect(), ranges)
}

#[derive(Default)]
struct Comparison {
    compared: u64,
    identical: u64,
    first_difference: Vec<String>,
    notes: Vec<String>,
}

impl Comparison {
    /// Lets Plimsoll's reaper empty a recorded victim, and compares its steps with the kernel's
    /// steps. Compares the ranges only if the victim's mappings are known.
    fn reaper(&mut self, victim: u32, real: &[ReapEvent], mappings: Option<&[Mapping]>, how: How) {
        let before_start = real.iter().take_while(|step| **step != ReapEvent::Start);
        let busy = before_start
            .filter(|step| **step == ReapEvent::Skip)
            .count();
        let ours = perform::reap(mappings.unwrap_or_default(), victim, how, busy);
        let ((real, real_ranges), (ours, our_ranges)) = (apart(real), apart(&ours));
        self.zip(&format!("events of victim {victim}"), &real, &ours);
        if mappings.is_some() {
            let name = format!("ranges of victim {victim}, in pages");
            self.zip(&name, &real_ranges, &our_ranges);
        }
    }

    /// Lets Plimsoll release a recorded victim (as `process_mrelease` does), and compares the
    /// emptied ranges with the kernel's. Does nothing if the recording lacks the marks
    /// `plimsoll: release PID` and `plimsoll: released PID`.
    fn release(&mut self, recording: &Recording, victim: u32, mappings: &[Mapping], how: How) {
        let Some(real) = between_marks(&recording.events, victim) else {
            return;
        };
        let (ours, done) = perform::released(mappings, victim, how);
        if !done {
            self.notes
                .push(format!("Plimsoll did not release all of process {victim}."));
        }
        let name = format!("ranges released of process {victim}, in pages");
        self.zip(&name, &joined(real), &joined(ours));
    }

    fn cases(&mut self, text: &str) {
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let ["release", case, flags, real] = words[..] else {
                continue;
            };
            let flags = flags
                .strip_prefix("flags=")
                .and_then(|flags| flags.parse().ok());
            let ours = flags.and_then(|flags| perform::release_case(case, flags));
            match ours {
                Some(ours) => self.zip(&format!("process_mrelease, {case}"), &[real], &[ours]),
                None => self.notes.push(format!("`{line}` is not understood.")),
            }
        }
    }

    fn zip<T: PartialEq + core::fmt::Debug>(&mut self, name: &str, real: &[T], ours: &[T]) {
        self.compared += real.len().max(ours.len()) as u64;
        let same = real.iter().zip(ours).filter(|(real, ours)| real == ours);
        self.identical += same.count() as u64;
        if real == ours || !self.first_difference.is_empty() {
            return;
        }
        let place = real.iter().zip(ours).position(|(real, ours)| real != ours);
        let place = place.unwrap_or(real.len().min(ours.len()));
        self.first_difference = vec![
            format!("{name}, number {}:", place + 1),
            format!("the kernel: {:?}", real.get(place)),
            format!("Plimsoll:   {:?}", ours.get(place)),
        ];
    }
}

/// The ranges that were emptied between the marks `plimsoll: release PID` and
/// `plimsoll: released PID`, by the thread that wrote the first mark. Returns `None` if the first
/// mark is missing.
fn between_marks(events: &[Event], victim: u32) -> Option<Vec<Range<u64>>> {
    let is =
        |event: &Event, text: &str| matches!(&event.what, What::Mark(mark) if mark.trim() == text);
    let begin = format!("plimsoll: release {victim}");
    let end = format!("plimsoll: released {victim}");
    let first = events.iter().position(|event| is(event, &begin))?;
    let by = events[first].pid;
    let during = events[first..].iter().take_while(|event| !is(event, &end));
    let ranges = during.filter(|event| event.pid == by);
    let ranges = ranges.filter_map(|event| match event.what {
        What::Unmap { start, end } => Some(pages(start, end)),
        _ => None,
    });
    Some(ranges.collect())
}

/// Returns a note with recorded times, in milliseconds: from the kill to the reaper's wake-up, and
/// from each attempt to the next attempt. Returns `None` if no recorded wake-up of the reaper comes
/// after the kill of the same victim.
fn times(recording: &Recording) -> Option<String> {
    let (mut delays, mut pauses) = (Vec::new(), Vec::new());
    for victim in reaped(recording) {
        let mut last = None;
        for event in &recording.events {
            let ms = event.time_ns / 1_000_000;
            match event.what {
                What::MarkVictim { victim: other } if other == victim => last = Some(ms),
                What::WakeReaper { victim: other } if other == victim => {
                    delays.extend(last.map(|last| ms.saturating_sub(last)));
                    last = None;
                }
                What::SkipReaping { victim: other } | What::StartReaping { victim: other }
                    if other == victim =>
                {
                    pauses.extend(last.map(|last| ms.saturating_sub(last)));
                    last = Some(ms);
                }
                _ => {}
            }
        }
    }
    let span = |times: &[u64]| Some((*times.iter().min()?, *times.iter().max()?));
    let (first, last) = span(&delays)?;
    let pauses = span(&pauses).map_or_else(String::new, |(least, most)| {
        format!(", and {least} to {most} ms from one attempt to the next (Plimsoll: 100 ms)")
    });
    Some(format!(
        "The reaper was woken {first} to {last} ms after the kill (Plimsoll: 2000 ms){pauses}; the timer \
         wheel rounds up."
    ))
}
