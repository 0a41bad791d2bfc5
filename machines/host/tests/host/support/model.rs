//! A slow and simple model of an address space, made of a few sorted maps: the mappings, the
//! contents of each page, and the page tables that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use plimsoll_mm::space::budget::OverBudget;
use plimsoll_mm::space::{Access, FaultError, Faulted, MapError, MappingKind, Place};
use plimsoll_mm::units::Vpn;

use super::world::{Seen, Sizes, State, What};

const TABLE: u64 = 512;
const END: u64 = 1 << 35;
const LOWEST: u64 = 16;

/// The contents of a page that is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum There {
    Own,
    File,
    Shared,
    Frame,
    Swapped,
}

/// A mapping. Its key in the map is its first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapping {
    end: u64,
    what: What,
    /// The first page of the mapping when it was created. If `what` has an offset, the offset
    /// belongs to this page, even after the mapping has lost its first pages.
    origin: u64,
}

/// The reason why a mapping was refused. If another mapping is in the way, the reason includes that
/// mapping as [`Seen`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Overlaps(Seen),
    Other(MapError),
}

/// The model of an address space.
pub(crate) struct Model {
    sizes: Sizes,
    mappings: BTreeMap<u64, Mapping>,
    pages: BTreeMap<u64, There>,
    /// For each page table that belongs to a huge page, whether the huge page is a reserved one.
    huge: BTreeMap<u64, bool>,
    tables: BTreeSet<u64>,
    uppers: BTreeSet<u64>,
    file: BTreeSet<u64>,
    shared: BTreeSet<u64>,
}

impl Model {
    pub(crate) fn new(sizes: Sizes) -> Self {
        Self {
            sizes,
            mappings: BTreeMap::new(),
            pages: BTreeMap::new(),
            huge: BTreeMap::new(),
            tables: BTreeSet::new(),
            uppers: BTreeSet::new(),
            file: BTreeSet::new(),
            shared: BTreeSet::new(),
        }
    }

    /// Returns the pages of the mapping with index `nth`. The index is taken modulo the number of
    /// mappings.
    pub(crate) fn nth(&self, nth: usize) -> Option<Range<u64>> {
        let count = self.mappings.len().max(1);
        let (&start, mapping) = self.mappings.iter().nth(nth % count)?;
        Some(start..mapping.end)
    }

    pub(crate) fn map(&mut self, place: Place, pages: u64, what: What) -> Result<Seen, Refused> {
        let refused = |why| Err(Refused::Other(why));
        if let Err(why) = check(place, pages, what) {
            return refused(why);
        }
        let max = self.sizes.mappings as usize;
        let replaces = matches!(place, Place::Replace(_));
        if !replaces && self.mappings.len() >= max {
            return refused(MapError::TooMany(max));
        }
        let Some(start) = self.place(place, pages, what) else {
            return refused(MapError::NoRoom(pages));
        };
        let range = start..start + pages;
        let new = Mapping {
            end: range.end,
            what,
            origin: start,
        };
        if replaces {
            self.check_cut(&range, 1).map_err(Refused::Other)?;
            self.cut(&range);
            self.mappings.insert(start, new);
            self.empty(&range);
            return Ok(see(start, &new));
        }
        if let Some(there) = self.first_in(&range) {
            return Err(Refused::Overlaps(see(there, &self.mappings[&there])));
        }
        Ok(self.join(start, new))
    }

    /// Adds a mapping and merges it with neighbours of the same kind.
    fn join(&mut self, mut start: u64, mut new: Mapping) -> Seen {
        if matches!(new.what, What::Anonymous { .. } | What::Reserved) {
            let after = self.mappings.get(&new.end).copied();
            if let Some(after) = after.filter(|after| after.what == new.what) {
                self.mappings.remove(&new.end);
                new.end = after.end;
            }
            let before = self.mappings.range(..start).next_back();
            let before = before.map(|(&at, &mapping)| (at, mapping));
            if let Some((at, _)) = before.filter(|b| b.1.end == start && b.1.what == new.what) {
                start = at;
            }
        }
        self.mappings.insert(start, new);
        see(start, &new)
    }

    fn place(&self, place: Place, pages: u64, what: What) -> Option<u64> {
        let align = align(what);
        let needed = pages + align - 1;
        let mut free = Vec::new();
        let mut from = LOWEST;
        for (&start, mapping) in &self.mappings {
            free.push(from..start.max(from));
            from = from.max(mapping.end);
        }
        free.push(from..END);
        let fits = |gap: &&Range<u64>| gap.end - gap.start >= needed;
        match place {
            Place::Fixed(start) | Place::Replace(start) => Some(start.0),
            Place::Lowest => {
                let gap = free.iter().find(fits)?;
                Some(gap.start.next_multiple_of(align))
            }
            Place::Highest => {
                let gap = free.iter().rfind(fits)?;
                Some((gap.end - pages) / align * align)
            }
        }
    }

