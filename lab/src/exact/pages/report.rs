//! The result of comparing page lists, rendered as tables and lines of text.

use std::collections::BTreeMap;

use plimsoll_recording::event::{Event, What};
use plimsoll_recording::{Recording, Symbol};

use super::infer::Tally;
use super::op::{Action, Kind, Op};
use super::pair::Pair;
use super::zoneinfo::{self, ZoneInfo};
use crate::measure::metric::Unit;
use crate::report::Table;
use crate::report::value::human;

fn number(value: u64) -> String {
    human(value as f64, Unit::Count)
}

/// Returns tables of the moves of pages between page lists and zones, by kind and by CPU. `left`
/// has the number of pages on each CPU's lists at the end: on the kernel's lists, if this number is
/// known, and on Plimsoll's lists.
pub(super) fn tables(pairs: &[Pair], left: &BTreeMap<u32, (Option<u64>, u64)>) -> Vec<Table> {
    vec![by_kind(pairs), by_cpu(pairs, left)]
}

fn by_kind(pairs: &[Pair]) -> Table {
    let row = |kind: Kind| {
        let of_kind = || pairs.iter().filter(move |pair| pair.kind == kind);
        let compared = || of_kind().filter(|pair| !pair.unknown);
        let same = compared().filter(|pair| pair.is_same()).count();
        let pages = |side: fn(&Pair) -> u32| of_kind().map(|pair| u64::from(side(pair))).sum();
        let mut row = vec![kind.name().to_owned()];
        row.extend([compared().count(), same].map(|count| number(count as u64)));
        row.push(number(pages(|pair| pair.kernel.pages)));
        row.push(number(pages(|pair| pair.ours.pages)));
        row
    };
    Table {
        title: "Moves between page lists and zones, by kind".to_owned(),
        note: String::new(),
        columns: [
            "kind",
            "compared",
            "identical",
            "pages, kernel",
            "pages, Plimsoll",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: Kind::ALL.map(row).to_vec(),
    }
}

fn by_cpu(pairs: &[Pair], left: &BTreeMap<u32, (Option<u64>, u64)>) -> Table {
    let row = |(&cpu, &(kernel, ours)): (&u32, &(Option<u64>, u64))| {
        let of_cpu = || pairs.iter().filter(move |pair| pair.cpu == cpu);
        let compared = || of_cpu().filter(|pair| !pair.unknown);
        let same = compared().filter(|pair| pair.is_same()).count();
        let aside = of_cpu().filter(|pair| pair.unknown).count();
        let mut row = vec![cpu.to_string()];
        row.extend([compared().count(), same, aside].map(|count| number(count as u64)));
        row.push(kernel.map_or_else(|| crate::report::value::NOTHING.to_owned(), number));
        row.push(number(ours));
        row
    };
    Table {
        title: "The same by CPU, and pages left on its lists".to_owned(),
        note:
            "The kernel's count is that of /proc/zoneinfo at the end, which is read shortly before \
             or after the last operations of each CPU."
                .to_owned(),
        columns: [
            "CPU",
            "compared",
            "identical",
            "set aside",
            "left, kernel",
            "left, Plimsoll",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: left.iter().map(row).collect(),
    }
}

/// The number of pages on each CPU's lists at the end, from `/proc/zoneinfo`. The map is empty if
/// the recorder did not read `/proc/zoneinfo` at the end.
pub(super) fn left_at_end(recording: &Recording) -> BTreeMap<u32, u64> {
    let zones = recording.header.text("zoneinfo after").map(zoneinfo::parse);
    let mut left = BTreeMap::new();
    for zone in zones.unwrap_or_default() {
        for (cpu, lists) in (0..).zip(&zone.lists) {
            if let Some(lists) = lists {
                *left.entry(cpu).or_default() += lists.count;
            }
        }
    }
    left
}

/// Describes the first compared move that differs, with the events before and after it on the same
/// CPU. Returns no lines if no move differs.
pub(super) fn first_difference(
    recording: &Recording,
    zones: &[ZoneInfo],
    ops: &[Op],
    pairs: &[Pair],
) -> Vec<String> {
    let different = |pair: &&Pair| !pair.unknown && !pair.is_same();
    let Some(pair) = pairs.iter().find(different) else {
        return Vec::new();
    };
    let op = &ops[pair.op];
    let zone = zones
        .get(usize::from(pair.zone))
        .map_or("?", |zone| zone.name.as_str());
    let mut lines = vec![
        format!("CPU {}, zone {zone}: {}", pair.cpu, describe(&op.action)),
        format!(
            "{}: the kernel moved {} pages, Plimsoll {}",
            pair.kind.name(),
            pair.kernel.pages,
            pair.ours.pages
        ),
    ];
    lines.extend(around(recording, op.event as usize));
    lines
}

/// The number of the CPU's events that the report shows before the first difference, and after it.
const SHOWN: usize = 3;

fn around(recording: &Recording, at: usize) -> Vec<String> {
    let events = &recording.events;
    let Some(cpu) = events.get(at).map(|event| event.cpu) else {
        return Vec::new();
    };
    let of_cpu = |index: &usize| events[*index].cpu == cpu;
    let mut shown: Vec<usize> = (0..at).rev().filter(of_cpu).take(SHOWN).collect();
    shown.reverse();
    shown.push(at);
    shown.extend((at + 1..events.len()).filter(of_cpu).take(SHOWN));
    let line = |&index: &usize| {
        let sign = if index == at { '>' } else { ' ' };
        let line = format!("{sign} {}", show(&events[index], &recording.header.symbols));
        line.chars().take(76).collect()
    };
    shown.iter().map(line).collect()
}

fn show(event: &Event, symbols: &[String]) -> String {
    let seconds = event.time_ns as f64 / 1e9;
    let (cpu, pid) = (event.cpu, event.pid);
    format!(
        "{seconds:.6} [{cpu:03}] {pid:>6} {}",
        text(&event.what, symbols)
    )
}

fn text(what: &What, symbols: &[String]) -> String {
    let name = |symbol: Symbol| symbols.get(symbol.0 as usize).map_or("?", String::as_str);
    match *what {
        What::Alloc {
            pfn,
            order,
            mobility,
            ..
        } => {
            let mobility =
                mobility.map_or_else(String::new, |mobility| format!(" migratetype={mobility}"));
            format!("mm_page_alloc pfn={pfn:#x} order={order}{mobility}")
        }
        What::Free { pfn, order } => format!("mm_page_free pfn={pfn:#x} order={order}"),
        What::FreeBatched { pfn } => format!("mm_page_free_batched pfn={pfn:#x}"),
        What::PcpuDrain { pfn, order, .. } => {
            format!("mm_page_pcpu_drain pfn={pfn:#x} order={order}")
        }
        What::ZoneLocked {
            pfn,
            order,
            mobility,
            ..
        } => format!("mm_page_alloc_zone_locked pfn={pfn:#x} order={order} migratetype={mobility}"),
        What::ExtFrag { pfn, order, .. } => {
            format!("mm_page_alloc_extfrag pfn={pfn:#x} order={order}")
        }
        What::WorkStart { function, .. } => format!("workqueue_execute_start {}", name(function)),
        What::WorkEnd { function, .. } => format!("workqueue_execute_end {}", name(function)),
        What::Mark(ref text) => format!("mark {}", text.trim()),
        ref other => format!("{other:?}"),
    }
}

fn describe(action: &Action) -> String {
    match *action {
        Action::Alloc { list, pfn, .. } => format!(
            "frame {pfn:#x} is taken from the list of order {}, type {}",
            list.order(),
            list.mobility()
        ),
        Action::AllocDirect { order, pfn, .. } => {
            format!("frame {pfn:#x} of order {order} is taken from the zone")
        }
        Action::Bulk { ref pfns, .. } => format!("{} pages are taken at once", pfns.len()),
        Action::BulkNeverSeen { pages, .. } => format!("{pages} pages are taken at once"),
        Action::Free { list, pfn, .. } => format!(
            "frame {pfn:#x} is put on the list of order {}, type {}",
            list.order(),
            list.mobility()
        ),
        Action::FreeDirect { order, pfn, .. } => {
            format!("frame {pfn:#x} of order {order} is freed to the zone")
        }
        Action::Refresh => "its periodic work runs".to_owned(),
        Action::Drain { .. } => "its lists are emptied".to_owned(),
        Action::Reclaim { active: true, .. } => "kswapd begins to reclaim".to_owned(),
        Action::Reclaim { active: false, .. } => "kswapd ends reclaiming".to_owned(),
        Action::Sleep { .. } => "kswapd sleeps".to_owned(),
        Action::Boost { .. } => "watermarks are boosted".to_owned(),
        Action::Shortage { .. } => "an allocation finds too little".to_owned(),
        Action::Online(true) => "it comes".to_owned(),
        Action::Online(false) => "it goes".to_owned(),
    }
}

/// Returns notes on how the replay derived the operations. With these notes, a reader can judge the
/// figures.
pub(super) fn notes(tally: &Tally, pairs: &[Pair], refused: u64) -> Vec<String> {
    let mut notes = vec![format!(
        "Of {} blocks handed out that an event had put on a list, {} lay on top of the list that \
         the events before them give.",
        number(tally.predictable),
        number(tally.predicted)
    )];
    if tally.bulk_inferred > 0 {
        notes.push(format!(
            "{} pages were taken by bulk allocations, which have no event of their own{}.",
            number(tally.bulk_inferred),
            match tally.bulk_probed {
                0 => String::new(),
                probed => format!("; a probe counted {}", number(probed)),
            }
        ));
    }
    let aside: Vec<&Pair> = pairs.iter().filter(|pair| pair.unknown).collect();
    if !aside.is_empty() {
        let same = aside.iter().filter(|pair| pair.is_same()).count();
        notes.push(format!(
            "{} moves are set aside: they depend on what their CPU did before the recording, of which \
             only the pages on its lists are known, or were used to correct the lists after a \
             difference; {same} of them are identical.",
            aside.len()
        ));
    }
    let strange = [
        (
            tally.unexplained,
            "blocks were handed out that no event put on a list",
        ),
        (
            tally.drained_elsewhere,
            "blocks were given back that were not the coldest",
        ),
        (refused, "operations could not be performed"),
    ];
    notes.extend(
        strange
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{} {what}.", number(*count))),
    );
    notes
}
