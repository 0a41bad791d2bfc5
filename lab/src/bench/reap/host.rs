//! Races on threads of this computer: the exiting thread and helper threads together empty an
//! address space, the victim.
//!
//! All pages of a victim come from one arena. When a thread empties a victim, the memory behind
//! each freed page is either returned to the kernel or kept by the arena. If the memory will be
//! returned, the kernel populates the arena before the race. If the arena keeps the memory, the
//! race shows the cost of the manager's own work alone.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use std::{fs, hint, panic, thread};

use plimsoll_host::Host;
use plimsoll_host::affinity::{self, CpuMask};
use plimsoll_host::arena::{Arena, HugePages};
use plimsoll_host::discard::ToKernel;
use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::event::{Event, Phase};
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::space::{AddressSpace, Flag, Memory, Spaces};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Nanos, Pages};

use super::victim::{Shape, build, frames};
use super::{Case, Took};
use crate::error::Error;

/// A race (of threads that empty one address space) is run again if its threads waited too long for
/// CPUs. This constant is the largest number of attempts.
const ATTEMPTS: u32 = 3;
/// A race (of threads that empty one address space) is disturbed if its threads waited too long for
/// CPUs. This constant is the largest allowed sum of these waits, as a fraction of the length of
/// the race.
const AWAY_MAX: f64 = 0.02;

/// Says whether the arena returns the memory of a page to the kernel when the page is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memories {
    /// The memory is returned to the kernel.
    GivenBack,
    /// The arena (the memory of all pages) keeps the memory.
    Kept,
}

/// A machine made of this computer's CPUs and an arena (the memory of its pages). On this machine,
/// threads race to empty address spaces.
pub(super) struct RaceMachine {
    host: Host,
    manager: Manager<Host>,
    arena: Arc<Arena>,
    to_kernel: ToKernel,
    /// The CPUs of this computer on which the threads of a race run, one for each thread.
    cpus: Vec<u32>,
    pages: Pages,
    /// For each CPU, how long each of its acquisitions of a page-table lock took. Empty if these
    /// acquisitions are not timed.
    locks: Arc<[Locks]>,
}

/// How long one CPU's acquisitions of page-table locks took. The alignment keeps the data of other
/// CPUs out of these cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Locks(Mutex<Spans>);

#[derive(Default)]
struct Spans {
    asked: Nanos,
    spans_ns: Vec<f64>,
}

impl RaceMachine {
    /// Makes a machine for races in which threads empty a victim (an address space) of `pages`. The
    /// thread with index n runs on the CPU with index n in `cpus`.
    pub(super) fn new(pages: Pages, cpus: Vec<u32>) -> Result<Self, Error> {
        let topology = flat(cpus.len());
        Self::of(Host::with_topology(topology), pages, cpus, Arc::default())
    }

    /// Makes a machine like [`RaceMachine::new`], but also times each acquisition of a page-table
    /// lock. The timing slows the races down.
    pub(super) fn watched(pages: Pages, cpus: Vec<u32>) -> Result<Self, Error> {
        let locks: Arc<[Locks]> = cpus.iter().map(|_cpu| Locks::default()).collect();
        let noted = Arc::clone(&locks);
        let host = Host::with_observer(flat(cpus.len()), move |cpu, at, event| {
            if let Event::Begin(Phase::TableLock) | Event::End(Phase::TableLock) = event {
                let mut spans = noted[cpu.index()].lock();
                if event == Event::Begin(Phase::TableLock) {
                    spans.asked = at;
                } else {
                    let span = at.0 - spans.asked.0;
                    spans.spans_ns.push(span as f64);
                }
            }
        });
        Self::of(host, pages, cpus, locks)
    }

    fn of(host: Host, pages: Pages, cpus: Vec<u32>, locks: Arc<[Locks]>) -> Result<Self, Error> {
        let cannot = |why: &dyn std::fmt::Display| Error::Invalid(why.to_string());
        let arena = Arena::new(frames(pages), HugePages::Refuse).map_err(|why| cannot(&why))?;
        let arena = Arc::new(arena);
        let layout = Layout::arena(arena.pages());
        let manager = Manager::new(&host, Config::new(layout)).map_err(|why| cannot(&why))?;
        // SAFETY: no reference to the arena's memory exists, and only the kernel writes to this
        // memory.
        #[expect(unsafe_code, reason = "no thread has a pointer to a frame")]
        let to_kernel = unsafe { ToKernel::new(&host, Arc::clone(&arena)) };
        Ok(Self {
            host,
            manager,
            arena,
            to_kernel,
            cpus,
            pages,
            locks,
        })
    }

    /// Builds a victim (an address space) and runs a race of threads to empty it. If the race is
    /// disturbed, runs another race, up to [`ATTEMPTS`] races. Returns the result of the last race.
    pub(super) fn race(
        &self,
        case: &Case,
        shape: Shape,
        memories: Memories,
    ) -> Result<Took, Error> {
        let mut took = self.attempt(case, shape, memories)?;
        for _ in 1..ATTEMPTS {
            if !took.disturbed {
                break;
            }
            took = self.attempt(case, shape, memories)?;
        }
        Ok(took)
    }

