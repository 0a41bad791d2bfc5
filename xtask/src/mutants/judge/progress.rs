//! Shows on a terminal how far a run is.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;

/// A line that counts. Nothing is printed if the output of errors is not a terminal.
#[derive(Debug)]
pub(super) struct Progress {
    what: &'static str,
    of: usize,
    done: Mutex<usize>,
    is_terminal: bool,
}

impl Progress {
    pub(super) fn new(what: &'static str, of: usize) -> Self {
        Self {
            what,
            of,
            done: Mutex::new(0),
            is_terminal: io::stderr().is_terminal(),
        }
    }

    /// Counts one more, with a remark about all so far.
    pub(super) fn one_more(&self, remark: &str) {
        let mut done = self.done.lock().expect("no worker panics");
        *done += 1;
        if !self.is_terminal {
            return;
        }
        let mut line = format!("\r\x1b[Kmutants: {}: {} of {}", self.what, done, self.of);
        if !remark.is_empty() {
            write!(line, ", {remark}").expect("a text can always be added to");
        }
        if *done == self.of {
            line.push('\n');
        }
        // A terminal that is gone is no reason to stop.
        let _ = io::stderr().write_all(line.as_bytes());
    }
}
