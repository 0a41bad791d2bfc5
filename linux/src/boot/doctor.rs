//! Checks for the programs that booting a kernel needs, and names the command that installs missing
//! programs.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Error;
use super::qemu::QEMU;
use crate::package::{self, cache};

/// The program name of BusyBox. It must be statically linked, because the guest has only the
/// libraries of Plimsoll itself.
const BUSYBOX: &str = "busybox";

/// A requirement for booting a kernel, and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The purpose of the requirement.
    pub what: &'static str,
    /// The state of the requirement.
    pub state: State,
}

/// The state of a requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The requirement is met; the text gives a version, a path or an amount.
    There(String),
    /// The requirement is not met, but some loads work without it. The text says which loads do
    /// not.
    Optional(String),
    /// The requirement is not met, and nothing works without it. The text says what to do if no
    /// package provides it.
    Missing(String),
}

/// The state of all requirements, and the packages that provide missing programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// The requirements, in the order in which they were checked.
    pub findings: Vec<Finding>,
    /// The Debian packages that provide the missing programs.
    pub packages: Vec<&'static str>,
}

impl Diagnosis {
    /// Returns whether a kernel can be booted and recorded.
    #[must_use]
    pub fn is_well(&self) -> bool {
        let missing = |finding: &Finding| matches!(finding.state, State::Missing(_));
        !self.findings.iter().any(missing)
    }

    /// Returns one command that installs all missing packages; `None` if no package is missing.
    #[must_use]
    pub fn remedy(&self, is_root: bool) -> Option<String> {
        if self.packages.is_empty() {
            return None;
        }
        let sudo = if is_root { "" } else { "sudo " };
        let packages = self.packages.join(" ");
        Some(format!(
            "{sudo}apt-get install --no-install-recommends {packages}"
        ))
    }
}

/// Checks the requirements on this computer. Runs programs only with the argument `--version`.
#[must_use]
pub fn diagnose() -> Diagnosis {
    let path = env::var_os("PATH").unwrap_or_default();
    let here = |program: &str| find(program, &path);
    let mut packages = Vec::new();
    let mut findings = vec![Finding {
        what: "processor",
        state: processor(env::consts::ARCH),
    }];
    findings.push(Finding {
        what: "emulator",
        state: match here(QEMU) {
            Some(file) => State::There(version(&file)),
            None => {
                packages.push("qemu-system-x86");
                State::Missing(format!("no {QEMU} in PATH"))
            }
        },
    });
    findings.push(Finding {
        what: "kernels",
        state: kernels(["apt-get", "apt-cache", "dpkg"].map(|name| (name, here(name).is_some()))),
    });
    findings.push(Finding {
        what: "scripts as loads",
        state: match busybox(&path) {
            Ok(file) => State::There(file.display().to_string()),
            Err(why) => {
                packages.push("busybox-static");
                State::Optional(format!("{why}: only programs can be a --load FILE"))
            }
        },
    });
    findings.push(Finding {
        what: "free memory",
        state: match free_mib() {
            Some(mib) => State::There(format!("{mib} MiB")),
            None => State::Optional("not known".to_owned()),
        },
    });
    Diagnosis { findings, packages }
}

/// Returns the path of QEMU.
///
/// # Errors
///
/// If QEMU is not in `PATH`. The error names `plimsoll linux doctor`, which says what to install.
pub(crate) fn qemu() -> Result<PathBuf, Error> {
    let path = env::var_os("PATH").unwrap_or_default();
    find(QEMU, &path).ok_or_else(|| {
        Error::Missing(format!(
            "there is no {QEMU} in PATH; `plimsoll linux doctor` says what installs it"
        ))
    })
}

/// Returns the path of a busybox that runs without libraries.
///
/// # Errors
///
/// If no static busybox is found. The error names `plimsoll linux doctor`, which says what to
/// install.
pub(crate) fn static_busybox() -> Result<PathBuf, Error> {
    let path = env::var_os("PATH").unwrap_or_default();
    busybox(&path).map_err(|why| {
        Error::Missing(format!(
            "a script needs a static busybox in the guest, and there is {why}; `plimsoll linux \
             doctor` says what installs one"
        ))
    })
}

