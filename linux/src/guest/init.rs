//! The first process of a guest: it prepares the kernel, records it while the load runs, sends the
//! recording and switches the guest off.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process;

use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, finit_module, reboot};

use super::load::TEXTS;
use super::plan::{PLAN, Plan, USER_LOAD, Work};
use super::progress::say;
use crate::boot::{BUSYBOX, GuestState, MODULES, PROGRAM};
use crate::record::{Holds, Options, Reading, Rss, record};

/// Every file system of a guest: its type and its mount point.
const FILE_SYSTEMS: [(&str, &str); 7] = [
    ("devtmpfs", "/dev"),
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("tmpfs", "/tmp"),
    ("tmpfs", "/run"),
    ("tracefs", "/sys/kernel/tracing"),
    ("cgroup2", "/sys/fs/cgroup"),
];
/// The name that QEMU gives to the serial port through which the recording is sent.
const PORT_NAME: &str = "plimsoll";
/// The memory for data that has been read but not sent yet, in MiB.
const BATCHES_MIB: NonZeroU32 = NonZeroU32::new(8).expect("eight");

/// Runs as the first process of a guest, and switches the guest off at the end.
///
/// # Errors
///
/// If this is not the first process of a guest. In this case, the function changes nothing.
pub fn run() -> io::Result<()> {
    // Outside a guest this function would switch off the user's computer.
    if process::id() != 1 || !is_guest() {
        return Err(io::Error::other(
            "only the first process of a booted guest runs this: use `plimsoll linux`",
        ));
    }
    match work() {
        Ok(()) => say(&GuestState::Done),
        Err(error) => say(&GuestState::Failed(error.to_string())),
    }
    reboot(RebootCommand::PowerOff)?;
    Ok(())
}

/// Returns whether this computer is a guest that Plimsoll has booted.
#[must_use]
pub fn is_guest() -> bool {
    Path::new(PLAN).is_file()
}

fn work() -> io::Result<()> {
    for (kind, place) in FILE_SYSTEMS {
        fs::create_dir_all(place).map_err(because(format!("cannot make {place}")))?;
        let mounted = mount(kind, place, kind, MountFlags::empty(), None);
        mounted.map_err(|error| because(format!("cannot mount {kind}"))(error.into()))?;
    }
    let plan: Plan = fs::read_to_string(PLAN)?
        .parse()
        .map_err(io::Error::other)?;
    for module in &plan.modules {
        let file = File::open(format!("{MODULES}/{module}.ko"))?;
        let loaded = finit_module(&file, c"", 0);
        loaded.map_err(|error| because(format!("cannot load module {module}"))(error.into()))?;
    }
    if Path::new(BUSYBOX).is_file() {
        let installed = process::Command::new(BUSYBOX)
            .args(["--install", "-s", "/bin"])
            .status()?;
        if !installed.success() {
            return Err(io::Error::other(format!("busybox ended with {installed}")));
        }
    }
    prepare();
    fs::create_dir_all(TEXTS)?;
    fs::write(format!("{TEXTS}/made by"), &plan.command)?;
    say(&GuestState::Up(up()?));
    recorded(&plan)
}

/// Records the kernel to the serial port while the load runs.
fn recorded(plan: &Plan) -> io::Result<()> {
    let options = Options {
        output: port()?,
        command: command(plan),
        length: None,
        buffer_mib: Some(plan.buffer_mib),
        memory_mib: BATCHES_MIB,
        // Reading the ring buffers while the load runs would be an additional load of the guest.
        reading: Reading::Afterwards,
        rss: if plan.rss { Rss::Wanted } else { Rss::Spared },
        holds: if plan.holds {
            Holds::Wanted
        } else {
            Holds::Spared
        },
        texts: Some(TEXTS.into()),
    };
    say(&GuestState::Load);
    let summary = record(&options, |_| {}).map_err(io::Error::other)?;
    eprintln!("{summary}");
    match summary.command {
        Some((_, status)) if status.success() => Ok(()),
        Some((_, status)) => Err(io::Error::other(format!("the load ended with {status}"))),
        None => Err(io::Error::other("the load was stopped")),
    }
}

/// Applies optional kernel settings. Some kernels lack these settings, and loads can run without
/// them, so this function only reports failures.
fn prepare() {
    // Only mappings that ask for huge pages get them, so that all other pages are allocated one by
    // one.
    let huge_pages = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
    if huge_pages.exists()
        && let Err(error) = fs::write(huge_pages, "madvise")
    {
        eprintln!("cannot write {}: {error}", huge_pages.display());
    }
    if let Err(error) = size_lists() {
        eprintln!("cannot size the page lists anew: {error}");
    }
}

/// Makes the kernel compute the sizes of its page lists again. The kernel computes these sizes for
/// the first time before it frees the initramfs. The first sizes do not match the number of managed
/// pages that `/proc/zoneinfo` prints later.
fn size_lists() -> io::Result<()> {
    const FRACTION: &str = "/proc/sys/vm/percpu_pagelist_high_fraction";
    let usual = fs::read_to_string(FRACTION)?;
    // The kernel recomputes the sizes only if the value in this file changes.
    fs::write(FRACTION, "1000000")?;
    fs::write(FRACTION, usual.trim())
}

fn up() -> io::Result<String> {
    let uptime = fs::read_to_string("/proc/uptime")?;
    let seconds = uptime.split(' ').next().unwrap_or("?");
    let cpus = std::thread::available_parallelism()?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    Ok(format!(
        "after {seconds} s of its clock, {cpus} CPUs, Linux {}",
        release.trim()
    ))
}

/// Returns the command that runs while the kernel is recorded.
fn command(plan: &Plan) -> Vec<OsString> {
    let (mut words, told) = match &plan.work {
        Work::Load(name, told) => (vec![PROGRAM, "guest", "load", name], told),
        Work::Program(arguments) => (vec![USER_LOAD], arguments),
    };
    words.extend(told.iter().map(String::as_str));
    words.into_iter().map(OsString::from).collect()
}

/// Returns the serial port through which the recording is sent.
fn port() -> io::Result<PathBuf> {
    let ports = Path::new("/sys/class/virtio-ports");
    for entry in
        fs::read_dir(ports).map_err(because("the kernel has no virtio console".to_owned()))?
    {
        let entry = entry?;
        let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if name.trim() == PORT_NAME {
            return Ok(Path::new("/dev").join(entry.file_name()));
        }
    }
    Err(io::Error::other(
        "the guest has no serial port for the recording",
    ))
}

fn because(doing: String) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{doing}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobodys_computer_is_switched_off() {
        let error = run().unwrap_err();
        assert!(
            error.to_string().contains("use `plimsoll linux`"),
            "{error}"
        );
    }

    #[test]
    fn a_load_of_ours_is_this_program_and_a_users_its_own() {
        let plan = |work| Plan {
            work,
            modules: Vec::new(),
            rss: false,
            holds: false,
            buffer_mib: NonZeroU32::MIN,
            command: String::new(),
        };
        let ours = Work::Load("fork".to_owned(), vec!["rounds=1".to_owned()]);
        let words = [PROGRAM, "guest", "load", "fork", "rounds=1"];
        assert_eq!(command(&plan(ours)), words);
        let own = Work::Program(vec!["-v".to_owned()]);
        assert_eq!(command(&plan(own)), [USER_LOAD, "-v"]);
    }
}
