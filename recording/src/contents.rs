//! Reads a recording in any supported format: Plimsoll's own, or the text of `perf script`.

use std::collections::BTreeMap;
use std::io::BufRead;

use crate::error::{ReadError, Warning};
use crate::format::{self, MAGIC};
use crate::header::Header;
use crate::{Recording, input, text};

/// A recording, and facts about its file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// The name that messages give to the file.
    pub file: String,
    /// The recording, in order of time.
    pub recording: Recording,
    /// Warnings about the file.
    pub warnings: Vec<Warning>,
    /// The number of lines of the text, including comments; 0 if the file is in Plimsoll's binary
    /// format.
    pub lines: u64,
    /// The number of events of each unknown kind in a text, by name.
    pub ignored: BTreeMap<String, u64>,
}

impl Contents {
    /// Returns `nothing`, a message that says why the recording cannot be used, followed by the
    /// warnings about the file. One of the warnings may name the cause.
    #[must_use]
    pub fn with_warnings(&self, nothing: String) -> String {
        let warnings = self.warnings.iter().map(ToString::to_string);
        std::iter::once(nothing)
            .chain(warnings)
            .collect::<Vec<_>>()
            .join(". ")
    }
}

impl Recording {
    /// Reads `file` to its end; `-` is standard input. The file is a recording in Plimsoll's format
    /// or the text of `perf script`, plain or packed with gzip or zstd.
    ///
    /// # Errors
    /// If the file cannot be read, is no recording, or is damaged. A file that is merely truncated
    /// or lacks events causes a warning instead of an error.
    pub fn read(file: &str) -> Result<Contents, ReadError> {
        let name = if file == "-" { "standard input" } else { file };
        Self::read_from(name, input::open(file)?)
    }

    /// Reads `input` to its end. `file` is the name that errors give to the input.
    ///
    /// # Errors
    /// The errors of [`Recording::read`].
    pub fn read_from(
        file: &str,
        mut input: Box<dyn BufRead + Send>,
    ) -> Result<Contents, ReadError> {
        let begin = input.fill_buf().map_err(|source| ReadError::Read {
            file: file.to_owned(),
            line: 1,
            source,
        })?;
        if begin.starts_with(&MAGIC[..1]) {
            Self::of_format(file, format::Reader::new(file, input)?)
        } else {
            Self::of_text(text::Reader::new(file, input))
        }
    }

    fn of_format(
        file: &str,
        mut reader: format::Reader<Box<dyn BufRead + Send>>,
    ) -> Result<Contents, ReadError> {
        let mut events = Vec::new();
        while let Some(more) = reader.next_events()? {
            events.extend(more);
        }
        let (header, warnings) = reader.finish();
        let mut recording = Self { header, events };
        recording.sort();
        Ok(Contents {
            file: file.to_owned(),
            recording,
            warnings,
            ..Contents::default()
        })
    }

    /// Reads the text of `perf script` from `reader` to its end.
    fn of_text(mut reader: text::Reader) -> Result<Contents, ReadError> {
        let mut events = reader.by_ref().collect::<Result<Vec<_>, ReadError>>()?;
        if events.is_empty() && reader.warning().is_some() {
            // The text is a single line that has no newline and is no event. So the file is no
            // recording at all, rather than a truncated recording.
            let file = reader.file().to_owned();
            return Err(ReadError::NotARecording { file });
        }
        // The sort is stable. It costs little, because perf has already put almost all events in
        // order.
        events.sort_by_key(|event| event.time_ns);
        let header = Header {
            symbols: reader.symbols().to_vec(),
            ..Header::default()
        };
        Ok(Contents {
            file: reader.file().to_owned(),
            recording: Self { header, events },
            warnings: reader.warning().cloned().into_iter().collect(),
            lines: reader.lines(),
            ignored: reader.ignored().clone(),
        })
    }
}
