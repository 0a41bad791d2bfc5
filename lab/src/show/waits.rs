//! Finds the waits for locks in a recording: pairs the begin event of each wait with its end, and
//! finds the function that waited.

use std::collections::{BTreeMap, HashMap};

use plimsoll_recording::event::Symbol;
use plimsoll_recording::{Event, Header, Recording, What};

use crate::measure::locks::{LockRow, Waits};

/// The waits of a recording, summed for each kind of lock and each function that waited for such a
/// lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contentions {
    /// A row for each kind of lock and each function that waited for such a lock, in order of
    /// descending total wait.
    pub rows: Vec<LockRow>,
    /// The number of waits that are still in progress at the end of the recording. The rows include
    /// these waits as if they had ended with the recording.
    pub open: u64,
    /// The number of waits that began before the recording and ended during the recording. The rows
    /// do not include these waits.
    pub begun_before: u64,
    /// The number of waits whose end is missing although the thread later began another wait for
    /// the lock. These waits are not counted.
    pub lost_ends: u64,
}

impl Contentions {
    /// Finds the waits whose call chain has a function whose name contains one of `wanted`. If
    /// `wanted` is empty, finds all waits.
    #[must_use]
    pub fn of(recording: &Recording, wanted: &[String]) -> Self {
        let mut pairs = Pairs {
            header: &recording.header,
            wanted,
            open: HashMap::new(),
            by_caller: BTreeMap::new(),
            begun_before: 0,
            lost_ends: 0,
        };
        for event in &recording.events {
            pairs.note(event);
        }
        let end_ns = recording.events.last().map_or(0, |event| event.time_ns);
        pairs.finish(end_ns)
    }
}

impl Contentions {
    /// A note for the table of waits: how many waits the table counts only in part, and how many it
    /// leaves out. Empty if there are no such waits.
    #[must_use]
    pub fn note(&self) -> String {
        let waits = |count: u64| {
            if count == 1 {
                "1 wait".to_owned()
            } else {
                format!("{count} waits")
            }
        };
        let mut sentences = Vec::new();
        if self.open > 0 {
            let open = waits(self.open);
            sentences.push(format!(
                "{open} lasted beyond the end of the recording; counted up to its end."
            ));
        }
        if self.begun_before > 0 {
            let before = waits(self.begun_before);
            sentences.push(format!("{before} began before the recording; left out."));
        }
        if self.lost_ends > 0 {
            let ends = waits(self.lost_ends);
            sentences.push(format!(
                "{ends} ended unseen, as the recording lost events; left out."
            ));
        }
        sentences.join(" ")
    }
}

/// A thread that waits, or the idle task of one CPU. All idle tasks have the thread id 0, so for
/// them the thread id alone is not enough.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Thread {
    Pid(u32),
    Idle(u32),
}

struct Wait {
    since_ns: u64,
    kind: String,
    caller: String,
    wanted: bool,
}

struct Pairs<'a> {
    header: &'a Header,
    wanted: &'a [String],
    open: HashMap<(Thread, u64), Wait>,
    by_caller: BTreeMap<(String, String), Waits>,
    begun_before: u64,
    lost_ends: u64,
}

impl Pairs<'_> {
    fn note(&mut self, event: &Event) {
        let thread = match event.pid {
            0 => Thread::Idle(event.cpu),
            pid => Thread::Pid(pid),
        };
        match event.what {
            What::ContentionBegin {
                lock,
                flags,
                ref stack,
            } => {
                // A mutex emits a second begin event when a spinning waiter goes to sleep. Both
                // events belong to one wait.
                let is_mutex = flags & MUTEX != 0;
                if !(is_mutex && self.open.contains_key(&(thread, lock))) {
                    let wait = self.wait(event.time_ns, flags, stack);
                    let before = self.open.insert((thread, lock), wait);
                    self.lost_ends += u64::from(before.is_some_and(|before| before.wanted));
                }
            }
            What::ContentionEnd { lock, .. } => match self.open.remove(&(thread, lock)) {
                Some(wait) => self.count(wait, event.time_ns),
                None => self.begun_before += 1,
            },
            _ => {}
        }
    }

    fn wait(&self, since_ns: u64, flags: u32, stack: &[Symbol]) -> Wait {
        let names = || stack.iter().filter_map(|symbol| self.name(*symbol));
        let wanted = |name: &str| self.wanted.iter().any(|part| name.contains(part.as_str()));
        let caller = names().find(|name| !is_lock_function(name));
        let caller = caller.or_else(|| names().next_back());
        Wait {
            since_ns,
            kind: kind_of(flags).to_owned(),
            caller: caller.unwrap_or("(no call chain)").to_owned(),
            wanted: self.wanted.is_empty() || names().any(wanted),
        }
    }

    fn name(&self, symbol: Symbol) -> Option<&str> {
        let name = self.header.symbols.get(symbol.0 as usize)?;
        // A symbol has the form `name.suffix+offset`, with a suffix that the compiler has added.
        // Only the name is needed.
        let end = name.find(['+', '.']).unwrap_or(name.len());
        Some(&name[..end])
    }

    fn count(&mut self, wait: Wait, end_ns: u64) {
        if wait.wanted {
            let waits = self.by_caller.entry((wait.kind, wait.caller)).or_default();
            waits.add(end_ns.saturating_sub(wait.since_ns));
        }
    }

    fn finish(mut self, end_ns: u64) -> Contentions {
        let left: Vec<Wait> = self.open.drain().map(|(_, wait)| wait).collect();
        let open = left.iter().filter(|wait| wait.wanted).count() as u64;
        for wait in left {
            self.count(wait, end_ns);
        }
        let row = |((kind, caller), waits)| LockRow {
            waits,
            kind,
            caller,
        };
        let mut rows: Vec<LockRow> = self.by_caller.into_iter().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.waits.total_ns));
        Contentions {
            rows,
            open,
            begun_before: self.begun_before,
            lost_ends: self.lost_ends,
        }
    }
}

