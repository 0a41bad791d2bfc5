//! The destinations of results: standard output, or a file that is replaced as a whole after each
//! result.

use std::env;
use std::error;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anstream::{AutoStream, ColorChoice};
use anyhow::Context;
use clap::ValueEnum;
use plimsoll_lab::exact::Outcome;
use plimsoll_lab::report::paint::Paint;
use plimsoll_lab::report::pick::{self, Detail};
use plimsoll_lab::report::visible::visible;
use plimsoll_lab::report::{Report, Table, csv, json, mail, markdown, table};
use tempfile::NamedTempFile;

/// The width of tables, in columns, if the results do not go to a terminal.
const WIDTH: usize = 110;
/// The width of tables, in columns, if the results go to a terminal of unknown width.
const WIDTH_UNKNOWN: usize = 80;
/// The smallest and the largest width of tables, in columns. Narrower tables would wrap too often,
/// and wider ones are hard to read.
const WIDTH_RANGE: (usize, usize) = (80, 160);

/// Destination and format of results.
#[derive(Debug, clap::Args)]
pub(crate) struct Output {
    /// The format of the results: markdown and json have everything, json as one object per line;
    /// mail has the answer in lines of at most 72 characters; csv has one value per line
    #[arg(long, default_value = "table")]
    pub(crate) format: Format,
    /// Writes results to this file, which is replaced as a whole after each result
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// How much of a report is shown.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Extent {
    /// Shows all tables and verdicts, and not only the answer
    #[arg(long, short, conflicts_with = "metric")]
    pub(crate) verbose: bool,
    /// Shows the answer, and this metric with its verdicts; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) metric: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Markdown,
    Json,
    Mail,
    Csv,
}

impl Format {
    /// Returns whether text in this format is for programs. Such text has no blank lines between
    /// results.
    const fn is_for_programs(self) -> bool {
        matches!(self, Self::Json | Self::Csv)
    }

    /// Renders tables that belong to no report. In JSON, the set of tables has the name `name`.
    pub(crate) fn tables(self, name: &str, tables: &[Table], width: usize) -> String {
        match self {
            Self::Table => table::render_tables(tables, width),
            Self::Markdown => markdown::render_tables(tables),
            Self::Json => json::render_tables(name, tables) + "\n",
            Self::Mail => mail::render_tables(tables),
            Self::Csv => csv::render_tables(tables),
        }
    }
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
    extent: Extent,
    target: Target,
    /// The command line that made the results. A report in the form of an e-mail shows it.
    command: String,
    written: String,
}

enum Target {
    Stdout,
    File(PathBuf),
}

impl Sink {
    /// Opens the destination that the arguments name. Fails if the file cannot be written, or if
    /// the format cannot show what `extent` asks for. So the error comes now, and not after minutes
    /// of measuring.
    pub(crate) fn open(output: Output, extent: Extent) -> anyhow::Result<Self> {
        check_extent(output.format, &extent)?;
        let target = match output.output {
            None => Target::Stdout,
            Some(file) => {
                // If the path is a link, the command keeps the link and replaces the target of the
                // link.
                let file = fs::canonicalize(&file).unwrap_or(file);
                writable(&file, "--output")?;
                Target::File(file)
            }
        };
        Ok(Self {
            format: output.format,
            extent,
            target,
            command: command_line(),
            written: String::new(),
        })
    }

    /// Names `command` as the command that made the results, instead of the command that runs now.
    pub(crate) fn of_command(self, command: String) -> Self {
        Self { command, ..self }
    }

    /// Writes one more report. Writes the report's warnings to standard error.
    pub(crate) fn write(&mut self, report: &Report) -> anyhow::Result<()> {
        warn(&report.warnings);
        let Extent { verbose, metric } = self.extent.clone();
        let detail = Detail::of(verbose, &metric);
        let (paint, is_first) = (self.paint(), self.written.is_empty());
        let command = self.command.clone();
        self.write_text(|format, width| match format {
            Format::Table => table::render(report, width, detail, paint),
            Format::Markdown => markdown::render(report, detail),
            Format::Json => json::render(report) + "\n",
            Format::Mail => mail::render(report, &command),
            Format::Csv if is_first => csv::HEAD.to_owned() + &csv::render(report, detail),
            Format::Csv => csv::render(report, detail),
        })
    }

