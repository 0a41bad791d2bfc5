//! Turns a simulated run into a recording with virtual time. The recording has the events that a
//! kernel would have printed.
//!
//! A kernel does not print an event for everything. For example, it prints none when the first
//! waiter waits for a spinlock. The recording omits everything that a kernel does not print, with
//! one exception: it has a mark where each hold of a zone lock ends. Thread ids stand for the
//! simulator's tasks, and each lock is identified by its class alone. Events beyond a limit count
//! as lost, as if a ring buffer had been full.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use plimsoll_mm::event::{Event as Emitted, Phase};
use plimsoll_mm::machine::{Job, Machine};
use plimsoll_mm::units::CpuId;
use plimsoll_recording::event::Symbol;
use plimsoll_recording::{Event, Header, Recording, What};
use plimsoll_sim::{Access, Sim, Wait};

use crate::show::moves::HOLD_ENDS;

/// How many events of a run are kept, unless the user sets another limit. This number of events
/// takes about 300 MB of memory.
pub const EVENTS_MAX: usize = 4_000_000;

/// The recordings of one experiment, each with the name of its design. Only the runs with the first
/// seed are recorded.
pub type Recordings = Vec<(String, Recording)>;

/// Returns a warning for each recording that lost events. `shorter` says how to get a complete
/// recording, and is the end of each warning.
#[must_use]
pub fn warnings(recordings: &Recordings, shorter: &str) -> Vec<String> {
    let warning = |(design, recording): &(String, Recording)| {
        let lost: u64 = recording.header.lost.iter().map(|(_, count)| count).sum();
        (lost > 0).then(|| {
            let kept = recording.events.len();
            format!("the recording of {design} has its first {kept} events, {lost} more were left out; {shorter}")
        })
    };
    recordings.iter().filter_map(warning).collect()
}

/// Observes a simulated machine, and records the events that a kernel would have printed on a real
/// machine.
#[derive(Clone)]
pub struct Recorder(Rc<RefCell<Notes>>);

struct Notes {
    events: Vec<Event>,
    events_max: usize,
    lost: BTreeMap<u32, u64>,
    symbols: HashMap<&'static str, Symbol>,
    names: Vec<String>,
}

impl Recorder {
    /// Starts to observe `sim`, and keeps the first `events_max` events.
    #[must_use]
    pub fn attach(sim: &Sim, events_max: usize) -> Self {
        let recorder = Self(Rc::new(RefCell::new(Notes {
            events: Vec::new(),
            events_max,
            lost: BTreeMap::new(),
            symbols: HashMap::new(),
            names: Vec::new(),
        })));
        let notes = recorder.clone();
        sim.observe_pages();
        sim.observe(move |sim, cpu, at, event| notes.emitted(sim, cpu, at.0, event));
        let notes = recorder.clone();
        sim.observe_waits(move |wait| notes.waited(wait));
        recorder
    }

    /// Records that a kernel job (vmstat work or the shepherd) begins on the current CPU.
    pub fn job_starts(&self, sim: &Sim, job: Job) {
        let cpu = sim.this_cpu();
        self.0
            .borrow_mut()
            .job(sim, cpu, job, |work, function| What::WorkStart {
                work,
                function,
            });
    }

    /// Records that a kernel job (vmstat work or the shepherd) ends on the current CPU.
    pub fn job_ends(&self, sim: &Sim, job: Job) {
        let cpu = sim.this_cpu();
        self.0
            .borrow_mut()
            .job(sim, cpu, job, |work, function| What::WorkEnd {
                work,
                function,
            });
    }

    /// Returns the recorded run, with events in order of time. `release` names the system that ran,
    /// and `command` the workload.
    #[must_use]
    pub fn finish(&self, sim: &Sim, release: String, command: String) -> Recording {
        let mut notes = self.0.borrow_mut();
        let mut events = std::mem::take(&mut notes.events);
        // The sort is stable, so events of one CPU at the same time keep their order.
        events.sort_by_key(|event| event.time_ns);
        let header = Header {
            release,
            machine: "simulated".to_owned(),
            hz: sim.hz().get(),
            cpus: sim.topology().cpus(),
            page_bytes: 4096,
            command,
            symbols: std::mem::take(&mut notes.names),
            lost: std::mem::take(&mut notes.lost).into_iter().collect(),
            ..Header::default()
        };
        Recording { header, events }
    }

