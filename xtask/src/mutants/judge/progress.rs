//! Shows on a terminal how much of a run is done.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;

/// A line on the terminal that shows how much of the work is done. If standard error is not a
/// terminal, nothing is printed.
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

    /// Counts one more piece of work as done, and shows the count on the terminal, followed by
    /// `remark`.
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
        // Ignores an error, because a closed terminal is no reason to stop.
        let _ = io::stderr().write_all(line.as_bytes());
    }
}
