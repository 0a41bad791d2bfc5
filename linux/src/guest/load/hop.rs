//! The load `hop`: a program moves from CPU to CPU. It maps pages on one CPU and unmaps them on
//! another CPU. After each step, the program reads the number of resident pages that the kernel
//! reports for the program.
//!
//! The readings are stored as the text `hop` of the recording, one reading per line:
//!
//! ```text
//! # kind CPUs size seed
//! I all anon file shown          after the warm-up; `shown` is exact: all CPUs have folded `anon`
//! cpu +pages offset shown        mapped and touched; offset of the first page in its page table
//! cpu -pages offset shown        unmapped
//! P anon file shown smaps own statm    precise readings, taken from time to time
//! ```
//!
//! The kernel does not show a CPU's differential: the part of a counter that the CPU has not folded
//! into the shared value yet. So before the readings begin, the program touches pages on each CPU
//! in turn, one by one, until `shown` grows. At this moment, the CPU has just folded its whole
//! differential. The first steps of the log unmap these pages.
//!
//! `shown` is the cheap reading, the rss of `/proc/PID/stat`, in pages; `own` is the program's own
//! count. After the warm-up the program allocates only the pages that it logs, because the kernel
//! would count heap pages too.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use memmap2::MmapMut;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Guest, Load, Parameter, TEXTS, Values};
use crate::guest::worker::{PAGE_BYTES, pin, touch};

/// The largest number of mappings that the program keeps at a time. The program allocates the queue
/// of these mappings before the warm-up.
const KEPT_MAX: u64 = 8192;
/// The number of pages that one page table maps.
const TABLE_PAGES: usize = 512;
/// The number of times that the program reads the exact number of its resident pages during a run.
const PRECISE_READINGS: u64 = 40;
/// The size of the buffer that holds the log before it is written, in bytes.
const LOG_BYTES: usize = 1 << 16;

pub(super) const LOAD: Load = Load {
    name: "hop",
    about: "One program hops over all CPUs, maps on one and unmaps on another, and reads its \
            resident pages after each step (the text `hop` of the recording)",
    parameters: &[
        Parameter::word(
            "kind",
            "which CPUs: random ones, the next one, one half maps and the other unmaps, CPU 0 \
             unmaps all, or every CPU's part filled to its limit",
            &["random", "next", "halves", "one-unmaps", "edge"],
        ),
        Parameter::number("steps", "mappings", 2000, (1, 10_000_000)),
        Parameter::number(
            "size",
            "pages of a mapping; random: the largest",
            64,
            (1, 1 << 16),
        ),
        Parameter::number("kept", "mappings that are kept", 64, (1, KEPT_MAX - 1)),
        Parameter::number("seed", "seed of random CPUs and sizes", 1, (0, u64::MAX)),
    ],
    modules: &[],
    settles: false,
    run,
};

fn run(guest: &Guest, values: &Values) -> io::Result<()> {
    pin(0)?;
    let mut hopper = Hopper::new()?;
    // The warm-up runs twice. The first time, it also faults in the program's own code and stack.
    for _ in 0..2 {
        hopper.warm_up(batch(guest.cpus))?;
    }
    (0..guest.cpus).try_for_each(|cpu| hopper.fold(cpu, batch(guest.cpus)))?;
    let kind = values.text("kind");
    let (size, seed) = (values.number("size"), values.number("seed"));
    hopper.begin(&format!("# {kind} {} {size} {seed}\n", guest.cpus))?;
    (0..guest.cpus).try_for_each(|cpu| hopper.unmap_oldest(cpu))?;
    if kind == "edge" {
        edge(&mut hopper, guest, values)?;
    } else {
        hop(&mut hopper, guest, values)?;
    }
    hopper.precise()?;
    hopper.flush()
}

fn hop(hopper: &mut Hopper, guest: &Guest, values: &Values) -> io::Result<()> {
    let cpus = guest.cpus;
    let (size, kept) = (values.count("size"), values.count("kept"));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(values.number("seed"));
    let steps = values.number("steps");
    let every = steps / PRECISE_READINGS + 1;
    for (step, turn) in (0..steps).zip((0..cpus).cycle()) {
        let (pages, maps, unmaps) = match values.text("kind") {
            "random" => {
                let pages = random.random_range(1..=size);
                let cpu = |random: &mut Xoshiro256PlusPlus| random.random_range(0..cpus);
                (pages, cpu(&mut random), cpu(&mut random))
            }
            "halves" => {
                let half = (cpus / 2).max(1);
                let upper = random.random_range(half.min(cpus - 1)..cpus);
                (size, random.random_range(0..half), upper)
            }
            "one-unmaps" => (size, turn, 0),
            _ => (size, turn, turn),
        };
        hopper.map(maps, pages)?;
        if hopper.kept.len() > kept {
            hopper.unmap_oldest(unmaps)?;
        }
        if step % every == every - 1 {
            hopper.precise()?;
        }
    }
    Ok(())
}

