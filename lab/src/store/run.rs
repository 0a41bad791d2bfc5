//! The folder of one run.

use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::head::{End, Head, New};
use super::journal::{CaseLine, FileJournal};
use super::printed::{Printed, Tally};
use super::when::Moment;
use super::{SCHEMA, Store, files};
use crate::error::Error;
use crate::run::journal::Journal;
use crate::watch::Course;

const HEAD: &str = "run.json";
const CASES: &str = "cases.jsonl";
const REPORT: &str = "report.jsonl";
const COURSES: &str = "courses.json";
const END: &str = "end.json";

/// The largest number of ids that are tried for a new run. Two runs that begin in the same second
/// get the same id with a probability of 1 in 65,536.
const IDS_MAX: usize = 20;

/// The folder of the run that this process makes or resumes. As long as this value exists, other
/// processes can neither resume nor remove the run.
#[derive(Debug)]
pub struct RunFolder {
    head: Head,
    folder: PathBuf,
    journal: Arc<FileJournal>,
    printed: File,
    tally: Tally,
    began: Instant,
    resumed: bool,
}

impl RunFolder {
    /// Makes the folder of a new run.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn begin(store: &Store, new: New) -> Result<Self, Error> {
        let now = Moment::of(SystemTime::now());
        let (id, folder) = make_folder(store, now)?;
        let head = Head {
            schema: SCHEMA,
            id,
            command: new.command,
            program: new.program,
            started: now.text(),
            machines: new.machines,
            inputs: new.inputs,
        };
        let run = Self::open(head, &folder, false)?;
        // Other processes see the run as soon as this file exists. So lock the run before this file
        // is written.
        let head = files::replace(&folder.join(HEAD), &run.head);
        head.map_err(|error| files::unwritable(&folder, &error))?;
        Ok(run)
    }

    /// Resumes the run `id`, which was interrupted. If `id` is `None`, resumes the newest run that
    /// was interrupted and has the inputs of `new`.
    ///
    /// # Errors
    /// If there is no such run, or if it has finished or is still running. Also if its inputs, its
    /// version or its machines differ from those of `new`.
    pub fn resume(store: &Store, id: Option<&str>, new: &New) -> Result<Self, Error> {
        let run = match id {
            Some(id) => store.find(id)?,
            None => newest_broken_off(store, new)?,
        };
        let id = &run.head.id;
        let refused = |why: String| Error::Invalid(format!("{id} cannot be resumed: {why}"));
        match run.state() {
            State::Finished => {
                return Err(refused(format!(
                    "it has finished; `plimsoll results show {id}` prints its report"
                )));
            }
            State::Running => return Err(refused("it is still running".to_owned())),
            State::BrokenOff => {}
        }
        if let Some(why) = run.head.differs_from(new) {
            return Err(refused(format!(
                "{why}; it was begun as `{}`",
                run.head.command_line()
            )));
        }
        Self::open(run.head, &run.folder, true)
    }

    fn open(head: Head, folder: &Path, resumed: bool) -> Result<Self, Error> {
        let unwritable = |error: io::Error| files::unwritable(folder, &error);
        let name = folder.join(CASES);
        let file = File::options().create(true).append(true).open(&name);
        let file = file.map_err(unwritable)?;
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            let id = &head.id;
            return Err(Error::Invalid(format!("{id} is still running")));
        }
        let (lines, length) = files::lines::<CaseLine>(&name)?;
        file.set_len(length).map_err(unwritable)?;
        // A resumed run prints all of its reports again.
        let printed = File::create(folder.join(REPORT)).map_err(unwritable)?;
        Ok(Self {
            head,
            folder: folder.to_owned(),
            journal: Arc::new(FileJournal::new(name, file, lines, length)),
            printed,
            tally: Tally::default(),
            began: Instant::now(),
            resumed,
        })
    }

    /// The facts about the run that were known when it began, such as its command line.
    #[must_use]
    pub const fn head(&self) -> &Head {
        &self.head
    }

    /// The id of the run.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.head.id
    }

    /// The number of cases that had finished before the run was resumed.
    #[must_use]
    pub fn known(&self) -> usize {
        self.journal.known()
    }

    /// The number of cases of `experiment` that had finished before the run was resumed.
    #[must_use]
    pub fn known_of(&self, experiment: &str) -> usize {
        self.journal.known_of(experiment)
    }

    /// The journal, which keeps the finished cases (one design on one seed each) of the run.
    #[must_use]
    pub fn journal(&self) -> Arc<dyn Journal> {
        Arc::<FileJournal>::clone(&self.journal)
    }

    /// Keeps `printed`, a part of the run's output.
    ///
    /// # Errors
    /// If the file cannot be written.
    ///
    /// # Panics
    /// Never: every report has a form in JSON.
    pub fn print(&mut self, printed: &Printed) -> Result<(), Error> {
        if let Printed::Report(report) = printed {
            self.tally.add(report);
        }
        let line = serde_json::to_string(printed).expect("a report always serialises") + "\n";
        let written = self.printed.write_all(line.as_bytes());
        written.map_err(|error| files::unwritable(&self.folder, &error))
    }

    /// Keeps `courses`: what happened in the watched runs, over time. They replace all courses that
    /// were kept before.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn keep_courses(&self, courses: &[Course]) -> Result<(), Error> {
        let written = files::replace(&self.folder.join(COURSES), &courses);
        written.map_err(|error| files::unwritable(&self.folder, &error))
    }

    /// Returns whether no case has finished.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.journal.is_empty()
    }

    /// Removes the run from the store.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn discard(self) -> Result<(), Error> {
        let folder = &self.folder;
        fs::remove_dir_all(folder).map_err(|error| files::unwritable(folder, &error))
    }

    /// Marks the run as finished.
    ///
    /// # Errors
    /// If a case could not be kept, or if the folder cannot be written. The run then counts as
    /// interrupted.
    pub fn finish(self) -> Result<(), Error> {
        if let Some(failed) = self.journal.failed() {
            return Err(Error::Invalid(format!(
                "{failed}; the report is whole, but {} does not keep all of its cases: make room \
                 and use --resume={0}",
                self.head.id
            )));
        }
        let ms = self.began.elapsed().as_millis();
        let end = End {
            schema: SCHEMA,
            duration_ms: u64::try_from(ms).unwrap_or(u64::MAX),
            resumed: self.resumed,
            verdict: self.tally.line(),
        };
        let finish = || {
            self.printed.sync_all()?;
            files::replace(&self.folder.join(END), &end)
        };
        finish().map_err(|error| files::unwritable(&self.folder, &error))
    }
}

