//! A reader of TOML tables that tracks the position, so that errors name the line and the key.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Problem, ProfileError, similar};

/// The text of one file, which maps byte positions to line numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
}

/// One table of the file, with its position for error messages.
#[derive(Clone, Debug)]
pub(super) struct Section<'a> {
    source: Source<'a>,
    path: String,
    table: &'a DeTable<'a>,
    /// The byte offset at which the table starts, for errors about missing keys.
    at: usize,
}

/// One value of the file, with its position and key for error messages.
#[derive(Clone, Debug)]
pub(super) struct Value<'a> {
    source: Source<'a>,
    path: String,
    value: &'a Spanned<DeValue<'a>>,
}

impl<'a> Source<'a> {
    /// Parses the text of the file as a TOML table.
    pub(super) fn parse(self) -> Result<Spanned<DeTable<'a>>, ProfileError> {
        DeTable::parse(self.text).map_err(|error| ProfileError {
            file: self.file.to_owned(),
            line: error.span().map(|span| self.line(span.start)),
            key: None,
            problem: Problem::Syntax(error.message().to_owned()),
        })
    }

    /// The section that represents the whole file.
    pub(super) fn root(self, table: &'a Spanned<DeTable<'a>>) -> Section<'a> {
        Section {
            source: self,
            path: String::new(),
            table: table.get_ref(),
            at: 0,
        }
    }

    fn line(self, at: usize) -> usize {
        self.text
            .bytes()
            .take(at)
            .filter(|byte| *byte == b'\n')
            .count()
            + 1
    }

    fn error(self, at: Option<usize>, path: &str, problem: Problem) -> ProfileError {
        ProfileError {
            file: self.file.to_owned(),
            line: at.map(|at| self.line(at)),
            key: Some(path.to_owned()),
            problem,
        }
    }
}

impl<'a> Section<'a> {
    /// Returns an error for the first key that is not among `keys`.
    pub(super) fn only(&self, keys: &[&str]) -> Result<(), ProfileError> {
        let unknown = self
            .table
            .keys()
            .filter(|key| !keys.contains(&key.get_ref().as_ref()));
        // The table is sorted by name, but users expect the first mistake in the file.
        let Some(key) = unknown.min_by_key(|key| key.span().start) else {
            return Ok(());
        };
        let known: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        let near = Problem::UnknownKey(similar(key.get_ref(), &known));
        Err(self
            .source
            .error(Some(key.span().start), &self.path_of(key.get_ref()), near))
    }

    /// The value of `key`, or `None` if the file does not give it.
    pub(super) fn get(&self, key: &str) -> Option<Value<'a>> {
        let value = self.table.get(key)?;
        Some(Value {
            source: self.source,
            path: self.path_of(key),
            value,
        })
    }

    /// The value of `key`. If the key is missing, the error tells the user to `write_this`.
    pub(super) fn need(&self, key: &str, write_this: &str) -> Result<Value<'a>, ProfileError> {
        self.get(key).ok_or_else(|| self.missing(key, write_this))
    }

    /// The error for a missing `key`. It tells the user to `write_this`.
    pub(super) fn missing(&self, key: &str, write_this: &str) -> ProfileError {
        // A key that is missing from the top level has no line number.
        let at = (!self.path.is_empty()).then_some(self.at);
        self.source.error(
            at,
            &self.path_of(key),
            Problem::Missing(write_this.to_owned()),
        )
    }

    /// The error for an impossible value of `key`, whether the file gives the key or a default
    /// applies.
    pub(super) fn absurd(&self, key: &str, why: String) -> ProfileError {
        match self.get(key) {
            Some(value) => value.absurd(why),
            None => self
                .source
                .error(Some(self.at), &self.path_of(key), Problem::Absurd(why)),
        }
    }

    /// The keys of the section, in their order in the file.
    pub(super) fn keys(&self) -> Vec<&'a str> {
        let mut keys: Vec<_> = self.table.keys().collect();
        keys.sort_by_key(|key| key.span().start);
        keys.into_iter().map(|key| key.get_ref().as_ref()).collect()
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }
}

impl<'a> Value<'a> {
    /// The error that says why this value is impossible.
    pub(super) fn absurd(&self, why: String) -> ProfileError {
        self.source.error(
            Some(self.value.span().start),
            &self.path,
            Problem::Absurd(why),
        )
    }

    /// The value as a table. If it is not a table, the error tells the user to `write_this`.
    pub(super) fn section(&self, write_this: &str) -> Result<Section<'a>, ProfileError> {
        let table = self.value.get_ref().as_table();
        let table = table.ok_or_else(|| self.not(write_this))?;
        let (source, path, at) = (self.source, self.path.clone(), self.value.span().start);
        Ok(Section {
            source,
            path,
            table,
            at,
        })
    }

    /// The value as a list, or `None` if it is not one. The path of each element carries its index.
    pub(super) fn list(&self) -> Option<Vec<Self>> {
        let list = self.value.get_ref().as_array()?;
        let path = |nth| format!("{}[{nth}]", self.path);
        let value = |(nth, value)| Self {
            source: self.source,
            path: path(nth),
            value,
        };
        Some(list.iter().enumerate().map(value).collect())
    }

    /// The value as a string that is not empty. For any other value, returns an error with the
    /// advice `write_this`.
    pub(super) fn text(&self, write_this: &str) -> Result<&'a str, ProfileError> {
        let text = self
            .value
            .get_ref()
            .as_str()
            .ok_or_else(|| self.not(write_this))?;
        if text.trim().is_empty() {
            return Err(self.absurd(format!("empty; {write_this}")));
        }
        Ok(text)
    }

    /// The value as a whole number from 0 to 2³² - 1.
    pub(super) fn number(&self) -> Result<u32, ProfileError> {
        let whole = self.value.get_ref().as_integer();
        let number = whole.and_then(|n| u32::from_str_radix(n.as_str(), n.radix()).ok());
        number.ok_or_else(|| self.not("write a whole number from 0 to 4294967295"))
    }

    /// The value in hundredths: `2` is read as 200, `2.5` as 250.
    pub(super) fn hundredths(&self) -> Result<u32, ProfileError> {
        let written = match self.value.get_ref() {
            DeValue::Integer(whole) if whole.radix() == 10 => whole.as_str(),
            DeValue::Float(float) => float.as_str(),
            _ => "",
        };
        let (whole, part) = written.split_once('.').unwrap_or((written, ""));
        let hundredths = format!("{whole}{part:0<2}").parse::<u32>();
        let plain = part.len() <= 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        match hundredths {
            Ok(number) if plain => Ok(number),
            _ => Err(self.not("write a number with at most two decimals, such as 2.5")),
        }
    }

    fn not(&self, write_this: &str) -> ProfileError {
        let shown: String = match self.value.get_ref() {
            DeValue::Integer(whole) => whole.as_str().to_owned(),
            DeValue::Float(float) => float.as_str().to_owned(),
            DeValue::String(text) => format!("{text:?}"),
            other => format!("a value of type {}", other.type_str()),
        };
        self.absurd(format!("{shown} is not allowed here; {write_this}"))
    }
}
