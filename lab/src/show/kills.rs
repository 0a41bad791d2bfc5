//! Finds in a recording the processes that the OOM killer killed, in order, and how the memory of
//! each process was freed.

use plimsoll_recording::{Event, Recording, What};

use crate::measure::metric::Unit;
use crate::report::figures::{Figures, Line, Measure, Stand};

/// One victim and the times of its kill, reaping and exit, in nanoseconds of the recorded clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Victim {
    /// The victim's process id.
    pub pid: u32,
    /// The id of the thread that chose the victim. This thread was allocating memory. It may belong
    /// to the victim.
    pub chosen_by: u32,
    /// The time at which the kernel chose the victim.
    pub killed_ns: u64,
    /// The time at which the reaper was first woken for this victim.
    pub woken_ns: Option<u64>,
    /// The time at which the reaper first began to empty the victim's address space.
    pub started_ns: Option<u64>,
    /// The time at which the reaper ended its last attempt at this victim. Attempts that it skipped
    /// do not count.
    pub finished_ns: Option<u64>,
    /// The number of attempts to reap this victim that the reaper skipped.
    pub skips: u64,
    /// The time at which the exiting victim had emptied its address space completely.
    pub exited_ns: Option<u64>,
}

/// Returns every victim, in the order in which the kernel chose them.
#[must_use]
pub fn victims(recording: &Recording) -> Vec<Victim> {
    let mut victims: Vec<Victim> = Vec::new();
    for event in &recording.events {
        note(&mut victims, event);
    }
    victims
}

fn note(victims: &mut Vec<Victim>, event: &Event) {
    let time_ns = event.time_ns;
    let pid = match event.what {
        What::MarkVictim { victim }
        | What::WakeReaper { victim }
        | What::StartReaping { victim }
        | What::FinishReaping { victim }
        | What::SkipReaping { victim } => victim,
        What::ExitMmap => event.pid,
        _ => return,
    };
    let last = victims.iter().rposition(|victim| victim.pid == pid);
    // If the last victim with this process id has exited, a new kill with this id is the kill of a
    // later process that has got the same id.
    let last = last.filter(|&nth| {
        !matches!(event.what, What::MarkVictim { .. }) || victims[nth].exited_ns.is_none()
    });
    let Some(victim) = last.map(|nth| &mut victims[nth]) else {
        if matches!(event.what, What::MarkVictim { .. }) {
            victims.push(Victim {
                pid,
                chosen_by: event.pid,
                killed_ns: time_ns,
                ..Victim::default()
            });
        }
        return;
    };
    match event.what {
        What::WakeReaper { .. } => victim.woken_ns = victim.woken_ns.or(Some(time_ns)),
        What::StartReaping { .. } => victim.started_ns = victim.started_ns.or(Some(time_ns)),
        What::FinishReaping { .. } => victim.finished_ns = Some(time_ns),
        What::SkipReaping { .. } => victim.skips += 1,
        What::ExitMmap => victim.exited_ns = victim.exited_ns.or(Some(time_ns)),
        _ => {}
    }
}

/// Makes a table of the victims, in the order of `victims`. `start_ns` is the time at which the
/// recording began, in nanoseconds.
#[must_use]
pub fn in_order(victims: &[Victim], start_ns: u64) -> Figures {
    let line = |(nth, victim): (usize, &Victim)| {
        let before = nth.checked_sub(1).map(|before| victims[before].killed_ns);
        Line {
            keys: vec![
                (nth + 1).to_string(),
                victim.pid.to_string(),
                victim.chosen_by.to_string(),
            ],
            values: vec![
                Some((victim.killed_ns - start_ns) as f64),
                before.map(|before| (victim.killed_ns - before) as f64),
            ],
        }
    };
    Figures {
        name: "victims",
        title: "Victims, in the order in which they were killed",
        note:
            "`killed` is the time since the recording began; `chosen by` is the thread that asked for \
             memory."
                .to_owned(),
        keys: vec!["nth", "victim", "chosen by"],
        same: 1,
        keys_stand: Stand::Before,
        measures: vec![
            Measure::new("killed", "killed_ns", Unit::Nanos),
            Measure::new("since the last", "since_last_ns", Unit::Nanos),
        ],
        lines: victims.iter().enumerate().map(line).collect(),
    }
}

/// A table of times since the kill, for each victim: when the reaper was woken, when it began, when
/// it finished, and when the victim had exited.
#[must_use]
pub fn timeline(victims: &[Victim]) -> Figures {
    let line = |(nth, victim): (usize, &Victim)| {
        let since = |at: Option<u64>| at.map(|at| (at - victim.killed_ns) as f64);
        Line {
            keys: vec![(nth + 1).to_string(), victim.pid.to_string()],
            values: vec![
                since(victim.woken_ns),
                since(victim.started_ns),
                since(victim.finished_ns),
                Some(victim.skips as f64),
                since(victim.exited_ns),
            ],
        }
    };
    let nanos = |head, name| Measure::new(head, name, Unit::Nanos);
    Figures {
        name: "reaping",
        title: "From the kill to the end of each victim's memory",
        note: "Times since the kill. An exit counts if the victim's first thread ran it."
            .to_owned(),
        keys: vec!["nth", "victim"],
        same: 1,
        keys_stand: Stand::Before,
        measures: vec![
            nanos("reaper woken", "woken_ns"),
            nanos("starts", "starts_ns"),
            nanos("finishes", "finishes_ns"),
            Measure::new("skips", "skips", Unit::Count),
            nanos("exit_mmap", "exit_mmap_ns"),
        ],
        lines: victims.iter().enumerate().map(line).collect(),
    }
}
