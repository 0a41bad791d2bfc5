//! Guesses page frame numbers, so that most of them need not be stored.
//!
//! Without guesses, page frame numbers would be two thirds of a recording. Linux makes most of them
//! predictable. An allocation takes the page that its CPU freed last. A process frees its pages in
//! the order in which it allocated them. Pages enter their list in the order of their frees, and a
//! spill, which moves pages from the list to the zone, takes the pages that have been on the list
//! longest. So the writer and the reader both keep such lists, and make the same guesses from them.
//! The file states which guess was right, and contains the number itself only if no guess was. A
//! wrong guess only makes the file larger.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// The kinds of events that have a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Alloc,
    Free,
    Batched,
    Drain,
    Zone,
}

/// The facts, other than the page's number, that an event states about its page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deed {
    pub(super) role: Role,
    pub(super) order: u8,
    /// The migrate type, if the event has one.
    pub(super) mobility: Option<u8>,
}

/// The largest number of page frame numbers that are guessed for one event.
const GUESSES: usize = 12;

/// The largest number of pages to remember for a list. The lists of a kernel are seldom longer.
const LIST_PAGES: usize = 8192;

/// The largest number of freed pages to remember for a CPU. A later event of a batched free may
/// name one of these pages.
const PENDING_PAGES: usize = 128;

/// The page frame numbers that are guessed for one event, the likeliest first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Guesses {
    pages: [u64; GUESSES],
    count: usize,
}

impl Guesses {
    fn of(pages: impl Iterator<Item = u64>) -> Self {
        let mut guesses = Self::default();
        for page in pages.take(GUESSES) {
            guesses.pages[guesses.count] = page;
            guesses.count += 1;
        }
        guesses
    }

    /// Returns the index of `page` among the guesses, from 1, or 0 if no guess is `page`.
    pub(super) fn place(&self, page: u64) -> u64 {
        let found = self.pages[..self.count]
            .iter()
            .position(|other| *other == page);
        found.map_or(0, |at| at as u64 + 1)
    }

    /// Returns the guessed page with the index `place`, counted from 1.
    pub(super) fn page(&self, place: u64) -> Option<u64> {
        let at = usize::try_from(place).ok()?.checked_sub(1)?;
        self.pages[..self.count].get(at).copied()
    }
}

/// The history from which guesses are made.
#[derive(Clone, Debug)]
pub(super) struct Guesser {
    cpu: u32,
    pid: u32,
    /// The pages on each of the kernel's lists according to the events so far, from head to tail.
    /// The key of a list is its CPU, its order and its migrate type.
    lists: FxHashMap<(u32, u8, u8), VecDeque<u64>>,
    /// For each CPU, the pages that the CPU has freed, in the order of the frees. A later event of
    /// a batched free may name one of these pages.
    pending: FxHashMap<u32, VecDeque<u64>>,
    /// For each page, the page that the same thread allocated next with the same migrate type.
    after: Table,
    /// For each page, the page that the same thread allocated before it with the same migrate type.
    before: Table,
    /// The page that each thread allocated last with each migrate type.
    last_alloc: Table,
    /// The page that each thread freed last.
    last_free: Table,
    /// For each block of 512 pages, the migrate type in the last event that stated one.
    blocks: Table,
}

impl Default for Guesser {
    fn default() -> Self {
        Self {
            cpu: 0,
            pid: 0,
            lists: FxHashMap::default(),
            pending: FxHashMap::default(),
            after: Table::new(19),
            before: Table::new(19),
            last_alloc: Table::new(14),
            last_free: Table::new(12),
            blocks: Table::new(14),
        }
    }
}

impl Guesser {
    /// Sets the CPU and the thread of the next event.
    pub(super) fn turn_to(&mut self, cpu: u32, pid: u32) {
        self.cpu = cpu;
        self.pid = pid;
    }

