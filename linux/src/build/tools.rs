//! Finds and runs the programs that build a kernel, and names the packages that provide missing
//! programs.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::Command;

use super::Error;

/// The programs and the header that a build needs, each with the Debian package that provides it.
const NEEDED: [(&str, &str); 11] = [
    ("apt-get", "apt"),
    ("dpkg-deb", "dpkg"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
    ("make", "make"),
    ("gcc", "gcc"),
    ("ld", "binutils"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("gelf.h", "libelf-dev"),
];
/// The additional program that a semantic patch needs.
const NEEDED_TO_PATCH: (&str, &str) = ("spatch", "coccinelle");

/// The number of lines, from the end of a command's output, that an error quotes.
const LINES_SHOWN: usize = 12;

/// Runs the programs that build a kernel. It looks up the programs in a list of folders.
#[derive(Clone, Debug)]
pub struct Tools {
    path: OsString,
}

impl Tools {
    /// Returns tools that look for programs on this process's `PATH`.
    #[must_use]
    pub fn of_environment() -> Self {
        Self::on(env::var_os("PATH").unwrap_or_default())
    }

    /// Returns tools that look for programs in the folders of `path`, which are separated as in
    /// `PATH`.
    #[must_use]
    pub fn on(path: impl Into<OsString>) -> Self {
        Self { path: path.into() }
    }

    /// Checks that all programs and headers for a build are installed; `patching` adds the program
    /// that semantic patches need.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] if something is not installed, with one command that installs all of it.
    pub fn check(&self, patching: bool) -> Result<(), Error> {
        let patching = patching.then_some(&NEEDED_TO_PATCH);
        let needed = NEEDED.iter().chain(patching);
        let missing: Vec<_> = needed.filter(|(tool, _)| !self.has(tool)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = missing.iter().map(|(tool, _)| *tool).collect();
        let packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
        Err(Error::Missing(format!(
            "to build a kernel, {} must be installed: run `apt-get install --no-install-recommends {}` as root",
            names.join(", "),
            packages.join(" ")
        )))
    }

    fn has(&self, tool: &str) -> bool {
        if tool.ends_with(".h") {
            // Only the compiler knows the folders of headers, so the check runs the compiler on the
            // header.
            let mut command = self.command("gcc");
            command.args(["-E", "-x", "c", "-include", tool, "/dev/null"]);
            return command.output().is_ok_and(|output| output.status.success());
        }
        env::split_paths(&self.path).any(|folder| folder.join(tool).is_file())
    }

    /// Makes a command that searches the folders of `self.path` for programs and prints English
    /// messages.
    pub(super) fn command(&self, program: &str) -> Command {
        // `Command` would search this process's `PATH` for a bare name.
        let found = env::split_paths(&self.path).map(|folder| folder.join(program));
        let program = found
            .into_iter()
            .find(|path| path.is_file())
            .unwrap_or_else(|| program.into());
        let mut command = Command::new(program);
        command.env("PATH", &self.path).env("LC_ALL", "C");
        command
    }

    /// Runs `command` and returns its standard output. If the command fails, the error quotes the
    /// command's output.
    pub(super) fn run(command: &mut Command, what: &str) -> Result<String, Error> {
        let output = command
            .output()
            .map_err(not_started(command.get_program()))?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(printed);
        }
        Err(Error::Failed {
            what: what.to_owned(),
            said: last_lines(&(printed + &String::from_utf8_lossy(&output.stderr))),
            log: None,
        })
    }

    /// Runs `command`, passes each line that the command prints to `line`, and writes all lines to
    /// `log`.
    pub(super) fn run_logged(
        command: &mut Command,
        what: &str,
        log: &Path,
        line: &mut dyn FnMut(&str),
    ) -> Result<(), Error> {
        let mut kept = File::create(log).map_err(Error::file("write", log))?;
        let (reader, writer) = io::pipe().map_err(Error::file("make a pipe beside", log))?;
        let twin = writer
            .try_clone()
            .map_err(Error::file("make a pipe beside", log))?;
        let program = command.get_program().to_owned();
        let mut child = command
            .stdout(writer)
            .stderr(twin)
            .spawn()
            .map_err(not_started(&program))?;
        // `command` still holds the write ends of the pipe. Replacing these ends closes them.
        // Otherwise the loop below would never see the end of the output.
        command.stdout(io::stdout()).stderr(io::stderr());
        let mut said = String::new();
        for bytes in BufReader::new(reader).split(b'\n') {
            let bytes = bytes.map_err(Error::file("read a pipe beside", log))?;
            let text = String::from_utf8_lossy(&bytes);
            writeln!(kept, "{text}").map_err(Error::file("write", log))?;
            line(&text);
            said = last_lines(&format!("{said}\n{text}"));
        }
        let status = child.wait().map_err(not_started(&program))?;
        if status.success() {
            return Ok(());
        }
        Err(Error::Failed {
            what: what.to_owned(),
            said,
            log: Some(log.to_owned()),
        })
    }
}

fn not_started(program: &OsStr) -> impl FnOnce(io::Error) -> Error {
    let path = program.into();
    move |source| Error::File {
        what: "run",
        path,
        source,
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let from = lines.len().saturating_sub(LINES_SHOWN);
    lines[from..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_one_command() {
        let folder = tempfile::tempdir().unwrap();
        for (tool, _) in NEEDED
            .iter()
            .filter(|(tool, _)| !["flex", "bc"].contains(tool))
        {
            std::fs::write(folder.path().join(tool), "").unwrap();
        }
        let error = Tools::on(folder.path()).check(true).unwrap_err();
        assert!(error.is_bad_input());
        let text = error.to_string();
        assert!(text.starts_with("to build a kernel, flex, bc, "), "{text}");
        assert!(text.contains("--no-install-recommends flex bc "), "{text}");
        assert!(text.contains(" coccinelle` as root"), "{text}");
    }

    #[test]
    fn a_failed_command_says_how_it_ended_and_where_the_rest_is() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut command = Tools::of_environment().command("sh");
        command.args([
            "-c",
            "for i in $(seq 20); do echo line $i; done; echo oops >&2; exit 3",
        ]);
        let mut seen = 0;
        let error =
            Tools::run_logged(&mut command, "counting", &log, &mut |_| seen += 1).unwrap_err();
        let text = error.to_string();
        assert_eq!(seen, 21);
        assert!(
            text.contains("counting failed") && text.ends_with("line 20\noops"),
            "{text}"
        );
        assert!(!text.contains("line 2\n"), "{text}");
        assert_eq!(std::fs::read_to_string(&log).unwrap().lines().count(), 21);
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_of_its_own() {
        let mut command = Tools::on("").command("plimsoll-no-such-program");
        let text = Tools::run(&mut command, "nothing").unwrap_err().to_string();
        assert!(
            text.starts_with("cannot run plimsoll-no-such-program"),
            "{text}"
        );
    }
}