/// Returns the memory that is available to programs on this computer, in MiB; `None` if unknown.
pub(crate) fn free_mib() -> Option<u64> {
    available_mib(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn available_mib(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kb: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kb / 1024)
}

fn processor(arch: &str) -> State {
    // This program also runs in guests, and guests are x86-64. So this computer must be x86-64 too.
    match arch {
        "x86_64" => State::There(arch.to_owned()),
        other => State::Missing(format!("guests are x86-64, and this computer is {other}")),
    }
}

fn kernels(tools: [(&str, bool); 3]) -> State {
    let series = package::CHECKED_SERIES;
    let fetched = cache::kernels().ok().and_then(|folder| {
        let names = fs::read_dir(folder).ok()?.flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| !name.starts_with('.')).max()
    });
    let missing: Vec<&str> = tools
        .iter()
        .filter(|(_, there)| !there)
        .map(|(name, _)| *name)
        .collect();
    match (fetched, missing.as_slice()) {
        (Some(name), _) => State::There(format!("{name} is fetched")),
        (None, []) => State::There(format!("apt can be asked for series {series}")),
        (None, missing) => State::Optional(format!(
            "no {}: name a kernel of your own with --kernel",
            missing.join(", no ")
        )),
    }
}

fn busybox(path: &OsStr) -> Result<PathBuf, String> {
    let file = find(BUSYBOX, path).ok_or_else(|| format!("no {BUSYBOX}"))?;
    let bytes =
        fs::read(&file).map_err(|error| format!("no {BUSYBOX} that can be read: {error}"))?;
    match super::elf::kind(&bytes) {
        super::elf::Program::Static => Ok(file),
        _ => Err(format!("no static {BUSYBOX}")),
    }
}

/// Returns the first file named `program` in `path`, a list of folders like `$PATH`.
fn find(program: &str, path: &OsStr) -> Option<PathBuf> {
    let mut files = env::split_paths(path).map(|folder| folder.join(program));
    files.find(|file| file.is_file())
}

/// Returns the version that the program `file` prints, or `file` itself if the program prints no
/// version.
fn version(file: &Path) -> String {
    let output = Command::new(file).arg("--version").output();
    let line = output.ok().and_then(|output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().next().map(ToOwned::to_owned)
    });
    line.unwrap_or_else(|| file.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(state: State, packages: Vec<&'static str>) -> Diagnosis {
        let what = "emulator";
        Diagnosis {
            findings: vec![Finding { what, state }],
            packages,
        }
    }

    #[test]
    fn one_command_installs_all_that_is_missing() {
        let missing = found(
            State::Missing("no".to_owned()),
            vec!["qemu-system-x86", "busybox-static"],
        );
        assert!(!missing.is_well());
        assert_eq!(
            missing.remedy(false).as_deref(),
            Some("sudo apt-get install --no-install-recommends qemu-system-x86 busybox-static")
        );
        assert!(missing.remedy(true).unwrap().starts_with("apt-get install"));
        let well = found(State::Optional("no busybox".to_owned()), Vec::new());
        assert!(well.is_well());
        assert_eq!(well.remedy(true), None);
    }

    #[test]
    fn a_program_is_looked_for_in_each_folder_of_the_path() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("busybox"), "#!/bin/sh\n").unwrap();
        let path = env::join_paths(["/no/such/folder".into(), folder.path().to_owned()]).unwrap();
        assert_eq!(find("busybox", &path), Some(folder.path().join("busybox")));
        assert_eq!(find("busybix", &path), None);
        // The file `busybox` in this folder is a script, and not a static program.
        assert_eq!(busybox(&path).unwrap_err(), "no static busybox");
        assert_eq!(busybox(OsStr::new("/no/such")).unwrap_err(), "no busybox");
    }

    #[test]
    fn other_processors_are_refused() {
        assert!(matches!(processor("x86_64"), State::There(_)));
        let State::Missing(why) = processor("aarch64") else {
            panic!("guests are x86-64");
        };
        assert!(why.contains("this computer is aarch64"), "{why}");
    }

    #[test]
    fn memory_is_what_is_available() {
        let text = "MemTotal: 4000000 kB\nMemFree: 1 kB\nMemAvailable:  2097152 kB\n";
        assert_eq!(available_mib(text), Some(2048));
        assert_eq!(available_mib("MemFree: 1 kB\n"), None);
    }
}
