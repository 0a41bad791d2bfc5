//! The phases of the reaper's work in our runs, beside a profile that the mailing-list thread
//! published.
//!
//! The published profile covers only the reaper. In both profiles, a phase has the name of the
//! kernel's function.

use plimsoll_mm::event::Phase;

use super::scene::Scenes;
use super::{ASCENDING, PATCH};
use crate::experiment::driver::Run;
use crate::measure::metric::Unit;
use crate::report::value::human;
use crate::report::{Table, tabulate};
use crate::workload::victim::Raced;

/// A phase, and its published time without and with the patch, in milliseconds.
const PUBLISHED: [(Phase, f64, f64); 6] = [
    (Phase::Reap, 79.18, 49.58),
    (Phase::Unmap, 56.32, 28.78),
    (Phase::TableLock, 23.89, 3.47),
    (Phase::FreePages, 20.71, 17.69),
    (Phase::FinishGather, 12.83, 18.11),
    (Phase::Flush, 11.44, 2.41),
];

/// Makes the table of the time that each phase of the reaper takes, beside the published times. The
/// table shows the first scene (victim and machine) on the first seed.
pub(super) fn table(run: &Run<'_, Scenes, Raced>) -> Table {
    let shares = |part: f64, whole: f64| format!("{:.1} %", 100.0 * part / whole);
    let whole = PUBLISHED[0];
    let table = tabulate!(
        "The reaper alone, in shares of its running time: first scene, first seed",
        "Published: an earlier run of the thread, in which only the reaper was profiled. A phase \
         includes the phases inside it: tlb_finish_mmu includes most of \
         free_pages_and_swap_cache. The thread calls the last row tlb_flush, and does not say \
         whether pages that are freed at a flush are in it; ours are not.",
        &PUBLISHED,
        |(phase, before, after)| {
            "phase" => phase.name(),
            "published before" => shares(*before, whole.1),
            "published after" => shares(*after, whole.2),
        }
    );
    let of = |name| run.each().find(|(tried, _)| tried.name == name);
    let columns = [ASCENDING, PATCH].map(|name| (name, of(name)));
    table.with_each(&PUBLISHED, columns, |(phase, ..), found| {
        found.map_or_else(String::new, |(_, raced)| {
            let time = |phase| raced.tree.time(Phase::Reap, phase).0 as f64;
            let part = time(*phase);
            let share = shares(part, time(Phase::Reap).max(1.0));
            format!("{share} ({})", human(part, Unit::Nanos))
        })
    })
}
