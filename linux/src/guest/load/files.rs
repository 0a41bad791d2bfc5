//! The load `files`: every CPU writes, reads and deletes files and fills pipes, which allocates
//! pages of several migrate types. Then every CPU reads a part of a device through the page cache
//! while little memory is left.

use std::fs;
use std::io;

use super::{Guest, Load, Parameter, Values, mark};
use crate::guest::crew::Crew;
use crate::guest::op::Op;

/// A block device that reads as zeros and takes no memory until a process writes to it. Pages that
/// a load reads from this device are clean page cache, which the kernel can reclaim at once.
const ZRAM: &str = "/dev/zram0";
const ZRAM_SIZE: &str = "/sys/block/zram0/disksize";
/// The number of pages in a huge page.
const HUGE_PAGES: usize = 512;
/// The size of a page, in kB.
const PAGE_KB: usize = 4;

pub(super) const LOAD: Load = Load {
    name: "files",
    about: "Every CPU writes, reads and deletes files and fills pipes; then page cache is read \
            while little memory is left, so that it is reclaimed",
    parameters: &[
        Parameter::number("rounds", "rounds of each CPU", 3, (1, 1000)),
        Parameter::number("files", "files of one round", 8, (1, 1000)),
        Parameter::number("pages", "pages of a file", 64, (1, 1 << 16)),
        Parameter::number(
            "left",
            "MiB left free beyond what the kernel may keep; 0 is no pressure",
            64,
            (0, 1 << 20),
        ),
        Parameter::number(
            "cache",
            "MiB of page cache then read, all CPUs together",
            320,
            (0, 1 << 20),
        ),
    ],
    modules: &["zram"],
    settles: true,
    run,
};

fn run(guest: &Guest, values: &Values) -> io::Result<()> {
    mark("files and pipes")?;
    let program = |cpu| files(cpu, values);
    Crew::ready(&guest.programs(program))?.together()?;
    if values.number("left") == 0 {
        return Ok(());
    }
    mark("page cache under pressure")?;
    fs::write(ZRAM_SIZE, format!("{}M", values.number("cache").max(1)))?;
    let pages = values.count("cache") * 256 / guest.workers().count();
    // Each CPU reads a different part of the device, because pages that another CPU has read are
    // already in the page cache.
    let program = |cpu: u32| {
        let nth = guest.workers().take_while(|&other| other < cpu).count();
        vec![Op::ReadPart {
            file: ZRAM.to_owned(),
            first: nth * pages,
            pages,
        }]
    };
    // The readers start before memory becomes short, so that only their reads happen during the
    // shortage.
    let readers = Crew::ready(&guest.programs(program))?;
    let hog = [
        Op::Cpu(0),
        Op::MapHuge(hog_pages(values)?),
        Op::Report,
        Op::Wait,
    ];
    let mut hog = Crew::ready(&[hog.to_vec()])?;
    hog.go()?;
    hog.all_reached()?;
    readers.together()?;
    hog.kill()
}

/// Returns the program of the worker on one CPU. In each round, the worker writes files, fills four
/// pipes, and reads and deletes the files.
fn files(cpu: u32, values: &Values) -> Vec<Op> {
    let mut program = Vec::new();
    let pages = values.count("pages");
    for round in 0..values.number("rounds") {
        let name = |nth| format!("/tmp/files-{cpu}-{round}-{nth}");
        let all = || (0..values.number("files")).map(name);
        program.extend(all().map(|file| Op::WriteFile(file, pages)));
        program.push(Op::Pipes(4));
        program.extend(all().map(|file| Op::ReadFile(file, pages)));
        program.extend(all().map(Op::DeleteFile));
    }
    program
}

/// Returns the number of pages that the hog (the worker that uses up memory) allocates, rounded
/// down to whole huge pages. At least `left` MiB stay free in addition to the memory that the
/// kernel may keep.
fn hog_pages(values: &Values) -> io::Result<usize> {
    let free_kb = free_kb(&fs::read_to_string("/proc/meminfo")?)?;
    let min_kb = fs::read_to_string("/proc/sys/vm/min_free_kbytes")?;
    let min_kb: usize = min_kb.trim().parse().map_err(io::Error::other)?;
    let left_kb = values.count("left") * 1024 + kept_kb(min_kb);
    let pages = free_kb.saturating_sub(left_kb) / PAGE_KB;
    if pages < HUGE_PAGES {
        return Err(io::Error::other(format!(
            "{free_kb} kB are free, and {left_kb} are to be left"
        )));
    }
    Ok(pages / HUGE_PAGES * HUGE_PAGES)
}

/// Returns the largest amount of memory that the kernel may keep, in kB: the min watermark plus the
/// largest boost. If the hog, the worker that uses up memory, left less memory free, the kernel
/// would kill a process. It could not reclaim memory instead, because the page cache is still empty
/// when the hog allocates. A boost is at most one and a half times the high watermark, and the high
/// watermark is one and a half times the min watermark. Huge pages raise the min watermark to some
/// 60 MiB.
fn kept_kb(min_kb: usize) -> usize {
    min_kb + min_kb * 9 / 4
}

fn free_kb(meminfo: &str) -> io::Result<usize> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemFree:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| io::Error::other("/proc/meminfo does not say how much memory is free"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_is_written_is_deleted() {
        let program = files(2, &LOAD.values(&[]).unwrap());
        let mut there: Vec<&String> = Vec::new();
        for step in &program {
            match step {
                Op::WriteFile(file, _) => there.push(file),
                Op::ReadFile(file, _) => assert!(there.contains(&file)),
                Op::DeleteFile(file) => there.retain(|&other| other != file),
                _ => {}
            }
        }
        assert!(there.is_empty(), "{there:?}");
    }

    #[test]
    fn free_memory_is_read_from_its_line() {
        let text = "MemTotal:  2014204 kB\nMemFree:   1890000 kB\nMemAvailable: 5 kB\n";
        assert_eq!(free_kb(text).unwrap(), 1_890_000);
        free_kb("").unwrap_err();
    }
}
