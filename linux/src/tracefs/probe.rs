//! The probe at the end of `alloc_pages_bulk`, which has no tracepoint.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process;

use crate::tracefs::Tracefs;

/// The function has had several names; the newest first.
const FUNCTIONS: [&str; 2] = ["alloc_pages_bulk_noprof", "__alloc_pages_bulk"];

/// A probe; removed when it is dropped, which must be after the instance that uses it.
#[derive(Debug)]
pub(crate) struct Probe {
    file: PathBuf,
    group: String,
}

/// Why there is no probe.
#[derive(Debug)]
pub(crate) enum NoProbe {
    /// The kernel has no probes.
    Unsupported,
    /// The kernel did not take it.
    Refused(io::Error),
}

impl Probe {
    /// Sets the probe.
    pub(crate) fn set(tracefs: &Tracefs) -> Result<Self, NoProbe> {
        let file = tracefs.root().join("kprobe_events");
        if !file.exists() {
            return Err(NoProbe::Unsupported);
        }
        let group = format!("plimsoll_{}", process::id());
        let probe = Self { file, group };
        let mut refused = io::Error::from(io::ErrorKind::NotFound);
        for function in FUNCTIONS {
            let line = format!("r:{}/bulkret {function} ret=$retval:u64\n", probe.group);
            match probe.append(&line) {
                Ok(()) => return Ok(probe),
                Err(error) => refused = error,
            }
        }
        Err(NoProbe::Refused(refused))
    }

    /// Its event, as a folder below `events`.
    pub(crate) fn event(&self) -> String {
        format!("{}/bulkret", self.group)
    }

    fn append(&self, line: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).open(&self.file)?;
        file.write_all(line.as_bytes())
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.append(&format!("-:{}/bulkret\n", self.group));
    }
}
