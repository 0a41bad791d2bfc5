//! Tests the tables that `plimsoll show` makes of recordings with known contents: hand-written,
//! random, and simulated.

mod kills;
mod pages;
mod properties;
mod simulated;
mod text;
mod waits;
mod work;

use plimsoll_lab::report::figures::Figures;
use plimsoll_lab::show;
use plimsoll_recording::{Event, Header, Recording, Symbol, What};

/// The kernel functions to which the events of these tests refer.
const SYMBOLS: [&str; 10] = [
    "vmstat_update",
    "vmstat_shepherd",
    "native_queued_spin_lock_slowpath",
    "_raw_spin_lock_irqsave",
    "rmqueue_bulk",
    "free_pcppages_bulk",
    "free_frozen_page_commit.part.0",
    "rwsem_down_read_slowpath",
    "lock_mm_and_find_vma",
    "get_page_from_freelist",
];

fn symbol(name: &str) -> Symbol {
    let place = SYMBOLS.iter().position(|known| *known == name);
    Symbol(u32::try_from(place.expect("a function of these tests")).expect("few"))
}

fn stack(names: &[&str]) -> Vec<Symbol> {
    names.iter().map(|name| symbol(name)).collect()
}

/// Makes a recording at HZ 250 from events `(time, CPU, thread, what)`, with times in nanoseconds.
fn recording(events: impl IntoIterator<Item = (u64, u32, u32, What)>) -> Recording {
    let event = |(time_ns, cpu, pid, what)| Event {
        time_ns,
        cpu,
        pid,
        what,
    };
    Recording {
        header: Header {
            release: "6.12.117".to_owned(),
            hz: 250,
            cpus: 4,
            symbols: SYMBOLS.map(str::to_owned).to_vec(),
            ..Header::default()
        },
        events: events.into_iter().map(event).collect(),
    }
}

/// Returns the table `name` of a recording.
fn table(recording: &Recording, name: &str) -> Figures {
    let mut figures = show::figures(recording, &[]);
    let place = figures.iter().position(|of| of.name == name);
    figures.swap_remove(place.expect("a table that exists"))
}

/// Returns the rows of a table as keys and numbers, with -1 for a missing number.
fn rows(figures: &Figures) -> Vec<(String, Vec<f64>)> {
    let line = |line: &plimsoll_lab::report::figures::Line| {
        let values = line.values.iter().map(|value| value.unwrap_or(-1.0));
        (line.keys.join(" "), values.collect())
    };
    figures.lines.iter().map(line).collect()
}

fn row(key: &str, values: &[f64]) -> (String, Vec<f64>) {
    (key.to_owned(), values.to_vec())
}

fn free(pfn: u64) -> What {
    What::Free { pfn, order: 0 }
}

fn batched(pfn: u64) -> What {
    What::FreeBatched { pfn }
}

fn drain(pfn: u64) -> What {
    What::PcpuDrain {
        pfn,
        order: 0,
        mobility: Some(1),
    }
}

fn taken(pfn: u64, order: u8) -> What {
    What::ZoneLocked {
        pfn,
        order,
        mobility: 1,
        percpu_refill: order <= 3,
    }
}

fn alloc(pfn: u64, order: u8) -> What {
    What::Alloc {
        pfn,
        order,
        mobility: Some(1),
        gfp: None,
    }
}

fn starts(name: &str, work: u64) -> What {
    let function = symbol(name);
    What::WorkStart { work, function }
}

fn ends(name: &str, work: u64) -> What {
    let function = symbol(name);
    What::WorkEnd { work, function }
}