/// The flag in `contention_begin` for a mutex (Linux: `LCB_F_MUTEX`).
const MUTEX: u32 = 32;

/// The kind of lock as `perf lock contention` prints it, from the flags of `contention_begin`.
#[must_use]
pub fn kind_of(flags: u32) -> &'static str {
    const SPIN: u32 = 1;
    const READ: u32 = 2;
    const WRITE: u32 = 4;
    const REAL_TIME: u32 = 8;
    const PER_CPU: u32 = 16;
    match flags {
        0 => "semaphore",
        SPIN => "spinlock",
        flags if flags & MUTEX != 0 => "mutex",
        flags if flags & PER_CPU != 0 && flags & WRITE != 0 => "pcpu-sem:W",
        flags if flags & PER_CPU != 0 => "pcpu-sem:R",
        flags if flags & REAL_TIME != 0 && flags & READ != 0 => "rwlock-rt:R",
        flags if flags & REAL_TIME != 0 && flags & WRITE != 0 => "rwlock-rt:W",
        flags if flags & REAL_TIME != 0 => "rt-mutex",
        flags if flags & SPIN != 0 && flags & READ != 0 => "rwlock:R",
        flags if flags & SPIN != 0 && flags & WRITE != 0 => "rwlock:W",
        flags if flags & READ != 0 => "rwsem:R",
        flags if flags & WRITE != 0 => "rwsem:W",
        _ => "unknown",
    }
}

/// Returns whether a kernel function belongs to the code of a lock, or to the code that emits the
/// event of a wait. If it does, the function that waited for the lock is one of its callers.
fn is_lock_function(name: &str) -> bool {
    const PARTS: [&str; 16] = [
        "queued_spin_lock",
        "queued_read_lock",
        "queued_write_lock",
        "raw_spin_lock",
        "raw_spin_trylock",
        "_raw_read_lock",
        "_raw_write_lock",
        "mutex_lock",
        "rwsem_",
        "rt_mutex_",
        "rt_spin_lock",
        "rtlock_",
        "osq_lock",
        "percpu_down_",
        "percpu_rwsem_",
        "contention_begin",
    ];
    const WHOLE: [&str; 14] = [
        "down",
        "down_interruptible",
        "down_killable",
        "down_timeout",
        "__down",
        "__down_interruptible",
        "__down_killable",
        "__down_timeout",
        "__down_common",
        "down_read",
        "down_read_killable",
        "down_read_interruptible",
        "down_write",
        "down_write_killable",
    ];
    PARTS.iter().any(|part| name.contains(part)) || WHOLE.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_those_that_perf_prints() {
        let kinds = [0, 1, 2, 4, 3, 5, 8, 10, 18, 20, 32, 33, 64].map(kind_of);
        assert_eq!(
            kinds,
            [
                "semaphore",
                "spinlock",
                "rwsem:R",
                "rwsem:W",
                "rwlock:R",
                "rwlock:W",
                "rt-mutex",
                "rwlock-rt:R",
                "pcpu-sem:R",
                "pcpu-sem:W",
                "mutex",
                "mutex",
                "unknown"
            ]
        );
    }

    #[test]
    fn a_caller_is_no_part_of_a_lock() {
        for lock in [
            "trace_event_raw_event_contention_begin",
            "__traceiter_contention_begin",
            "native_queued_spin_lock_slowpath",
            "__pv_queued_spin_lock_slowpath",
            "_raw_spin_lock_irqsave",
            "rwsem_down_write_slowpath",
            "down_write_killable",
            "__mutex_lock",
            "mutex_lock_interruptible",
        ] {
            assert!(is_lock_function(lock), "{lock}");
        }
        for caller in [
            "rmqueue_bulk",
            "free_pcppages_bulk",
            "folio_lruvec_lock_irqsave",
            "lock_mm_and_find_vma",
            "down_the_road",
        ] {
            assert!(!is_lock_function(caller), "{caller}");
        }
    }
}
