//! The entries of one sub-buffer (one page of the kernel's ring buffer) and their times.

use super::layout::Page;

/// An error: an offset in the sub-buffer, in bytes, and a description of the error.
type Wrong = (usize, &'static str);

/// The bits of a sub-buffer's field `commit` that hold the number of bytes of data.
const COMMIT_MASK: u64 = (1 << 20) - 1;
/// The bit of a sub-buffer's field `commit` that is set if the kernel dropped events before this
/// sub-buffer.
const COMMIT_MISSED: u64 = 1 << 31;
/// The bit of a sub-buffer's field `commit` that is set if the number of dropped events is stored
/// after the data.
const COMMIT_MISSED_STORED: u64 = 1 << 30;

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// The number of bits in a full time stamp; the higher bits are copied from the preceding time.
const STAMP_BITS: u32 = 59;

/// A sub-buffer (one page of the kernel's ring buffer) whose first fields have been read.
#[derive(Debug)]
pub(super) struct SubBuffer<'a> {
    time_ns: u64,
    /// All bytes up to the end of the data, so that offsets count from the sub-buffer's first byte.
    bytes: &'a [u8],
    begin: usize,
    /// The number of events that the kernel dropped before this sub-buffer; 1 if the kernel does
    /// not state how many it dropped.
    pub(super) lost: u64,
}

impl<'a> SubBuffer<'a> {
    pub(super) fn read(bytes: &'a [u8], page: Page) -> Result<Self, Wrong> {
        let short = (bytes.len(), "it is shorter than its own beginning");
        let number = |at: usize, size: usize| little_endian(bytes.get(at..)?.get(..size)?);
        let time_ns = number(page.timestamp, 8).ok_or(short)?;
        let commit = number(page.commit, page.commit_bytes).ok_or(short)?;
        let end = page.data + usize::try_from(commit & COMMIT_MASK).map_err(|_| short)?;
        let data = bytes.get(..end).filter(|_| page.data <= end);
        let data = data.ok_or((page.commit, "it holds less than it says"))?;
        let stored = || number(end, page.commit_bytes).filter(|lost| *lost > 0);
        let lost = match (commit & COMMIT_MISSED, commit & COMMIT_MISSED_STORED) {
            (0, _) => 0,
            (_, 0) => 1,
            _ => stored().unwrap_or(1),
        };
        Ok(Self {
            time_ns,
            bytes: data,
            begin: page.data,
            lost,
        })
    }
}

/// One event's bytes and its time.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) at: usize,
    pub(super) time_ns: u64,
    pub(super) payload: &'a [u8],
}

/// Yields the events of a sub-buffer, up to the first error.
#[derive(Debug)]
pub(super) struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
    time_ns: u64,
}

impl<'a> Entries<'a> {
    pub(super) fn new(sub_buffer: &SubBuffer<'a>) -> Self {
        Self {
            bytes: sub_buffer.bytes,
            at: sub_buffer.begin,
            time_ns: sub_buffer.time_ns,
        }
    }

    fn word(&self, at: usize) -> Option<u32> {
        let (word, _) = self.bytes.get(at..)?.split_first_chunk::<4>()?;
        Some(u32::from_le_bytes(*word))
    }

    /// Reads entries up to and including the next event; `None` at the end of the data.
    fn step(&mut self) -> Result<Option<Entry<'a>>, Wrong> {
        const CUT: &str = "an entry goes beyond the data";
        // The loop ends: each iteration advances by at least four bytes.
        while self.at < self.bytes.len() {
            let at = self.at;
            let cut = (at, CUT);
            let head = self.word(at).ok_or(cut)?;
            let (kind, step) = (head & 31, u64::from(head >> 5));
            let second = self.word(at + 4);
            let long = |second: u32| u64::from(second) << 27 | step;
            match kind {
                PADDING if step == 0 => {
                    self.at = self.bytes.len();
                }
                PADDING => {
                    self.time_ns = self.time_ns.wrapping_add(step);
                    self.at = at + 4 + second.ok_or(cut)? as usize;
                }
                TIME_EXTEND => {
                    self.time_ns = self.time_ns.wrapping_add(long(second.ok_or(cut)?));
                    self.at = at + 8;
                }
                TIME_STAMP => {
                    let above = self.time_ns >> STAMP_BITS << STAMP_BITS;
                    self.time_ns = above | long(second.ok_or(cut)?);
                    self.at = at + 8;
                }
                _ => {
                    self.time_ns = self.time_ns.wrapping_add(step);
                    let (begin, length) = match kind {
                        // If the second word holds the length, this length includes the word's own
                        // four bytes.
                        0 => (at + 8, (second.ok_or(cut)? as usize).checked_sub(4)),
                        words => (at + 4, Some(words as usize * 4)),
                    };
                    let length = length.ok_or((at, "an event has a length below 4"))?;
                    let payload = self.bytes.get(begin..).and_then(|rest| rest.get(..length));
                    let payload = payload.ok_or(cut)?;
                    // Entries begin at multiples of four, so this code rounds the length up.
                    self.at = begin + length.next_multiple_of(4);
                    return Ok(Some(Entry {
                        at,
                        time_ns: self.time_ns,
                        payload,
                    }));
                }
            }
        }
        Ok(None)
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Wrong>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step().transpose();
        if let Some(Err(_)) = step {
            self.at = self.bytes.len();
        }
        step
    }
}

/// Reads up to eight bytes as a number; returns `None` for more bytes.
pub(super) fn little_endian(bytes: &[u8]) -> Option<u64> {
    let mut wide = [0; 8];
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(wide))
}
