//! Reads the CPUs of this computer from the files in which Linux describes them.
//!
//! `list` parses the contents of a file, and `sysfs` reads the files. The kernel's ids can have
//! gaps, so `assemble` gives new numbers without gaps to cores, caches and sockets. A CPU that is
//! possible but has no description is offline. `assemble` gives such a CPU its own core and its own
//! last-level cache.

mod list;
mod sysfs;

use std::path::{Path, PathBuf};
use std::{fmt, io, thread};

use plimsoll_mm::topology::{CpuPlace, Topology};
use plimsoll_mm::units::NodeId;

/// The directory in which Linux describes CPUs and nodes.
const SYS: &str = "/sys/devices/system";

/// The maximum number of CPUs that is accepted; Linux supports at most 8192.
pub(crate) const CPUS_MAX: u32 = 1 << 16;

/// Reads the CPUs of this computer.
///
/// # Errors
/// The error names the file that is missing or has unexpected contents.
pub fn read() -> Result<Topology, TopologyError> {
    read_from(Path::new(SYS))
}

/// Reads the CPUs from a directory with the layout of `/sys/devices/system`.
///
/// # Errors
/// The error names the file that is missing or has unexpected contents.
pub fn read_from(root: &Path) -> Result<Topology, TopologyError> {
    Ok(assemble(&sysfs::describe(root)?))
}

/// The numbers of a list such as `0-3,8`, or `None` if `text` is no such list.
pub(crate) fn numbers(text: &str) -> Option<Vec<u32>> {
    list::cpus(text)
}

/// Reads the CPUs of this computer. If Linux does not describe them, returns as many
/// equal CPUs as this process may use.
pub(crate) fn read_or_flat() -> Topology {
    read().unwrap_or_else(|_undescribed| {
        let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get());
        Topology::flat(u32::try_from(cpus).expect("fewer than 2³² CPUs"))
    })
}

/// The reason why the topology of the CPUs is unknown.
#[derive(Debug)]
pub enum TopologyError {
    /// A file could not be read.
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        why: io::Error,
    },
    /// The contents of a file are not as expected.
    Parse {
        /// The path of the file.
        path: PathBuf,
        /// The contents of the file.
        text: String,
        /// A description of the contents that the file should have.
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

/// The description of one CPU in the files of sysfs, with the kernel's ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Described {
    package: i64,
    die: i64,
    core: i64,
    /// The lowest CPU number among the CPUs that share this CPU's last-level cache; `None` if Linux
    /// does not describe caches.
    llc_first: Option<u32>,
    node: u32,
}

/// Numbers the cores of the machine in the order of their first CPUs. Does the same for the
/// last-level caches and for the sockets. No two cores, caches or sockets get the same number.
fn assemble(cpus: &[Option<Described>]) -> Topology {
    let (mut cores, mut llcs, mut sockets) = (Vec::new(), Vec::new(), Vec::new());
    let mut places = Vec::new();
    for (id, cpu) in (0..).zip(cpus) {
        // A number that no other CPU has. If Linux does not describe this CPU, the number makes the
        // keys of its core and of its cache unique.
        let alone: i64 = -1 - i64::from(id);
        let core_key = cpu.map_or((0, 0, alone), |cpu| (cpu.package, cpu.die, cpu.core));
        let llc_key = match *cpu {
            None => (1, alone),
            Some(Described {
                llc_first: Some(first),
                ..
            }) => (0, i64::from(first)),
            // If caches are not described, each socket is assumed to have one cache.
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

/// The index of `key` in `keys`. A new key is appended.
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