/// Brings the differential of every CPU except CPU 0 to one page less than the batch, first
/// positive and then negative. The differential is the part of the counter that a CPU has not yet
/// added to the shared value. So the error of a cheap reading becomes as large as possible.
fn edge(hopper: &mut Hopper, guest: &Guest, values: &Values) -> io::Result<()> {
    let cpus = guest.cpus;
    let part = batch(cpus) - 1;
    let round = 6 * u64::from(cpus);
    for _ in 0..(values.number("steps") / round).max(1) {
        // Each CPU except CPU 0 maps pages and then unmaps them. So the CPU's differential (the
        // part of the counter that it has not added to the shared value) rises to `part` and
        // returns to zero.
        (1..cpus).try_for_each(|cpu| hopper.map(cpu, part))?;
        hopper.precise()?;
        (1..cpus).try_for_each(|cpu| hopper.unmap_oldest(cpu))?;
        // CPU 0 maps pages and the other CPUs unmap them, so the differential of each of the other
        // CPUs (the part of the counter that the CPU has not added to the shared value) falls to
        // `-part`. A CPU's differential returns to zero when the CPU maps the same number of pages
        // again.
        (1..cpus).try_for_each(|_| hopper.map(0, part))?;
        (1..cpus).try_for_each(|cpu| hopper.unmap_oldest(cpu))?;
        hopper.precise()?;
        (1..cpus).try_for_each(|cpu| hopper.map(cpu, part))?;
        (1..cpus).try_for_each(|_| hopper.unmap_oldest(0))?;
    }
    Ok(())
}

/// A mapping whose first `pages` pages were touched.
struct Kept {
    mapping: MmapMut,
    pages: usize,
}

struct Hopper {
    stat: File,
    status: File,
    rollup: File,
    statm: File,
    log: Log,
    buffer: Box<[u8]>,
    kept: VecDeque<Kept>,
    own_pages: usize,
}

impl Hopper {
    fn new() -> io::Result<Self> {
        fs::create_dir_all(TEXTS)?;
        let mut kept = VecDeque::new();
        // This loop fills the queue once, so that the queue allocates all its memory now.
        let places = usize::try_from(KEPT_MAX).unwrap_or(usize::MAX);
        for _ in 0..places {
            let mapping = MmapMut::map_anon(PAGE_BYTES)?;
            kept.push_back(Kept { mapping, pages: 0 });
        }
        kept.clear();
        Ok(Self {
            stat: File::open("/proc/self/stat")?,
            status: File::open("/proc/self/status")?,
            rollup: File::open("/proc/self/smaps_rollup")?,
            statm: File::open("/proc/self/statm")?,
            log: Log::create(&format!("{TEXTS}/hop"))?,
            buffer: vec![1; 8192].into_boxed_slice(),
            kept,
            own_pages: 0,
        })
    }

    /// Performs every operation once, so that later steps fault in no pages of the program itself.
    fn warm_up(&mut self, batch: usize) -> io::Result<()> {
        self.precise()?;
        self.fold(0, batch)?;
        self.unmap_oldest(0)?;
        for pages in [1, 3] {
            self.map(0, pages)?;
        }
        self.unmap_oldest(0)?;
        self.unmap_oldest(0)?;
        self.precise()
    }

    fn begin(&mut self, title: &str) -> io::Result<()> {
        self.log.text.clear();
        let (anon, file) = self.resident()?;
        self.own_pages = anon;
        let shown = self.shown()?;
        self.log
            .write(format_args!("{title}I all {anon} {file} {shown}\n"))
    }

    /// Makes `cpu` add its part of the anonymous-page counter to the shared value. Before that,
    /// this part is above `-batch` and below `batch` pages.
    fn fold(&mut self, cpu: u32, batch: usize) -> io::Result<()> {
        pin(cpu)?;
        let most = 2 * batch;
        let mut mapping = MmapMut::map_anon(most * PAGE_BYTES)?;
        let before = self.shown()?;
        let mut pages = 0;
        while self.shown()? <= before {
            if pages == most {
                let text = format!("the resident pages shown did not change with {most} more");
                return Err(io::Error::other(text));
            }
            mapping[pages * PAGE_BYTES] = 1;
            pages += 1;
        }
        self.own_pages += pages;
        self.kept.push_back(Kept { mapping, pages });
        Ok(())
    }

    fn map(&mut self, cpu: u32, pages: usize) -> io::Result<()> {
        pin(cpu)?;
        let mut mapping = MmapMut::map_anon(pages * PAGE_BYTES)?;
        touch(&mut mapping);
        self.own_pages += pages;
        let offset = table_offset(&mapping);
        self.kept.push_back(Kept { mapping, pages });
        let shown = self.shown()?;
        self.log
            .write(format_args!("{cpu} +{pages} {offset} {shown}\n"))
    }

