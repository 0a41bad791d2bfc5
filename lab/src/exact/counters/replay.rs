//! A log once more, on a counter of `mm`.
//!
//! A page that is touched counts +1. An unmapping counts the pages of each page table together, and in
//! two parts where the gather of pages to be freed is full. Linux also stops inside a page table if it
//! has to reschedule, and counts what it has so far. No log says so. So where the reading after an
//! unmapping differs, one cut more is tried at each of its pages; the first that gives the reading is
//! taken, and counted.

use std::collections::BTreeMap;

use plimsoll_host::Host;
use plimsoll_mm::counter::{Accuracy, Counters};
use plimsoll_mm::units::CpuId;

use super::log::{Pages, Run, Step, TABLE_PAGES};

/// Pages that a gather holds before it has to be emptied: 7 on the stack and 19 pages of 509 (Linux:
/// `MAX_GATHER_BATCH_COUNT`).
const GATHER_PAGES: u64 = 7 + 19 * 509;

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Replayed {
    pub(super) readings: u64,
    pub(super) equal: u64,
    pub(super) unmappings: u64,
    /// Unmappings that were cut once more: which step, behind how many pages.
    pub(super) cuts: BTreeMap<usize, u64>,
    pub(super) precise: u64,
    pub(super) precise_right: u64,
    /// The most that Linux's reading was off.
    pub(super) worst_recorded: u64,
    /// The most that the counter's was off, not cut at 0.
    pub(super) worst: u64,
    /// What the counter promised in the end.
    pub(super) bound: Accuracy,
    pub(super) first_difference: Vec<String>,
}

/// Where unmappings are cut beside page tables.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cuts<'a> {
    /// Where the reading asks for it.
    AsRead,
    /// At these steps, after the given numbers of pages.
    Given(&'a BTreeMap<usize, u64>),
}

/// A run on one counter.
pub(super) struct Replay<'a, C> {
    cuts: Cuts<'a>,
    host: &'a Host,
    counter: &'a C,
    /// What each CPU keeps: what it has added less what of that the cheap reading shows.
    kept: Vec<i64>,
    /// Pages shown beside the counted ones: those of files.
    beside: i64,
    own: i64,
    seen: Replayed,
}

impl<'a, C: Counters<Host>> Replay<'a, C> {
    pub(super) fn new(host: &'a Host, counter: &'a C, run: &Run, cuts: Cuts<'a>) -> Self {
        let mut replay = Self {
            cuts,
            host,
            counter,
            kept: vec![0; run.cpus as usize],
            beside: 0,
            own: 0,
            seen: Replayed::default(),
        };
        if let Some(warm) = run.warm {
            match warm.cpu {
                Some(cpu) => replay.touch(cpu, warm.anon),
                None => replay.begin_folded(warm.anon),
            }
            replay.beside = warm.shown.cast_signed() - replay.shown();
        }
        replay
    }

    /// The whole run, and every reading.
    pub(super) fn perform(mut self, run: &Run) -> Replayed {
        for (nth, step) in run.steps.iter().enumerate() {
            match step {
                Step::Touch(pages) => {
                    self.touch(pages.cpu, pages.pages);
                    self.compare(pages.shown, step);
                }
                Step::Unmap(pages) => {
                    self.seen.unmappings += 1;
                    match self.cuts {
                        Cuts::AsRead => self.unmap_as_read(nth, pages),
                        Cuts::Given(cuts) => self.unmap(pages, cuts.get(&nth).copied()),
                    }
                    self.compare(pages.shown, step);
                }
                Step::Precise { shown, .. } => {
                    self.check_precise(step);
                    self.compare(*shown, step);
                }
            }
        }
        self.seen.bound = self.counter.accuracy(self.host, 0);
        self.seen
    }

    fn approximate(&self) -> i64 {
        self.counter.approximate_sum(self.host, 0)
    }

    /// What a process is shown: never less than nothing (Linux: `get_mm_counter`).
    fn shown(&self) -> i64 {
        self.beside + self.approximate().max(0)
    }