    fn attempt(&self, case: &Case, shape: Shape, memories: Memories) -> Result<Took, Error> {
        let cannot = |why: &dyn std::fmt::Display| Error::Invalid(why.to_string());
        let design = Design {
            reaping: case.reaping,
            ..Design::OURS
        };
        let mut spaces = Spaces::new(&self.host, &design, 0).map_err(|why| cannot(&why))?;
        if memories == Memories::GivenBack {
            self.arena.populate().map_err(|why| {
                Error::Invalid(format!(
                    "the kernel does not give {} pages: {why}",
                    self.pages
                ))
            })?;
            spaces = spaces.discarding(self.to_kernel.clone());
        }
        let memory = Memory::new(&self.host, &self.manager, &spaces);
        let built = self.on_cpus(1, |_| build(memory, shape, self.pages));
        let space = built.into_iter().next().expect("one thread built it");
        for locks in &*self.locks {
            locks.lock().spans_ns.clear();
        }
        let (resident, given) = (self.arena.resident().ok(), self.to_kernel.given());

        let threads = if case.helps { self.cpus.len() } else { 1 };
        let gate = AtomicUsize::new(0);
        let spans = self.on_cpus(threads, |nth| {
            pass(&gate, threads);
            Span::of(|| {
                if nth == 0 {
                    space.exit(memory).expect("it was not ended before");
                } else {
                    let _reaped = space.try_reap(memory);
                }
            })
        });

        self.check_gone(space, &spaces);
        let mut took = took(&spans);
        took.table_locks_ns = self.lock_spans();
        let (left, now) = (self.arena.resident().ok(), self.to_kernel.given());
        (took.calls, took.given) = (now.calls - given.calls, now.pages - given.pages);
        took.freed = resident
            .zip(left)
            .map(|(before, left)| Pages(before.0.saturating_sub(left.0)));
        if let Some(why) = self.to_kernel.take_error() {
            return Err(Error::Invalid(format!("the kernel takes no page: {why}")));
        }
        Ok(took)
    }

    /// Checks that every page is free again, and drains page lists so that every race starts from
    /// the same state.
    fn check_gone(&self, space: AddressSpace<Host>, spaces: &Spaces<Host>) {
        assert!(
            space.has(&self.host, Flag::Ended),
            "the last walker has ended it"
        );
        assert_eq!(space.destroy(&self.host), Ok(()));
        assert_eq!(spaces.lru().total(&self.host), 0);
        self.manager.pages().drain_all_sync(&self.host);
        let free = self.manager.pages().view(&self.host)[0].free;
        assert_eq!(free, self.arena.pages(), "no page is lost");
    }

    /// Runs `f` on `threads` threads, each on its own CPU. `f` gets the index of its thread.
    fn on_cpus<R: Send>(&self, threads: usize, f: impl Fn(usize) -> R + Sync) -> Vec<R> {
        thread::scope(|scope| {
            let spawn = |(nth, &real): (usize, &u32)| {
                let f = &f;
                scope.spawn(move || {
                    // If the thread cannot be pinned to its CPU, the times only become noisier, so
                    // ignore the failure.
                    let _ = affinity::pin(&CpuMask::only(real));
                    let cpu = CpuId(u32::try_from(nth).expect("as many as CPUs"));
                    let _entered = self.host.enter(cpu);
                    f(nth)
                })
            };
            let all: Vec<_> = self.cpus[..threads].iter().enumerate().map(spawn).collect();
            let joined = all.into_iter().map(thread::ScopedJoinHandle::join);
            joined
                .map(|done| done.unwrap_or_else(|bug| panic::resume_unwind(bug)))
                .collect()
        })
    }

    fn lock_spans(&self) -> Vec<f64> {
        let taken = |locks: &Locks| std::mem::take(&mut locks.lock().spans_ns);
        self.locks.iter().flat_map(taken).collect()
    }
}

impl Locks {
    fn lock(&self) -> std::sync::MutexGuard<'_, Spans> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn flat(cpus: usize) -> Topology {
    Topology::flat(u32::try_from(cpus).expect("no more than this computer has"))
}

/// The moments at which a thread's work began and ended, and how long the thread waited for a CPU
/// between them.
struct Span {
    begin: Instant,
    end: Instant,
    away_ns: f64,
}

impl Span {
    fn of(work: impl FnOnce()) -> Self {
        let away = waited_for_cpu_ns();
        let begin = Instant::now();
        work();
        let end = Instant::now();
        let away_ns = waited_for_cpu_ns() - away;
        Self {
            begin,
            end,
            away_ns,
        }
    }
}

fn took(spans: &[Span]) -> Took {
    let begin = spans.iter().map(|span| span.begin).min();
    let end = spans.iter().map(|span| span.end).max();
    let (begin, end) = begin.zip(end).expect("a thread ended it");
    let wall_ns = (end - begin).as_nanos() as f64;
    let work = spans.iter().map(|span| span.end - span.begin);
    // If a thread had no CPU when the race began, its span begins late, and `away_ns` does not
    // include the wait before the span.
    let late = spans
        .iter()
        .map(|span| (span.begin - begin).as_nanos() as f64);
    let away = spans.iter().map(|span| span.away_ns);
    let away_ns: f64 = away.chain(late).sum();
    Took {
        wall_ns,
        work_ns: work.map(|span| span.as_nanos() as f64).sum(),
        disturbed: away_ns > AWAY_MAX * wall_ns,
        ..Took::default()
    }
}

/// The nanoseconds for which the calling thread has been ready to run but had no CPU (`run_delay`
/// in Linux). 0 if the system does not report this time.
pub(in crate::bench) fn waited_for_cpu_ns() -> f64 {
    let told = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let told = told.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    told.unwrap_or(0.0)
}

/// Returns when all `threads` threads have arrived at `gate`.
fn pass(gate: &AtomicUsize, threads: usize) {
    // Release and Acquire are the usual orderings of a barrier, although this barrier passes no
    // data between threads.
    gate.fetch_add(1, Release);
    let mut spins = 0_u32;
    // The loop ends when the other threads have also arrived. This thread yields because another
    // thread may need the CPU on which this thread runs.
    while gate.load(Acquire) < threads {
        spins += 1;
        if spins.is_multiple_of(1 << 12) {
            thread::yield_now();
        } else {
            hint::spin_loop();
        }
    }
}
