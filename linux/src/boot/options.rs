//! The options of a boot, which are checked before anything is fetched or started.

use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::Error;
use crate::guest::load::Load;
use crate::record::{Holds, Rss};

/// The largest number of CPUs of a guest. Without x2APIC, interrupt controllers have 8-bit
/// addresses, and QEMU before version 9 emulates no x2APIC.
pub const CPUS_MAX: u32 = 255;
/// The minimum memory with which a guest can boot and record, in MiB.
const MEMORY_MIN_MIB: u64 = 512;
/// The minimum memory of a node, in MiB.
const NODE_MIN_MIB: u64 = 256;
/// The largest ring buffer of a CPU, in MiB. A buffer of this size has room for the events of any
/// load.
const BUFFER_MAX_MIB: u64 = 16;

/// The memory of a guest, in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Memory(pub u64);

impl FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
            let number: u64 = number.parse().ok()?;
            match unit {
                "M" => Some(number),
                "G" => number.checked_mul(1024),
                _ => None,
            }
        };
        match read() {
            Some(mib) if mib >= MEMORY_MIN_MIB => Ok(Self(mib)),
            Some(_) => Err(format!("a guest needs at least {MEMORY_MIN_MIB}M")),
            None => Err("write it as 2G or 3072M".to_owned()),
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(1024) {
            write!(f, "{}G", self.0 / 1024)
        } else {
            write!(f, "{}M", self.0)
        }
    }
}

/// The kernel to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelChoice {
    /// A kernel image that the user supplies.
    File(PathBuf),
    /// Debian's newest packaged cloud kernel of a series.
    Series(String),
    /// A kernel that was built on this computer with this number of timer interrupts per second.
    Hz(u32),
}

/// The load that runs in the guest.
#[derive(Clone, Debug)]
pub enum LoadChoice {
    /// A load that is part of this program.
    Named(&'static Load),
    /// A program or script that the user supplies.
    File(PathBuf),
}

impl LoadChoice {
    /// Interprets `text` as a file if it contains a `/`. Otherwise `text` names a load or, if there
    /// is no such load, a file.
    ///
    /// # Errors
    ///
    /// If `text` names neither a load nor a file.
    pub fn find(text: &str) -> Result<Self, Error> {
        if !text.contains('/')
            && let Some(load) = Load::named(text)
        {
            return Ok(Self::Named(load));
        }
        let path = PathBuf::from(text);
        if path.is_file() {
            return Ok(Self::File(path));
        }
        Err(Error::Asked(format!(
            "`{text}` is neither a load nor a file; `plimsoll linux loads` lists the loads"
        )))
    }
}

/// The options of booting and recording a kernel.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of the guest's CPUs.
    pub cpus: u32,
    /// The memory of all nodes of the guest together.
    pub memory: Memory,
    /// The number of nodes; CPUs and memory are divided evenly among them.
    pub nodes: u32,
    /// The kernel to boot.
    pub kernel: KernelChoice,
    /// The load that runs in the guest.
    pub load: LoadChoice,
    /// The user's arguments for the load.
    pub told: Vec<String>,
    /// Kernel modules that the guest loads before the load runs.
    pub modules: Vec<String>,
    /// Texts that are appended to the kernel's command line.
    pub append: Vec<String>,
    /// Whether changes of resident pages are recorded.
    pub rss: Rss,
    /// Whether the moments at which CPUs release the zone lock are recorded.
    pub holds: Holds,
    /// The wall-clock time after which a guest that still runs is stopped.
    pub timeout: Duration,
    /// The file to which the recording is written.
    pub output: PathBuf,
    /// The file that receives the console output. If `None`, an error shows the last lines of the
    /// console output.
    pub console: Option<PathBuf>,
    /// The command that the user typed, for the recording's header.
    pub command: String,
}

