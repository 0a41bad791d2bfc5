//! Reads TOML tables, collects all mistakes in them, and remembers where every key and value is.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::Key;
use super::source::Mistake;
use crate::catalog::names::nearest;

/// The results of reading a file so far: the mistakes, and the places of keys and values.
#[derive(Default)]
pub(crate) struct Found {
    mistakes: RefCell<Vec<Mistake>>,
    places: RefCell<BTreeMap<String, Place>>,
}

/// Where a key and its value are in the text.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) key: Range<usize>,
    pub(crate) value: Range<usize>,
}

/// A table of the file.
#[derive(Clone)]
pub(crate) struct Section<'a> {
    found: &'a Found,
    path: String,
    table: &'a DeTable<'a>,
    span: Range<usize>,
}

/// A value with its key, in the file that is being read.
#[derive(Clone)]
pub(crate) struct Item<'a> {
    found: &'a Found,
    /// The full key, such as `workload.name`.
    pub(crate) path: String,
    value: &'a Spanned<DeValue<'a>>,
}

impl Found {
    /// Records a mistake.
    pub(crate) fn add(&self, span: Range<usize>, key: &str, why: impl Into<String>) {
        self.mistakes.borrow_mut().push(Mistake {
            span,
            key: key.to_owned(),
            why: why.into(),
        });
    }

    /// Returns the mistakes, and the places of all keys.
    pub(crate) fn finish(self) -> (Vec<Mistake>, BTreeMap<String, Place>) {
        (self.mistakes.into_inner(), self.places.into_inner())
    }
}

/// The full path of `key` in the table with the path `path`, such as `workload.name`. If `key` is
/// not a bare key of TOML, the path has it in quotes.
pub(crate) fn join(path: &str, key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let key = if !key.is_empty() && key.chars().all(is_bare) {
        key.to_owned()
    } else {
        super::write::quoted(key)
    };
    if path.is_empty() {
        key
    } else {
        format!("{path}.{key}")
    }
}

impl<'a> Section<'a> {
    /// Makes the section of the table that is the whole file.
    pub(crate) fn root(found: &'a Found, table: &'a Spanned<DeTable<'a>>) -> Self {
        Self {
            found,
            path: String::new(),
            table: table.get_ref(),
            span: 0..0,
        }
    }

    /// Records a mistake for each key that `declared` does not contain, and for each required key
    /// that is missing.
    pub(crate) fn check(&self, declared: &[Key]) {
        let names: Vec<&str> = declared.iter().map(|key| key.name).collect();
        self.check_names(&names);
        for key in declared.iter().filter(|key| key.required) {
            self.demand(key.name, declared);
        }
    }

    /// Adds a mistake to the list of found mistakes if the table lacks `key`, which is one of
    /// `declared`.
    pub(crate) fn demand(&self, key: &str, declared: &[Key]) {
        let about = declared.iter().find(|of| of.name == key);
        self.demand_about(key, about.map_or("required", |of| of.about));
    }

    /// Records a mistake if `key` is missing. The message describes the key by the text `about`.
    pub(crate) fn demand_about(&self, key: &str, about: &str) {
        if self.table.get(key).is_none() {
            let why = format!("missing; {key} is {about}");
            self.found
                .add(self.span.clone(), &join(&self.path, key), why);
        }
    }

    /// Records a mistake of the file for each key of this section that is one of `names`.
    pub(crate) fn refuse(&self, names: &[&str], why: &str) {
        for (key, _) in self.entries() {
            let name = key.get_ref().as_ref();
            if names.contains(&name) {
                self.found.add(key.span(), &join(&self.path, name), why);
            }
        }
    }

    /// Records a mistake for each key of this section that is not among `names`.
    pub(crate) fn check_names(&self, names: &[&str]) {
        for (key, _) in self.entries() {
            if !names.contains(&key.get_ref().as_ref()) {
                self.unknown(key, names);
            }
        }
    }

    /// Adds to the collected mistakes that `key` is unknown. The message offers those of `names`
    /// that are similar to the key or, if none is similar, all `names`.
    pub(crate) fn unknown(&self, key: &Spanned<impl AsRef<str>>, names: &[&str]) {
        let near = nearest(key.get_ref().as_ref(), names);
        let offers = if near.is_empty() { names } else { &near };
        let offers: Vec<String> = offers.iter().map(|name| format!("`{name}`")).collect();
        let offers = offers.join(", ");
        let why = if near.is_empty() {
            format!("unknown key; the keys are {offers}")
        } else {
            format!("unknown key; did you mean {offers}?")
        };
        let path = join(&self.path, key.get_ref().as_ref());
        self.found.add(key.span(), &path, why);
    }

