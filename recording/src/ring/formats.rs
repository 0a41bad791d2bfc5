//! The `format` files of tracefs, which give the offsets of an event's fields.

use std::error;
use std::fmt;

use rustc_hash::FxHashMap;

use super::layout::{Field, Format, Page};
use super::meaning::{Meaning, meaning};

/// The formats of events and sub-buffers, which a decoder needs.
#[derive(Clone, Debug, Default)]
pub struct Formats {
    page: Page,
    events: FxHashMap<u16, (Format, Meaning)>,
}

/// The error for a `format` file of tracefs that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatError {
    /// The line that cannot be parsed.
    pub line: String,
    /// The content that was expected instead.
    pub expected: &'static str,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, expected } = self;
        write!(
            f,
            "a format of tracefs: expected {expected}, found `{line}`"
        )
    }
}

impl error::Error for FormatError {}

impl Formats {
    /// Adds the events of `text`, which is one `format` file or several, one after the other. Skips
    /// lines that contain no name, number or field.
    ///
    /// # Errors
    /// If a field or a number cannot be parsed.
    pub fn add(&mut self, text: &str) -> Result<(), FormatError> {
        let mut format = Format::default();
        let mut number = None;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("name: ") {
                self.insert(number.take(), std::mem::take(&mut format));
                name.trim().clone_into(&mut format.name);
            } else if let Some(text) = line.strip_prefix("ID: ") {
                let id = text.trim().parse().map_err(|_| FormatError {
                    line: line.to_owned(),
                    expected: "a number below 65536",
                })?;
                number = Some(id);
            } else if line.trim_start().starts_with("field:") {
                format.fields.push(field(line)?);
            }
        }
        self.insert(number, format);
        Ok(())
    }

    /// Reads the text of `events/header_page`. If this function is not called, the decoder assumes
    /// the sub-buffer layout of a 64-bit kernel.
    ///
    /// # Errors
    /// If the text lacks one of the fields, or a field cannot be parsed.
    pub fn header_page(&mut self, text: &str) -> Result<(), FormatError> {
        let lines = text
            .lines()
            .filter(|line| line.trim_start().starts_with("field:"));
        let fields = lines.map(field).collect::<Result<Vec<Field>, _>>()?;
        let find = |name: &str, expected| {
            let found = fields.iter().find(|field| field.name == name);
            found.ok_or_else(|| FormatError {
                line: text.trim().chars().take(80).collect(),
                expected,
            })
        };
        let timestamp = find("timestamp", "the field `timestamp`")?;
        let commit = find("commit", "the field `commit`")?;
        let data = find("data", "the field `data`")?;
        if !matches!(commit.size, 4 | 8) {
            return Err(FormatError {
                line: text.trim().chars().take(80).collect(),
                expected: "a `commit` of 4 or 8 bytes",
            });
        }
        self.page = Page {
            timestamp: timestamp.offset,
            commit: commit.offset,
            commit_bytes: commit.size,
            data: data.offset,
            bytes: data.offset + data.size,
        };
        Ok(())
    }

    /// Returns the size of a sub-buffer, in bytes, if [`Formats::header_page`] was called. One read
    /// of a ring buffer returns one sub-buffer.
    #[must_use]
    pub fn sub_buffer_bytes(&self) -> Option<usize> {
        (self.page.bytes > 0).then_some(self.page.bytes)
    }

    fn insert(&mut self, number: Option<u16>, format: Format) {
        if let Some(number) = number {
            let meaning = meaning(&format.name);
            self.events.insert(number, (format, meaning));
        }
    }

    pub(super) fn page(&self) -> Page {
        self.page
    }

    pub(super) fn event(&self, number: u16) -> Option<&(Format, Meaning)> {
        self.events.get(&number)
    }
}

/// Parses the line of one field, such as `field:unsigned long pfn; offset:8; size:8; signed:0;`,
/// with tabs between the parts.
fn field(line: &str) -> Result<Field, FormatError> {
    let wrong = |expected| FormatError {
        line: line.trim().to_owned(),
        expected,
    };
    let mut parts = line.trim().split(';').map(str::trim);
    let declaration = parts.next().and_then(|part| part.strip_prefix("field:"));
    let declaration = declaration.ok_or(wrong("`field:`"))?;
    let name = declaration.split('[').next().unwrap_or_default();
    // In `__data_loc char[] name` the name follows the brackets.
    let name = match declaration.rsplit_once("] ") {
        Some((_, name)) => name,
        None => name,
    };
    let name = name
        .trim_end()
        .rsplit([' ', '*'])
        .next()
        .unwrap_or_default();
    if name.is_empty() {
        return Err(wrong("a field's name"));
    }
    let mut offset = None;
    let mut size = None;
    let mut signed = false;
    for part in parts {
        if let Some(number) = part.strip_prefix("offset:") {
            offset = number.parse().ok();
        } else if let Some(number) = part.strip_prefix("size:") {
            size = number.parse().ok();
        } else if let Some(number) = part.strip_prefix("signed:") {
            signed = number != "0";
        }
    }
    let within = |value: Option<usize>| value.filter(|value| *value < 1 << 20);
    Ok(Field {
        name: name.to_owned(),
        offset: within(offset).ok_or(wrong("`offset:` and a number"))?,
        size: within(size).ok_or(wrong("`size:` and a number"))?,
        signed,
    })
}
