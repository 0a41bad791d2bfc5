//! Writes recordings of simulated runs to files, one for each design.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use plimsoll_lab::run::as_recording::{EVENTS_MAX, Recordings};
use tempfile::NamedTempFile;

use crate::args::RecordRun;
use crate::output::{folder, make_public, writable};

/// Writes the recordings of one command to the file that `--record` names; writes nothing if this
/// option is not given.
pub(crate) struct Shelf(Option<PathBuf>);

impl Shelf {
    /// Checks that the file can be written, so that an error comes now and not after minutes of
    /// measuring.
    pub(crate) fn open(args: RecordRun) -> anyhow::Result<Self> {
        if let Some(file) = &args.record {
            writable(file, "--record")?;
        }
        Ok(Self(args.record))
    }

    /// Returns the maximum number of events in the recording of a run; `None` if no run is
    /// recorded.
    pub(crate) fn events_max(&self) -> Option<usize> {
        self.0.as_ref().map(|_| EVENTS_MAX)
    }

    /// Writes each recording completely or not at all, and prints the name of its file.
    pub(crate) fn write(&self, recordings: &Recordings) -> anyhow::Result<()> {
        let Some(file) = &self.0 else { return Ok(()) };
        let several = recordings.len() > 1;
        for (design, recording) in recordings {
            let file = if several {
                named(file, design)
            } else {
                file.clone()
            };
            let write = || -> anyhow::Result<()> {
                let mut draft = NamedTempFile::new_in(folder(&file))?;
                let (out, _) = recording.write(BufWriter::new(draft.as_file_mut()))?;
                let out: &mut File = out.into_inner().map_err(io::IntoInnerError::into_error)?;
                out.flush()?;
                make_public(draft.as_file(), &file)?;
                draft.persist(&file)?;
                Ok(())
            };
            write().with_context(|| format!("cannot write {}", file.display()))?;
            anstream::eprintln!("recorded {design} in {}", file.display());
        }
        Ok(())
    }
}

/// Adds the design to the file name: `make.plr` becomes `make.ours.plr` for the design `ours`.
fn named(file: &Path, design: &str) -> PathBuf {
    // The name of a design consists of words and `+`, so it may be part of a file name.
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let ending = file
        .extension()
        .map(|ending| format!(".{}", ending.to_string_lossy()));
    file.with_file_name(format!("{stem}.{design}{}", ending.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_design_s_name_comes_before_the_ending() {
        let name = |file: &str| named(Path::new(file), "linux+bounded");
        assert_eq!(name("a/make.plr"), Path::new("a/make.linux+bounded.plr"));
        assert_eq!(name("make"), Path::new("make.linux+bounded"));
    }
}
