//! Builds an address space with the mappings of a recorded victim. Then either Plimsoll's reaper
//! empties the address space, or `process_mrelease` releases it.

use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;

use plimsoll_host::Host;
use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::event::Event;
use plimsoll_mm::oom::release;
use plimsoll_mm::oom::{Kind, OomKiller, Patience, Process, ReleaseError, Released, State};
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::space::object::{Object, ObjectKind};
use plimsoll_mm::space::reap::Reaping;
use plimsoll_mm::space::{
    AddressSpace, Backing, MapRequest, MappingKind, Memory, Notified, Place, Refused, Spaces,
};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Nanos, Pages, Pfn, ProcessId, Vpn};

use super::ReapEvent;
use super::mappings::Mapping;

/// The size of the machine's memory, in pages. Only page tables use these pages.
const ARENA: Pages = Pages(4096);
/// A page above every mapping of a program. While the reaper tries to take the lock of the
/// mappings, another thread holds that lock to replace the mapping of this page.
const CHANGED: Vpn = Vpn((1 << 35) - 16);

/// The settings of Linux's reaper, but without a delay and without pauses. The delay and the pauses
/// do not affect which steps the reaper makes.
const PATIENCE: Patience = Patience {
    delay: Nanos(0),
    pause: Nanos(0),
    ..Patience::LINUX
};

/// Lets Plimsoll's reaper empty the address space of a victim, and returns the reaper's steps.
/// During the first `busy` attempts, another thread changes the victim's mappings.
pub(super) fn reap(
    mappings: &[Mapping],
    victim: u32,
    reaping: Reaping,
    busy: usize,
) -> Vec<ReapEvent> {
    let witness = Arc::new(Witness::default());
    let host = host(&witness, victim);
    let _entered = host.enter(CpuId(0));
    let manager = manager(&host);
    let spaces = spaces(&host, reaping);
    let memory = Memory::new(&host, &manager, &spaces);
    let killer = OomKiller::new(&host, (), PATIENCE);
    let process = enroll(memory, &killer, &witness, mappings, victim);
    let all = [Arc::clone(&process)];
    killer.kill(memory, &process, &all.iter(), None);
    witness.armed.store(true, Relaxed);
    if busy > 0 {
        while_changing(memory, &process, &witness, || {
            for _ in 0..busy {
                if killer.reaper().step(memory).done.is_some() {
                    break;
                }
            }
        });
    }
    while killer.reaper().queued(&host) > 0 {
        killer.reaper().step(memory);
    }
    witness.steps().clone()
}

/// Releases the memory of a process that has been told to exit. Returns the ranges that were
/// emptied, in order, and whether the release succeeded.
pub(super) fn released(
    mappings: &[Mapping],
    victim: u32,
    reaping: Reaping,
) -> (Vec<Range<u64>>, bool) {
    let witness = Arc::new(Witness::default());
    let host = host(&witness, victim);
    let _entered = host.enter(CpuId(0));
    let manager = manager(&host);
    let spaces = spaces(&host, reaping);
    let memory = Memory::new(&host, &manager, &spaces);
    let killer = OomKiller::new(&host, (), PATIENCE);
    let process = enroll(memory, &killer, &witness, mappings, victim);
    process.set(&host, State::Killed);
    witness.armed.store(true, Relaxed);
    let all = [Arc::clone(&process)];
    let outcome = release(memory, Some(&process), all.iter(), 0, || false);
    let steps = witness.steps().clone();
    let ranges = steps.into_iter().filter_map(|step| match step {
        ReapEvent::Range(range) => Some(range),
        _ => None,
    });
    (ranges.collect(), outcome.is_ok())
}