    /// Checks that one of `reports` has each metric that the user names. A command that cannot know
    /// the metrics before its runs calls this function after it has written everything. So the
    /// results of the runs are not lost if a name is wrong.
    pub(crate) fn check_metrics(&self, reports: &[Report]) -> anyhow::Result<()> {
        let known: Vec<&str> = reports.iter().flat_map(pick::metrics).collect();
        let unmeasured = reports.iter().flat_map(|report| &report.answer.unmeasured);
        let unmeasured: Vec<&str> = unmeasured.map(String::as_str).collect();
        Ok(pick::check(&self.extent.metric, &known, &unmeasured)?)
    }

    /// Writes a table that belongs to no single report. With JSON and CSV, writes nothing, because
    /// the reports already contain the table's figures.
    pub(crate) fn write_table(&mut self, of: &Table) -> anyhow::Result<()> {
        if self.format.is_for_programs() {
            return Ok(());
        }
        let tables = std::slice::from_ref(of);
        self.write_text(|format, width| format.tables("", tables, width))
    }

    /// Writes a paragraph for people; with JSON and CSV, writes nothing.
    pub(crate) fn write_paragraph(&mut self, text: &str) -> anyhow::Result<()> {
        if self.format.is_for_programs() {
            return Ok(());
        }
        self.write_text(|format, width| match format {
            Format::Mail => table::render_text(text, mail::WIDTH),
            _ => table::render_text(text, width),
        })
    }

    /// Writes the outcome of `plimsoll replay --exact`, and its warnings to standard error. A mail
    /// has the same text as a terminal.
    pub(crate) fn write_exact(&mut self, outcome: &Outcome) -> anyhow::Result<()> {
        warn(&outcome.warnings);
        self.write_text(|format, width| match format {
            Format::Table => outcome.render(width),
            Format::Markdown => outcome.render_markdown(),
            Format::Json => json::render_exact(outcome) + "\n",
            Format::Mail => outcome.render(mail::WIDTH),
            Format::Csv => csv::render_tables(&outcome.tables()),
        })
    }

