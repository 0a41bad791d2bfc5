//! The course of a run as data: what happened in one run, in bins of virtual time. A store keeps
//! courses, and an HTML page draws them.

use serde::{Deserialize, Serialize};

/// The events and values of one run of a design, in bins of virtual time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Course {
    /// The experiment or the command to which the run belongs.
    pub experiment: String,
    /// The machine.
    pub machine: String,
    /// The design.
    pub design: String,
    /// The seed of the run.
    pub seed: u64,
    /// The number of CPUs.
    pub cpus: u32,
    /// The virtual time at which the run ended, in nanoseconds.
    pub length_ns: u64,
    /// The length of a bin, in nanoseconds. Bin `n` begins at `n` times this length.
    pub bin_ns: u64,
    /// The number of bins.
    pub bins: usize,
    /// Heat maps, which have a value for each CPU and bin (interval of virtual time).
    pub maps: Vec<Map>,
    /// Lines of a chart, which have a value for each bin (interval of virtual time).
    pub lines: Vec<Line>,
    /// The waits for locks, by class and call site.
    pub waits: Vec<SiteWaits>,
    /// The waits, by the call site of the waiter and the call site of the holder.
    pub pairs: Vec<Pair>,
    /// The longest waits, the longest first.
    pub longest: Vec<LongWait>,
    /// How long the CPUs of each group waited for the CPUs of each other group. `None` if no CPU
    /// waited.
    pub between: Option<Between>,
    /// The phases of tasks: the times in which they end address spaces or wait for memory.
    pub spans: Vec<Span>,
    /// Single events, such as kills.
    pub marks: Vec<Mark>,
    /// The time of all CPUs, divided by kinds of work, waits, and disturbances such as interrupts.
    /// The children of a frame (a part of the time) follow the frame, and their depth is greater by
    /// one.
    pub time: Vec<Frame>,
    /// The phases and kernel jobs of tasks, with the waits inside them. They are in the same order
    /// as in `time`: children follow their parent.
    pub phases: Vec<Frame>,
}

/// The unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// A time in nanoseconds.
    Nanos,
    /// A number of pages.
    Pages,
    /// A number of events.
    Count,
}

/// A heat map: a value for each CPU and bin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Map {
    /// The name of the quantity that the values measure.
    pub name: String,
    /// The unit of the values.
    pub unit: Unit,
    /// The number of rows.
    pub rows: usize,
    /// The number of CPUs that one row stands for.
    pub cpus_per_row: u32,
    /// The number of bins (intervals of virtual time) that one column stands for.
    pub bins_per_column: usize,
    /// The number of columns.
    pub columns: usize,
    /// The largest value.
    pub max: u64,
    /// The values, row by row: a byte for each cell, in base 64. Runs of empty cells are shortened.
    /// The byte 0 stands for no value. Another byte `b` stands for 2 to the power of `(b - 1) / 6`,
    /// which differs from the value by at most 6 percent.
    pub cells: String,
}

/// A line of a chart: one value for each bin (an interval of virtual time).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The chart to which the line belongs.
    pub chart: String,
    /// The name of the quantity that the values measure.
    pub name: String,
    /// The unit of the values.
    pub unit: Unit,
    /// The values. `None` for a bin in which nothing was read.
    pub values: Vec<Option<i64>>,
}

/// The waits for locks of one class at one call site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteWaits {
    /// The name of the lock.
    pub lock: String,
    /// True if a waiter for this lock sleeps.
    pub sleeps: bool,
    /// The call site that requested the lock.
    pub site: String,
    /// The number of waits.
    pub count: u64,
    /// The number of waits for which Linux emits a trace event.
    pub traced: u64,
    /// The sum of the waits, in nanoseconds.
    pub total_ns: u64,
    /// The longest wait, in nanoseconds.
    pub max_ns: u64,
    /// For each bin that is not empty, the index of the bin and the number of waits in it. Bin `b`
    /// has the waits of at least `2^(b / 8)` and less than `2^((b + 1) / 8)` nanoseconds. Bin 0
    /// also has the waits of 0 ns.
    pub hist: Vec<(u16, u64)>,
}

/// The waits at one call site for a holder that took the lock at another call site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The name of the lock.
    pub lock: String,
    /// The call site of the waiter.
    pub site: String,
    /// The call site of the holder.
    pub holder: String,
    /// The number of waits.
    pub count: u64,
    /// The sum of the waits, in nanoseconds.
    pub total_ns: u64,
    /// The longest wait, in nanoseconds.
    pub max_ns: u64,
}

/// One of the longest waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LongWait {
    /// When the wait began, in nanoseconds.
    pub from_ns: u64,
    /// The length of the wait, in nanoseconds.
    pub wait_ns: u64,
    /// The CPU that waited.
    pub cpu: u32,
    /// The name of the lock.
    pub lock: String,
    /// The call site of the waiter.
    pub site: String,
    /// The CPU that held the lock.
    pub holder_cpu: u32,
    /// The call site of the holder.
    pub holder: String,
}

/// How long the CPUs of each group waited for the CPUs of each other group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Between {
    /// The number of CPUs in a group.
    pub cpus_per_group: u32,
    /// For each pair of groups with waits: the index of the waiter's group, the index of the
    /// holder's group, and the sum of the waits in nanoseconds.
    pub cells: Vec<(u32, u32, u64)>,
}

/// A phase of the work of a task: a part that a profile of Linux shows as one function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The name of the phase's function in Linux.
    pub phase: String,
    /// The task.
    pub task: u32,
    /// The CPU on which the phase began.
    pub cpu: u32,
    /// When the phase began, in nanoseconds.
    pub from_ns: u64,
    /// When the phase ended, in nanoseconds.
    pub until_ns: u64,
    /// The nesting depth: how many other phases of the same task enclose this phase.
    pub depth: u32,
}

/// A single event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// What happened.
    pub what: String,
    /// When, in nanoseconds.
    pub at_ns: u64,
    /// The CPU on which the event happened.
    pub cpu: u32,
}

/// A part of the time of all CPUs. A part can enclose other parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// The number of other parts of the time (frames) that enclose this one.
    pub depth: u32,
    /// The name of the work, wait, disturbance or phase that took the time.
    pub name: String,
    /// How often this work, wait, disturbance or phase occurred.
    pub count: u64,
    /// The time, in nanoseconds. It includes the time of the parts that this part encloses.
    pub ns: u64,
}