    fn add(&mut self, cpu: u32, delta: i64) {
        let _entered = self.host.enter(CpuId(cpu));
        let before = self.approximate();
        self.counter.add(self.host, 0, delta);
        self.kept[cpu as usize] += delta - (self.approximate() - before);
        self.own += delta;
    }

    fn touch(&mut self, cpu: u32, pages: u64) {
        (0..pages).for_each(|_| self.add(cpu, 1));
    }

    /// Begins with `pages` of which no CPU keeps a part.
    fn begin_folded(&mut self, pages: u64) {
        self.own = pages.cast_signed();
        self.counter.set(self.host, 0, self.own);
    }

    fn unmap(&mut self, pages: &Pages, cut: Option<u64>) {
        for piece in pieces(pages.offset, pages.pages, cut) {
            self.add(pages.cpu, -piece.cast_signed());
        }
    }

    /// Unmaps, with one cut more if nothing else gives the reading.
    fn unmap_as_read(&mut self, nth: usize, pages: &Pages) {
        let before = (self.approximate(), self.kept.clone(), self.own);
        self.unmap(pages, None);
        if self.shown() == pages.shown {
            return;
        }
        for cut in 1..pages.pages {
            self.restore(&before);
            self.unmap(pages, Some(cut));
            if self.shown() == pages.shown {
                self.seen.cuts.insert(nth, cut);
                return;
            }
        }
        self.restore(&before);
        self.unmap(pages, None);
    }

    /// Back to where the counter was: a part that a CPU kept is less than it passes on.
    fn restore(&mut self, (approximate, kept, own): &(i64, Vec<i64>, i64)) {
        self.counter.set(self.host, 0, *approximate);
        for (cpu, &part) in (0..).zip(kept) {
            if part != 0 {
                self.add(cpu, part);
            }
        }
        self.kept.clone_from(kept);
        self.own = *own;
    }

    fn check_precise(&mut self, step: &Step) {
        let &Step::Precise {
            anon,
            file,
            smaps,
            own,
            ..
        } = step
        else {
            return;
        };
        let counted = self.counter.precise_sum(self.host, 0);
        let right = [anon, own, smaps - file, self.own]
            .iter()
            .all(|&it| it == counted);
        self.seen.precise += 1;
        self.seen.precise_right += u64::from(right);
        if !right {
            self.note_difference(step, &format!("the precise sum: {counted} pages"));
        }
    }

    fn compare(&mut self, read: i64, step: &Step) {
        let shown = self.shown();
        self.seen.readings += 1;
        self.seen.equal += u64::from(shown == read);
        let worst = (read - self.beside).abs_diff(self.own);
        self.seen.worst_recorded = self.seen.worst_recorded.max(worst);
        self.seen.worst = self.seen.worst.max(self.approximate().abs_diff(self.own));
        if shown != read {
            self.note_difference(step, &format!("Linux shows {read} pages, Plimsoll {shown}"));
        }
    }

    fn note_difference(&mut self, step: &Step, what: &str) {
        if self.seen.first_difference.is_empty() {
            self.seen.first_difference = vec![
                format!("reading {}, after {step:?}", self.seen.readings),
                what.to_owned(),
                format!("{} anonymous pages are resident", self.own),
            ];
        }
    }
}

/// The additions of one unmapping: cut at page tables, where the gather is full, and at `cut`.
pub(super) fn pieces(offset: u64, pages: u64, cut: Option<u64>) -> Vec<u64> {
    let mut pieces = Vec::new();
    let mut done = 0;
    while done < pages {
        let table = TABLE_PAGES - (offset + done) % TABLE_PAGES;
        let gather = GATHER_PAGES - done % GATHER_PAGES;
        let to_cut = cut
            .and_then(|cut| cut.checked_sub(done))
            .filter(|&left| left > 0);
        let rest = (pages - done).min(table).min(gather);
        let piece = to_cut.map_or(rest, |left| rest.min(left));
        pieces.push(piece);
        done += piece;
    }
    pieces
}
