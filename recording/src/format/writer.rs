//! Writes a recording while it is being made.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::columns::{Column, Memory, Pack, Side};
use super::varint::{put, put_text};
use super::{
    CHUNK_EVENTS_MAX, DONE, EVENTS, HEAD, MAGIC, MARK, NAME, VERSION, chunk, fields, layout,
};
use crate::error::WriteError;
use crate::event::{Event, Symbol, What};
use crate::header::Header;

/// The number of events, of all CPUs together, that the writer buffers before it writes them as
/// chunks.
const ROUND_EVENTS: u64 = CHUNK_EVENTS_MAX;

/// The maximum number of bytes of texts and call chains that the writer buffers. The other fields
/// of an event take less than 128 bytes, and a chunk has at most `CHUNK_EVENTS_MAX` events. So a
/// chunk unpacks to less than `CHUNK_BYTES_MAX`.
const HELD_BYTES_MAX: usize = 1 << 25;

/// Writes a recording to any [`Write`], without seeking.
///
/// Events of one CPU must be pushed in the order in which the kernel wrote them; events of
/// different CPUs may alternate in any order. [`Writer::finish`] must be called; otherwise readers
/// report that the file is truncated.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    header: Header,
    symbols: usize,
    held: BTreeMap<u32, Vec<Event>>,
    held_events: u64,
    /// The number of bytes of texts and call chains in `held`.
    held_bytes: usize,
    memory: Memory,
    totals: Totals,
}

/// Counts of the events and of the bytes that a writer has written to its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The number of events in complete chunks.
    pub events: u64,
    /// The number of bytes written.
    pub bytes: u64,
}

impl<W: Write> Writer<W> {
    /// Creates a writer, and writes the facts of `header` that are known before the first event.
    /// From then on, events may use the symbols of `header`.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn new(out: W, header: &Header) -> Result<Self, WriteError> {
        let mut writer = Self {
            out,
            header: header.clone(),
            symbols: 0,
            held: BTreeMap::new(),
            held_events: 0,
            held_bytes: 0,
            memory: Memory::default(),
            totals: Totals::default(),
        };
        let mut preamble = MAGIC.to_vec();
        preamble.extend_from_slice(&MARK.to_le_bytes());
        preamble.extend_from_slice(&VERSION.to_le_bytes());
        preamble.extend_from_slice(&[0, 0]);
        let written = writer.out.write_all(&preamble);
        writer.check(written)?;
        writer.totals.bytes = preamble.len() as u64;
        let mut body = Vec::new();
        chunk::put_column(&mut body, Column::Fields, &fields::pack(header));
        writer.chunk(HEAD, &body)?;
        writer.symbols(&header.symbols)?;
        Ok(writer)
    }

    /// Sets all names to which events may refer from now on. `all` must begin with the names of the
    /// previous call.
    ///
    /// # Errors
    /// If the new names cannot be written.
    pub fn symbols(&mut self, all: &[String]) -> Result<(), WriteError> {
        let Some(new @ [_, ..]) = all.get(self.symbols..) else {
            return Ok(());
        };
        let most = usize::try_from(CHUNK_EVENTS_MAX).unwrap_or(usize::MAX);
        for new in new.chunks(most) {
            let mut names = Vec::new();
            for name in new {
                put_text(&mut names, name);
            }
            let mut body = Vec::new();
            put(&mut body, new.len() as u64);
            chunk::put_column(&mut body, Column::Text, &names);
            self.chunk(NAME, &body)?;
        }
        self.symbols = all.len();
        Ok(())
    }

    /// Buffers one event until the next round of chunks is written.
    ///
    /// # Errors
    /// If the file cannot be written, if the event refers to a symbol that [`Writer::symbols`] has
    /// not set, or if the event's text or call chain is larger than 32 MiB.
    pub fn push(&mut self, event: Event) -> Result<(), WriteError> {
        if symbols_of(&event.what).any(|symbol| symbol.0 as usize >= self.symbols) {
            let untold = "an event refers to a symbol that the writer was not told";
            return self.check(Err(io::Error::new(io::ErrorKind::InvalidInput, untold)));
        }
        let bytes = bytes_of(&event.what);
        if bytes > HELD_BYTES_MAX {
            let long = "the text or call chain of an event is larger than 32 MiB";
            return self.check(Err(io::Error::new(io::ErrorKind::InvalidInput, long)));
        }
        if self.held_bytes + bytes > HELD_BYTES_MAX {
            self.flush()?;
        }
        self.held.entry(event.cpu).or_default().push(event);
        self.held_bytes += bytes;
        self.held_events += 1;
        if self.held_events >= ROUND_EVENTS {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the buffered events.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        let held = std::mem::take(&mut self.held);
        self.held_events = 0;
        self.held_bytes = 0;
        for (cpu, events) in held {
            let count = events.len() as u64;
            let body = pack(cpu, events, &mut self.memory);
            self.chunk(EVENTS, &body)?;
            self.totals.events += count;
        }
        Ok(())
    }

    /// Writes the buffered events and the parts of `header` that were not known at the beginning:
    /// lost events, texts read at the end, events that could not be recorded.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn finish(mut self, header: &Header) -> Result<(W, Totals), WriteError> {
        self.symbols(&header.symbols)?;
        self.flush()?;
        let added = fields::added(&self.header, header);
        let mut body = Vec::new();
        put(&mut body, self.totals.events);
        chunk::put_column(&mut body, Column::Fields, &fields::pack(&added));
        self.chunk(DONE, &body)?;
        Ok((self.out, self.totals))
    }

    /// Returns how many events and bytes are in the file so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    fn chunk(&mut self, tag: [u8; 4], body: &[u8]) -> Result<(), WriteError> {
        let written = chunk::write(&mut self.out, tag, body);
        self.check(written)?;
        self.totals.bytes += (chunk::HEAD_BYTES + body.len()) as u64;
        Ok(())
    }

    fn check(&self, written: io::Result<()>) -> Result<(), WriteError> {
        written.map_err(|source| WriteError {
            events: self.totals.events,
            source,
        })
    }
}

