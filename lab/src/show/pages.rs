//! Tables of moves of pages between page lists and zones: the pages per move, the pages per hold of
//! a zone lock, and the moves of each CPU.

use std::collections::BTreeMap;

use super::moves::{Move, Path};
use crate::measure::metric::Unit;
use crate::report::figures::{Figures, Line, Measure, Stand};

/// Makes a table of the number of pages per move, with a row for each code path. The table counts
/// each move as one hold of the zone lock, because many recordings do not show where holds end.
/// `knows_updates` says whether the recording shows when `vmstat_update` ran. Without these times,
/// decays (moves by `vmstat_update`) and drains cannot be told apart.
#[must_use]
pub fn by_path(moves: &[Move], knows_updates: bool) -> Figures {
    let of = |path: Path| moves.iter().filter(move |one| one.path == path);
    let sizes = Path::ALL.map(|path| (path, of(path).map(|one| one.pages).collect()));
    let mut note = "Blocks that one CPU moved one after another are one move.".to_owned();
    if moves.iter().all(|one| one.holds.is_empty()) {
        note.push_str(" A kernel that releases the lock within a move looks as if it did not.");
    }
    if !knows_updates {
        note.push_str(" Without events of vmstat_update, decays count as drains.");
    }
    Figures {
        name: "moves",
        title: "Pages that moved at once between lists and zones",
        note,
        ..distribution(sizes)
    }
}

/// Makes a table of the pages that each hold of the zone lock moved, with a row for each code path.
/// The table has no rows if the recording does not show where holds end.
#[must_use]
pub fn by_hold(moves: &[Move]) -> Figures {
    let of = |path: Path| moves.iter().filter(move |one| one.path == path);
    let sizes = Path::ALL.map(|path| {
        let holds = of(path).flat_map(|one| one.holds.iter().copied());
        (path, holds.collect())
    });
    Figures {
        name: "holds",
        title: "Pages per hold of the zone lock",
        ..distribution(sizes)
    }
}

fn distribution(sizes: impl IntoIterator<Item = (Path, Vec<u64>)>) -> Figures {
    let lines = sizes.into_iter().filter_map(|(path, mut sizes)| {
        sizes.sort_unstable();
        let longest = *sizes.last()?;
        let (count, pages) = (sizes.len() as f64, sizes.iter().sum::<u64>() as f64);
        let at = |percent| quantile(&sizes, percent) as f64;
        let values = [count, pages, pages / count, at(50), at(99), longest as f64];
        Some(Line::full(vec![path.name().to_owned()], values))
    });
    let pages = |head, name| Measure::new(head, name, Unit::Pages);
    Figures {
        name: "",
        title: "",
        note: String::new(),
        keys: vec!["path"],
        same: 1,
        keys_stand: Stand::Before,
        measures: vec![
            Measure::new("times", "times", Unit::Count),
            pages("pages", "pages"),
            pages("mean", "mean_pages"),
            pages("p50", "p50_pages"),
            pages("p99", "p99_pages"),
            pages("most", "most_pages"),
        ],
        lines: lines.collect(),
    }
}

/// The smallest value in `sorted` such that at least `percent` percent of the values are not
/// larger.
fn quantile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted[rank.saturating_sub(1)]
}

/// How often each CPU moved pages by each code path (refill, spill, decay, drain), and how many
/// pages. The first row is for all CPUs.
#[must_use]
pub fn by_cpu(moves: &[Move]) -> Figures {
    const PATHS: [Path; 4] = [Path::Refill, Path::Spill, Path::Decay, Path::Drain];
    let mut cpus: BTreeMap<u32, [f64; 8]> = BTreeMap::new();
    let mut all = [0.0; 8];
    for one in moves {
        let Some(place) = PATHS.iter().position(|path| *path == one.path) else {
            continue;
        };
        for counts in [&mut all, cpus.entry(one.cpu).or_default()] {
            counts[2 * place] += 1.0;
            counts[2 * place + 1] += one.pages as f64;
        }
    }
    let by_cpu = cpus.iter().map(|(cpu, counts)| (cpu.to_string(), *counts));
    let lines: Vec<Line> = [("all".to_owned(), all)]
        .into_iter()
        .chain(by_cpu)
        .map(|(cpu, counts)| Line::full(vec![cpu], counts))
        .collect();
    let count = |head| Measure::new(head, head, Unit::Count);
    let pages = |name| Measure::new("pages", name, Unit::Pages);
    Figures {
        name: "cpus",
        title: "Refills, spills, decays and drains by CPU",
        note: "A drain counts on the CPU that ran it, which may not be the list's own.".to_owned(),
        keys: vec!["cpu"],
        same: 1,
        keys_stand: Stand::Before,
        measures: vec![
            count("refills"),
            pages("refill_pages"),
            count("spills"),
            pages("spill_pages"),
            count("decays"),
            pages("decay_pages"),
            count("drains"),
            pages("drain_pages"),
        ],
        lines: if cpus.is_empty() { Vec::new() } else { lines },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_a_value_that_occurred() {
        let sorted: Vec<u64> = (1..=100).collect();
        let found = [1, 50, 99, 100].map(|percent| quantile(&sorted, percent));
        assert_eq!(found, [1, 50, 99, 100]);
        assert_eq!([quantile(&[7], 50), quantile(&[7], 99)], [7, 7]);
        assert_eq!(quantile(&[1, 9], 50), 1);
    }
}
