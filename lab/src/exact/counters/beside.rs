//! The errors that Plimsoll's tree counters would have had during the additions in a program's log.
//! In a tree counter, each CPU passes what it has counted up a tree, in multiples of a fixed size.
//!
//! By design, these errors differ from the errors of Linux's flat counter (`percpu_counter`). So
//! the exact replay does not compare the readings of tree counters with Linux's readings. The table
//! lists the worst error of each counter instead. The counters are built for a host with one socket
//! and one cache, because an emulated machine reports this topology.

use plimsoll_mm::counter::Counting;

use super::log::Run;
use super::replay::{Cuts, Replayed};
use super::replay_on;
use crate::report::Table;

/// A table with each counter's worst error and the bound that the counter promises for its error,
/// both in pages.
pub(super) fn table(runs: &[Run], flat: &[Replayed]) -> Table {
    let row = |(run, flat): (&Run, &Replayed)| {
        let tree = replay_on(run, Counting::Tree, Cuts::Given(&flat.cuts));
        let ours = replay_on(run, Counting::OneSided, Cuts::Given(&flat.cuts));
        let mut row = vec![run.name(), flat.worst_recorded.to_string()];
        for seen in [flat, &tree, &ours] {
            row.push(seen.worst.to_string());
            row.push(seen.bound.under.max(seen.bound.over).to_string());
        }
        row
    };
    Table {
        title: "Worst error in pages, and its bound".to_owned(),
        note: "`shown` is the recorded reading, never below 0; the others are not cut at 0."
            .to_owned(),
        columns: [
            "program",
            "shown",
            "flat",
            "most",
            "tree",
            "most",
            "one-sided",
            "most",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: runs.iter().zip(flat).map(row).collect(),
    }
}
