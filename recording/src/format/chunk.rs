//! One chunk, the unit in which a recording is written: a tag and a body with a checksum. Most of
//! the body is columns, each compressed separately.

use std::io::{self, Read, Write};

use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

use super::CHUNK_BYTES_MAX;
use super::columns::Column;
use super::varint::{put, take};

/// The number of bytes before a chunk's body: tag, length, checksum.
pub(super) const HEAD_BYTES: usize = 12;

/// The minimum size, in bytes, of a column that is compressed. For a shorter column, the code table
/// of the compressed data would cost more than compression saves.
const PACKED_FROM_BYTES: usize = 48;

/// The compression level, at most 9. Recording a build with level 9 takes a third more CPU time in
/// total than with this level, and saves 1.5 % of the bytes.
const LEVEL: u32 = 3;

/// A chunk (one part of a recording), as read from a file.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) tag: [u8; 4],
    /// The offset of the chunk in the file, in bytes.
    pub(super) offset: u64,
    pub(super) body: Vec<u8>,
}

/// The reasons why no chunk could be read.
#[derive(Debug)]
pub(super) enum ChunkError {
    Io(io::Error),
    /// The file ends inside the chunk, this many bytes after its beginning.
    Cut(u64),
    Damaged(&'static str),
}

/// Writes a chunk in one piece.
pub(super) fn write(out: &mut impl Write, tag: [u8; 4], body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).ok();
    let length = length.filter(|_| body.len() <= CHUNK_BYTES_MAX);
    let length = length.ok_or_else(|| io::Error::other("a chunk is larger than 64 MiB"))?;
    let mut whole = Vec::with_capacity(HEAD_BYTES + body.len());
    whole.extend_from_slice(&tag);
    whole.extend_from_slice(&length.to_le_bytes());
    whole.extend_from_slice(&checksum(tag, length, body).to_le_bytes());
    whole.extend_from_slice(body);
    out.write_all(&whole)?;
    out.flush()
}

/// Reads the chunk at `offset`; `None` at the end of the file.
pub(super) fn read(input: &mut impl Read, offset: u64) -> Result<Option<Chunk>, ChunkError> {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    let wanted = input.by_ref().take(HEAD_BYTES as u64);
    { wanted }.read_to_end(&mut head).map_err(ChunkError::Io)?;
    if head.is_empty() {
        return Ok(None);
    }
    let cut = |bytes: usize| ChunkError::Cut(bytes as u64);
    let [tag, length, sum] = words(&head).ok_or(cut(head.len()))?;
    let (length, sum) = (u32::from_le_bytes(length), u32::from_le_bytes(sum));
    if length as usize > CHUNK_BYTES_MAX {
        return Err(ChunkError::Damaged("its length is over 64 MiB"));
    }
    // The buffer grows only as bytes are read, so a wrong length costs no memory.
    let mut body = Vec::new();
    let wanted = input.by_ref().take(u64::from(length));
    { wanted }.read_to_end(&mut body).map_err(ChunkError::Io)?;
    if body.len() < length as usize {
        return Err(cut(HEAD_BYTES + body.len()));
    }
    if checksum(tag, length, &body) != sum {
        return Err(ChunkError::Damaged("its checksum does not match"));
    }
    Ok(Some(Chunk { tag, offset, body }))
}

fn words(head: &[u8]) -> Option<[[u8; 4]; 3]> {
    let (words, _) = head.as_chunks::<4>();
    words.try_into().ok()
}

fn checksum(tag: [u8; 4], length: u32, body: &[u8]) -> u32 {
    let mut sum = Crc::new();
    sum.update(&tag);
    sum.update(&length.to_le_bytes());
    sum.update(body);
    sum.sum()
}

/// Appends a column to a chunk's body, unless the column is empty.
pub(super) fn put_column(body: &mut Vec<u8>, column: Column, plain: &[u8]) {
    if plain.is_empty() {
        return;
    }
    let packed = (plain.len() >= PACKED_FROM_BYTES).then(|| pack(plain));
    let packed = packed.filter(|packed| packed.len() < plain.len());
    let bytes = packed.as_deref().unwrap_or(plain);
    put(body, column as u64);
    put(body, plain.len() as u64);
    // If this stored length equals the plain length, a reader knows that the column is not
    // compressed.
    put(body, bytes.len() as u64);
    body.extend_from_slice(bytes);
}

/// Takes the next column off a chunk's body; returns the column's number and its uncompressed
/// bytes. `room` is the largest number of uncompressed bytes that the remaining columns of the
/// chunk may have together; the function subtracts the bytes of this column from `room`. Returns
/// `None` if the column has more than `room` bytes or is damaged.
pub(super) fn take_column(body: &mut &[u8], room: &mut usize) -> Option<(usize, Vec<u8>)> {
    let column = usize::try_from(take(body)?).ok()?;
    let plain = usize::try_from(take(body)?).ok()?;
    let packed = usize::try_from(take(body)?).ok()?;
    let (bytes, rest) = body.split_at_checked(packed)?;
    *body = rest;
    *room = room.checked_sub(plain)?;
    if packed == plain {
        return Some((column, bytes.to_vec()));
    }
    let mut unpacked = Vec::new();
    let decoder = DeflateDecoder::new(bytes);
    // Reads up to one byte more than the stated length. So a column that is longer than stated is
    // noticed.
    let mut limited = decoder.take(plain as u64 + 1);
    limited.read_to_end(&mut unpacked).ok()?;
    (unpacked.len() == plain).then_some((column, unpacked))
}

fn pack(plain: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(LEVEL));
    let written = encoder.write_all(plain).and_then(|()| encoder.finish());
    written.expect("writing to memory does not fail")
}
