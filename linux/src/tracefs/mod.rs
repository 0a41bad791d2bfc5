//! The kernel's tracefs: finds or mounts it, and makes an instance in it for this recorder.
//!
//! An instance has separate ring buffers and a separate set of events, so that recording does not
//! disturb other users of tracing. The instance is removed when its `Instance` is dropped, even if
//! the recording fails.

mod instance;
mod mount;
mod probe;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

pub(crate) use instance::{Instance, Marker};
pub(crate) use mount::Tracefs;
pub(crate) use probe::{NoProbe, Probe};

/// The size of one read, in bytes. For some files of tracefs, only the first read returns text. If
/// the text is longer than this read, its rest is lost. So the size exceeds the length of any such
/// text.
const READ_BYTES: usize = 1 << 16;

/// Reads the text of a file of tracefs.
fn read(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; READ_BYTES];
    let mut text = Vec::new();
    // The loop ends soon, because these files are only a few pages long.
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(String::from_utf8_lossy(&text).into_owned());
        }
        text.extend_from_slice(&buffer[..count]);
    }
}
