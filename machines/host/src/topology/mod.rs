//! The CPUs of this computer, from the files in which Linux describes them.
//!
//! `list` parses the contents of a file, `sysfs` reads the files, and `assemble` numbers what they
//! describe. Ids may have holes. A CPU that is possible but not described, because it is offline,
//! gets a core and a cache of its own.

mod list;
mod sysfs;

use std::path::{Path, PathBuf};
use std::{fmt, io, thread};

use plimsoll_mm::topology::{CpuPlace, Topology};
use plimsoll_mm::units::NodeId;

/// The folder in which Linux describes CPUs and nodes.
const SYS: &str = "/sys/devices/system";

/// The most CPUs accepted; Linux stops at 8192.
const CPUS_MAX: u32 = 1 << 16;

/// The CPUs of this computer.
///
/// # Errors
/// The error names the file that is missing or not as expected.
pub fn read() -> Result<Topology, TopologyError> {
    read_from(Path::new(SYS))
}

/// The CPUs described in a folder laid out as `/sys/devices/system`.
///
/// # Errors
/// The error names the file that is missing or not as expected.
pub fn read_from(root: &Path) -> Result<Topology, TopologyError> {
    Ok(assemble(&sysfs::describe(root)?))
}

/// The CPUs of this computer; if Linux does not describe them, the same number of equal CPUs.
pub(crate) fn read_or_flat() -> Topology {
    read().unwrap_or_else(|_undescribed| {
        let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get());
        Topology::flat(u32::try_from(cpus).expect("fewer than 2³² CPUs"))
    })
}

/// The reason why the CPUs are not known.
#[derive(Debug)]
pub enum TopologyError {
    /// A file could not be read.
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: io::Error,
    },
    /// The contents of a file are not as expected.
    Parse {
        /// The file.
        path: PathBuf,
        /// Its contents.
        text: String,
        /// The expected contents.
        expected: &'static str,
    },
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, why } => write!(f, "cannot read {}: {why}", path.display()),
            Self::Parse {
                path,
                text,
                expected,
            } => {
                write!(
                    f,
                    "{} should be {expected}, but is {text:?}",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for TopologyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { why, .. } => Some(why),
            Self::Parse { .. } => None,
        }
    }
}

/// The description of one CPU in the files, in the kernel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Described {
    package: i64,
    die: i64,
    core: i64,
    /// The first CPU that shares the last-level cache; `None` where caches are not described.
    llc_first: Option<u32>,
    node: u32,
}

/// Gives cores, caches and sockets numbers that are unique across the machine, in the order of
/// the first CPU of each.
fn assemble(cpus: &[Option<Described>]) -> Topology {
    let (mut cores, mut llcs, mut sockets) = (Vec::new(), Vec::new(), Vec::new());
    let mut places = Vec::new();
    for (id, cpu) in (0..).zip(cpus) {
        // Ids are at most `CPUS_MAX`, so negative keys can stand for CPUs without a key of their
        // own.
        let alone: i64 = -1 - i64::from(id);
        let core_key = cpu.map_or((0, 0, alone), |cpu| (cpu.package, cpu.die, cpu.core));
        let llc_key = match *cpu {
            None => (1, alone),
            Some(Described {
                llc_first: Some(first),
                ..
            }) => (0, i64::from(first)),
            // If caches are not described, a socket is taken to have one cache.
            Some(Described { package, .. }) => (2, package),
        };
        let socket_key = cpu.map_or_else(|| first_package(cpus), |cpu| cpu.package);
        places.push(CpuPlace {
            core: number_of(&mut cores, (cpu.is_some(), core_key)),
            llc: number_of(&mut llcs, llc_key),
            node: NodeId(cpu.map_or(0, |cpu| cpu.node)),
            socket: number_of(&mut sockets, socket_key),
        });
    }
    Topology::new(places)
}

fn first_package(cpus: &[Option<Described>]) -> i64 {
    cpus.iter().flatten().next().map_or(0, |cpu| cpu.package)
}

/// The place of `key` in `keys`, at the end if it is new.
fn number_of<K: PartialEq>(keys: &mut Vec<K>, key: K) -> u32 {
    let place = keys
        .iter()
        .position(|known| *known == key)
        .unwrap_or_else(|| {
            keys.push(key);
            keys.len() - 1
        });
    u32::try_from(place).expect("there are no more keys than CPUs")
}

#[cfg(test)]
mod tests;
