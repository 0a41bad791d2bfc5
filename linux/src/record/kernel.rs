//! The facts about the kernel that a recording has in addition to its events.

use std::fs::{self, File};
use std::io::Read;

use plimsoll_recording::Header;
use rustix::param::page_size;
use rustix::system::uname;
use rustix::time::{ClockId, clock_getres};

use crate::tracefs::Marker;

/// Texts that change as memory is used, so the recorder reads them before and after the load.
const MOVING: [(&str, &str); 4] = [
    ("zoneinfo", "/proc/zoneinfo"),
    ("pagetypeinfo", "/proc/pagetypeinfo"),
    ("buddyinfo", "/proc/buddyinfo"),
    ("vmstat", "/proc/vmstat"),
];

/// Settings that determine the sizes of page lists and the times of the vmstat work, and facts
/// about the computer.
const SETTINGS: [(&str, &str); 8] = [
    ("min_free_kbytes", "/proc/sys/vm/min_free_kbytes"),
    (
        "watermark_scale_factor",
        "/proc/sys/vm/watermark_scale_factor",
    ),
    (
        "watermark_boost_factor",
        "/proc/sys/vm/watermark_boost_factor",
    ),
    (
        "percpu_pagelist_high_fraction",
        "/proc/sys/vm/percpu_pagelist_high_fraction",
    ),
    ("stat_interval", "/proc/sys/vm/stat_interval"),
    ("lowmem_reserve_ratio", "/proc/sys/vm/lowmem_reserve_ratio"),
    ("cpus online", "/sys/devices/system/cpu/online"),
    ("version", "/proc/version"),
];

/// The size of the buffer for texts, in bytes. It is large because zoneinfo has seven lines for
/// each CPU and zone.
const TEXT_BYTES: usize = 1 << 20;

/// Returns a header with the facts that do not change: the release, the tick rate, sizes, settings.
pub(super) fn header() -> Header {
    let uname = uname();
    let mut header = Header {
        release: uname.release().to_string_lossy().into_owned(),
        machine: uname.machine().to_string_lossy().into_owned(),
        hz: hz(),
        page_bytes: u32::try_from(page_size()).unwrap_or(0),
        ..Header::default()
    };
    for (name, path) in SETTINGS {
        if let Some(text) = read(path, &mut Vec::new()) {
            header.texts.push((name.to_owned(), text));
        }
    }
    header.texts.push(("nodes".to_owned(), nodes()));
    let slice = ("cache slice".to_owned(), cache_slice().to_string());
    header.texts.push(slice);
    let online = header.text("cpus online").unwrap_or_default();
    header.cpus = count(online);
    header
}

/// Returns CPU 0's share of its last-level cache, in bytes: the size divided by the number of CPUs
/// that share the cache (Linux: `per_cpu_data_slice_size`), or 0 if the kernel knows of no cache.
/// Linux uses this number to decide when a free of a small block empties the CPU's page lists.
fn cache_slice() -> u64 {
    const CACHES: &str = "/sys/devices/system/cpu/cpu0/cache";
    let text = |level: u32, name: &str| {
        let path = format!("{CACHES}/index{level}/{name}");
        read(&path, &mut Vec::new())
    };
    let last = (0..8).rev().find_map(|level| {
        let sharing = u64::from(count(&text(level, "shared_cpu_list")?));
        bytes(&text(level, "size")?)?.checked_div(sharing)
    });
    last.unwrap_or(0)
}

/// Returns a line for each node: its number and the CPUs that are near its memory, such as `1 4-7`.
fn nodes() -> String {
    const NODES: &str = "/sys/devices/system/node";
    let entries = fs::read_dir(NODES).into_iter().flatten().flatten();
    let mut nodes: Vec<(u32, String)> = Vec::new();
    for entry in entries {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("node"));
        let Some(number) = number.and_then(|number| number.parse().ok()) else {
            continue;
        };
        let cpus = read(&format!("{NODES}/node{number}/cpulist"), &mut Vec::new());
        nodes.push((number, cpus.unwrap_or_default()));
    }
    nodes.sort();
    let line = |(number, cpus): &(u32, String)| format!("{number} {cpus}\n");
    nodes.iter().map(line).collect()
}

