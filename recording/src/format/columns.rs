//! The columns of a chunk. A column holds one field of all the chunk's events, so that similar
//! numbers are adjacent and compress well.
//!
//! [`Column::style`] returns the encoding of a column's numbers. `layout` lists the fields of an
//! event once and passes them to a [`Side`]. The writer's side takes numbers from the event, and
//! the reader's side puts numbers into the event.

use rustc_hash::FxHashMap;

use super::guess::{Deed, Guesser};
use super::varint::{fold, put, put_text, take, take_text, unfold};

/// The encodings of a column's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// The number itself.
    Plain,
    /// The signed difference from the preceding number.
    Delta,
    /// The column holds, for each number, an index into a table of the numbers seen so far. The
    /// first index is 1. The index 0 means that a new number follows.
    Table,
    /// The column holds texts, not numbers.
    Text,
    /// The column holds the numbers themselves. If the column is missing, all numbers are zero.
    Sparse,
}

/// The columns of a chunk. Each column is identified by a number, which is part of the format, so a
/// new column must get a new number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Column {
    Kind = 0,
    Time = 1,
    Pid = 2,
    AllocPfn = 3,
    FreePfn = 4,
    BatchedPfn = 5,
    DrainPfn = 6,
    ZonePfn = 7,
    /// Order, migrate type and other small fields, in one number.
    Class = 8,
    Gfp = 9,
    Count = 10,
    Address = 11,
    Symbol = 12,
    Jiffy = 13,
    Ahead = 14,
    Flags = 15,
    StackLength = 16,
    Stack = 17,
    Amount = 18,
    Victim = 19,
    Range = 20,
    Text = 21,
    /// The header's pairs of name and value, in the first and the last chunk. Events do not use
    /// this column.
    Fields = 22,
    /// The writer and the reader both guess page frame numbers. For each allocation, the index
    /// (from 1) of the right guess of the page frame number, or 0 if no guess was right. The next
    /// three columns have these indices for frees, batched frees and drains.
    AllocGuess = 23,
    FreeGuess = 24,
    BatchedGuess = 25,
    DrainGuess = 26,
    /// The number of a memory node.
    Node = 27,
}

impl Column {
    pub(super) const COUNT: usize = Self::ALL.len();

    /// All columns, in ascending order of their numbers.
    pub(super) const ALL: [Self; 28] = [
        Self::Kind,
        Self::Time,
        Self::Pid,
        Self::AllocPfn,
        Self::FreePfn,
        Self::BatchedPfn,
        Self::DrainPfn,
        Self::ZonePfn,
        Self::Class,
        Self::Gfp,
        Self::Count,
        Self::Address,
        Self::Symbol,
        Self::Jiffy,
        Self::Ahead,
        Self::Flags,
        Self::StackLength,
        Self::Stack,
        Self::Amount,
        Self::Victim,
        Self::Range,
        Self::Text,
        Self::Fields,
        Self::AllocGuess,
        Self::FreeGuess,
        Self::BatchedGuess,
        Self::DrainGuess,
        Self::Node,
    ];

    pub(super) const fn style(self) -> Style {
        match self {
            Self::Kind
            | Self::Time
            | Self::Count
            | Self::StackLength
            | Self::Ahead
            | Self::Fields => Style::Plain,
            Self::AllocPfn
            | Self::FreePfn
            | Self::BatchedPfn
            | Self::DrainPfn
            | Self::ZonePfn
            | Self::Jiffy
            | Self::Amount
            | Self::Range => Style::Delta,
            Self::Pid
            | Self::Class
            | Self::Gfp
            | Self::Address
            | Self::Symbol
            | Self::Flags
            | Self::Stack
            | Self::Victim
            | Self::Node => Style::Table,
            Self::Text => Style::Text,
            Self::AllocGuess | Self::FreeGuess | Self::BatchedGuess | Self::DrainGuess => {
                Style::Sparse
            }
        }
    }
}

/// The state that columns keep from chunk to chunk. The writer's and the reader's copies go through
/// the same states, so the reader can undo the writer's encoding.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    pub(super) guesser: Guesser,
    last: [u64; Column::COUNT],
    tables: [Seen; Column::COUNT],
}

#[derive(Clone, Debug, Default)]
struct Seen {
    places: FxHashMap<u64, u64>,
    values: Vec<u64>,
}