impl Options {
    /// Checks the options, except for limits that depend on this computer.
    ///
    /// # Errors
    ///
    /// If an option cannot be met; the error says what is possible.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::Asked(text));
        if !(1..=CPUS_MAX).contains(&self.cpus) {
            return refuse(format!(
                "{} CPUs cannot be emulated: give 1 to {CPUS_MAX}, because QEMU emulates no x2APIC before \
                 version 9",
                self.cpus
            ));
        }
        let nodes = u64::from(self.nodes);
        if self.nodes == 0 || self.nodes > self.cpus {
            return refuse(format!(
                "{} nodes cannot share {} CPUs: each node needs at least one",
                self.nodes, self.cpus
            ));
        }
        if self.memory.0 < nodes * NODE_MIN_MIB {
            return refuse(format!(
                "{} for {} nodes is too little: give {} with --memory",
                self.memory,
                self.nodes,
                Memory(nodes * NODE_MIN_MIB)
            ));
        }
        if let Some(bad) = self
            .append
            .iter()
            .find(|text| text.split_whitespace().any(|word| word == "--"))
        {
            return refuse(format!(
                "`{bad}` cannot be appended: ` -- ` ends the kernel's own arguments"
            ));
        }
        match &self.load {
            LoadChoice::Named(load) => load
                .values(&self.told)
                .map(drop)
                .map_err(|error| Error::Asked(format!("load {}: {error}", load.name))),
            LoadChoice::File(_) => match self.told.iter().find(|text| text.contains('\n')) {
                Some(bad) => refuse(format!("`{bad}` has more than one line")),
                None => Ok(()),
            },
        }
    }

    /// Returns the size of each CPU's ring buffer in MiB. All buffers together take at most a
    /// quarter of the guest's memory, but each has at least 1 MiB.
    #[must_use]
    pub(crate) fn buffer_mib(&self) -> NonZeroU32 {
        let quarter = self.memory.0 / 4 / u64::from(self.cpus);
        let mib = u32::try_from(quarter.min(BUFFER_MAX_MIB)).unwrap_or(u32::MAX);
        NonZeroU32::new(mib).unwrap_or(NonZeroU32::MIN)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::boot) fn options() -> Options {
        Options {
            cpus: 4,
            memory: Memory(2048),
            nodes: 1,
            kernel: KernelChoice::Series("6.12".to_owned()),
            load: LoadChoice::find("fault").unwrap(),
            told: Vec::new(),
            modules: Vec::new(),
            append: Vec::new(),
            rss: Rss::Spared,
            holds: Holds::Spared,
            timeout: Duration::from_secs(600),
            output: "out.plr".into(),
            console: None,
            command: "plimsoll linux".to_owned(),
        }
    }

    fn refused(change: impl FnOnce(&mut Options)) -> String {
        let mut options = options();
        change(&mut options);
        options.check().unwrap_err().to_string()
    }

    #[test]
    fn memory_is_a_number_with_a_unit() {
        assert_eq!("2G".parse(), Ok(Memory(2048)));
        assert_eq!("3072M".parse(), Ok(Memory(3072)));
        assert_eq!(Memory(3072).to_string(), "3G");
        assert_eq!(Memory(700).to_string(), "700M");
        for text in [
            "",
            "2",
            "2048",
            "G",
            "2T",
            "-1G",
            "99999999999999999999G",
            "2Ä",
        ] {
            let error = text.parse::<Memory>().unwrap_err();
            assert_eq!(error, "write it as 2G or 3072M", "{text}");
        }
        assert!(
            "64M"
                .parse::<Memory>()
                .unwrap_err()
                .contains("at least 512M")
        );
    }

    #[test]
    fn what_cannot_be_emulated_is_refused_with_what_can() {
        options().check().unwrap();
        assert!(refused(|o| o.cpus = 256).contains("give 1 to 255"));
        assert!(refused(|o| o.cpus = 0).contains("give 1 to 255"));
        assert!(refused(|o| o.nodes = 5).contains("each node needs at least one"));
        let little = |o: &mut Options| (o.nodes, o.memory) = (4, Memory(512));
        assert!(refused(little).contains("give 1G with --memory"));
        assert!(refused(|o| o.append = vec!["a -- b".to_owned()]).contains("cannot be appended"));
        let told = refused(|o| o.told = vec!["speed=3".to_owned()]);
        assert!(
            told.starts_with("load fault: it has no `speed`; it has settle, rounds"),
            "{told}"
        );
    }

    #[test]
    fn ring_buffers_take_a_quarter_of_the_memory_at_most() {
        let buffer = |cpus, mib| {
            let memory = Memory(mib);
            Options {
                cpus,
                memory,
                ..options()
            }
            .buffer_mib()
            .get()
        };
        assert_eq!(buffer(4, 2048), 16);
        assert_eq!(buffer(64, 2048), 8);
        assert_eq!(buffer(255, 512), 1);
    }

    #[test]
    fn a_load_is_a_name_or_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("fault");
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        let found = |text: &str| LoadChoice::find(text);
        assert!(matches!(found("fault"), Ok(LoadChoice::Named(_))));
        assert!(matches!(
            found(&file.display().to_string()),
            Ok(LoadChoice::File(_))
        ));
        let error = found("flt").unwrap_err().to_string();
        assert!(
            error.contains("`plimsoll linux loads` lists the loads"),
            "{error}"
        );
    }
}