    /// Returns the index of `page` among the guesses, from 1, or 0 if no guess is `page`. The
    /// result is the same as from [`Guesses::place`], but this function stops guessing after the
    /// right guess.
    pub(super) fn place(&self, deed: Deed, page: u64) -> u64 {
        let place = |pages: &mut dyn Iterator<Item = u64>| {
            let found = pages.take(GUESSES).position(|other| other == page);
            found.map_or(0, |at| at as u64 + 1)
        };
        match deed.role {
            Role::Free => {
                let pid = u64::from(self.pid);
                let last = self.last_free.get(pid);
                if last.and_then(|last| self.after.get(last)) == Some(page) {
                    return 1;
                }
                self.guess_free().place(page)
            }
            Role::Zone => 0,
            Role::Alloc => {
                let list = self.lists.get(&self.list_of(deed, None));
                place(&mut list.into_iter().flatten().copied())
            }
            Role::Drain => {
                let list = self.lists.get(&self.list_of(deed, None));
                place(&mut list.into_iter().flat_map(|list| list.iter().rev()).copied())
            }
            Role::Batched => {
                let pending = self.pending.get(&self.cpu);
                place(&mut pending.into_iter().flatten().copied())
            }
        }
    }

    pub(super) fn guess(&self, deed: Deed) -> Guesses {
        let list = || self.lists.get(&self.list_of(deed, None));
        match deed.role {
            Role::Alloc => Guesses::of(list().into_iter().flatten().copied()),
            Role::Drain => Guesses::of(
                list()
                    .into_iter()
                    .flat_map(|list| list.iter().rev())
                    .copied(),
            ),
            Role::Batched => {
                let pending = self.pending.get(&self.cpu);
                Guesses::of(pending.into_iter().flatten().copied())
            }
            Role::Free => self.guess_free(),
            Role::Zone => Guesses::default(),
        }
    }

    /// Guesses the page that a thread frees next. The guesses follow from the page that the thread
    /// freed last and the pages that it allocated last.
    fn guess_free(&self) -> Guesses {
        let pid = u64::from(self.pid);
        let last = self.last_free.get(pid);
        let after = |page: Option<u64>| page.and_then(|page| self.after.get(page));
        let before = |page: Option<u64>| page.and_then(|page| self.before.get(page));
        let step = |by: u64| last.map(|page| page.wrapping_add(by));
        let got = |mobility: u8| self.last_alloc.get(self.stream(Some(mobility)));
        let (next, previous) = (after(last), before(last));
        let guesses = [
            next,
            previous,
            after(next),
            before(previous),
            got(1),
            got(0),
            after(after(next)),
            before(before(previous)),
            step(1),
            step(u64::MAX),
            before(got(1)),
            before(got(0)),
        ];
        Guesses::of(guesses.into_iter().flatten())
    }

    /// Learns from the event `deed` on `page`, for later guesses. `place` is the index of `page`
    /// among the guesses for this event, counted from 1, or 0 if no guess was right.
    pub(super) fn learn(&mut self, deed: Deed, page: u64, place: u64) {
        let key = self.list_of(deed, Some(page));
        let place = usize::try_from(place).unwrap_or(0);
        if let Some(mobility) = deed.mobility {
            self.blocks.put(page >> 9, u64::from(mobility));
        }
        let pid = u64::from(self.pid);
        match deed.role {
            Role::Alloc => {
                let list = self.lists.entry(key).or_default();
                // Removes `page` and the pages nearer to the head of the list. Events that were not
                // recorded must have removed the nearer pages.
                list.drain(..place.min(list.len()));
                let stream = self.stream(deed.mobility);
                if let Some(last) = self.last_alloc.get(stream) {
                    self.after.put(last, page);
                    self.before.put(page, last);
                }
                self.last_alloc.put(stream, page);
            }
            Role::Drain => {
                let list = self.lists.entry(key).or_default();
                let place = match place {
                    // The guessed pages do not include `page`. If `page` is near the tail, `page`
                    // and the pages nearer to the tail are removed. Events that were not recorded
                    // must have removed the nearer pages.
                    0 => place_from_end(list, page),
                    place => place,
                };
                list.truncate(list.len() - place.min(list.len()));
            }
            Role::Batched => {
                let pending = self.pending.entry(self.cpu).or_default();
                let place = match place {
                    // The guessed pages do not include this page, so the page is the first of a
                    // batch. The pages that the CPU freed before this page belong to no batch.
                    0 => pending
                        .iter()
                        .position(|other| *other == page)
                        .map_or(0, |at| at + 1),
                    place => place,
                };
                pending.drain(..place.min(pending.len()));
            }
            Role::Free => {
                let list = self.lists.entry(key).or_default();
                list.push_front(page);
                list.truncate(LIST_PAGES);
                let pending = self.pending.entry(self.cpu).or_default();
                pending.push_back(page);
                if pending.len() > PENDING_PAGES {
                    pending.pop_front();
                }
                self.last_free.put(pid, page);
            }
            Role::Zone => {
                let list = self.lists.entry(key).or_default();
                if list.len() < LIST_PAGES {
                    list.push_back(page);
                }
            }
        }
    }

