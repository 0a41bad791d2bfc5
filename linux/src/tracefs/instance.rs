//! One instance: ring buffers and events of our own.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;

use crate::record::RecordError;
use crate::tracefs::Tracefs;

/// Instances of ours begin with this; the process id follows.
const PREFIX: &str = "plimsoll-";

/// An instance; removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Instance {
    dir: PathBuf,
}

impl Instance {
    /// Makes an instance, switched off. Instances of recorders that were killed are removed.
    pub(crate) fn create(tracefs: &Tracefs) -> Result<Self, RecordError> {
        let instances = tracefs.root().join("instances");
        remove_stale(&instances);
        let dir = instances.join(format!("{PREFIX}{}", process::id()));
        fs::create_dir(&dir).map_err(|error| RecordError::of_tracefs(&dir, error))?;
        let instance = Self { dir };
        instance.set("tracing_on", "0")?;
        Ok(instance)
    }

    /// A folder that stands for an instance.
    #[cfg(test)]
    pub(crate) fn at(dir: &Path) -> Self {
        let dir = dir.to_owned();
        Self { dir }
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }

    /// Writes `text` to one of its files.
    pub(crate) fn write(&self, file: &str, text: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(self.path(file))?;
        file.write_all(text.as_bytes())
    }

    /// As [`Instance::write`]; the kernel must take it.
    pub(crate) fn set(&self, file: &str, text: &str) -> Result<(), RecordError> {
        let written = self.write(file, text);
        written.map_err(|error| RecordError::of_tracefs(self.path(file), error))
    }

    pub(crate) fn read(&self, file: &str) -> io::Result<String> {
        super::read(&self.path(file))
    }

    /// The CPUs that have a ring buffer.
    pub(crate) fn cpus(&self) -> io::Result<Vec<u32>> {
        let mut cpus = Vec::new();
        for entry in fs::read_dir(self.path("per_cpu"))? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("cpu"));
            cpus.extend(number.and_then(|number| number.parse::<u32>().ok()));
        }
        cpus.sort_unstable();
        Ok(cpus)
    }

    /// Where notes go into the ring buffer.
    pub(crate) fn marker(&self) -> Result<Marker, RecordError> {
        let path = self.path("trace_marker");
        let opened = OpenOptions::new().write(true).open(&path);
        let file = opened.map_err(|error| RecordError::of_tracefs(&path, error))?;
        Ok(Marker { file })
    }

    /// Events of `cpu` that the kernel dropped.
    pub(crate) fn lost(&self, cpu: u32) -> u64 {
        let stats = self.read(&format!("per_cpu/cpu{cpu}/stats"));
        dropped(&stats.unwrap_or_default())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.write("tracing_on", "0");
        let _ = self.write("events/enable", "0");
        // Nobody can be told here; a later recorder removes what stays.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Writes notes into the ring buffer of the CPU it runs on.
#[derive(Debug)]
pub(crate) struct Marker {
    file: File,
}

impl Marker {
    pub(crate) fn note(&mut self, text: &str) {
        // A lost note is no reason to stop a recording; the reader that needs it will miss it.
        let _ = self
            .file
            .write_all(format!("plimsoll: {text}\n").as_bytes());
    }
}

fn remove_stale(instances: &Path) {
    let Ok(entries) = fs::read_dir(instances) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let process = process.and_then(|process| process.parse::<u32>().ok());
        let ended = |process: u32| !Path::new(&format!("/proc/{process}")).exists();
        if process.is_some_and(ended) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The dropped events that `per_cpu/cpuN/stats` tells.
fn dropped(stats: &str) -> u64 {
    let number = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let counts = matches!(name, "overrun" | "commit overrun" | "dropped events");
        if counts {
            value.trim().parse::<u64>().ok()
        } else {
            None
        }
    };
    stats.lines().filter_map(number).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_ways_to_drop_an_event_count() {
        let stats = "entries: 12\noverrun: 3\ncommit overrun: 1\nbytes: 999\n\
                     oldest event ts:  2.1\ndropped events: 40\nread events: 7\n";
        assert_eq!(dropped(stats), 44);
        assert_eq!(dropped(""), 0);
    }
}
