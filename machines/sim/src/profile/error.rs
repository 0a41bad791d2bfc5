//! Mistakes in a profile: each error says what is wrong, where, and what to write instead.

use std::fmt;

/// The first mistake that was found in a profile, and its place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError {
    /// The name of the file, or of the machine that was requested.
    pub file: String,
    /// The number of the line in the file, counted from 1.
    pub line: Option<usize>,
    /// The full key, with dots between the names of tables.
    pub key: Option<String>,
    /// The kind of mistake.
    pub problem: Problem,
}

/// A kind of mistake in a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// No built-in machine has this name. Holds the nearest names.
    UnknownMachine(Vec<String>),
    /// The machine has no such variant. Holds the names of its variants.
    UnknownVariant(Vec<String>),
    /// The file could not be read. Holds the reason.
    Unreadable(String),
    /// The file is not TOML. Holds the parser's message.
    Syntax(String),
    /// No profile has this key. Holds the nearest keys.
    UnknownKey(Vec<String>),
    /// A required key is missing. Holds a hint that says what to write.
    Missing(String),
    /// The value is impossible. Holds the reason, and which values are possible.
    Absurd(String),
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            Problem::UnknownMachine(near) => {
                let near = join(near);
                return write!(
                    f,
                    "unknown machine {:?}; did you mean {near}? `plimsoll machines` lists them",
                    self.file
                );
            }
            Problem::UnknownVariant(known) if known.is_empty() => {
                return write!(
                    f,
                    "{} has no variants; leave out the part from +",
                    self.file
                );
            }
            Problem::UnknownVariant(known) => {
                let key = self.key.as_deref().unwrap_or_default();
                return write!(
                    f,
                    "{} has no variant {key:?}; it has {}",
                    self.file,
                    join(known)
                );
            }
            _ => write!(f, "{}", self.file)?,
        }
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ": {key}")?;
        }
        match &self.problem {
            Problem::UnknownKey(near) if near.is_empty() => {
                write!(f, ": unknown key; docs/machines.md lists the keys")
            }
            Problem::UnknownKey(near) => write!(f, ": unknown key; did you mean {}?", join(near)),
            Problem::Missing(write_this) => write!(f, ": missing; {write_this}"),
            Problem::Unreadable(why) | Problem::Syntax(why) | Problem::Absurd(why) => {
                write!(f, ": {why}")
            }
            Problem::UnknownMachine(_) | Problem::UnknownVariant(_) => Ok(()),
        }
    }
}

impl std::error::Error for ProfileError {}

/// The names most similar to `name`, best first, at most three. If none is similar, all names.
pub(super) fn nearest(name: &str, names: &[String]) -> Vec<String> {
    let near = similar(name, names);
    if near.is_empty() {
        names.to_vec()
    } else {
        near
    }
}

/// The names that are similar to `name`, best first, at most three.
pub(super) fn similar(name: &str, names: &[String]) -> Vec<String> {
    const LIKE_ENOUGH: f64 = 0.75; // From 0 to 1: about 0.8 if two of five letters are wrong.
    const AS_GOOD: f64 = 0.1; // How much less similar than the best a name may be.
    let mut ranked: Vec<(f64, &String)> = names
        .iter()
        .map(|other| (strsim::jaro_winkler(name, other), other))
        .collect();
    ranked.retain(|(alike, _)| *alike >= LIKE_ENOUGH);
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    let best = ranked.first().map_or(0.0, |(alike, _)| *alike);
    ranked.retain(|(alike, _)| *alike >= best - AS_GOOD);
    ranked
        .into_iter()
        .take(3)
        .map(|(_, other)| other.clone())
        .collect()
}

/// Joins names in the form "a, b or c".
pub(super) fn join(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