    /// The keys and values, in their order in the file.
    pub(crate) fn entries(&self) -> Vec<(&'a Spanned<toml::de::DeString<'a>>, Item<'a>)> {
        let mut entries: Vec<_> = self
            .table
            .iter()
            .map(|(key, value)| (key, self.item(key, value)))
            .collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        entries
    }

    /// The value of `key`. `None` if the file does not have the key.
    pub(crate) fn get(&self, key: &str) -> Option<Item<'a>> {
        let (key, value) = self.table.get_key_value(key)?;
        Some(self.item(key, value))
    }

    fn item(
        &self,
        key: &'a Spanned<toml::de::DeString<'a>>,
        value: &'a Spanned<DeValue<'a>>,
    ) -> Item<'a> {
        let path = join(&self.path, key.get_ref());
        let place = Place {
            key: key.span(),
            value: value.span(),
        };
        self.found.places.borrow_mut().insert(path.clone(), place);
        Item {
            found: self.found,
            path,
            value,
        }
    }
}

impl<'a> Item<'a> {
    /// Adds a mistake in this value to the list of found mistakes. `why` says what is wrong.
    pub(crate) fn wrong(&self, why: impl Into<String>) {
        self.found.add(self.value.span(), &self.path, why);
    }

    /// Adds an error to the list of found mistakes: this value has the wrong type. Returns `None`.
    fn not<T>(&self, write_this: &str) -> Option<T> {
        let shown: String = match self.value.get_ref() {
            DeValue::Integer(whole) => whole.to_string(),
            DeValue::Float(float) => float.as_str().to_owned(),
            DeValue::String(_) => "this text".to_owned(),
            other => format!("a value of type {}", other.type_str()),
        };
        self.wrong(format!("{shown} is not possible here; write {write_this}"));
        None
    }

    /// The value as a whole number from `min` to `max`. Returns `None` if it is not such a number.
    pub(crate) fn whole(&self, min: u64, max: u64) -> Option<u64> {
        let whole = self.value.get_ref().as_integer();
        let number = whole.and_then(|n| u64::from_str_radix(n.as_str(), n.radix()).ok());
        match number {
            Some(number) if (min..=max).contains(&number) => Some(number),
            _ if min == max => self.not(&min.to_string()),
            _ => self.not(&format!("a whole number from {min} to {max}")),
        }
    }

    /// The value as a whole number that is not negative. If the value is another number, adds a
    /// mistake and returns `None`. `why` makes the text of the mistake from the text of the number.
    pub(crate) fn whole_or(&self, why: impl FnOnce(&str) -> String) -> Option<u64> {
        let text = match self.value.get_ref() {
            DeValue::Integer(whole) => {
                let number = i64::from_str_radix(whole.as_str(), whole.radix()).ok();
                if let Some(number) = number.and_then(|number| u64::try_from(number).ok()) {
                    return Some(number);
                }
                whole.to_string()
            }
            DeValue::Float(float) => float.as_str().to_owned(),
            _ => return self.not("a whole number"),
        };
        self.wrong(why(&text));
        None
    }

    /// The value in hundredths, so that `2` gives 200 and `2.5` gives 250.
    pub(crate) fn hundredths(&self) -> Option<u32> {
        let written = self.number_text().unwrap_or_default();
        let (whole, part) = written.split_once('.').unwrap_or((written, ""));
        let plain = part.len() <= 2
            && !whole.is_empty()
            && whole
                .bytes()
                .chain(part.bytes())
                .all(|byte| byte.is_ascii_digit());
        let hundredths = format!("{whole}{part:0<2}").parse::<u32>();
        match hundredths {
            Ok(number) if plain => Some(number),
            _ => self.not("a number with at most two decimals, such as 0.5"),
        }
    }

