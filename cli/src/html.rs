//! The option `--html`: a page with the answer, charts and all tables.

use std::path::PathBuf;

use plimsoll_lab::html::{self, Page};
use plimsoll_lab::report::{Report, Table};
use plimsoll_lab::watch::{Course, Courses};

use crate::output;
use crate::store::Keeping;

/// Whether a page is written.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct HtmlArgs {
    /// Also writes a page with the answer, charts of one run of each design, and all tables; a
    /// browser opens it without a network
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// The page of a command, which is written again after each report.
pub(crate) struct HtmlFile {
    file: Option<PathBuf>,
    command: String,
    /// The machines whose prices the page shows. A price is the time that the simulator charges for
    /// an operation.
    machines: Vec<String>,
    /// The courses (what happened in each run, over time) that the page does not have yet.
    left: Courses,
    courses: Vec<Course>,
}

impl HtmlFile {
    /// Checks that the HTML file can be written, so that an error comes now and not after minutes
    /// of measuring. `machines` are the machines of the command, as the user names them.
    pub(crate) fn open(args: HtmlArgs, machines: Vec<String>) -> anyhow::Result<Self> {
        if let Some(file) = &args.html {
            output::writable(file, "--html")?;
        }
        Ok(Self {
            file: args.html,
            command: output::command_line(),
            machines,
            left: Courses::default(),
            courses: Vec::new(),
        })
    }

    /// The page of a stored run: `command` made the run, and `courses` say what happened in the run
    /// over time.
    pub(crate) fn of_kept(self, command: String, courses: Vec<Course>) -> Self {
        Self {
            command,
            courses,
            ..self
        }
    }

    /// The collection to which the runs of the command add their courses (what happened in the run
    /// over time); `None` if the user has asked for no page.
    pub(crate) fn watch(&self) -> Option<Courses> {
        self.file.is_some().then(|| self.left.clone())
    }

    /// Writes the page with the reports so far, and stores the courses of their runs (what happened
    /// over time).
    pub(crate) fn write(
        &mut self,
        reports: &[Report],
        figures: Option<&Table>,
        keeping: &mut Keeping,
    ) -> anyhow::Result<()> {
        let Some(_) = &self.file else {
            return Ok(());
        };
        let new = self.left.take();
        if !new.is_empty() {
            self.courses.extend(new);
            keeping.courses(&self.courses)?;
        }
        self.draw(reports, figures)
    }

    /// Writes the page with the reports `reports`.
    pub(crate) fn draw(&self, reports: &[Report], figures: Option<&Table>) -> anyhow::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let mut machines = self.machines.clone();
        if machines.is_empty() {
            let simulated = reports.iter().filter(|report| report.is_simulated);
            for name in simulated.map(|report| &report.machine) {
                if !machines.contains(name) {
                    machines.push(name.clone());
                }
            }
        }
        let page = Page {
            command: &self.command,
            facts: &[
                ("Plimsoll", env!("CARGO_PKG_VERSION")),
                ("commit", env!("PLIMSOLL_COMMIT")),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
            reports,
            figures,
            courses: &self.courses,
            machines: &machines,
        };
        output::replace(file, &html::render(&page))
    }
}
