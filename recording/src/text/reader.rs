//! Reads the text of `perf script` line by line, without a string for each line.
//!
//! perf merges the buffers of all CPUs by time, but a late buffer can put an event after events
//! with later times. The reader returns events in the order of the file. An event with an earlier
//! time than the event before it is an error only if a late buffer cannot explain the order.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, Read};

use super::Expected;
use super::line::{Line, parse};
use crate::error::{ReadError, Warning};
use crate::event::Event;
use crate::input;
use crate::symbols::Symbols;

/// The largest number of nanoseconds by which an event can be older than an event that precedes it
/// in the text. perf flushes its buffers at least once in this time.
const BACKWARDS_NS_MAX: u64 = 1_000_000_000;

/// The largest number of bytes in a line, including its newline. A compressed file of a few KiB can
/// contain a line of any length, and a line is kept in memory until it is parsed.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// The number of characters of a bad line that an error shows.
const SHOWN_CHARS: usize = 120;

/// Yields the events in the text of `perf script`, in the order of the file.
pub struct Reader {
    file: String,
    input: Box<dyn BufRead + Send>,
    buffer: Vec<u8>,
    line: u64,
    latest_ns: u64,
    ignored: BTreeMap<String, u64>,
    symbols: Symbols,
    warning: Option<Warning>,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    Reading,
    /// The reader is at the end of the file or has returned an error.
    Done,
}

impl Reader {
    /// Opens `file`; `-` is standard input. The text may be plain or packed with gzip or zstd.
    ///
    /// # Errors
    /// If the file cannot be opened, or is a `perf.data` file.
    pub fn open(file: &str) -> Result<Self, ReadError> {
        let name = if file == "-" { "standard input" } else { file };
        Ok(Self::new(name, input::open(file)?))
    }

    /// Reads the text of `input`. `file` is the name that errors give to the input.
    #[must_use]
    pub fn new(file: &str, input: Box<dyn BufRead + Send>) -> Self {
        Self {
            file: file.to_owned(),
            input,
            buffer: Vec::new(),
            line: 0,
            latest_ns: 0,
            ignored: BTreeMap::new(),
            symbols: Symbols::default(),
            warning: None,
            state: State::Reading,
        }
    }

    /// Returns the number of lines read so far.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.line
    }

    /// Returns the events read so far that a recording cannot contain: the name of each kind, and
    /// the number of events of this kind.
    #[must_use]
    pub fn ignored(&self) -> &BTreeMap<String, u64> {
        &self.ignored
    }

    /// Returns the names of the kernel functions to which the events read so far refer.
    #[must_use]
    pub fn symbols(&self) -> &[String] {
        self.symbols.names()
    }

    /// Returns the warning about a truncated last line, if there is one.
    #[must_use]
    pub fn warning(&self) -> Option<&Warning> {
        self.warning.as_ref()
    }

    /// Returns the name that messages give to the input.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    fn next_event(&mut self) -> Result<Option<Event>, ReadError> {
        // The loop ends: each iteration reads a line of a finite input.
        loop {
            self.buffer.clear();
            self.line += 1;
            let mut limited = self.input.by_ref().take(LINE_BYTES_MAX as u64 + 1);
            let read = limited.read_until(b'\n', &mut self.buffer);
            let (file, line) = (&self.file, self.line);
            let count = read.map_err(|source| ReadError::Read {
                file: file.clone(),
                line,
                source,
            })?;
            if count == 0 {
                self.line -= 1;
                return Ok(None);
            }
            if count > LINE_BYTES_MAX {
                return Err(self.bad_line("a line of at most 1 MiB"));
            }
            let whole = self.buffer.last() == Some(&b'\n');
            match parse(self.buffer.trim_ascii_end(), &mut self.symbols) {
                Ok(Line::Event(event)) => return self.in_time(event).map(Some),
                Ok(Line::Blank) => {}
                Ok(Line::Other(name)) => count_name(&mut self.ignored, name),
                Err(_) if !whole => {
                    self.warning = Some(Warning::TruncatedLastLine {
                        file: file.clone(),
                        line,
                    });
                    return Ok(None);
                }
                Err(expected) => return Err(self.bad_line(expected)),
            }
        }
    }

    fn in_time(&mut self, event: Event) -> Result<Event, ReadError> {
        let back_ns = self.latest_ns.saturating_sub(event.time_ns);
        if back_ns > BACKWARDS_NS_MAX {
            return Err(ReadError::Backwards {
                file: self.file.clone(),
                line: self.line,
                back_ns,
            });
        }
        self.latest_ns = self.latest_ns.max(event.time_ns);
        Ok(event)
    }

    #[cold]
    fn bad_line(&self, expected: Expected) -> ReadError {
        let text = String::from_utf8_lossy(self.buffer.trim_ascii());
        let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
        if text.chars().nth(SHOWN_CHARS).is_some() {
            shown.push('…');
        }
        // Control characters from a binary file must not reach the terminal.
        let shown = shown.replace(char::is_control, "�");
        ReadError::Line {
            file: self.file.clone(),
            line: self.line,
            expected,
            text: shown,
        }
    }
}