    pub(crate) fn unmap(&mut self, start: u64, pages: u64) -> Result<(), MapError> {
        let range = check_range(start, pages)?;
        self.check_cut(&range, 0)?;
        self.cut(&range);
        self.empty(&range);
        let tables = self.tables.iter().copied();
        let touched = tables.filter(|table| overlaps(&range, &pages_of(*table)));
        let spare: Vec<u64> = touched
            .filter(|&table| self.first_in(&pages_of(table)).is_none())
            .collect();
        spare.iter().for_each(|table| {
            self.tables.remove(table);
        });
        Ok(())
    }

    /// Returns the start of the first mapping that overlaps `range`.
    fn first_in(&self, range: &Range<u64>) -> Option<u64> {
        let is_in = |(start, mapping): &(&u64, &Mapping)| overlaps(range, &(**start..mapping.end));
        self.mappings.iter().find(is_in).map(|(&start, _)| start)
    }

    /// Checks whether `range` can be cut out of the mappings and `more` mappings can be added.
    fn check_cut(&self, range: &Range<u64>, more: usize) -> Result<(), MapError> {
        let mut count = self.mappings.len() + more;
        for (&start, mapping) in &self.mappings {
            if !overlaps(range, &(start..mapping.end)) {
                continue;
            }
            let (from, to) = (range.start.max(start), range.end.min(mapping.end));
            if mapping.what == What::Reserved
                && let Some(page) = [from, to].into_iter().find(|at| !at.is_multiple_of(TABLE))
            {
                let (page, align) = (Vpn(page), TABLE);
                return Err(MapError::Unaligned { page, align });
            }
            count = count + usize::from(from > start) + usize::from(to < mapping.end) - 1;
        }
        let max = self.sizes.mappings as usize;
        if count > max {
            return Err(MapError::TooMany(max));
        }
        Ok(())
    }

    fn cut(&mut self, range: &Range<u64>) {
        while let Some(start) = self.first_in(range) {
            let mapping = self.mappings.remove(&start).expect("it was found");
            if start < range.start {
                let end = range.start;
                self.mappings.insert(start, Mapping { end, ..mapping });
            }
            if range.end < mapping.end {
                self.mappings.insert(range.end, mapping);
            }
        }
    }

    /// Removes all pages and tables of `range`.
    fn empty(&mut self, range: &Range<u64>) {
        let touched = self.huge.keys().copied();
        let touched: Vec<u64> = touched
            .filter(|table| overlaps(range, &pages_of(*table)))
            .collect();
        for table in touched {
            self.huge.remove(&table);
            let whole = pages_of(table);
            if range.start > whole.start || range.end < whole.end {
                self.tables.insert(table);
                self.pages.extend(whole.map(|page| (page, There::Own)));
            }
        }
        self.pages.retain(|page, _| !range.contains(page));
    }

    pub(crate) fn fault(&mut self, page: u64, access: Access) -> Result<Faulted, FaultError> {
        let before = self.mappings.range(..=page).next_back();
        let covering = before.filter(|(_, mapping)| page < mapping.end);
        let Some((&start, &mapping)) = covering else {
            return Err(FaultError::NotMapped(Vpn(page)));
        };
        let table = page / TABLE;
        if self.huge.contains_key(&table) {
            return Ok(Faulted::Already);
        }
        let there = self.pages.get(&page).copied();
        match mapping.what {
            What::Reserved => {
                self.put_huge(table, true);
                Ok(Faulted::Huge)
            }
            What::Anonymous { huge } => {
                let whole = pages_of(table);
                let fits = huge && start <= whole.start && whole.end <= mapping.end;
                if fits && !self.tables.contains(&table) && self.charge(TABLE).is_ok() {
                    self.put_huge(table, false);
                    return Ok(Faulted::Huge);
                }
                self.own(page, there)
            }
            What::File { .. } if there == Some(There::Swapped) => self.own(page, there),
            What::File { offset } => match (there, access) {
                (None | Some(There::File), Access::Write) => self.own(page, None),
                (Some(_), _) => Ok(Faulted::Already),
                (None, Access::Read) => {
                    self.file.insert(page - mapping.origin + offset);
                    Ok(self.put(page, There::File))
                }
            },
            _ if there.is_some() => Ok(Faulted::Already),
            What::Shared { offset } => {
                self.shared.insert(page - mapping.origin + offset);
                Ok(self.put(page, There::Shared))
            }
            What::Frames { .. } => Ok(self.put(page, There::Frame)),
        }
    }

    /// Puts a private page at `page`, unless there already is one.
    fn own(&mut self, page: u64, there: Option<There>) -> Result<Faulted, FaultError> {
        let swapped = there == Some(There::Swapped);
        if there.is_some() && !swapped {
            return Ok(Faulted::Already);
        }
        self.charge(1)?;
        self.put(page, There::Own);
        Ok(Faulted::Mapped { swapped })
    }

