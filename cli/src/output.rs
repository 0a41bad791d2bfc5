//! The destinations of results: standard output, or a file that is replaced as a whole after each
//! result.

use std::error;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use plimsoll_lab::exact::Outcome;
use plimsoll_lab::report::{Report, Table, json, markdown, table};
use tempfile::NamedTempFile;

/// The width of tables, in columns, if the width of the terminal is not known.
const WIDTH: usize = 110;
/// The smallest and the largest width of tables, in columns. Narrower tables would wrap too often,
/// and wider ones are hard to read.
const WIDTH_RANGE: (usize, usize) = (80, 160);

/// Destination and format of results.
#[derive(Debug, clap::Args)]
pub(crate) struct Output {
    /// The format of the results; json is one object per line, one line per result
    #[arg(long, default_value = "table")]
    pub(crate) format: Format,
    /// Writes results to this file, which is replaced as a whole after each result
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Markdown,
    Json,
}

/// An error that the user can correct.
#[derive(Debug)]
pub(crate) struct BadInput(pub(crate) String);

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for BadInput {}

/// Writes reports, one after another, to standard output or a file.
pub(crate) struct Sink {
    format: Format,
    target: Target,
    written: String,
}

enum Target {
    Stdout,
    File(PathBuf),
}

impl Sink {
    /// Opens the destination that the arguments name. If the file cannot be written, this fails
    /// now, and not after minutes of measuring.
    pub(crate) fn open(output: Output) -> anyhow::Result<Self> {
        let target = match output.output {
            None => Target::Stdout,
            Some(file) => {
                // If the path is a link, the link is kept, and the target of the link is replaced.
                let file = fs::canonicalize(&file).unwrap_or(file);
                writable(&file, "--output")?;
                Target::File(file)
            }
        };
        Ok(Self {
            format: output.format,
            target,
            written: String::new(),
        })
    }

    /// Writes one more report, and its warnings to standard error.
    pub(crate) fn write(&mut self, report: &Report) -> anyhow::Result<()> {
        warn(&report.warnings);
        self.write_text(|format, width| match format {
            Format::Table => table::render(report, width),
            Format::Markdown => markdown::render(report),
            Format::Json => json::render(report) + "\n",
        })
    }

    /// Writes a table that belongs to no single report. With JSON, writes nothing, because the
    /// reports already contain the table's figures.
    pub(crate) fn write_table(&mut self, of: &Table) -> anyhow::Result<()> {
        let tables = std::slice::from_ref(of);
        self.write_text(|format, width| match format {
            Format::Table => table::render_tables(tables, width),
            Format::Markdown => markdown::render_tables(tables),
            Format::Json => String::new(),
        })
    }

    /// Writes the outcome of an exact replay, and its warnings to standard error.
    pub(crate) fn write_exact(&mut self, outcome: &Outcome) -> anyhow::Result<()> {
        warn(&outcome.warnings);
        self.write_text(|format, width| match format {
            Format::Table => outcome.render(width),
            Format::Markdown => outcome.render_markdown(),
            Format::Json => json::render_exact(outcome) + "\n",
        })
    }

    /// Writes one more text, which `render` makes for a given format and number of columns.
    pub(crate) fn write_text(
        &mut self,
        render: impl FnOnce(Format, usize) -> String,
    ) -> anyhow::Result<()> {
        // A blank line separates two reports for people. JSON needs no blank lines, because each
        // report is one line.
        let gap = if self.written.is_empty() || self.format == Format::Json {
            ""
        } else {
            "\n"
        };
        let text = render(self.format, self.width());
        let text = format!("{gap}{text}");
        self.written.push_str(&text);
        match &self.target {
            Target::Stdout => print(&text),
            Target::File(file) => replace(file, &self.written),
        }
    }

    fn width(&self) -> usize {
        match self.target {
            Target::Stdout => width(),
            Target::File(_) => WIDTH,
        }
    }
}

/// Returns the width of tables for this terminal, in columns.
pub(crate) fn width() -> usize {
    let terminal = terminal_size::terminal_size_of(io::stdout());
    let columns = terminal.map_or(WIDTH, |(width, _)| usize::from(width.0));
    columns.clamp(WIDTH_RANGE.0, WIDTH_RANGE.1)
}

/// Prints to standard output; unlike with `print!`, a closed pipe is an error, not a panic.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

fn warn(warnings: &[String]) {
    for warning in warnings {
        anstream::eprintln!("warning: {warning}");
    }
}

/// Replaces `file` as a whole: readers see either the old text or the new one.
pub(crate) fn replace(file: &Path, text: &str) -> anyhow::Result<()> {
    replace_bytes(file, text.as_bytes())
}

/// As [`replace`], for a file that is no text.
pub(crate) fn replace_bytes(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let write = || -> io::Result<()> {
        let mut draft = NamedTempFile::new_in(folder(file))?;
        draft.write_all(bytes)?;
        draft.as_file().sync_all()?;
        make_public(draft.as_file(), file)?;
        draft.persist(file)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}

/// Gives `draft`, a private temporary file, the permissions of the `file` that it replaces. If
/// `file` does not exist, gives it the usual permissions of a new file.
pub(crate) fn make_public(draft: &fs::File, file: &Path) -> io::Result<()> {
    let permissions = fs::metadata(file).map(|old| old.permissions());
    let permissions = permissions.or_else(|_| public_permissions(draft))?;
    draft.set_permissions(permissions)
}

#[cfg(unix)]
fn public_permissions(_: &fs::File) -> io::Result<fs::Permissions> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn public_permissions(draft: &fs::File) -> io::Result<fs::Permissions> {
    Ok(draft.metadata()?.permissions())
}

/// Checks that `file`, which the argument `option` names, can be written.
pub(crate) fn writable(file: &Path, option: &str) -> anyhow::Result<()> {
    let cannot = |why: &dyn fmt::Display| {
        BadInput(format!(
            "cannot write to {}: {why}; name another {option}",
            file.display()
        ))
    };
    if file.is_dir() {
        return Err(cannot(&"it is a folder").into());
    }
    if file.exists() && !file.is_file() {
        return Err(cannot(&"it is no regular file, which would be replaced").into());
    }
    if !folder(file).is_dir() {
        return Err(cannot(&"its folder does not exist").into());
    }
    // The message contains only the kind of the error, because the full text would name the draft,
    // which the user does not know.
    NamedTempFile::new_in(folder(file)).map_err(|error| cannot(&error.kind()))?;
    Ok(())
}

/// Returns the folder that contains `file`.
pub(crate) fn folder(file: &Path) -> &Path {
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_link_stays_and_what_is_no_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("results"), folder.path().join("link"));
        fs::write(&file, "before").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let output = |path: &Path| Output {
            format: Format::Json,
            output: Some(path.to_owned()),
        };
        let Target::File(target) = Sink::open(output(&link)).unwrap().target else {
            panic!("a file was named");
        };
        assert_eq!(target, fs::canonicalize(&file).unwrap());
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let refused = Sink::open(output(&socket)).map(drop).unwrap_err();
        assert!(refused.downcast_ref::<BadInput>().is_some(), "{refused}");
        assert!(Sink::open(output(Path::new("/dev/null"))).is_err());
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_leaves_no_draft() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("results.md");
        for text in ["one\n", "one\ntwo\n"] {
            replace(&file, text).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_bad_input_before_anything_runs() {
        let folder = tempfile::tempdir().unwrap();
        for file in [
            folder.path().to_owned(),
            folder.path().join("no/such/results.md"),
        ] {
            let error = writable(&file, "--output").expect_err("not writable");
            assert!(error.is::<BadInput>(), "{error}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