/// Parses a size such as `32768K`, and returns bytes.
fn bytes(size: &str) -> Option<u64> {
    let kib = size.trim().strip_suffix('K')?;
    kib.parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the number of timer interrupts per second, which is the rate at which the coarse clock
/// advances.
fn hz() -> u32 {
    let tick = clock_getres(ClockId::MonotonicCoarse);
    let tick_ns = u64::try_from(tick.tv_nsec).unwrap_or(0);
    let hz = 1_000_000_000_u64.checked_add(tick_ns / 2);
    let hz = hz.and_then(|hz| hz.checked_div(tick_ns)).unwrap_or(0);
    u32::try_from(hz).unwrap_or(0)
}

/// Reads the texts of [`MOVING`]; `moment` is `before` or `after`. The recorder writes a note into
/// the ring buffer before and after it reads each text. So the recording shows which events
/// happened while the recorder read the text.
pub(super) fn texts(header: &mut Header, moment: &str, marker: &mut Marker) {
    // Fill the buffer now, so that the kernel has allocated all pages of the buffer before the
    // first note.
    let mut buffer = vec![1; TEXT_BYTES];
    for (name, path) in MOVING {
        let name = format!("{name} {moment}");
        marker.note(&format!("reading {name}"));
        let text = read(path, &mut buffer);
        marker.note(&format!("read {name}"));
        let Some(text) = text else {
            let missing = format!("{path} could not be read, so the recording lacks it.");
            header.missing.push(missing);
            continue;
        };
        if name == "pagetypeinfo before" {
            header.pageblock_pages = pageblock_pages(&text);
        }
        header.texts.push((name, text));
    }
}

/// Reads a file with as few calls as the size of `buffer` allows.
fn read(path: &str, buffer: &mut Vec<u8>) -> Option<String> {
    buffer.resize(buffer.len().max(1 << 12), 0);
    let mut file = File::open(path).ok()?;
    let mut text = Vec::new();
    // The loop ends: the text of a kernel file has an end, and this limit exceeds the longest such
    // text.
    while text.len() < TEXT_BYTES * 16 {
        let count = file.read(buffer).ok()?;
        if count == 0 {
            break;
        }
        text.extend_from_slice(&buffer[..count]);
    }
    Some(String::from_utf8_lossy(&text).trim_end().to_owned())
}

/// Returns the number of pages of a page block, from the line `Pages per block:  512` of `text`; 0
/// if there is no such line.
fn pageblock_pages(text: &str) -> u32 {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Pages per block:"));
    line.and_then(|pages| pages.trim().parse().ok())
        .unwrap_or(0)
}

/// Counts the numbers in a list such as `0-3,8`.
fn count(list: &str) -> u32 {
    let of_range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let first: u32 = first.trim().parse().ok()?;
        let last: u32 = last.trim().parse().ok()?;
        last.checked_sub(first)?.checked_add(1)
    };
    list.split(',').filter_map(of_range).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_counted() {
        assert_eq!(count("0-3,8\n"), 5);
        assert_eq!(count("0"), 1);
        assert_eq!(count(""), 0);
    }

    #[test]
    fn the_rate_of_ticks_is_one_that_linux_has() {
        assert!([100, 250, 300, 1000].contains(&hz()), "{}", hz());
    }

    #[test]
    fn sizes_of_caches_are_read() {
        assert_eq!(bytes("512K\n"), Some(512 << 10));
        assert_eq!(bytes("512"), None);
        assert_eq!(bytes("K"), None);
    }

    #[test]
    fn pages_of_a_block_are_read() {
        let text = "Page block order: 9\nPages per block:  512\n\nFree pages\n";
        assert_eq!(pageblock_pages(text), 512);
        assert_eq!(pageblock_pages(""), 0);
    }
}
