//! Why a recording could not be read: always the file, the line, and what was expected.

use std::error;
use std::fmt;
use std::io;

/// Why a recording could not be read.
#[derive(Debug)]
pub enum TraceError {
    /// The file could not be opened.
    Open {
        /// The file as given.
        file: String,
        /// What the system said.
        source: io::Error,
    },
    /// The file could not be read or unpacked to its end.
    Read {
        /// The file as given.
        file: String,
        /// The line that was being read.
        line: u64,
        /// What the system or the decompressor said.
        source: io::Error,
    },
    /// The file is what `perf record` writes, not what `perf script` prints.
    PerfData {
        /// The file as given.
        file: String,
    },
    /// A line is not an event.
    Line {
        /// The file as given.
        file: String,
        /// The line, from 1.
        line: u64,
        /// What should have been there.
        expected: &'static str,
        /// The line, shortened.
        text: String,
    },
    /// Time goes back further than the buffers of different CPUs can explain.
    Backwards {
        /// The file as given.
        file: String,
        /// The line, from 1.
        line: u64,
        /// How far.
        back_ns: u64,
    },
    /// No line is an allocation or a free.
    Empty {
        /// The file as given.
        file: String,
        /// How many lines there were.
        lines: u64,
    },
}

impl fmt::Display for TraceError {
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
            Self::Empty { file, lines } => write!(
                f,
                "{file}: expected kmem:mm_page_alloc and kmem:mm_page_free events, found none in \
                 {lines} lines; record with `perf record -a -e 'kmem:mm_page_*'`"
            ),
        }
    }
}

// The text already tells the cause, so no error names another as its source.
impl error::Error for TraceError {}
