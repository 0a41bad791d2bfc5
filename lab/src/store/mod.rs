//! The store: a folder that keeps the results of runs. With a store, a user can show results again,
//! compare and export them, and continue a run that was interrupted.
//!
//! Each run has a folder below `runs`. The name of this folder is the run's id. The submodule `run`
//! has the folder of one run, `head` the facts about it, `journal` its cases, and `printed` its
//! reports. `collected` keeps the cases of a run in memory. `list` makes the table of all runs,
//! `diff` compares two runs, and `export` makes one table of samples. `docs/results.md` describes
//! the files.

mod collected;
pub mod diff;
pub mod export;
mod files;
pub mod head;
pub mod inputs;
mod journal;
mod list;
mod printed;
mod run;
mod when;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use self::collected::Collected;
pub use self::files::{hash_of, hash_of_bytes};
pub use self::journal::{CaseLine, Measured};
pub use self::list::{list, list_json};
pub use self::printed::Printed;
pub use self::run::{Kept, RunFolder, State};
use crate::error::Error;

/// The version of the files of a store. It increases if the format changes in such a way that older
/// versions of Plimsoll would misread a file.
pub const SCHEMA: u32 = 1;

/// The name of the file that has the version of the store.
const FORMAT: &str = "format.json";
/// The name of the folder that has the folders of the runs.
const RUNS: &str = "runs";

/// A folder with the results of runs.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

/// The content of [`FORMAT`].
#[derive(serde::Serialize, serde::Deserialize)]
struct Format {
    schema: u32,
}

impl Store {
    /// Opens the store in `folder`, or creates it if it does not exist.
    ///
    /// # Errors
    /// If the folder cannot be written, or if a newer version of Plimsoll made the store.
    pub fn open_or_make(folder: &Path) -> Result<Self, Error> {
        let store = Self {
            folder: folder.to_owned(),
        };
        if store.check()? {
            return Ok(store);
        }
        let make = || -> io::Result<()> {
            fs::create_dir_all(folder.join(RUNS))?;
            files::replace(&folder.join(FORMAT), &Format { schema: SCHEMA })
        };
        make().map_err(|error| files::unwritable(folder, &error))?;
        Ok(store)
    }

    /// Opens the store in `folder`.
    ///
    /// # Errors
    /// If the folder has no store, or if a newer version of Plimsoll made the store.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let store = Self {
            folder: folder.to_owned(),
        };
        if store.check()? {
            return Ok(store);
        }
        Err(Error::Invalid(format!(
            "{} is no store of results: run `plimsoll reproduce`, `compare` or `replay` first, or \
             name another folder with --store",
            folder.display()
        )))
    }

    /// Returns whether the folder is a store that this version can read.
    fn check(&self) -> Result<bool, Error> {
        let file = self.folder.join(FORMAT);
        let Some(format) = files::read::<Format>(&file)? else {
            return Ok(false);
        };
        if format.schema > SCHEMA {
            return Err(Error::Invalid(format!(
                "{} was made by a newer version of Plimsoll: its schema is {}, and this version \
                 reads up to {SCHEMA}; use that version, or name another folder with --store",
                self.folder.display(),
                format.schema
            )));
        }
        Ok(true)
    }

    /// The folder of the store.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder that has the folders of the runs.
    fn runs_folder(&self) -> PathBuf {
        self.folder.join(RUNS)
    }

    /// The runs, the newest last. Leaves out a run if the process that makes its folder has not
    /// filled the folder yet.
    ///
    /// # Errors
    /// If a folder or file cannot be read.
    pub fn runs(&self) -> Result<Vec<Kept>, Error> {
        let folder = self.runs_folder();
        let entries = fs::read_dir(&folder).map_err(|error| files::unreadable(&folder, &error))?;
        let mut runs = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| files::unreadable(&folder, &error))?;
            runs.extend(Kept::read(&entry.path())?);
        }
        runs.sort_by(|one, other| {
            let key = |of: &Kept| (of.head.started.clone(), of.head.id.clone());
            key(one).cmp(&key(other))
        });
        Ok(runs)
    }

    /// Returns the run that `id` names. `id` is an id, the beginning of an id, or `last` for the
    /// newest run.
    ///
    /// # Errors
    /// If there is no such run, in which case the error offers the nearest ids. Also if several ids
    /// begin with `id`.
    pub fn find(&self, id: &str) -> Result<Kept, Error> {
        let mut runs = self.runs()?;
        if id == "last" {
            return runs
                .pop()
                .ok_or_else(|| Error::Invalid(format!("{} has no run", self.folder.display())));
        }
        let begins = |run: &&Kept| run.head.id.starts_with(id) && !id.is_empty();
        let found: Vec<&Kept> = runs.iter().filter(begins).collect();
        match found[..] {
            [run] => Ok(run.clone()),
            [] => {
                let ids: Vec<&str> = runs.iter().map(|run| &*run.head.id).collect();
                Err(no_such_run(id, &ids))
            }
            [one, other, ..] => Err(Error::Invalid(format!(
                "{} runs begin with `{id}`, among them `{}` and `{}`; give more of the id",
                found.len(),
                one.head.id,
                other.head.id
            ))),
        }
    }

    /// Removes the run that `id` names, and returns its id.
    ///
    /// # Errors
    /// As [`Store::find`]. Also if the run is still running, or if a file cannot be removed.
    pub fn remove(&self, id: &str) -> Result<String, Error> {
        let run = self.find(id)?;
        if run.state() == State::Running {
            return Err(Error::Invalid(format!(
                "{} is still running; end it first",
                run.head.id
            )));
        }
        let folder = run.folder();
        fs::remove_dir_all(folder).map_err(|error| files::unwritable(folder, &error))?;
        Ok(run.head.id)
    }
}

/// The error for an id that no run has. The error offers the nearest ids. If no id is near, it
/// offers only the newest id, because most ids look alike.
fn no_such_run(id: &str, ids: &[&str]) -> Error {
    match Error::unknown("run", id, ids) {
        near @ Error::Unknown { near: true, .. } => near,
        _ => {
            let newest = ids.last().map_or(String::new(), |newest| {
                format!("; the newest is `{newest}`")
            });
            Error::Invalid(format!(
                "no run is called `{id}`{newest}; `plimsoll results` lists them"
            ))
        }
    }
}

#[cfg(test)]
mod tests;
