//! Out-of-memory kills: compares the order of the victims, and the scores of all processes.
//!
//! The kernel logs a table of the processes from which it chose a victim, and `log.rs` reads this
//! table. A load program had started these processes. Before memory ran out, the program read the
//! processes' figures from `/proc`, and `population.rs` parses these figures. From the table and
//! the figures, `perform.rs` repeats the selection and the kill.

pub(super) mod log;
mod perform;
pub(super) mod population;
mod scores;

use plimsoll_mm::oom::Selecting;
use plimsoll_recording::Recording;
use plimsoll_recording::event::What;

use self::log::Shortage;
use self::perform::Recorded;
use self::population::Population;
pub use self::scores::Scores;
use super::{Judge, Judgement};

/// Compares the processes that the kernel killed, and the order of the kills, with Plimsoll's
/// victims.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kills {
    /// The rule that selects a victim. `None` stands for the rule of the recorded kernel's version.
    pub selecting: Option<Selecting>,
}

impl Judge for Kills {
    fn name(&self) -> &'static str {
        "kills"
    }

    fn judge(&self, recording: &Recording) -> Option<Judgement> {
        let shortages = log::shortages(recording);
        let logged: Vec<u32> = shortages
            .iter()
            .flat_map(|shortage| shortage.killed.clone())
            .collect();
        let (marked, by_themselves) = marked(recording, &logged);
        if shortages.is_empty() && marked.is_empty() {
            return None;
        }
        let (population, unreadable) = Population::of(recording).unwrap_or_default();
        let selecting = self
            .selecting
            .unwrap_or_else(|| selecting_of(&recording.header.release));
        let mut comparison = Comparison::default();
        let mut spent: Vec<u32> = Vec::new();
        for shortage in &shortages {
            comparison.look(shortage, &population, &spent, selecting);
            spent.extend(&shortage.killed);
        }
        comparison.check_events(&logged, &marked);
        if by_themselves > 0 {
            comparison.notes.push(format!(
                "Marked without being chosen, because they were dying already when they asked for memory: \
                 {by_themselves}. Plimsoll marks such processes as well."
            ));
        }
        Some(comparison.judgement(selecting, unreadable))
    }
}

/// Returns the victims in the order of their `mark_victim` events, and the number of `mark_victim`
/// events of other threads. The log does not name such another thread: it was already dying when it
/// requested memory, and marked itself as a victim.
fn marked(recording: &Recording, logged: &[u32]) -> (Vec<u32>, usize) {
    let (mut marked, mut by_themselves) = (Vec::new(), 0);
    for event in &recording.events {
        match event.what {
            What::MarkVictim { victim } if victim == event.pid && !logged.contains(&victim) => {
                by_themselves += 1;
            }
            What::MarkVictim { victim } => marked.push(victim),
            _ => {}
        }
    }
    (marked, by_themselves)
}

/// The selection rule of the kernel `release`. Before 6.18, the kernel compares approximate counts
/// of pages. From 6.18 on, it sums the counters of all CPUs. If the release is unknown, the rule of
/// 6.18 is assumed.
fn selecting_of(release: &str) -> Selecting {
    let mut numbers = release
        .split(['.', '-', '+'])
        .map(|part| part.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) if (major, minor) < (6, 18) => Selecting::Approximate,
        _ => Selecting::Precise,
    }
}

#[derive(Default)]
struct Comparison {
    compared: u64,
    identical: u64,
    /// The number of kills that cannot be compared, because the kernel's log has no table of
    /// processes for the shortage that caused them.
    set_aside: u64,
    first_difference: Vec<String>,
    notes: Vec<String>,
}

impl Comparison {
    fn look(
        &mut self,
        shortage: &Shortage,
        population: &Population,
        spent: &[u32],
        selecting: Selecting,
    ) {
        if shortage.tasks.is_empty() {
            self.set_aside += shortage.killed.len() as u64;
            return;
        }
        let recorded = Recorded::new(shortage, population, spent);
        let ours = recorded.victims(selecting);
        let places = shortage.killed.len().max(ours.len());
        self.compared += places as u64;
        let same = shortage.killed.iter().zip(&ours).filter(|(a, b)| a == b);
        self.identical += same.count() as u64;
        if shortage.killed != ours && self.first_difference.is_empty() {
            self.first_difference = difference(shortage, &recorded, &ours);
        }
    }

    /// Records a difference if the kernel's log and the `mark_victim` events name different
    /// victims. If the recording has no log, sets the kills aside, because they cannot be compared.
    fn check_events(&mut self, logged: &[u32], marked: &[u32]) {
        if logged.is_empty() {
            self.set_aside += marked.len() as u64;
        } else if !marked.is_empty() && marked != logged {
            self.notes.push(format!(
                "The log names {} killed processes, mark_victim events name {}, and they are not all the \
             same: the log may have lost its beginning.",
                logged.len(),
                marked.len()
            ));
        }
    }

    fn judgement(mut self, selecting: Selecting, unreadable: usize) -> Judgement {
        self.notes
            .push(format!("Victims are selected by {}.", selecting.name()));
        if self.set_aside > 0 {
            self.notes.push(format!(
                "{} kills are set aside: the log has no table of processes for them (the kernel writes \
                 at most ten in five seconds, and vm.oom_dump_tasks may be off).",
                self.set_aside
            ));
        }
        if unreadable > 0 {
            self.notes.push(format!(
                "{unreadable} lines of `{}` could not be read.",
                population::TEXT
            ));
        }
        Judgement {
            subject: "order of kills".to_owned(),
            unit: "kills",
            compared: self.compared,
            identical: self.identical,
            set_aside: self.set_aside,
            first_difference: self.first_difference,
            notes: self.notes,
            ..Judgement::default()
        }
    }
}

/// Describes a shortage in which Plimsoll chose differently from the kernel: lines with the
/// kernel's victims, Plimsoll's victims, and the five processes with the most points (as
/// `oom_badness` computes them).
fn difference(shortage: &Shortage, recorded: &Recorded<'_>, ours: &[u32]) -> Vec<String> {
    let mut lines = vec![
        format!("the kernel killed {:?}", shortage.killed),
        format!("Plimsoll kills    {ours:?}"),
    ];
    let mut rows: Vec<_> = shortage
        .tasks
        .iter()
        .filter_map(|task| Some((recorded.points(task)?, task)))
        .collect();
    rows.sort_by_key(|(points, _)| core::cmp::Reverse(*points));
    lines.extend(rows.iter().take(5).map(|(points, task)| {
        format!(
            "process {:>6}: {points} points, {} resident, {} swap, {} table bytes, adj {}",
            task.pid, task.resident, task.swap, task.table_bytes, task.adj
        )
    }));
    lines
}
