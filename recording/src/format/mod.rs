//! The recording format: a stream of chunks, each with its length and checksum. The writer never
//! seeks, so it can write to a pipe or to a port of an emulator.
//!
//! ```text
//! file    magic (8 bytes)  mark 0x01020304 (4)  version (2)  0 (2)  chunk  chunk …
//! chunk   tag (4 letters)  length of the body (4)  CRC-32 of tag, length and body (4)  body
//! body    prologue (numbers)  then per column: number  plain length  packed length  bytes
//! ```
//!
//! All numbers are little-endian. The tags: `HEAD`, the first, says what was recorded and where;
//! `NAME` adds names of functions; `EVNT` holds events of one CPU; `DONE`, the last, holds what is
//! known only at the end. A reader skips tags that it does not know. docs/recordings.md has the
//! tables.

mod chunk;
mod columns;
mod fields;
mod guess;
mod layout;
mod reader;
mod varint;
mod writer;

pub use reader::Reader;
pub use writer::{Totals, Writer};

/// The first bytes of a recording. The first byte occurs in no text, and the others reveal a
/// transfer that changed line ends.
pub(crate) const MAGIC: [u8; 8] = *b"\x93PLR\r\n\x1a\n";

/// A reader sees another number here if the bytes are in the other order.
const MARK: u32 = 0x0102_0304;

/// The version that is written, and the newest that is read. Version 1 had no guesses of pages;
/// because a missing guess column is all zeros, it reads as if every guess had been wrong. Version
/// 3 added the events of reclaim.
const VERSION: u16 = 3;

/// Bytes before the first chunk.
const PREAMBLE_BYTES: usize = 16;

/// The most events of one `EVNT` chunk, and the most names of one `NAME` chunk. The writer ends a
/// chunk before that, and the reader refuses a chunk with more.
pub const CHUNK_EVENTS_MAX: u64 = 1 << 17;

/// The most bytes that one chunk may have, and the most that all columns of one chunk may unpack
/// to. The reader refuses a chunk beyond that, because a few KiB can be made to unpack to any size.
/// Besides a chunk, a reader keeps up to 25 MB of tables from which it predicts pages, and the
/// numbers that the file's tables have named so far.
pub const CHUNK_BYTES_MAX: usize = 1 << 26;

const HEAD: [u8; 4] = *b"HEAD";
const NAME: [u8; 4] = *b"NAME";
const EVENTS: [u8; 4] = *b"EVNT";
const DONE: [u8; 4] = *b"DONE";
