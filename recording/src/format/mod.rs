//! The recording format: a stream of chunks, each with its length and checksum. The writer never
//! seeks, so it can write to a pipe or to a port of an emulator.
//!
//! ```text
//! file    magic (8 bytes)  mark 0x01020304 (4)  version (2)  0 (2)  chunk  chunk …
//! chunk   tag (4 letters)  length of the body (4)  CRC-32 of tag, length and body (4)  body
//! body    prologue (numbers)  then per column: number  plain length  packed length  bytes
//! ```
//!
//! All numbers are little-endian. There are four tags. The first chunk, `HEAD`, says what was
//! recorded and where. `NAME` adds names of functions, and `EVNT` holds events of one CPU. The last
//! chunk, `DONE`, holds facts that are known only at the end. A reader skips unknown tags.
//! docs/recordings.md has the tables.

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

/// The first bytes of a recording. No UTF-8 text begins with the first byte. The other bytes
/// contain line ends. So the reader notices if a transfer has converted line ends.
pub(crate) const MAGIC: [u8; 8] = *b"\x93PLR\r\n\x1a\n";

/// The byte-order mark. If the file has the other byte order, a reader reads another number.
const MARK: u32 = 0x0102_0304;

/// The version that the writer writes, and the newest version that the reader reads. A file of
/// version 1 has no column of guesses of page frame numbers, so the reader treats every guess as
/// wrong. Version 3 added the events of reclaim.
const VERSION: u16 = 3;

/// The number of bytes before the first chunk.
const PREAMBLE_BYTES: usize = 16;

/// The maximum number of events in one `EVNT` chunk, and of names in one `NAME` chunk. The writer
/// ends a chunk before it exceeds this number, and the reader refuses a larger chunk.
pub const CHUNK_EVENTS_MAX: u64 = 1 << 17;

/// The largest size of one chunk, and the largest total size of its unpacked columns, in bytes. The
/// reader refuses a larger chunk, because a crafted chunk of a few KiB can unpack to any size. In
/// addition to a chunk, a reader keeps up to 25 MB of tables for guessing page frame numbers, and
/// the tables of numbers seen so far.
pub const CHUNK_BYTES_MAX: usize = 1 << 26;

const HEAD: [u8; 4] = *b"HEAD";
const NAME: [u8; 4] = *b"NAME";
const EVENTS: [u8; 4] = *b"EVNT";
const DONE: [u8; 4] = *b"DONE";