/// Performs Plimsoll's counterpart of `process_mrelease` with `flags`, in the situation that `case`
/// names. Returns the name of the errno, or `0` for success. Returns `None` if the case is unknown.
pub(super) fn release_case(case: &str, flags: u32) -> Option<&'static str> {
    let witness = Arc::new(Witness::default());
    let host = host(&witness, 1);
    let _entered = host.enter(CpuId(0));
    let manager = manager(&host);
    let spaces = spaces(&host, Reaping::Ascending);
    let memory = Memory::new(&host, &manager, &spaces);
    let killer = OomKiller::new(&host, (), PATIENCE);
    let make = |id, kind, space| {
        let made = killer.enroll(&host, ProcessId(id), kind, space);
        Arc::new(made.expect("a process is small"))
    };
    let space = || {
        Some(Arc::new(
            AddressSpace::new(memory).expect("it has no pages"),
        ))
    };
    let mut all = Vec::new();
    match case {
        "missing" | "waited-for" => {}
        "kernel" => all.push(make(2, Kind::KernelThread, None)),
        "first" => all.push(make(1, Kind::Init, space())),
        "shared" => {
            let shared = space();
            all.extend([7, 8].map(|id| make(id, Kind::Process, shared.clone())));
            all[0].set(&host, State::Killed);
        }
        _ => all.push(make(7, Kind::Process, space())),
    }
    let ask = || {
        let asked = all.first().map(|process| &**process);
        errno(release(memory, asked, all.iter(), flags, || false))
    };
    match case {
        "missing" | "waited-for" | "kernel" | "first" | "shared" | "running" => {}
        "dying" => {
            all[0].set(&host, State::Killed);
        }
        "again" => {
            all[0].set(&host, State::Killed);
            ask();
        }
        "left" => {
            all[0].set(&host, State::Killed);
            killer.exit(memory, &all[0]).ok()?;
        }
        _ => return None,
    }
    Some(ask())
}

fn errno(outcome: Result<Released, ReleaseError>) -> &'static str {
    match outcome {
        Ok(Released::All | Released::Before) => "0",
        Err(ReleaseError::InvalidFlags(_) | ReleaseError::NotDying) => "EINVAL",
        Err(ReleaseError::NoSuchProcess) => "ESRCH",
        Err(ReleaseError::Interrupted) => "EINTR",
        Err(ReleaseError::Again) => "EAGAIN",
    }
}

/// Runs `f` while another thread changes the mappings of `process` and therefore holds the lock of
/// the mappings for writing.
fn while_changing(
    memory: Memory<'_, Host>,
    process: &Process<Host>,
    witness: &Witness,
    f: impl FnOnce(),
) {
    let host = memory.machine;
    let Some(space) = process.space(host) else {
        return;
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let _entered = host.enter(CpuId(1));
            space.map(memory, changed(host, Place::Replace(CHANGED)))
        });
        witness.entered.wait();
        f();
        witness.opened.wait();
    });
}

/// The request with which another thread maps one page, in order to change the victim's mappings.
/// The new mapping is shared, so the reaper does not empty it.
fn changed(host: &Host, place: Place) -> MapRequest<Host> {
    MapRequest {
        place,
        pages: 1,
        backing: backing(host, MappingKind::Shared),
    }
}

fn enroll(
    memory: Memory<'_, Host>,
    killer: &OomKiller<Host, ()>,
    witness: &Arc<Witness>,
    mappings: &[Mapping],
    victim: u32,
) -> Arc<Process<Host>> {
    let host = memory.machine;
    let space = AddressSpace::new(memory).expect("it has no pages yet");
    let space = space.notifying(Watch(Arc::clone(witness)));
    for mapping in mappings {
        let request = MapRequest {
            place: Place::Fixed(Vpn(mapping.pages.start)),
            pages: mapping.pages.end - mapping.pages.start,
            backing: backing(host, mapping.kind),
        };
        let mapped = space.map(memory, request);
        debug_assert!(mapped.is_ok(), "{mapping:?}: {mapped:?}");
    }
    let mapped = space.map(memory, changed(host, Place::Fixed(CHANGED)));
    debug_assert!(mapped.is_ok(), "{mapped:?}");
    let process = killer.enroll(
        host,
        ProcessId(victim),
        Kind::Process,
        Some(Arc::new(space)),
    );
    Arc::new(process.expect("a process is small"))
}