/// Returns the body of a chunk that holds `events`.
fn pack(cpu: u32, events: Vec<Event>, memory: &mut Memory) -> Vec<u8> {
    let mut body = Vec::new();
    put(&mut body, u64::from(cpu));
    put(&mut body, events.len() as u64);
    let mut last_ns = events.first().map_or(0, |event| event.time_ns);
    put(&mut body, last_ns);
    let mut pack = Pack::new(memory);
    let written = "the writer's side takes every number";
    for mut event in events {
        let mut kind = layout::kind(&event.what);
        let mut step = super::varint::fold(event.time_ns.wrapping_sub(last_ns).cast_signed());
        let mut pid = u64::from(event.pid);
        last_ns = event.time_ns;
        pack.number(Column::Kind, &mut kind).expect(written);
        pack.number(Column::Time, &mut step).expect(written);
        pack.number(Column::Pid, &mut pid).expect(written);
        pack.memory.guesser.turn_to(cpu, event.pid);
        layout::layout(&mut event.what, &mut pack).expect(written);
    }
    for (column, bytes) in Column::ALL.into_iter().zip(&pack.columns) {
        chunk::put_column(&mut body, column, bytes);
    }
    body
}

/// Returns the maximum number of bytes that the text or the call chain of an event takes in its
/// column.
fn bytes_of(what: &What) -> usize {
    match what {
        What::Mark(text) => text.len(),
        // A symbol takes at most six bytes. It takes six if its number is new: a zero byte, and up
        // to five bytes for the number, which is below 2³².
        What::ContentionBegin { stack, .. } => stack.len() * 6,
        _ => 0,
    }
}

fn symbols_of(what: &What) -> impl Iterator<Item = Symbol> {
    let (one, many): (_, &[Symbol]) = match what {
        What::WorkQueued { function, .. }
        | What::WorkStart { function, .. }
        | What::WorkEnd { function, .. }
        | What::TimerStart { function, .. }
        | What::TimerExpire { function, .. } => (Some(*function), &[]),
        What::ContentionBegin { stack, .. } => (None, stack),
        _ => (None, &[]),
    };
    one.into_iter().chain(many.iter().copied())
}
