//! The facts about a run that the store writes when the run begins, and the facts that the store
//! adds when the run ends.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use plimsoll_sim::profile::Card;

use super::SCHEMA;
use crate::catalog::machines;
use crate::error::Error;
use crate::measure::comparison::fold_hashes;

/// The program that ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The version of Plimsoll.
    pub version: String,
    /// The commit from which the program was built, with `-dirty` if files had been changed since
    /// this commit. It is `unknown` if the program was not built in a repository.
    pub commit: String,
    /// A hash of the program's file. It tells two builds of one commit apart.
    pub build: String,
}

/// A machine of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The machine's name in its profile.
    pub name: String,
    /// A hash of the profile: the topology and all prices of steps, as the run used them. Empty if
    /// the machine is not simulated.
    pub profile: String,
}

impl Machine {
    /// Loads the machine `machine`, which is a name or the path of a profile file.
    ///
    /// # Errors
    /// If the machine is unknown or its profile is bad.
    pub fn load(machine: &str, card: Card) -> Result<Self, Error> {
        let profile = machines::load(machine, card)?;
        let bytes = format!("{profile:?}").into_bytes();
        let hash = fold_hashes(bytes.into_iter().map(u64::from));
        Ok(Self {
            name: profile.name,
            profile: format!("{hash:016x}"),
        })
    }

    /// A machine that is not simulated. It has only a name.
    #[must_use]
    pub fn unpriced(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            profile: String::new(),
        }
    }
}

/// Everything that determines the results of a run, as pairs of a name and a value. A command can
/// resume a run only with the same inputs.
pub type Inputs = BTreeMap<String, String>;

/// The content of the file `run.json`: the facts about a run that are known when it begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The version of the files, [`SCHEMA`].
    pub schema: u32,
    /// The id of the run.
    pub id: String,
    /// The command line, word by word, without the program's name.
    pub command: Vec<String>,
    /// The program that ran.
    pub program: Program,
    /// When the run began, in UTC: `2026-11-23T23:15:00.123Z`.
    pub started: String,
    /// The machines.
    pub machines: Vec<Machine>,
    /// The inputs: experiments or workload, designs, knobs, seeds, price card (the end of every
    /// price range), effort (quick or full), jitter, memory.
    pub inputs: Inputs,
}

impl Head {
    /// The head of a run that no store keeps. The id and the time at which the run began are empty,
    /// so equal runs have equal heads.
    #[must_use]
    pub fn unkept(new: New) -> Self {
        Self {
            schema: SCHEMA,
            id: String::new(),
            command: new.command,
            program: new.program,
            started: String::new(),
            machines: new.machines,
            inputs: new.inputs,
        }
    }

    /// The command line as text.
    #[must_use]
    pub fn command_line(&self) -> String {
        let words = self.command.iter().map(|word| quoted(word));
        let words: Vec<String> = std::iter::once("plimsoll".to_owned())
            .chain(words)
            .collect();
        words.join(" ")
    }

    /// Returns the reason why a command that asks for the run `other` cannot resume this run.
    /// Returns `None` if the command can resume this run.
    #[must_use]
    pub fn differs_from(&self, other: &New) -> Option<String> {
        if self.inputs != other.inputs {
            let names: std::collections::BTreeSet<&String> =
                self.inputs.keys().chain(other.inputs.keys()).collect();
            let value = |of: &Inputs, name| {
                let value: Option<&String> = of.get(name);
                value.map_or("nothing".to_owned(), |value| format!("`{value}`"))
            };
            let mut differing = names
                .into_iter()
                .map(|name| (name, value(&self.inputs, name), value(&other.inputs, name)))
                .filter(|(_, there, here)| there != here);
            return differing
                .next()
                .map(|(name, there, here)| format!("its {name} is {there} and not {here}"));
        }
        let (there, here) = (&self.program, &other.program);
        if (&there.version, &there.commit) != (&here.version, &here.commit) {
            return Some(format!(
                "it was made by version {} of commit {}, and this is version {} of commit {}",
                there.version, there.commit, here.version, here.commit
            ));
        }
        if there.build != here.build {
            return Some(format!(
                "another build of version {} made it",
                there.version
            ));
        }
        let changed = self.machines.iter().zip(&other.machines);
        let mut changed = changed.filter(|(there, here)| there != here);
        changed
            .next()
            .map(|(there, _)| format!("the profile of {} has changed since", there.name))
    }
}

/// A run that is about to begin.
#[derive(Clone, Debug)]
pub struct New {
    /// The command line, word by word, without the program's name.
    pub command: Vec<String>,
    /// The program.
    pub program: Program,
    /// The machines.
    pub machines: Vec<Machine>,
    /// The inputs.
    pub inputs: Inputs,
}

/// The content of the file `end.json`, which is written when a run has finished. If a run does not
/// have this file, it is still running or was interrupted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The version of the files, [`SCHEMA`].
    pub schema: u32,
    /// How long the run took, in milliseconds. If the run was resumed, this is the time since the
    /// last resumption.
    pub duration_ms: u64,
    /// True if the run had been interrupted and was resumed.
    pub resumed: bool,
    /// One line about the verdicts. Empty if the run has no verdicts.
    pub verdict: String,
}

/// Quotes `word`, unless none of its characters has a special meaning in a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_+=@.,:/%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
