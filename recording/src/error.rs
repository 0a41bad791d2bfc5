//! Errors of reading and writing recordings, and warnings about readable recordings.

use std::error;
use std::fmt;
use std::io;

/// The reasons why a recording could not be read. The printed text names the file and the position
/// in it, and says what to do.
#[derive(Debug)]
pub enum ReadError {
    /// The file could not be opened.
    Open {
        /// The name of the file, as the caller gave it.
        file: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A text could not be read or decompressed to its end.
    Read {
        /// The name of the file, as the caller gave it.
        file: String,
        /// The number of the line that was being read.
        line: u64,
        /// The error of the operating system or the decompressor.
        source: io::Error,
    },
    /// The file is a `perf.data` file of `perf record`, not the output of `perf script`.
    PerfData {
        /// The name of the file, as the caller gave it.
        file: String,
    },
    /// The file is neither in Plimsoll's format nor the text of `perf script`.
    NotARecording {
        /// The name of the file, as the caller gave it.
        file: String,
    },
    /// The file is big-endian; Plimsoll's format is little-endian.
    ForeignEndianness {
        /// The name of the file, as the caller gave it.
        file: String,
    },
    /// The file was written by a newer Plimsoll.
    Newer {
        /// The name of the file, as the caller gave it.
        file: String,
        /// The format version that the file states.
        version: u16,
        /// The newest version that this Plimsoll reads.
        known: u16,
    },
    /// A chunk (a part) of the file is damaged.
    Damaged {
        /// The name of the file, as the caller gave it.
        file: String,
        /// The offset of the chunk in the file, in bytes.
        offset: u64,
        /// A description of the damage.
        what: &'static str,
    },
    /// A line is not an event.
    Line {
        /// The name of the file, as the caller gave it.
        file: String,
        /// The number of the line, counted from 1.
        line: u64,
        /// The content that was expected instead.
        expected: &'static str,
        /// The text of the line, shortened.
        text: String,
    },
    /// An event is earlier than an event before it in the file. The difference is too large to come
    /// from a buffer that `perf` has written late.
    Backwards {
        /// The name of the file, as the caller gave it.
        file: String,
        /// The number of the line, counted from 1.
        line: u64,
        /// The time by which the event on this line is earlier than the latest event before it, in
        /// nanoseconds.
        back_ns: u64,
    },
    /// The order of a block is above the largest order of Linux.
    Order {
        /// The name of the file, as the caller gave it.
        file: String,
        /// The event's name.
        event: &'static str,
        /// log₂ of the number of pages of the block.
        order: u8,
        /// The largest order that is accepted.
        most: u8,
    },
    /// The recording contains no allocation and no free.
    Empty {
        /// The name of the file, as the caller gave it.
        file: String,
        /// The number of lines in the file; 0 if it is not a text.
        lines: u64,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { file, source } => write!(f, "cannot open {file}: {source}"),
            Self::Read { file, line, source } => {
                write!(f, "{file}:{line}: cannot read further: {source}")
            }
            Self::PerfData { file } => write!(
                f,
                "{file} is a perf.data file, which only perf can read; \
                 print it with `perf script -i {file}` and give that text"
            ),
            Self::NotARecording { file } => write!(
                f,
                "{file} is not a recording: expected a file that `plimsoll record` wrote, or the \
                 text that `perf script` prints, plain or packed with gzip or zstd"
            ),
            Self::ForeignEndianness { file } => write!(
                f,
                "{file} was written in the other byte order; recordings are \
                 little-endian on every computer, so record it again with this plimsoll"
            ),
            Self::Newer {
                file,
                version,
                known,
            } => write!(
                f,
                "{file} has version {version} of the recording format, and this plimsoll reads \
                 up to version {known}; read it with a newer plimsoll"
            ),
            Self::Damaged { file, offset, what } => write!(
                f,
                "{file} is damaged in the chunk at byte {offset}: {what}; copy it again, or \
                 record it again"
            ),
            _ => self.fmt_content(f),
        }
    }
}

impl ReadError {
    /// Prints the errors that are about one line or one event of a text.
    fn fmt_content(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line {
                file,
                line,
                expected,
                text,
            } => {
                write!(f, "{file}:{line}: expected {expected}, found `{text}`")
            }
            Self::Backwards {
                file,
                line,
                back_ns,
            } => write!(
                f,
                "{file}:{line}: expected events in order of time, found one {:.3} s before an \
                 earlier line; is this more than one recording?",
                *back_ns as f64 / 1e9
            ),
            Self::Order {
                file,
                event,
                order,
                most,
            } => write!(
                f,
                "{file}: {event} has order {order}, and orders go from 0 to {most}; was it \
                 recorded on a kernel with larger blocks, or is the file damaged?"
            ),
            Self::Empty { file, lines: 0 } => write!(
                f,
                "{file}: expected allocations and frees of pages, found none; record again while \
                 something runs, without leaving out page events"
            ),
            Self::Empty { file, lines } => write!(
                f,
                "{file}: expected kmem:mm_page_alloc and kmem:mm_page_free events, found none in \
                 {lines} lines; record with `perf record -a -e 'kmem:mm_page_*'`"
            ),
            _ => f.write_str("the recording cannot be read"),
        }
    }
}

// The printed text already includes the cause, so `source` is not implemented.
impl error::Error for ReadError {}

/// Warnings about a readable recording.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// The last line of a text ends in the middle of an event.
    TruncatedLastLine {
        /// The name of the file, as the caller gave it.
        file: String,
        /// The number of the line, counted from 1.
        line: u64,
    },
    /// The file ends without its last chunk: either the file was truncated, or the recorder could
    /// not finish it.
    Truncated {
        /// The name of the file, as the caller gave it.
        file: String,
        /// The number of events that could be read.
        events: u64,
        /// The number of bytes after the last complete chunk.
        bytes: u64,
    },
    /// The kernel dropped events while recording.
    Lost {
        /// The name of the file, as the caller gave it.
        file: String,
        /// The number of events that were dropped.
        events: u64,
        /// The number of CPUs on which events were dropped.
        cpus: usize,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TruncatedLastLine { file, line } => write!(
                f,
                "{file}:{line}: the last line is cut off and was left out"
            ),
            Self::Truncated {
                file,
                events,
                bytes,
            } => write!(
                f,
                "{file} is cut off: its first {events} events were read, the {bytes} bytes after \
                 them were left out, and the file's last part (lost events, texts read at the end) \
                 is missing"
            ),
            Self::Lost { file, events, cpus } => write!(
                f,
                "{file} lacks {events} events that the kernel dropped on {cpus} CPUs; record \
                 again with a larger --buffer-mb"
            ),
        }
    }
}

/// The error when a recording could not be written to its end.
#[derive(Debug)]
pub struct WriteError {
    /// The number of events in complete chunks of the file; a reader can still read them.
    pub events: u64,
    /// The error of the operating system.
    pub source: io::Error,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { events, source } = self;
        write!(
            f,
            "cannot write further: {source}; the first {events} events are in the file and can \
             be read"
        )
    }
}

// The printed text already includes the cause, so `source` is not implemented.
impl error::Error for WriteError {}