/// Makes a folder that no other process has made, and returns its id and path.
fn make_folder(store: &Store, now: Moment) -> Result<(String, PathBuf), Error> {
    let runs = store.runs_folder();
    let mut last = None;
    for nth in 0..IDS_MAX {
        // Each `RandomState` has random keys from the system, so the hash is a random number.
        let random = RandomState::new().hash_one(nth);
        let id = now.id((random & 0xffff) as u16);
        let folder = runs.join(&id);
        match fs::create_dir(&folder) {
            Ok(()) => return Ok((id, folder)),
            Err(error) => last = Some(error),
        }
    }
    let why = last.map_or(String::new(), |error| error.to_string());
    Err(files::unwritable(&runs, &why))
}

/// Returns the newest interrupted run that `new` can resume. If there is no such run, returns the
/// newest interrupted run.
fn newest_broken_off(store: &Store, new: &New) -> Result<Kept, Error> {
    let mut runs = store.runs()?;
    runs.retain(|run| run.state() == State::BrokenOff);
    let fits = runs
        .iter()
        .rposition(|run| run.head.differs_from(new).is_none());
    let nth = fits.or(runs.len().checked_sub(1));
    nth.map(|nth| runs.swap_remove(nth)).ok_or_else(|| {
        Error::Invalid(format!(
            "{} has no run that was broken off; leave out --resume",
            store.folder().display()
        ))
    })
}

/// Says whether a run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The run has ended with a whole report.
    Finished,
    /// A process still works on the run.
    Running,
    /// The run has ended without a whole report.
    BrokenOff,
}

/// A run of the store.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The facts about the run that were known when it began, such as its command line.
    pub head: Head,
    /// The facts that were added when the run finished. `None` if the run has not finished.
    pub end: Option<End>,
    folder: PathBuf,
}

impl Kept {
    /// Reads the run in `folder`. Returns `None` if the folder does not have the run's facts yet.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>, Error> {
        let Some(head) = files::read::<Head>(&folder.join(HEAD))? else {
            return Ok(None);
        };
        Ok(Some(Self {
            head,
            end: files::read(&folder.join(END))?,
            folder: folder.to_owned(),
        }))
    }

    /// The folder of the run.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns whether the run has finished, is still running, or was interrupted.
    #[must_use]
    pub fn state(&self) -> State {
        if self.end.is_some() {
            return State::Finished;
        }
        let locked = File::open(self.folder.join(CASES)).is_ok_and(|file| {
            let lock = file.try_lock_shared();
            matches!(lock, Err(TryLockError::WouldBlock))
        });
        if locked {
            State::Running
        } else {
            State::BrokenOff
        }
    }

    /// The finished cases (one design on one seed each), in the order of their comparisons, designs
    /// and seeds.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn cases(&self) -> Result<Vec<CaseLine>, Error> {
        let (mut lines, _) = files::lines::<CaseLine>(&self.folder.join(CASES))?;
        lines.sort_by(|one, other| {
            let one_key = (&one.comparison, &one.design, one.seed);
            one_key.cmp(&(&other.comparison, &other.design, other.seed))
        });
        Ok(lines)
    }

    /// The courses (what happened, over time) of the runs that were watched. Empty if no run was
    /// watched.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn courses(&self) -> Result<Vec<Course>, Error> {
        Ok(files::read(&self.folder.join(COURSES))?.unwrap_or_default())
    }

    /// The reports and tables that the run has printed.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn printed(&self) -> Result<Vec<Printed>, Error> {
        let (printed, _) = files::lines(&self.folder.join(REPORT))?;
        Ok(printed)
    }
}
