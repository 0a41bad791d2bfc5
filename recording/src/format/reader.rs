//! Reads a recording, chunk by chunk.

use std::io::Read;

use super::chunk::{self, Chunk, ChunkError};
use super::columns::{Column, Memory, Side, Unpack};
use super::varint::{take, take_text, unfold};
use super::{
    CHUNK_BYTES_MAX, CHUNK_EVENTS_MAX, DONE, EVENTS, HEAD, MAGIC, MARK, NAME, PREAMBLE_BYTES,
    VERSION, fields, layout,
};
use crate::error::{ReadError, Warning};
use crate::event::Event;
use crate::header::Header;

/// Reads a recording from any [`Read`]; it never seeks.
#[derive(Debug)]
pub struct Reader<R> {
    file: String,
    input: R,
    offset: u64,
    header: Header,
    memory: Memory,
    events: u64,
    end: End,
    warnings: Vec<Warning>,
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Ahead,
    Reached,
}

impl<R: Read> Reader<R> {
    /// Reads the input up to the first event. `file` is the name that errors give to the input.
    ///
    /// # Errors
    /// If the input is not a recording, is damaged, or has a byte order or a version that is not
    /// supported.
    pub fn new(file: &str, input: R) -> Result<Self, ReadError> {
        let mut reader = Self {
            file: file.to_owned(),
            input,
            offset: PREAMBLE_BYTES as u64,
            header: Header::default(),
            memory: Memory::default(),
            events: 0,
            end: End::Ahead,
            warnings: Vec::new(),
        };
        reader.preamble()?;
        let Some(head) = reader.chunk()? else {
            return Ok(reader);
        };
        if head.tag != HEAD {
            return Err(reader.damaged(head.offset, "the first chunk is not the header"));
        }
        reader.fields(&head, &head.body)?;
        Ok(reader)
    }