    /// Writes one more text, which `render` makes for a given format and number of columns.
    pub(crate) fn write_text(
        &mut self,
        render: impl FnOnce(Format, usize) -> String,
    ) -> anyhow::Result<()> {
        // In the formats for people to read, a blank line separates two reports.
        let gap = if self.written.is_empty() || self.format.is_for_programs() {
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

    /// Returns whether all tables and verdicts are shown, and not only the answer.
    pub(crate) fn is_verbose(&self) -> bool {
        self.extent.verbose || self.format == Format::Markdown
    }

    /// Chooses colours if the results go to a terminal that shows them, unless `NO_COLOR` is set.
    fn paint(&self) -> Paint {
        let choice = AutoStream::choice(&io::stdout());
        match self.target {
            Target::Stdout if choice != ColorChoice::Never => Paint::Colour,
            _ => Paint::Plain,
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
    width_of(
        terminal.map(|(width, _)| width.0),
        io::stdout().is_terminal(),
    )
}

/// Returns the width of tables if the terminal has `columns`. Some terminals, such as the one that
/// `script` makes, do not know their size.
fn width_of(columns: Option<u16>, is_terminal: bool) -> usize {
    match columns {
        Some(columns @ 1..) => usize::from(columns).clamp(WIDTH_RANGE.0, WIDTH_RANGE.1),
        _ if is_terminal => WIDTH_UNKNOWN,
        _ => WIDTH,
    }
}

/// Prints to standard output; unlike with `print!`, a closed pipe is an error, not a panic.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

/// Returns an error if an option of `extent` has no effect on the output in `format`.
fn check_extent(format: Format, extent: &Extent) -> anyhow::Result<()> {
    let refuse = |why: &str| Err(BadInput(why.to_owned()).into());
    match format {
        Format::Json if !extent.metric.is_empty() => {
            refuse("--format json always has every metric; leave out --metric, or use --format csv")
        }
        Format::Mail if extent.verbose || !extent.metric.is_empty() => {
            refuse("--format mail has only the answer; use --format table or markdown for more")
        }
        Format::Csv if extent.verbose => refuse(
            "--format csv already has every value; leave out --verbose, or use --format json, \
             which also has the other tables",
        ),
        _ => Ok(()),
    }
}

/// The command line of this program, quoted so that a user can paste it into a shell.
pub(crate) fn command_line() -> String {
    quoted(env::args().skip(1))
}

fn quoted(words: impl Iterator<Item = String>) -> String {
    let words = words.map(|word| {
        let plain = |c: char| c.is_alphanumeric() || "-_=./,:@+%".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    let words: Vec<String> = ["plimsoll".to_owned()].into_iter().chain(words).collect();
    words.join(" ")
}

/// Writes `text` to a new file at `path`.
///
/// # Errors
/// [`BadInput`] if the file exists, or cannot be created.
pub(crate) fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    let shown = path.display();
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = file.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => BadInput(format!(
            "{shown} exists already, and is not replaced: name another file"
        )),
        kind => BadInput(format!(
            "cannot write to {shown}: {kind}; name another file"
        )),
    })?;
    file.write_all(text.as_bytes())
        .with_context(|| format!("cannot write {shown}"))
}

/// Prints warnings to standard error.
pub(crate) fn warn(warnings: &[String]) {
    for warning in warnings {
        anstream::eprintln!("warning: {}", visible(warning));
    }
}

/// Replaces `file` as a whole: readers see either the old or the new text.
pub(crate) fn replace(file: &Path, text: &str) -> anyhow::Result<()> {
    replace_bytes(file, text.as_bytes())
}

/// Replaces `file` by `bytes` as a whole, as [`replace`] does with a text.
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
    // The message contains only the kind of the error, because the full text would name the
    // temporary file, which the user does not know.
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
        let open = |path: &Path| Sink::open(output(path), Extent::default());
        let Target::File(target) = open(&link).unwrap().target else {
            panic!("a file was named");
        };
        assert_eq!(target, fs::canonicalize(&file).unwrap());
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let refused = open(&socket).map(drop).unwrap_err();
        assert!(refused.downcast_ref::<BadInput>().is_some(), "{refused}");
        assert!(open(Path::new("/dev/null")).is_err());
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

    #[test]
    fn a_terminal_of_unknown_width_has_80_columns() {
        let terminals = [Some(0), None, Some(60), Some(100), Some(200)];
        let widths = terminals.map(|columns| width_of(columns, true));
        assert_eq!(widths, [80, 80, 80, 100, 160]);
        assert_eq!(width_of(None, false), 110);
    }

    #[test]
    fn a_format_refuses_an_option_that_changes_nothing() {
        let metric = Extent {
            verbose: false,
            metric: vec!["waits".to_owned()],
        };
        let verbose = Extent {
            verbose: true,
            metric: Vec::new(),
        };
        let refused = |format| {
            let error = |extent| check_extent(format, extent).is_err();
            [error(&Extent::default()), error(&metric), error(&verbose)]
        };
        assert_eq!(refused(Format::Table), [false, false, false]);
        assert_eq!(refused(Format::Markdown), [false, false, false]);
        assert_eq!(refused(Format::Json), [false, true, false]);
        assert_eq!(refused(Format::Mail), [false, true, true]);
        assert_eq!(refused(Format::Csv), [false, false, true]);
    }

    #[test]
    fn a_shell_reads_the_quoted_words_as_they_were() {
        let words = ["compare", "--b", "linux@a=1", "a b", "it's", ""];
        let text = quoted(words.iter().map(|word| (*word).to_owned()));
        assert_eq!(text, r"plimsoll compare --b linux@a=1 'a b' 'it'\''s' ''");
    }
}