    fn unmap_oldest(&mut self, cpu: u32) -> io::Result<()> {
        let Some(Kept { mapping, pages }) = self.kept.pop_front() else {
            return Ok(());
        };
        pin(cpu)?;
        let offset = table_offset(&mapping);
        drop(mapping);
        self.own_pages -= pages;
        let shown = self.shown()?;
        self.log
            .write(format_args!("{cpu} -{pages} {offset} {shown}\n"))
    }

    /// Logs the precise readings: from the counters, from the page tables, and from the program's
    /// own count.
    fn precise(&mut self) -> io::Result<()> {
        let (anon, file) = self.resident()?;
        let shown = self.shown()?;
        let smaps = field(read(&self.rollup, &mut self.buffer)?, "\nRss:")?;
        let statm = read(&self.statm, &mut self.buffer)?;
        let statm = statm.split(' ').nth(1).unwrap_or("0");
        let own = self.own_pages;
        self.log.write(format_args!(
            "P {anon} {file} {shown} {smaps} {own} {statm}\n"
        ))
    }

    /// Returns two precise counts of resident pages: anonymous pages, and pages of files or shared
    /// memory.
    fn resident(&mut self) -> io::Result<(usize, usize)> {
        let text = read(&self.status, &mut self.buffer)?;
        let files = field(text, "\nRssFile:")? + field(text, "\nRssShmem:")?;
        Ok((field(text, "\nRssAnon:")?, files))
    }

    /// Returns the program's number of resident pages as `/proc/self/stat` shows it, which leaves
    /// out what CPUs have not yet added to the shared counter.
    fn shown(&mut self) -> io::Result<usize> {
        let text = read(&self.stat, &mut self.buffer)?;
        rss_of_stat(text).ok_or_else(|| io::Error::other("/proc/self/stat has no rss"))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.log.flush()
    }
}

/// Returns the batch, in pages (Linux: `percpu_counter_batch`). A CPU adds its part of a counter to
/// the shared value when this part reaches the batch.
fn batch(cpus: u32) -> usize {
    (2 * cpus).max(32) as usize
}

/// Returns the index of a mapping's first page in its page table.
fn table_offset(mapping: &MmapMut) -> usize {
    (mapping.as_ptr().addr() / PAGE_BYTES) % TABLE_PAGES
}

fn read<'a>(file: &File, buffer: &'a mut [u8]) -> io::Result<&'a str> {
    let length = file.read_at(buffer, 0)?;
    str::from_utf8(&buffer[..length]).map_err(io::Error::other)
}

/// Returns the number of kB after `name` in `text`, converted to pages.
fn field(text: &str, name: &str) -> io::Result<usize> {
    let rest = text.split_once(name).map(|(_, rest)| rest);
    let number = rest.and_then(|rest| rest.split_whitespace().next());
    let kb: Option<usize> = number.and_then(|number| number.parse().ok());
    kb.map(|kb| kb / 4)
        .ok_or_else(|| io::Error::other("a reading lacks a line"))
}

/// Reads field 24 of `/proc/PID/stat`. The second field is a name in parentheses, which may hold
/// blanks.
fn rss_of_stat(text: &str) -> Option<usize> {
    let (_, after_name) = text.rsplit_once(") ")?;
    after_name.split(' ').nth(21)?.parse().ok()
}

/// The log of readings: a buffer that never grows, and the file to which it is written.
struct Log {
    file: File,
    text: Vec<u8>,
}

impl Log {
    fn create(file: &str) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(file)?;
        // This line fills the buffer once, so that all its pages are resident.
        let mut text = vec![1; LOG_BYTES];
        text.clear();
        Ok(Self { file, text })
    }

    fn write(&mut self, line: std::fmt::Arguments<'_>) -> io::Result<()> {
        const LONGEST_LINE: usize = 256;
        if self.text.len() + LONGEST_LINE > LOG_BYTES {
            self.flush()?;
        }
        self.text.write_fmt(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.text)?;
        self.text.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheap_reading_is_field_24_whatever_the_name() {
        let mut fields: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        fields[24 - 3] = "777".to_owned();
        let text = format!("12 (a name) of) {}\n", fields.join(" "));
        assert_eq!(rss_of_stat(&text), Some(777));
        assert_eq!(rss_of_stat("12 (short) R 1"), None);
    }

    #[test]
    fn a_field_in_kb_becomes_pages() {
        let text = "Name: x\nRssAnon:\t    120 kB\nRssFile:\t 8 kB\n";
        assert_eq!(field(text, "\nRssAnon:").unwrap(), 30);
        field(text, "\nRssShmem:").unwrap_err();
    }

    #[test]
    fn the_log_never_grows() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("log");
        let mut log = Log::create(&file.display().to_string()).unwrap();
        let before = log.text.capacity();
        for line in 0..20_000 {
            log.write(format_args!("{line} +4 5 6\n")).unwrap();
        }
        log.flush().unwrap();
        assert_eq!(log.text.capacity(), before);
        assert_eq!(fs::read_to_string(file).unwrap().lines().count(), 20_000);
    }
}