    /// Returns the part of the header that has been read so far. The header is complete after
    /// [`Reader::next_events`] has returned `None`.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the events of the next chunk; `None` at the end of the input. All events of a chunk
    /// are of one CPU, in the order in which the kernel wrote them.
    ///
    /// # Errors
    /// If the input cannot be read or a chunk is damaged. A truncated file is no error: all
    /// complete chunks are returned, and [`Reader::finish`] returns a warning.
    pub fn next_events(&mut self) -> Result<Option<Vec<Event>>, ReadError> {
        // The loop ends: each iteration reads a chunk of a finite input.
        while let Some(chunk) = self.chunk()? {
            let mut body = &chunk.body[..];
            match chunk.tag {
                EVENTS => {
                    let events = self.unpack(body);
                    let events = events
                        .ok_or_else(|| self.damaged(chunk.offset, "its events make no sense"))?;
                    self.events += events.len() as u64;
                    return Ok(Some(events));
                }
                NAME => self
                    .names(body)
                    .ok_or_else(|| self.damaged(chunk.offset, "its names make no sense"))?,
                DONE => {
                    let events = take(&mut body);
                    self.fields(&chunk, body)?;
                    if events != Some(self.events) {
                        return Err(self.damaged(chunk.offset, "it counts other events"));
                    }
                    self.end = End::Reached;
                    return Ok(None);
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Returns the complete header, and warnings about the recording.
    #[must_use]
    pub fn finish(mut self) -> (Header, Vec<Warning>) {
        let on_each = self.header.lost.iter().map(|(_, events)| *events);
        let lost: Vec<u64> = on_each.filter(|events| *events > 0).collect();
        if !lost.is_empty() {
            self.warnings.push(Warning::Lost {
                file: self.file,
                events: lost.iter().sum(),
                cpus: lost.len(),
            });
        }
        (self.header, self.warnings)
    }

    fn preamble(&mut self) -> Result<(), ReadError> {
        let mut bytes = Vec::with_capacity(PREAMBLE_BYTES);
        let wanted = self.input.by_ref().take(PREAMBLE_BYTES as u64);
        { wanted }
            .read_to_end(&mut bytes)
            .map_err(|source| self.io(source))?;
        let file = self.file.clone();
        let Some((magic, rest)) = bytes.split_first_chunk::<8>() else {
            return Err(ReadError::NotARecording { file });
        };
        if *magic != MAGIC {
            return Err(ReadError::NotARecording { file });
        }
        let Some((mark, rest)) = rest.split_first_chunk::<4>() else {
            return Err(ReadError::NotARecording { file });
        };
        let mark = u32::from_le_bytes(*mark);
        if mark == MARK.swap_bytes() {
            return Err(ReadError::ForeignEndianness { file });
        }
        let Some((version, _)) = rest.split_first_chunk::<2>() else {
            return Err(ReadError::NotARecording { file });
        };
        let version = u16::from_le_bytes(*version);
        if mark != MARK || version == 0 {
            return Err(self.damaged(0, "its first bytes make no sense"));
        }
        if version > VERSION {
            return Err(ReadError::Newer {
                file,
                version,
                known: VERSION,
            });
        }
        Ok(())
    }

    /// Reads the next chunk; returns `None` at the end, including the end of a truncated file.
    fn chunk(&mut self) -> Result<Option<Chunk>, ReadError> {
        if self.end == End::Reached {
            return Ok(None);
        }
        let cut = match chunk::read(&mut self.input, self.offset) {
            Ok(Some(chunk)) => {
                self.offset += (chunk::HEAD_BYTES + chunk.body.len()) as u64;
                return Ok(Some(chunk));
            }
            Ok(None) => 0,
            Err(ChunkError::Cut(bytes)) => bytes,
            Err(ChunkError::Io(source)) => return Err(self.io(source)),
            Err(ChunkError::Damaged(what)) => return Err(self.damaged(self.offset, what)),
        };
        self.end = End::Reached;
        self.warnings.push(Warning::Truncated {
            file: self.file.clone(),
            events: self.events,
            bytes: cut,
        });
        Ok(None)
    }

    fn fields(&mut self, chunk: &Chunk, mut body: &[u8]) -> Result<(), ReadError> {
        let header = &mut self.header;
        let mut unpack = || {
            let mut room = CHUNK_BYTES_MAX;
            while !body.is_empty() {
                let (column, bytes) = chunk::take_column(&mut body, &mut room)?;
                if column == Column::Fields as usize {
                    fields::unpack(&bytes, header)?;
                }
            }
            Some(())
        };
        let done = unpack();
        done.ok_or_else(|| self.damaged(chunk.offset, "its fields make no sense"))
    }

    fn names(&mut self, mut body: &[u8]) -> Option<()> {
        let count = take(&mut body).filter(|count| *count <= CHUNK_EVENTS_MAX)?;
        let (_, names) = chunk::take_column(&mut body, &mut { CHUNK_BYTES_MAX })?;
        let mut names = &names[..];
        for _ in 0..count {
            self.header.symbols.push(take_text(&mut names)?);
        }
        Some(())
    }

    fn unpack(&mut self, mut body: &[u8]) -> Option<Vec<Event>> {
        let cpu = u32::try_from(take(&mut body)?).ok()?;
        let count = take(&mut body).filter(|count| *count <= CHUNK_EVENTS_MAX)?;
        let mut time_ns = take(&mut body)?;
        let mut columns: [Vec<u8>; Column::COUNT] = Default::default();
        let mut room = CHUNK_BYTES_MAX;
        while !body.is_empty() {
            let (column, bytes) = chunk::take_column(&mut body, &mut room)?;
            if let Some(place) = columns.get_mut(column) {
                *place = bytes;
            }
        }
        let symbols = self.header.symbols.len() as u64;
        let mut unpack = Unpack::new(&mut self.memory, &columns, symbols);
        let mut events = Vec::new();
        for _ in 0..count {
            let (mut kind, mut step, mut pid) = (0, 0, 0);
            unpack.number(Column::Kind, &mut kind)?;
            unpack.number(Column::Time, &mut step)?;
            unpack.number(Column::Pid, &mut pid)?;
            time_ns = time_ns.wrapping_add(unfold(step).cast_unsigned());
            let pid = u32::try_from(pid).ok()?;
            unpack.memory.guesser.turn_to(cpu, pid);
            let mut what = layout::blank(kind)?;
            layout::layout(&mut what, &mut unpack)?;
            events.push(Event {
                time_ns,
                cpu,
                pid,
                what,
            });
        }
        Some(events)
    }

    fn damaged(&self, offset: u64, what: &'static str) -> ReadError {
        ReadError::Damaged {
            file: self.file.clone(),
            offset,
            what,
        }
    }

    fn io(&self, source: std::io::Error) -> ReadError {
        ReadError::Open {
            file: self.file.clone(),
            source,
        }
    }
}
