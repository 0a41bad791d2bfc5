//! Collects the kernel's log messages about each shortage.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;

/// The kernel's messages about shortages, from the creation of this value on.
pub(super) struct KernelLog {
    records: File,
    pub(super) kept: String,
}

impl KernelLog {
    /// Opens the kernel's log. The first message to be read is the next message that the kernel
    /// logs.
    pub(super) fn from_now() -> io::Result<Self> {
        let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits());
        let nonblocking = nonblocking.map_err(io::Error::other)?;
        let mut options = OpenOptions::new();
        let records = options
            .read(true)
            .custom_flags(nonblocking)
            .open("/dev/kmsg")?;
        let mut log = Self {
            records,
            kept: String::new(),
        };
        log.read()?;
        log.kept.clear();
        Ok(log)
    }

    /// Reads all messages logged so far. The kernel returns one message for each read.
    pub(super) fn read(&mut self) -> io::Result<()> {
        let mut message = [0; 8192];
        loop {
            match self.records.read(&mut message) {
                Ok(0) => return Ok(()),
                Ok(bytes) => self.keep(&String::from_utf8_lossy(&message[..bytes])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // The kernel has overwritten messages that were not read yet. The next read
                // continues after these messages.
                Err(error)
                    if error.raw_os_error() == Some(rustix::io::Errno::PIPE.raw_os_error()) =>
                {
                    self.kept.push_str("(messages are missing)\n");
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Keeps the first line of a message `level,number,µs,flags;text`, if it is about a shortage.
    fn keep(&mut self, message: &str) {
        let Some((prefix, text)) = message.split_once(';') else {
            return;
        };
        let line = text.lines().next().unwrap_or_default();
        if !is_of_shortage(line) {
            return;
        }
        let us: u64 = prefix
            .split(',')
            .nth(2)
            .and_then(|us| us.parse().ok())
            .unwrap_or(0);
        let (seconds, us) = (us / 1_000_000, us % 1_000_000);
        // Writing to a `String` cannot fail.
        let _ = writeln!(self.kept, "[{seconds:5}.{us:06}] {line}");
    }
}

/// Returns whether a line of the kernel's report is needed to understand a shortage. The stacks and
/// lists in the report are not needed.
fn is_of_shortage(line: &str) -> bool {
    let has = |words: &[&str]| words.iter().any(|word| line.contains(word));
    has(&[
        " invoked oom-killer: ",
        " present:",
        " pages RAM",
        " pages reserved",
        "oom-kill:",
        ": Killed process ",
        "memory.oom.group",
    ]) || [
        "CPU: ",
        "memory: usage ",
        "swap: usage ",
        "Total swap ",
        "[",
    ]
    .iter()
    .any(|begin| line.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_log_only_lines_of_shortages_are_kept() {
        let kept = [
            "a invoked oom-killer: gfp_mask=0x1, order=0, oom_score_adj=-1000",
            "Node 0 DMA free:1156kB boost:0kB present:15992kB managed:15360kB",
            "[    169]     0   169      448      274        0        0       274    40960        0 -1000 a",
            "98174 pages RAM",
            "memory: usage 61440kB, limit 61440kB, failcnt 84",
            "Memory cgroup out of memory: Killed process 177 (exe) total-vm:81692kB",
        ];
        for line in kept {
            assert!(is_of_shortage(line), "{line}");
        }
        for line in [
            "Call Trace:",
            " dump_stack_lvl+0x64/0x80",
            "lowmem_reserve[]: 0 275 275",
        ] {
            assert!(!is_of_shortage(line), "{line}");
        }
    }
}
