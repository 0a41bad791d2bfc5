//! Interprets the guest's console output: kernel messages, interleaved with progress lines that the
//! guest's first process, Plimsoll, prints.
//!
//! ```text
//! plimsoll: up 2.031 s, 4 CPUs, Linux 6.12.117
//! plimsoll: load
//! plimsoll: reading
//! plimsoll: done
//! plimsoll: failed: WHY
//! ```

/// The prefix of each progress line of the guest's first process.
const PREFIX: &str = "plimsoll: ";
/// The number of console lines that an error shows.
const TAIL_LINES: usize = 12;

/// The progress of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuestState {
    /// The kernel is booting.
    Booting,
    /// The first process is running; the text is its report of the clock, the CPUs and the kernel.
    Up(String),
    /// The load is running.
    Load,
    /// The load has ended, and the ring buffers are being read.
    Reading,
    /// The guest has sent the whole recording.
    Done,
    /// The guest has failed. The text is the guest's description of the failure.
    Failed(String),
}

impl GuestState {
    /// Returns the console line that reports this state.
    #[must_use]
    pub(crate) fn line(&self) -> String {
        let text = match self {
            Self::Booting => "booting".to_owned(),
            Self::Up(text) => format!("up {text}"),
            Self::Load => "load".to_owned(),
            Self::Reading => "reading".to_owned(),
            Self::Done => "done".to_owned(),
            Self::Failed(why) => format!("failed: {}", why.replace('\n', " ")),
        };
        format!("{PREFIX}{text}")
    }

    /// Parses a line of the console; returns `None` if the line reports no state.
    fn parse(line: &str) -> Option<Self> {
        // A kernel message without a newline may precede the report on the same line.
        let (_, text) = line.trim_end().split_once(PREFIX)?;
        if let Some(text) = text.strip_prefix("up ") {
            return Some(Self::Up(text.to_owned()));
        }
        if let Some(why) = text.strip_prefix("failed: ") {
            return Some(Self::Failed(why.to_owned()));
        }
        match text {
            "load" => Some(Self::Load),
            "reading" => Some(Self::Reading),
            "done" => Some(Self::Done),
            _ => None,
        }
    }

    /// Returns words for an error message that say in which state of the guest an error occurred.
    pub(crate) fn when(&self) -> &'static str {
        match self {
            Self::Booting => "while it booted",
            Self::Up(_) => "before its load began",
            Self::Load => "while its load ran",
            Self::Reading => "while it was read out",
            Self::Done | Self::Failed(_) => "at its end",
        }
    }
}

/// The guest's console output that was received so far.
#[derive(Debug)]
pub(crate) struct Console {
    text: String,
    /// The number of bytes of `text` that have been parsed, always whole lines.
    seen: usize,
    state: GuestState,
    /// The guest's report after it had booted: its clock, CPUs and kernel. The text is empty before
    /// the report.
    up: String,
}

impl Console {
    pub(crate) fn new() -> Self {
        Self {
            text: String::new(),
            seen: 0,
            state: GuestState::Booting,
            up: String::new(),
        }
    }

    /// Appends new console output and parses it; returns whether the state has changed.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> bool {
        self.text.push_str(&String::from_utf8_lossy(bytes));
        let before = self.state.clone();
        while let Some(end) = self.text[self.seen..].find('\n') {
            let line = &self.text[self.seen..self.seen + end];
            // The first failure is the cause of later failures, so the console keeps it.
            if let Some(state) = GuestState::parse(line)
                && !matches!(self.state, GuestState::Failed(_))
            {
                // A guest may pass through several stages between two calls of this function, so
                // the text of [`GuestState::Up`] is stored separately.
                if let GuestState::Up(text) = &state {
                    text.clone_into(&mut self.up);
                }
                self.state = state;
            }
            self.seen += end + 1;
        }
        self.state != before
    }

    pub(crate) fn state(&self) -> &GuestState {
        &self.state
    }

    /// Returns the guest's report after it had booted: its clock, CPUs and kernel. The text is
    /// empty before the report.
    pub(crate) fn up(&self) -> &str {
        &self.up
    }

    /// Returns the last nonblank lines of the console output, at most `TAIL_LINES`.
    pub(crate) fn tail(&self) -> String {
        let lines: Vec<&str> = self
            .text
            .lines()
            .map(str::trim_end)
            .filter(|line| !line.is_empty())
            .collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_reads_back_from_its_line() {
        for state in [
            GuestState::Up("2.03 s, 4 CPUs, Linux 6.12.117".to_owned()),
            GuestState::Load,
            GuestState::Reading,
            GuestState::Done,
            GuestState::Failed("no tracefs".to_owned()),
        ] {
            let line = state.line() + "\r";
            assert_eq!(GuestState::parse(&line), Some(state));
        }
    }

    #[test]
    fn lines_may_come_in_pieces_and_between_messages_of_the_kernel() {
        let mut console = Console::new();
        assert!(!console.take(b"[    0.5] Booting\r\nplimsoll: up 2.0"));
        assert_eq!(console.state(), &GuestState::Booting);
        assert!(console.take(b"3 s\r\n"));
        assert_eq!(console.state(), &GuestState::Up("2.03 s".to_owned()));
        assert!(console.take(b"[    3.1] something plimsoll: load\r\nplimsoll: hello\r\n"));
        assert_eq!(console.state(), &GuestState::Load);
        assert_eq!(console.up(), "2.03 s");
        assert!(!console.take(b"\xff\xfe not text\r\n"));
    }

    #[test]
    fn the_first_failure_stays() {
        let mut console = Console::new();
        console.take(b"plimsoll: failed: the cause\nplimsoll: failed: a result\nplimsoll: done\n");
        assert_eq!(console.state(), &GuestState::Failed("the cause".to_owned()));
    }

    #[test]
    fn the_tail_is_the_last_lines_without_blanks() {
        let mut console = Console::new();
        for line in 0..40 {
            console.take(format!("line {line}\r\n\r\n").as_bytes());
        }
        let tail = console.tail();
        assert_eq!(tail.lines().count(), TAIL_LINES);
        assert!(
            tail.starts_with("line 28\n") && tail.ends_with("line 39"),
            "{tail}"
        );
    }
}
