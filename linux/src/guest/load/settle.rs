//! Brings the per-CPU lists into a known state, so that a replay knows where they began.
//!
//! A list remembers more than the pages on it: `high`, and by how much frees move at once. With
//! `percpu_pagelist_high_fraction` at its largest, `high` is the least it can be, and taking a CPU
//! off empties its lists. A little work then settles the rest. CPU 0 cannot be taken off.

use std::fs;
use std::io;

use super::{Guest, leave, mark};
use crate::guest::crew::Crew;
use crate::guest::op::Op;

const FRACTION: &str = "/proc/sys/vm/percpu_pagelist_high_fraction";
/// Reading it makes each CPU add what it has counted to the counters of zones.
const STAT_REFRESH: &str = "/proc/sys/vm/stat_refresh";
/// So large a fraction that `high` is four batches on every computer.
const LEAST_HIGH: &str = "1000000";
/// Enough pages for several refills and spills at the least `high`.
const PAGES_BEFORE: usize = 300;
/// Less than one batch: a refill, and all of it stays on the list.
const PAGES_AFTER: usize = 40;

pub(super) fn settle(guest: &Guest) -> io::Result<()> {
    fs::write(FRACTION, LEAST_HIGH)?;
    use_lists(guest, PAGES_BEFORE)?;
    for cpu in 1..guest.cpus {
        set_online(cpu, "0")?;
        mark(&format!("cpu {cpu} is off"))?;
    }
    for cpu in 1..guest.cpus {
        set_online(cpu, "1")?;
        mark(&format!("cpu {cpu} is on"))?;
    }
    use_lists(guest, PAGES_AFTER)?;
    fs::write(FRACTION, "0")?;
    mark("high is free again")?;
    // Each CPU has counted some free pages that the zone's counter does not show yet: now it does.
    let _ = fs::read(STAT_REFRESH)?;
    // The note comes at once: what happens before it is part of the state that the text tells.
    let zoneinfo = fs::read_to_string("/proc/zoneinfo")?;
    mark("settled")?;
    leave("zoneinfo settled", &zoneinfo)
}

fn use_lists(guest: &Guest, pages: usize) -> io::Result<()> {
    let program = |_| vec![Op::Map(pages), Op::UnmapAll];
    Crew::ready(&guest.programs(program))?.together()
}

fn set_online(cpu: u32, state: &str) -> io::Result<()> {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    fs::write(&file, state).map_err(|error| {
        let text = format!("cannot write {state} to {file}: {error}");
        io::Error::new(error.kind(), text)
    })
}
