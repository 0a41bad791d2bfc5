//! Brings the per-CPU lists into a known state, so that a replay can begin with the same state.
//!
//! The state of a list is its pages, `high` (the length at which a free returns pages to the zone),
//! and the number of pages that frees move in one batch. `settle` first sets
//! `percpu_pagelist_high_fraction` so large that `high` is as small as possible. Then it takes each
//! CPU except CPU 0 offline and online again, because Linux empties the lists of a CPU that goes
//! offline. CPU 0 cannot be taken offline. Finally, each of these CPUs allocates and frees a few
//! pages. After that, the state of the CPU's lists is known completely.

use std::fs;
use std::io;

use super::{Guest, leave, mark};
use crate::guest::crew::Crew;
use crate::guest::op::Op;

const FRACTION: &str = "/proc/sys/vm/percpu_pagelist_high_fraction";
/// When this file is read, each CPU adds its own counts to the counters of the zones.
const STAT_REFRESH: &str = "/proc/sys/vm/stat_refresh";
/// A value of `percpu_pagelist_high_fraction` that is so large that `high`, the limit of a CPU's
/// page lists, has its minimum of four batches on every computer.
const LEAST_HIGH: &str = "1000000";
/// The number of pages that each CPU allocates and frees before it goes offline: enough to move
/// pages from the zone to the CPU's list, and back, several times.
const PAGES_BEFORE: usize = 300;
/// The number of pages that each CPU allocates and frees after it has come online. These pages are
/// fewer than one batch, so one transfer from the zone to the list is enough, and all of them
/// remain on the list when they are freed.
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
    // Each CPU has counted free pages that the zone's counter does not include yet. This read makes
    // the CPUs add these counts to the zone's counter.
    let _ = fs::read(STAT_REFRESH)?;
    // The note follows immediately, because every event before the note counts as part of the state
    // that `/proc/zoneinfo` shows.
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