    fn put(&mut self, page: u64, there: There) -> Faulted {
        self.tables.insert(page / TABLE);
        self.uppers.insert(page / TABLE / TABLE);
        self.pages.insert(page, there);
        Faulted::Mapped { swapped: false }
    }

    fn put_huge(&mut self, table: u64, reserved: bool) {
        self.tables.remove(&table);
        self.uppers.insert(table / TABLE);
        self.huge.insert(table, reserved);
    }

    /// Checks whether the address space may use `pages` more pages. The error names the first
    /// budget that would be exceeded: the budget of the address space, of its group, or of the
    /// group above.
    fn charge(&self, pages: u64) -> Result<(), FaultError> {
        for (level, limit) in (0..).zip(self.sizes.limits) {
            let others = if level == 0 { 0 } else { self.sizes.others };
            let used = self.count(There::Own) + TABLE * self.huge_of(false) + others;
            if used + pages > limit {
                return Err(FaultError::OverBudget(OverBudget { level, limit, used }));
            }
        }
        Ok(())
    }

    pub(crate) fn populate(&mut self, range: Range<u64>) -> Result<(), FaultError> {
        range
            .into_iter()
            .try_for_each(|page| self.fault(page, Access::Write).map(|_| ()))
    }

    pub(crate) fn swap_out(&mut self, range: Range<u64>) -> u64 {
        let room = u64::from(self.sizes.swap) - self.count(There::Swapped);
        let room = usize::try_from(room).expect("few slots");
        let own = self.pages.range_mut(range).map(|(_, there)| there);
        let going = own.filter(|there| **there == There::Own).take(room);
        going.map(|there| *there = There::Swapped).count() as u64
    }

    fn count(&self, kind: There) -> u64 {
        self.pages.values().filter(|there| **there == kind).count() as u64
    }

    fn huge_of(&self, reserved: bool) -> u64 {
        let alike = |found: &&bool| **found == reserved;
        self.huge.values().filter(alike).count() as u64
    }

    /// Returns the state that the address space must have.
    pub(crate) fn state(&self) -> State {
        let own = self.count(There::Own);
        let (huge, reserved) = (self.huge_of(false), self.huge_of(true));
        let anonymous = own + TABLE * huge;
        let tables = (self.tables.len() + self.huge.len() + self.uppers.len()) as u64;
        let (file, shared) = (self.file.len() as u64, self.shared.len() as u64);
        State {
            mappings: self
                .mappings
                .iter()
                .map(|(&at, new)| see(at, new))
                .collect(),
            rss: [
                self.count(There::File),
                anonymous,
                self.count(There::Swapped),
                self.count(There::Shared),
            ],
            used: [anonymous; 3],
            swapped: u32::try_from(self.count(There::Swapped)).expect("few slots"),
            tables: [tables; 2],
            anonymous: [anonymous; 2],
            handed_out: anonymous + TABLE * reserved + tables + file + shared,
            file,
            shared,
            aged: (own + huge).cast_signed(),
        }
    }
}

fn see(start: u64, mapping: &Mapping) -> Seen {
    let kind = match mapping.what {
        What::Anonymous { .. } => MappingKind::Anonymous,
        What::File { .. } => MappingKind::PrivateFile,
        What::Shared { .. } => MappingKind::Shared,
        What::Reserved => MappingKind::Reserved,
        What::Frames { .. } => MappingKind::Frames,
    };
    (start, mapping.end, kind)
}

fn overlaps(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

fn pages_of(table: u64) -> Range<u64> {
    table * TABLE..(table + 1) * TABLE
}

fn align(what: What) -> u64 {
    if what == What::Reserved { TABLE } else { 1 }
}

fn check_range(start: u64, pages: u64) -> Result<Range<u64>, MapError> {
    if pages == 0 {
        return Err(MapError::Empty);
    }
    if pages > END || start > END - pages {
        let start = Vpn(start);
        return Err(MapError::TooHigh { start, pages });
    }
    Ok(start..start + pages)
}

/// Checks for the errors that do not depend on existing mappings.
fn check(place: Place, pages: u64, what: What) -> Result<(), MapError> {
    let align = align(what);
    let unaligned = |page| Err(MapError::Unaligned { page, align });
    if let Place::Fixed(start) | Place::Replace(start) = place {
        check_range(start.0, pages)?;
        if !start.0.is_multiple_of(align) {
            return unaligned(start);
        }
    }
    check_range(0, pages)?;
    match what {
        What::Reserved if !pages.is_multiple_of(align) => unaligned(Vpn(pages)),
        What::Frames { first } if u64::from(first) + pages > 1 << 32 => Err(MapError::NoSuchFrames),
        What::File { offset } | What::Shared { offset } if offset > u64::MAX - pages => {
            Err(MapError::NoSuchFrames)
        }
        _ => Ok(()),
    }
}
