//! The recording format: a stream of chunks, each with its length and checksum, written without
//! going back, so that a pipe or a port of an emulator will do.
//!
//! ```text
//! file    magic (8 bytes)  mark 0x01020304 (4)  version (2)  0 (2)  chunk  chunk …
//! chunk   tag (4 letters)  length of the body (4)  CRC-32 of tag, length and body (4)  body
//! body    prologue (numbers)  then per column: number  plain length  packed length  bytes
//! ```
//!
//! All is little-endian. The tags: `HEAD`, first, says what was recorded and where; `NAME` adds names
//! of functions; `EVNT` holds events of one CPU; `DONE`, last, tells what is known at the end only.
//! A tag that a reader does not know is passed over. docs/recordings.md has the tables.

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

/// What a recording begins with. The first byte is no text, the rest shows a transfer that
/// changed line ends.
pub(crate) const MAGIC: [u8; 8] = *b"\x93PLR\r\n\x1a\n";

/// Reads as another number if the bytes are in the other order.
const MARK: u32 = 0x0102_0304;

/// The version that is written, and the newest that is read. Version 1 had no guesses of pages; as a
/// column that is missing is all zeros, it reads as if every guess had been wrong. Version 3 added the
/// events of reclaim.
const VERSION: u16 = 3;

/// Bytes before the first chunk.
const PREAMBLE_BYTES: usize = 16;

const HEAD: [u8; 4] = *b"HEAD";
const NAME: [u8; 4] = *b"NAME";
const EVENTS: [u8; 4] = *b"EVNT";
const DONE: [u8; 4] = *b"DONE";
