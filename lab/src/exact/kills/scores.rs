//! Compares `/proc/PID/oom_score` of every process with the score that Plimsoll computes from the
//! other files in `/proc/PID`.

use plimsoll_mm::oom::{Facts, Memory, ScoreAdj, TotalPages, Usage, badness, oom_score};
use plimsoll_recording::Recording;

use super::population::{self, Member, Population};
use crate::exact::{Judge, Judgement};

/// Compares `/proc/PID/oom_score` of every process with the score that Plimsoll computes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scores;

impl Judge for Scores {
    fn name(&self) -> &'static str {
        "scores"
    }

    fn judge(&self, recording: &Recording) -> Option<Judgement> {
        let (population, unreadable) = Population::of(recording)?;
        let total = TotalPages::new(population.total).ok()?;
        let differ = |member: &&Member| score(member, total) != member.score;
        let different: Vec<&Member> = population.members.iter().filter(differ).collect();
        let compared = population.members.len() as u64;
        let mut notes = vec![
            "Resident pages are those of /proc/PID/stat, which the kernel reads as cheaply as it does \
             for the score."
                .to_owned(),
        ];
        if population.members.iter().any(|member| member.swap_kib > 0) {
            notes.push(
                "Swap is that of /proc/PID/status, which is summed precisely, while the score takes \
                 the cheap reading: it may differ by the parts that CPUs have not folded."
                    .to_owned(),
            );
        }
        if unreadable > 0 {
            notes.push(format!(
                "{unreadable} lines of `{}` could not be read.",
                population::TEXT
            ));
        }
        Some(Judgement {
            subject: "OOM scores".to_owned(),
            unit: "scores",
            compared,
            identical: compared - different.len() as u64,
            first_difference: different.first().map_or_else(Vec::new, |member| {
                let ours = score(member, total);
                vec![format!(
                    "process {}: the kernel says {}, Plimsoll {ours}",
                    member.pid, member.score
                )]
            }),
            notes,
            ..Judgement::default()
        })
    }
}

fn score(member: &Member, total: TotalPages) -> u64 {
    let usage = Usage {
        resident_pages: member.rss_pages,
        swap_pages: member.swap_kib / 4,
        table_bytes: member.table_kib * 1024,
    };
    let facts = ScoreAdj::new(member.adj).map(|adj| Facts {
        kind: member.kind,
        memory: if member.vfork {
            Memory::Parents
        } else {
            Memory::Own
        },
        adj,
        ..Facts::PROCESS
    });
    let points = facts
        .ok()
        .and_then(|facts| badness(&facts, usage.pages(), total));
    oom_score(points, total)
}
