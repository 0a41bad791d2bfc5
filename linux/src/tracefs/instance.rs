//! A tracefs instance: ring buffers and a set of events that belong to this recorder alone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;

use crate::record::RecordError;
use crate::tracefs::Tracefs;

/// The prefix of the names of Plimsoll's instances; the recorder's process ID follows it.
const PREFIX: &str = "plimsoll-";

/// A tracefs instance, which is removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Instance {
    dir: PathBuf,
}

impl Instance {
    /// Creates an instance with tracing off, and removes instances that killed recorders have left.
    pub(crate) fn create(tracefs: &Tracefs) -> Result<Self, RecordError> {
        let instances = tracefs.root().join("instances");
        remove_stale(&instances);
        let dir = instances.join(format!("{PREFIX}{}", process::id()));
        fs::create_dir(&dir).map_err(|error| RecordError::of_tracefs(&dir, error))?;
        let instance = Self { dir };
        instance.set("tracing_on", "0")?;
        Ok(instance)
    }

    /// Returns an instance for tests. Its folder is an ordinary folder instead of one in tracefs.
    #[cfg(test)]
    pub(crate) fn at(dir: &Path) -> Self {
        let dir = dir.to_owned();
        Self { dir }
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }

    /// Writes `text` to a file of the instance.
    pub(crate) fn write(&self, file: &str, text: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(self.path(file))?;
        file.write_all(text.as_bytes())
    }

    /// Writes `text` to a file of the instance. The error names the file, or says that the user is
    /// not root or that the kernel is locked down.
    pub(crate) fn set(&self, file: &str, text: &str) -> Result<(), RecordError> {
        let written = self.write(file, text);
        written.map_err(|error| RecordError::of_tracefs(self.path(file), error))
    }

    pub(crate) fn read(&self, file: &str) -> io::Result<String> {
        super::read(&self.path(file))
    }

    /// Returns the CPUs that have a ring buffer.
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

    /// Returns a writer that writes notes into the ring buffers.
    pub(crate) fn marker(&self) -> Result<Marker, RecordError> {
        let path = self.path("trace_marker");
        let opened = OpenOptions::new().write(true).open(&path);
        let file = opened.map_err(|error| RecordError::of_tracefs(&path, error))?;
        Ok(Marker { file })
    }

    /// Returns the number of events of `cpu` that the kernel dropped.
    pub(crate) fn lost(&self, cpu: u32) -> u64 {
        let stats = self.read(&format!("per_cpu/cpu{cpu}/stats"));
        dropped(&stats.unwrap_or_default())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.write("tracing_on", "0");
        let _ = self.write("events/enable", "0");
        // This function cannot report an error. If the instance remains, a later recorder removes
        // it.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Writes notes into the ring buffer of the CPU on which the caller runs.
#[derive(Debug)]
pub(crate) struct Marker {
    file: File,
}

impl Marker {
    pub(crate) fn note(&mut self, text: &str) {
        // Ignores an error, because a lost note is no reason to stop a recording. A program that
        // reads the recording and needs the note will not find it.
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

/// Returns the number of dropped events in the text of `per_cpu/cpuN/stats`.
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
