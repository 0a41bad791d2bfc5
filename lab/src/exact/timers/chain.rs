//! Finds in a recording which timers fired, and which timer belongs to which vmstat work.
//!
//! The vmstat work rearms its timer before the work ends. So the timer of the work's next firing is
//! recognized by two properties. The thread that runs the work arms the timer on the work's CPU,
//! and the timer lies inside the work's `struct delayed_work`.

use std::collections::{HashMap, HashSet};

use plimsoll_mm::units::Nanos;
use plimsoll_recording::event::{Event, Symbol, What};
use plimsoll_recording::{Header, Recording};

/// The largest distance, in bytes, from the start of a `struct delayed_work` to its timer. The
/// timer follows the work item, which takes 32 bytes in a kernel without lock debugging.
const TIMER_WITHIN_BYTES: u64 = 256;

/// The two kinds of kernel work whose timers the replay compares: a CPU's vmstat work, and the
/// shepherd, which restarts vmstat work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Update,
    Shepherd,
}

/// A timer that the vmstat work or the shepherd armed, and the jiffy at which it fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Armed {
    pub(super) kind: Kind,
    pub(super) cpu: u32,
    /// The time at which the timer was armed, in nanoseconds.
    pub(super) time_ns: u64,
    /// The jiffy in which the kernel armed the timer.
    pub(super) now: u64,
    /// The jiffy for which the kernel armed the timer: the timer must not fire earlier.
    pub(super) expires: u64,
    /// The jiffy at which the kernel's timer wheel plans to fire the timer. `None` if the kernel
    /// does not print this jiffy.
    pub(super) bucket: Option<u64>,
    /// The jiffy at which the timer fired. `None` if it did not fire during the recording.
    pub(super) fired: Option<u64>,
}

/// The timers of vmstat work and of the shepherd in a recording, with their firings, and the time
/// that the recording covers.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// The timers that vmstat work and the shepherd armed, in the order in which they were armed.
    pub(super) armed: Vec<Armed>,
    /// The times at which timers started vmstat work, on any CPU, in ascending order.
    pub(super) starts: Vec<Nanos>,
    /// The time of the recording's first event.
    pub(super) began: Nanos,
    /// The time of the recording's last event.
    pub(super) ended: Nanos,
}

impl Kind {
    pub(super) const ALL: [Self; 2] = [Self::Update, Self::Shepherd];

    pub(super) const fn function(self) -> &'static str {
        match self {
            Self::Update => "vmstat_update",
            Self::Shepherd => "vmstat_shepherd",
        }
    }
}

impl Armed {
    /// The number of jiffies by which the timer fired later than the wheel had planned. `None` if
    /// the planned or the actual jiffy is unknown.
    pub(super) fn late_jiffies(&self) -> Option<u64> {
        self.fired?.checked_sub(self.bucket?)
    }
}

impl Chain {
    pub(super) fn of(recording: &Recording) -> Self {
        let mut reader = Reader {
            kinds: kinds(&recording.header),
            chain: Self::default(),
            running: HashMap::new(),
            pending: HashMap::new(),
            timers: HashMap::new(),
            fired: HashSet::new(),
        };
        for event in &recording.events {
            reader.read(event);
        }
        let mut chain = reader.chain;
        chain.starts.sort_unstable();
        let at = |event: Option<&Event>| Nanos(event.map_or(0, |event| event.time_ns));
        chain.began = at(recording.events.first());
        chain.ended = at(recording.events.last());
        chain
    }

    /// The percentage of the vmstat work's timers that fired at least one jiffy after the jiffy
    /// that the wheel had chosen.
    pub(super) fn late_percent(&self) -> u32 {
        let updates = self.armed.iter().filter(|timer| timer.kind == Kind::Update);
        let late: Vec<u64> = updates.filter_map(Armed::late_jiffies).collect();
        let count = late.iter().filter(|&&late| late > 0).count();
        let percent = (100 * count + late.len() / 2)
            .checked_div(late.len())
            .unwrap_or(0);
        u32::try_from(percent).unwrap_or(100)
    }
}

/// The functions that run the vmstat work or the shepherd. The key is the function's symbol in the
/// header, and the value is the kind of the work.
fn kinds(header: &Header) -> HashMap<Symbol, Kind> {
    let kind = |name: &String| Kind::ALL.into_iter().find(|kind| kind.function() == name);
    let symbols = (0..).map(Symbol).zip(&header.symbols);
    symbols
        .filter_map(|(symbol, name)| Some((symbol, kind(name)?)))
        .collect()
}

struct Reader {
    kinds: HashMap<Symbol, Kind>,
    chain: Chain,
    /// For each CPU, the kind of the work that runs there, the work's address, and the id of the
    /// thread that runs the work.
    running: HashMap<u32, (Kind, u64, u32)>,
    /// The timers that have not fired. The key is the timer's address, and the value is the timer's
    /// index in `chain.armed`.
    pending: HashMap<u64, usize>,
    /// All timers. The key is the timer's address, and the value is the address of the work to
    /// which the timer belongs.
    timers: HashMap<u64, u64>,
    /// The addresses of work items that have not started yet although their timers have fired.
    fired: HashSet<u64>,
}

impl Reader {
    fn read(&mut self, event: &Event) {
        match event.what {
            What::WorkStart { work, function } => self.starts(event, work, function),
            What::WorkEnd { work, .. } => {
                let ends = |&mut (_, running, _): &mut (Kind, u64, u32)| running == work;
                if self.running.get_mut(&event.cpu).is_some_and(ends) {
                    self.running.remove(&event.cpu);
                }
            }
            What::TimerStart {
                timer,
                expires,
                bucket,
                now,
                ..
            } => self.arms(event, timer, (now, expires, bucket)),
            What::TimerExpire { timer, now, .. } => self.expires(timer, now),
            _ => {}
        }
    }

    fn starts(&mut self, event: &Event, work: u64, function: Symbol) {
        let Some(&kind) = self.kinds.get(&function) else {
            return;
        };
        self.running.insert(event.cpu, (kind, work, event.pid));
        if self.fired.remove(&work) && kind == Kind::Update {
            self.chain.starts.push(Nanos(event.time_ns));
        }
    }

    fn arms(&mut self, event: &Event, timer: u64, at: (u64, u64, Option<u64>)) {
        let Some(&(kind, work, pid)) = self.running.get(&event.cpu) else {
            return;
        };
        let behind = timer.checked_sub(work);
        let is_inside = behind.is_some_and(|bytes| bytes > 0 && bytes < TIMER_WITHIN_BYTES);
        if pid != event.pid || !is_inside {
            return;
        }
        self.running.remove(&event.cpu);
        let (now, expires, bucket) = at;
        self.pending.insert(timer, self.chain.armed.len());
        self.timers.insert(timer, work);
        self.chain.armed.push(Armed {
            kind,
            cpu: event.cpu,
            time_ns: event.time_ns,
            now,
            expires,
            bucket,
            fired: None,
        });
    }

    fn expires(&mut self, timer: u64, now: u64) {
        if let Some(armed) = self.pending.remove(&timer) {
            self.chain.armed[armed].fired = Some(now);
            self.fired.extend(self.timers.get(&timer));
        }
    }
}