/// Adds one to the count of `name`; does not allocate memory if `counts` has the name already.
fn count_name(counts: &mut BTreeMap<String, u64>, name: &[u8]) {
    let name = String::from_utf8_lossy(name);
    match counts.get_mut(&*name) {
        Some(count) => *count += 1,
        None => drop(counts.insert(name.into_owned(), 1)),
    }
}

impl Iterator for Reader {
    type Item = Result<Event, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == State::Done {
            return None;
        }
        let next = self.next_event().transpose();
        if !matches!(next, Some(Ok(_))) {
            self.state = State::Done;
        }
        next
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("file", &self.file)
            .field("line", &self.line)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    const LINE: &str = "perf 500 [001] 10.000001: kmem:mm_page_free: pfn=0x1 order=0\n";

    fn read(text: &str) -> (Vec<Result<Event, String>>, Reader) {
        let mut reader = Reader::new("f.txt", Box::new(Cursor::new(text.to_owned())));
        let records = reader
            .by_ref()
            .map(|line| line.map_err(|error| error.to_string()))
            .collect();
        (records, reader)
    }

    fn error(text: &str) -> String {
        let (mut records, _) = read(text);
        records
            .pop()
            .and_then(Result::err)
            .expect("the last record is an error")
    }

    #[test]
    fn comments_empty_lines_and_other_events_are_passed_over() {
        let other = LINE.replace("mm_page_free", "kmalloc");
        let (records, reader) = read(&format!("# perf script\n\n{LINE}{other}{other}{LINE}"));
        assert_eq!(
            (records.len(), reader.lines(), reader.warning()),
            (2, 6, None)
        );
        assert_eq!(reader.ignored()["kmem:kmalloc"], 2);
    }

    #[test]
    fn a_bad_line_is_an_error_with_file_line_expectation_and_text() {
        assert_eq!(
            error(&format!("{LINE}\n{}", LINE.replace("order=0", "order=11"))),
            "f.txt:3: expected an order from 0 to 10, \
             found `perf 500 [001] 10.000001: kmem:mm_page_free: pfn=0x1 order=11`"
        );
        let long = error(&format!("{}\n", "x\u{7}".repeat(500)));
        assert!(long.ends_with("…`") && long.chars().count() < 250, "{long}");
        assert!(
            !long.contains('\u{7}'),
            "control characters stay out of the terminal"
        );
    }

    #[test]
    fn reading_ends_at_the_first_error() {
        let (records, _) = read(&format!("{LINE}bad\n{LINE}"));
        assert!(matches!(&*records, [Ok(_), Err(_)]));
    }

    #[test]
    fn a_last_line_that_is_cut_off_is_a_warning() {
        let (records, reader) = read(&format!("{LINE}{}", &LINE[..40]));
        assert_eq!(records.len(), 1);
        let text = reader.warning().expect("a warning").to_string();
        assert_eq!(text, "f.txt:2: the last line is cut off and was left out");
    }

    #[test]
    fn a_last_line_that_only_lacks_its_newline_counts() {
        let (records, reader) = read(&format!("{LINE}{}", LINE.trim_end()));
        assert_eq!((records.len(), reader.warning()), (2, None));
    }

    #[test]
    fn a_small_step_back_in_time_is_allowed_and_a_large_one_is_not() {
        let earlier = LINE.replace("10.000001", "9.100000");
        assert_eq!(read(&format!("{LINE}{earlier}")).0.len(), 2);
        let much_earlier = LINE.replace("10.000001", "8.900000");
        assert_eq!(
            error(&format!("{LINE}{much_earlier}")),
            "f.txt:2: expected events in order of time, found one 1.100 s before an earlier line; \
             is this more than one recording?"
        );
    }

    #[test]
    fn a_file_that_is_not_there_is_an_error_that_names_it() {
        let error = Reader::open("no/such/file")
            .expect_err("it is not there")
            .to_string();
        assert!(error.starts_with("cannot open no/such/file: "), "{error}");
        assert!(Reader::open("/").is_err(), "a folder is no recording");
    }

    #[test]
    fn packed_data_that_ends_early_names_the_line_it_reached() {
        let text = LINE.repeat(20_000);
        let packed = compress_to_vec(text.as_bytes(), CompressionLevel::Uncompressed);
        let cut = Cursor::new(packed[..packed.len() / 2].to_vec());
        let input = input::unpack("f.zst", Box::new(cut)).expect("its beginning is whole");
        let last = Reader::new("f.zst", input)
            .last()
            .expect("a record or an error");
        let error = last.expect_err("half of it is missing").to_string();
        assert!(error.starts_with("f.zst:"), "{error}");
        assert!(
            error.contains(": cannot read further: damaged or cut zstd data"),
            "{error}"
        );
    }

    #[test]
    fn windows_line_ends_are_line_ends() {
        let (records, _) = read(&LINE.replace('\n', "\r\n"));
        assert_eq!(records.len(), 1);
    }
}