    /// The text of the value, which must be a number that is not negative.
    pub(crate) fn number(&self) -> Option<String> {
        let text = self.number_text();
        let value = text.and_then(|text| text.parse::<f64>().ok());
        match (text, value) {
            (Some(text), Some(value)) if value.is_finite() && value >= 0.0 => Some(text.to_owned()),
            _ => self.not("a number that is not negative"),
        }
    }

    /// The value as a number, which can be negative.
    pub(crate) fn real(&self) -> Option<f64> {
        let text = match self.value.get_ref() {
            DeValue::Integer(whole) if whole.radix() == 10 => Some(whole.as_str()),
            DeValue::Float(float) => Some(float.as_str()),
            _ => None,
        };
        let value = text.and_then(|text| text.parse::<f64>().ok());
        let value = value.filter(|value| value.is_finite());
        value.or_else(|| self.not("a number"))
    }

    /// The elements of the value if it is a list. Otherwise, the value itself.
    pub(crate) fn one_or_list(&self) -> Option<Vec<Self>> {
        match self.value.get_ref() {
            DeValue::Array(_) => self.list("values"),
            _ => Some(vec![self.clone()]),
        }
    }

    /// The value as a list of pairs of texts. Each pair is returned as two items.
    pub(crate) fn pairs(&self) -> Option<Vec<[Self; 2]>> {
        let pair = |item: Self| match <[Self; 2]>::try_from(item.list("two texts")?) {
            Ok(pair) => Some(pair),
            Err(_) => item.not("two texts in square brackets"),
        };
        Some(self.list("pairs")?.into_iter().filter_map(pair).collect())
    }

    fn number_text(&self) -> Option<&'a str> {
        match self.value.get_ref() {
            DeValue::Integer(whole) if whole.radix() == 10 => Some(whole.as_str()),
            DeValue::Float(float) => Some(float.as_str()),
            _ => None,
        }
    }

    /// The value as `true` or `false`.
    pub(crate) fn switch(&self) -> Option<bool> {
        let switch = self.value.get_ref().as_bool();
        switch.or_else(|| self.not("true or false"))
    }

    /// The value as a text that is not empty. Of all control characters, it can have only tabs and
    /// line breaks.
    pub(crate) fn text(&self) -> Option<&'a str> {
        let text = self.value.get_ref().as_str();
        let refused = |c: char| c.is_control() && !"\t\r\n".contains(c);
        match text {
            Some(text) if text.contains(refused) => {
                self.wrong("the text has a control character; leave it out");
                None
            }
            Some(text) if !text.trim().is_empty() => Some(text),
            Some(_) => {
                self.wrong("the text is empty");
                None
            }
            None => self.not("a text in double quotes"),
        }
    }

    /// The value as a text from which a `T` can be parsed.
    pub(crate) fn parsed<T: FromStr>(&self, write_this: &str) -> Option<T>
    where
        T::Err: std::fmt::Display,
    {
        let Some(text) = self.value.get_ref().as_str() else {
            return self.not(write_this);
        };
        let parsed = text.parse::<T>();
        parsed.map_err(|why| self.wrong(why.to_string())).ok()
    }

    /// The elements of the value, which must be a list that is not empty.
    pub(crate) fn list(&self, of: &str) -> Option<Vec<Self>> {
        let Some(list) = self.value.get_ref().as_array() else {
            return self.not(&format!("a list of {of} in square brackets"));
        };
        if list.is_empty() {
            self.wrong("the list is empty");
            return None;
        }
        let element = |(nth, value): (usize, &'a Spanned<DeValue<'a>>)| {
            let path = format!("{}[{nth}]", self.path);
            let place = Place {
                key: value.span(),
                value: value.span(),
            };
            self.found.places.borrow_mut().insert(path.clone(), place);
            Self {
                found: self.found,
                path,
                value,
            }
        };
        Some(list.iter().enumerate().map(element).collect())
    }

    /// The value as a list of texts.
    pub(crate) fn texts(&self) -> Option<Vec<String>> {
        let list = self.list("texts")?;
        let texts = list.iter().filter_map(Self::text);
        Some(texts.map(str::to_owned).collect())
    }

    /// The value as a table.
    pub(crate) fn section(&self) -> Option<Section<'a>> {
        let Some(table) = self.value.get_ref().as_table() else {
            return self.not("a table");
        };
        Some(Section {
            found: self.found,
            path: self.path.clone(),
            table,
            span: self.value.span(),
        })
    }
}
