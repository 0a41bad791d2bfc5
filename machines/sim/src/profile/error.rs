//! What is wrong with a profile, where, and what to write instead.

use std::fmt;

/// The first thing wrong with a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError {
    /// The file, or the machine asked for.
    pub file: String,
    /// The line in the file, from 1.
    pub line: Option<usize>,
    /// The key, dotted from the top of the file.
    pub key: Option<String>,
    /// What is wrong with it.
    pub problem: Problem,
}

/// A kind of mistake in a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// No built-in machine has this name; these are near.
    UnknownMachine(Vec<String>),
    /// The machine has no such variant; these it has.
    UnknownVariant(Vec<String>),
    /// The file could not be read.
    Unreadable(String),
    /// Not TOML.
    Syntax(String),
    /// A key no profile has; these are near.
    UnknownKey(Vec<String>),
    /// A key every such profile has; what to write.
    Missing(String),
    /// A value that cannot be; why, and what can.
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

/// The names most like `name`, best first, at most three; all of them when none is like it.
pub(super) fn nearest(name: &str, names: &[String]) -> Vec<String> {
    let near = similar(name, names);
    if near.is_empty() {
        names.to_vec()
    } else {
        near
    }
}

/// The names like `name`, best first, at most three.
pub(super) fn similar(name: &str, names: &[String]) -> Vec<String> {
    const LIKE_ENOUGH: f64 = 0.75; // Of 1; a slip of two letters in five is about 0.8.
    const AS_GOOD: f64 = 0.1; // What is this much less like it than the best was not meant.
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

/// "a, b or c".
pub(super) fn join(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