    fn emitted(&self, sim: &Sim, cpu: CpuId, time_ns: u64, event: &Emitted) {
        let mut notes = self.0.borrow_mut();
        let what = match *event {
            Emitted::PageAlloc { pfn, order } => What::Alloc {
                pfn: pfn.0.into(),
                order: order.get(),
                mobility: None,
                gfp: None,
            },
            Emitted::PageFree { pfn, order } => What::Free {
                pfn: pfn.0.into(),
                order: order.get(),
            },
            Emitted::ZoneLocked { pfn, order, listed } => What::ZoneLocked {
                pfn: pfn.0.into(),
                order: order.get(),
                mobility: 0,
                percpu_refill: listed,
            },
            Emitted::PcpuDrain { pfn, order } => What::PcpuDrain {
                pfn: pfn.0.into(),
                order: order.get(),
                mobility: None,
            },
            Emitted::ZoneHold { .. } => What::Mark(HOLD_ENDS.to_owned()),
            // A kick (the shepherd restarts the vmstat work of a CPU) is recorded as the event that
            // queues this work.
            Emitted::Kick { cpu } => What::WorkQueued {
                work: work_of(cpu, Job::VmstatUpdate),
                function: notes.symbol(function_of(Job::VmstatUpdate)),
            },
            Emitted::MarkVictim(victim) => What::MarkVictim { victim: victim.0 },
            Emitted::WakeReaper(victim) => What::WakeReaper { victim: victim.0 },
            Emitted::StartTaskReaping(victim) => What::StartReaping { victim: victim.0 },
            Emitted::FinishTaskReaping(victim) => What::FinishReaping { victim: victim.0 },
            Emitted::SkipTaskReaping(victim) => What::SkipReaping { victim: victim.0 },
            Emitted::End(Phase::Exit) => What::ExitMmap,
            _ => return,
        };
        notes.push(cpu, time_ns, pid_of(sim.this_task()), what);
    }

    fn waited(&self, wait: &Wait) {
        if !wait.traced {
            return;
        }
        let mut notes = self.0.borrow_mut();
        let mut stack = Vec::with_capacity(2);
        if wait.site.is_bulk_free() {
            // Linux takes the zone lock in this function whenever it returns pages from page lists
            // to a zone.
            stack.push(notes.symbol("free_pcppages_bulk"));
        }
        stack.push(notes.symbol(wait.site.name()));
        let flags = match wait.access {
            Access::Spin => 1,
            Access::Read => 2,
            Access::Write => 4,
            Access::Sleep => 32,
        };
        let lock = wait.class as u64;
        let pid = pid_of(Some(wait.task));
        let begin = What::ContentionBegin { lock, flags, stack };
        notes.push(wait.cpu, wait.from.0, pid, begin);
        let end = What::ContentionEnd { lock, result: 0 };
        notes.push(wait.cpu, wait.until.0, pid, end);
    }
}

impl Notes {
    fn job(&mut self, sim: &Sim, cpu: CpuId, job: Job, what: fn(u64, Symbol) -> What) {
        let function = self.symbol(function_of(job));
        let what = what(work_of(cpu, job), function);
        self.push(cpu, sim.now().0, pid_of(sim.this_task()), what);
    }

    fn push(&mut self, cpu: CpuId, time_ns: u64, pid: u32, what: What) {
        if self.events.len() < self.events_max {
            let cpu = cpu.0;
            self.events.push(Event {
                time_ns,
                cpu,
                pid,
                what,
            });
        } else {
            *self.lost.entry(cpu.0).or_default() += 1;
        }
    }

    fn symbol(&mut self, name: &'static str) -> Symbol {
        let next = Symbol(u32::try_from(self.names.len()).expect("few functions are named"));
        *self.symbols.entry(name).or_insert_with(|| {
            self.names.push(name.to_owned());
            next
        })
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

/// An id for a kernel job (the vmstat work of one CPU, or the shepherd), built from the job's CPU
/// and kind.
fn work_of(cpu: CpuId, job: Job) -> u64 {
    u64::from(cpu.0) << 1 | job as u64
}

fn function_of(job: Job) -> &'static str {
    match job {
        Job::VmstatUpdate => "vmstat_update",
        Job::Shepherd => "vmstat_shepherd",
    }
}

/// The thread id of a task. As in Linux, the idle task has the id 0.
fn pid_of(task: Option<u32>) -> u32 {
    task.map_or(0, |task| task.saturating_add(1))
}
