//! Performs the steps of a log on a counter of `mm`.
//!
//! When the program touches a page, the replay adds 1. When the program unmaps pages, the replay
//! subtracts once for each page table, or twice if the gather (the pages that wait to be freed)
//! fills up within the table. Linux also interrupts the unmapping of a page table if it has to
//! reschedule, and then subtracts the pages unmapped so far. The log does not say where Linux
//! interrupted an unmapping. So if the replay's reading after an unmapping differs from the
//! recorded reading, the replay tries one additional cut: after the first page, after the second
//! page, and so on. The replay keeps the first cut that gives the recorded reading, and reports how
//! many cuts it has added.

use std::collections::BTreeMap;

use plimsoll_host::Host;
use plimsoll_mm::counter::{Accuracy, Counters};
use plimsoll_mm::units::CpuId;

use super::log::{LoggedOp, Pages, Run, TABLE_PAGES};

/// The number of pages that a gather (`mmu_gather`) holds before it has to be emptied: 7 on the
/// stack, and 509 in each of 19 pages (Linux: `MAX_GATHER_BATCH_COUNT`).
const GATHER_PAGES: u64 = 7 + 19 * 509;

/// The findings of the replay of one run on one counter: how many of the counter's readings agree
/// with the recorded readings, and how large the errors are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Replayed {
    pub(super) readings: u64,
    pub(super) equal: u64,
    pub(super) unmappings: u64,
    /// The places at which the replay cut unmappings in addition to the usual places (see
    /// [`Cuts`]). The key is the index of the unmapping's step in the run. The value is the number
    /// of pages before the cut.
    pub(super) cuts: BTreeMap<usize, u64>,
    pub(super) precise: u64,
    pub(super) precise_right: u64,
    /// The largest error of a recorded reading, in pages: the largest difference between a reading
    /// and the exact number of resident pages at that moment.
    pub(super) worst_recorded: u64,
    /// The largest error of the counter's approximate sum, in pages. The approximate sum can be
    /// negative. A reading that a process sees cannot be negative.
    pub(super) worst: u64,
    /// The largest error of the approximate sum that the counter promises after the last step.
    pub(super) bound: Accuracy,
    pub(super) first_difference: Vec<String>,
}

/// Where the replay cuts an unmapping into several subtractions, in addition to the ends of page
/// tables and the places where the gather (the pages that wait to be freed) is full.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cuts<'a> {
    /// The replay cuts the subtraction for an unmapping at one more place, but only if the reading
    /// would otherwise differ from the recorded reading.
    AsRead,
    /// The replay cuts the subtraction for an unmapping at one more place if the index of the
    /// unmapping's step is a key of this map. The value is the number of pages before the cut.
    Given(&'a BTreeMap<usize, u64>),
}

/// The state of a replay, which performs the steps of one run on one counter.
pub(super) struct Replay<'a, C> {
    cuts: Cuts<'a>,
    host: &'a Host,
    counter: &'a C,
    /// For each CPU, the number of pages that it has counted and not yet added to the shared value.
    kept: Vec<i64>,
    /// The number of resident pages of files. The kernel's reading includes these pages, but the
    /// replayed counter does not.
    beside: i64,
    /// The exact number of anonymous pages, which the replay computes without the counter.
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

    /// Performs all steps of the run on the counter, and compares every reading of the counter with
    /// the recorded reading.
    pub(super) fn perform(mut self, run: &Run) -> Replayed {
        for (nth, step) in run.steps.iter().enumerate() {
            match step {
                LoggedOp::Touch(pages) => {
                    self.touch(pages.cpu, pages.pages);
                    self.compare(pages.shown, step);
                }
                LoggedOp::Unmap(pages) => {
                    self.seen.unmappings += 1;
                    match self.cuts {
                        Cuts::AsRead => self.unmap_as_read(nth, pages),
                        Cuts::Given(cuts) => self.unmap(pages, cuts.get(&nth).copied()),
                    }
                    self.compare(pages.shown, step);
                }
                LoggedOp::Precise { shown, .. } => {
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

    /// The reading that Linux would show to a process, in pages. A negative sum counts as 0 (Linux:
    /// `get_mm_counter`).
    fn shown(&self) -> i64 {
        self.beside + self.approximate().max(0)
    }

    /// Adds `delta`, as a page fault does. In this call, a one-sided counter can grow from one
    /// shared value into a tree with a part for each CPU.
    fn add(&mut self, cpu: u32, delta: i64) {
        let _entered = self.host.enter(CpuId(cpu));
        let before = self.approximate();
        self.counter.add_growing(self.host, 0, delta);
        self.kept[cpu as usize] += delta - (self.approximate() - before);
        self.own += delta;
    }

    fn touch(&mut self, cpu: u32, pages: u64) {
        (0..pages).for_each(|_| self.add(cpu, 1));
    }

    /// Starts the replay with `pages` pages in the counter's shared value and none in any CPU's
    /// part.
    fn begin_folded(&mut self, pages: u64) {
        self.own = pages.cast_signed();
        self.counter.set(self.host, 0, self.own);
    }

    fn unmap(&mut self, pages: &Pages, cut: Option<u64>) {
        for piece in pieces(pages.offset, pages.pages, cut) {
            self.add(pages.cpu, -piece.cast_signed());
        }
    }

    /// Subtracts unmapped pages from the counter, at first without an additional cut ([`Cuts`]). If
    /// the reading then differs from the recorded reading, undoes the subtraction. Then subtracts
    /// the pages with the first additional cut that gives the recorded reading. If no cut gives the
    /// recorded reading, subtracts the pages without an additional cut.
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

    /// Restores an earlier state of the counter. A CPU's part is the amount that the CPU has not
    /// yet added to the shared value. Each part is restored by an addition on the CPU. This does
    /// not change the shared value, because a part is smaller than the batch.
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

    fn check_precise(&mut self, step: &LoggedOp) {
        let &LoggedOp::Precise {
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
            .all(|&sum| sum == counted);
        self.seen.precise += 1;
        self.seen.precise_right += u64::from(right);
        if !right {
            self.note_difference(step, &format!("the precise sum: {counted} pages"));
        }
    }

    fn compare(&mut self, read: i64, step: &LoggedOp) {
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

    fn note_difference(&mut self, step: &LoggedOp, what: &str) {
        if self.seen.first_difference.is_empty() {
            self.seen.first_difference = vec![
                format!("reading {}, after {step:?}", self.seen.readings),
                what.to_owned(),
                format!("{} anonymous pages are resident", self.own),
            ];
        }
    }
}

/// Divides an unmapping of `pages` pages into the parts that Linux subtracts from the counter one
/// by one, and returns the number of pages of each part. A part ends at the end of a page table,
/// where the list of pages that wait to be freed is full, and after `cut` pages. `offset` is the
/// first page's index in its page table.
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