    /// Returns the key of [`Guesser::last_alloc`] for the current thread and one migrate type.
    fn stream(&self, mobility: Option<u8>) -> u64 {
        u64::from(self.pid) << 8 | u64::from(mobility.unwrap_or(0))
    }

    /// Returns the key of the list from which an event of this kind removes a page, or to which the
    /// event adds a page.
    fn list_of(&self, deed: Deed, page: Option<u64>) -> (u32, u8, u8) {
        let of_block = || self.blocks.get(page? >> 9);
        let mobility = deed.mobility.map(u64::from).or_else(of_block);
        let mobility = mobility.and_then(|mobility| u8::try_from(mobility).ok());
        (self.cpu, deed.order, mobility.unwrap_or(0))
    }
}

/// Returns the position of `page` in the list, counted from 1 at the end, or 0 if `page` is not
/// near the end.
fn place_from_end(list: &VecDeque<u64>, page: u64) -> usize {
    // A spill, which moves pages from this list to the zone, removes pages at most a few batches
    // away from the end.
    let near = list.iter().rev().take(1024);
    let found = { near }.position(|other| *other == page);
    found.map_or(0, |at| at + 1)
}

/// A hash table of fixed size, in which a new pair replaces an older pair in the same slot.
#[derive(Clone, Debug)]
struct Table {
    pairs: Vec<Option<(u64, u64)>>,
    bits: u32,
}

impl Table {
    fn new(bits: u32) -> Self {
        // The memory is allocated only when the first pair is stored, because many recordings have
        // no pages.
        let pairs = Vec::new();
        Self { pairs, bits }
    }

    fn place(&self, key: u64) -> usize {
        // This is a multiplicative hash: the upper bits depend on all bits of the key.
        let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - self.bits);
        usize::try_from(mixed).unwrap_or(0)
    }

    fn get(&self, key: u64) -> Option<u64> {
        let pair = self.pairs.get(self.place(key)).copied().flatten();
        pair.filter(|(known, _)| *known == key)
            .map(|(_, value)| value)
    }

    fn put(&mut self, key: u64, value: u64) {
        if self.pairs.is_empty() {
            self.pairs.resize(1 << self.bits, None);
        }
        let place = self.place(key);
        self.pairs[place] = Some((key, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deed(role: Role) -> Deed {
        Deed {
            role,
            order: 0,
            mobility: Some(1),
        }
    }

    fn happen(guesser: &mut Guesser, role: Role, page: u64) -> u64 {
        let place = guesser.guess(deed(role)).place(page);
        guesser.learn(deed(role), page, place);
        place
    }

    #[test]
    fn the_page_that_was_freed_last_is_the_first_guess_for_an_allocation() {
        let mut guesser = Guesser::default();
        for page in [10, 20, 30] {
            happen(&mut guesser, Role::Free, page);
        }
        let order = [30, 20, 10].map(|page| happen(&mut guesser, Role::Alloc, page));
        assert_eq!(order, [1, 1, 1]);
        guesser.turn_to(1, 0);
        assert_eq!(guesser.guess(deed(Role::Alloc)).place(10), 0, "another CPU");
    }

    #[test]
    fn batches_confirm_in_the_order_of_frees_and_spills_take_the_oldest() {
        let mut guesser = Guesser::default();
        for page in [10, 20, 30] {
            happen(&mut guesser, Role::Free, page);
        }
        let order = [10, 20, 30].map(|page| happen(&mut guesser, Role::Batched, page));
        assert_eq!(order, [1, 1, 1]);
        let order = [10, 20].map(|page| happen(&mut guesser, Role::Drain, page));
        assert_eq!(order, [1, 1]);
    }

    #[test]
    fn a_thread_frees_in_the_order_in_which_it_allocated() {
        let mut guesser = Guesser::default();
        for page in [500, 7, 90, 12] {
            happen(&mut guesser, Role::Alloc, page);
        }
        happen(&mut guesser, Role::Free, 500);
        let order = [7, 90].map(|page| happen(&mut guesser, Role::Free, page));
        assert_eq!(order, [1, 1]);
    }
}
