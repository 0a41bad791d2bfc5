//! The kernel's tracefs: finding or mounting it, and an instance of our own in it.
//!
//! An instance has its own ring buffers and its own set of events, so that recording
//! does not disturb other users of tracing. It is removed when it is dropped, however the recording ends.

mod instance;
mod mount;
mod probe;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

pub(crate) use instance::{Instance, Marker};
pub(crate) use mount::Tracefs;
pub(crate) use probe::{NoProbe, Probe};

/// Some files of tracefs give only what one read asks for, and nothing to the next.
const READ_BYTES: usize = 1 << 16;

/// The text of a file of tracefs.
fn read(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; READ_BYTES];
    let mut text = Vec::new();
    // These files are a few pages long, so that the loop ends soon.
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(String::from_utf8_lossy(&text).into_owned());
        }
        text.extend_from_slice(&buffer[..count]);
    }
}