/// The writer or the reader of an encoding. `layout` passes each number and text of an event, with
/// its column, to the writer or the reader.
pub(super) trait Side {
    /// Reads or writes one number; returns `None` if the column ends early.
    fn number(&mut self, column: Column, value: &mut u64) -> Option<()>;
    /// The writer and the reader both guess the page frame number of an event. Returns the index,
    /// counted from 1, of the guess that equals `page`, or 0 if no guess equals `page`. The reader
    /// does not know `page` yet and returns 0.
    fn place(&self, deed: Deed, page: u64) -> u64;
    /// Sets `page` to the guessed page with the index `place`; returns `None` if there is no such
    /// guess. The writer does nothing, because it already knows the page.
    fn page(&mut self, deed: Deed, place: u64, page: &mut u64) -> Option<()>;
    /// Returns the state that the columns carry over from one chunk to the next.
    fn memory(&mut self) -> &mut Memory;
    /// Reads or writes one text; returns `None` if the column ends early.
    fn text(&mut self, column: Column, value: &mut String) -> Option<()>;
}

/// Appends numbers to the columns of a chunk, for the writer.
#[derive(Debug)]
pub(super) struct Pack<'a> {
    pub(super) memory: &'a mut Memory,
    pub(super) columns: [Vec<u8>; Column::COUNT],
}

impl<'a> Pack<'a> {
    pub(super) fn new(memory: &'a mut Memory) -> Self {
        Self {
            memory,
            columns: Default::default(),
        }
    }
}

impl Side for Pack<'_> {
    fn number(&mut self, column: Column, value: &mut u64) -> Option<()> {
        let at = column as usize;
        let out = &mut self.columns[at];
        match column.style() {
            Style::Plain | Style::Text | Style::Sparse => put(out, *value),
            Style::Delta => {
                let last = std::mem::replace(&mut self.memory.last[at], *value);
                put(out, fold(value.wrapping_sub(last).cast_signed()));
            }
            Style::Table => {
                let seen = &mut self.memory.tables[at];
                let next = seen.places.len() as u64 + 1;
                let place = *seen.places.entry(*value).or_insert(next);
                if place == next {
                    put(out, 0);
                    put(out, *value);
                } else {
                    put(out, place);
                }
            }
        }
        Some(())
    }

    fn place(&self, deed: Deed, page: u64) -> u64 {
        self.memory.guesser.place(deed, page)
    }

    fn page(&mut self, _deed: Deed, _place: u64, _page: &mut u64) -> Option<()> {
        Some(())
    }

    fn memory(&mut self) -> &mut Memory {
        self.memory
    }

    fn text(&mut self, column: Column, value: &mut String) -> Option<()> {
        put_text(&mut self.columns[column as usize], value);
        Some(())
    }
}

/// The side of the reader, which takes numbers from columns.
#[derive(Debug)]
pub(super) struct Unpack<'a> {
    pub(super) memory: &'a mut Memory,
    pub(super) columns: [&'a [u8]; Column::COUNT],
    absent: [bool; Column::COUNT],
    /// The number of known symbols. An event that refers to a symbol with this index or a larger
    /// index is an error.
    symbols: u64,
}

impl<'a> Unpack<'a> {
    pub(super) fn new(
        memory: &'a mut Memory,
        columns: &'a [Vec<u8>; Column::COUNT],
        symbols: u64,
    ) -> Self {
        Self {
            memory,
            columns: columns.each_ref().map(Vec::as_slice),
            absent: columns.each_ref().map(Vec::is_empty),
            symbols,
        }
    }
}

impl Side for Unpack<'_> {
    fn number(&mut self, column: Column, value: &mut u64) -> Option<()> {
        let at = column as usize;
        let bytes = &mut self.columns[at];
        if column.style() == Style::Sparse && self.absent[at] {
            *value = 0;
            return Some(());
        }
        let number = take(bytes)?;
        *value = match column.style() {
            Style::Plain | Style::Text | Style::Sparse => number,
            Style::Delta => {
                let last = &mut self.memory.last[at];
                *last = last.wrapping_add(unfold(number).cast_unsigned());
                *last
            }
            Style::Table => {
                let values = &mut self.memory.tables[at].values;
                match usize::try_from(number).ok()?.checked_sub(1) {
                    Some(place) => *values.get(place)?,
                    None => {
                        let value = take(bytes)?;
                        values.push(value);
                        value
                    }
                }
            }
        };
        let is_symbol = matches!(column, Column::Symbol | Column::Stack);
        (!is_symbol || *value < self.symbols).then_some(())
    }

    fn place(&self, _deed: Deed, _page: u64) -> u64 {
        0
    }

    fn page(&mut self, deed: Deed, place: u64, page: &mut u64) -> Option<()> {
        *page = self.memory.guesser.guess(deed).page(place)?;
        Some(())
    }

    fn memory(&mut self) -> &mut Memory {
        self.memory
    }

    fn text(&mut self, column: Column, value: &mut String) -> Option<()> {
        *value = take_text(&mut self.columns[column as usize])?;
        Some(())
    }
}