fn backing(host: &Host, kind: MappingKind) -> Backing<Host> {
    let object = |kind| Arc::new(Object::new(host, kind));
    match kind {
        MappingKind::Anonymous => Backing::Anonymous { huge: false },
        MappingKind::PrivateFile => Backing::PrivateFile {
            file: object(ObjectKind::File),
            offset: 0,
        },
        MappingKind::Shared => Backing::Shared {
            object: object(ObjectKind::Shared),
            offset: 0,
        },
        MappingKind::Reserved => Backing::Reserved,
        MappingKind::Frames => Backing::Frames { first: Pfn(0) },
    }
}

fn host(witness: &Arc<Witness>, victim: u32) -> Host {
    let witness = Arc::clone(witness);
    Host::with_observer(Topology::flat(2), move |_cpu, _at, event| {
        let step = match event {
            Event::MarkVictim(process) if process.0 == victim => ReapEvent::Mark,
            Event::WakeReaper(process) if process.0 == victim => ReapEvent::Wake,
            Event::StartTaskReaping(process) if process.0 == victim => ReapEvent::Start,
            Event::FinishTaskReaping(process) if process.0 == victim => ReapEvent::Finish,
            Event::SkipTaskReaping(process) if process.0 == victim => ReapEvent::Skip,
            _ => return,
        };
        witness.steps().push(step);
    })
}

fn manager(host: &Host) -> Manager<Host> {
    let manager = Manager::new(host, Config::new(Layout::arena(ARENA)));
    manager.expect("one zone of a fixed size is a layout")
}

fn spaces(host: &Host, reaping: Reaping) -> Spaces<Host> {
    let design = Design {
        reaping,
        ..Design::LINUX
    };
    Spaces::new(host, &design, 0).expect("a machine without swap needs no more than a heap")
}

/// The data that the two threads of a replay share: the observed steps, and two barriers. At each
/// barrier, the reaping thread and the thread that changes mappings wait for each other.
struct Witness {
    steps: Mutex<Vec<ReapEvent>>,
    /// True once the victim's mappings are complete. Ranges emptied before then are not recorded.
    armed: AtomicBool,
    /// The barrier that both threads reach once the thread that changes mappings holds the lock.
    entered: Barrier,
    /// The barrier that both threads reach when the lock is no longer needed. Then the thread that
    /// changes mappings releases it.
    opened: Barrier,
}

impl Default for Witness {
    fn default() -> Self {
        Self {
            steps: Mutex::new(Vec::new()),
            armed: AtomicBool::new(false),
            entered: Barrier::new(2),
            opened: Barrier::new(2),
        }
    }
}

impl Witness {
    fn steps(&self) -> MutexGuard<'_, Vec<ReapEvent>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records each range just before the reaper or `process_mrelease` empties it, as an MMU notifier
/// of Linux could. A call with `may_wait` comes from the thread that changes mappings. Such a call
/// records no range, and waits at the two barriers.
struct Watch(Arc<Witness>);

impl Notified<Host> for Watch {
    fn start(&self, _host: &Host, pages: &Range<Vpn>, may_wait: bool) -> Result<(), Refused> {
        let witness = &self.0;
        // Relaxed: `armed` is read only by the thread that sets it and by the thread that changes
        // mappings, which starts after `armed` was set.
        if !witness.armed.load(Relaxed) {
            return Ok(());
        }
        if may_wait {
            witness.entered.wait();
            witness.opened.wait();
        } else {
            let range = pages.start.0..pages.end.0;
            witness.steps().push(ReapEvent::Range(range));
        }
        Ok(())
    }

    fn end(&self, _host: &Host, _pages: &Range<Vpn>) {}

    fn release(&self, _host: &Host) {}
}
