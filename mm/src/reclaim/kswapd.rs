//! The thread of a node that reclaims before allocations have to (Linux: `kswapd`).
//!
//! ```text
//!           wake                    step: balanced                step: still balanced
//! Asleep ────────> Wanted ──step──> Awake ──────────────> dozes ───────────────────────> Asleep
//!                     ^               │  a tenth of a second
//!                     └──────wake─────┘
//! ```
//!
//! The embedder's thread calls [`Reclaim::kswapd`] and acts on its result. A word for each node
//! says whether the node's thread sleeps. Only the thread sets this word to `ASLEEP`, in an atomic
//! step that fails if an allocation has asked for kswapd since the thread's current step began. So
//! no wake-up is lost.
//!
//! Locks: those of `shrink`.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::scan::PRIORITY_FIRST;
use super::shrink::{Pass, Shrinker};
use super::{Embedder, Reclaim};
use crate::event::{Event, ReclaimedBy};
use crate::machine::{Field, Machine, Word};
use crate::page::{PageAllocator, Reclaiming, Request, ZoneKind};
use crate::space::Memory;
use crate::units::{Jiffies, Nanos, NodeId};

/// The number of rounds in a row without progress after which kswapd gives up (Linux:
/// `MAX_RECLAIM_RETRIES`). From then on, only allocations reclaim. Once an allocation has freed a
/// page, kswapd tries again.
const FAILURES_MAX: i64 = 16;

const ASLEEP: i64 = 0;
const AWAKE: i64 = 1;
/// An allocation has asked for kswapd since kswapd's last step began; kswapd is awake or about to
/// be woken.
const WANTED: i64 = 2;

/// The state of the kswapd of a node.
pub(crate) struct Kswapd<M: Machine> {
    state: M::Word,
    /// The number of the highest kind of zone for which an allocation has asked since kswapd fell
    /// asleep. Only a hint: if two CPUs write it at once, it may be too low.
    highest: M::Word,
    /// The number of rounds in a row without progress.
    failures: M::Word,
    /// 1 from kswapd's first step after a wake-up until it falls asleep. Only kswapd writes it.
    running: M::Field,
    /// 1 while kswapd waits a tenth of a second before it falls asleep. Only kswapd writes it.
    dozing: M::Field,
}

/// The time at which the thread of a node next calls [`Reclaim::kswapd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At this time, which may have passed already.
    At(Nanos),
    /// After the next call of [`Embedder::wake_kswapd`], which may already be under way.
    Woken,
}

impl<M: Machine> Kswapd<M> {
    pub(crate) fn new(machine: &M) -> Self {
        Self {
            state: machine.word(ASLEEP),
            highest: machine.word(0),
            failures: machine.word(0),
            running: machine.field(0),
            dozing: machine.field(0),
        }
    }

    /// Returns whether kswapd has given up.
    pub(super) fn is_hopeless(&self, machine: &M) -> bool {
        // Relaxed, as for all accesses to this word: it is only a count, and orders no other
        // accesses.
        self.failures.load(machine, Relaxed) >= FAILURES_MAX
    }

    /// Notes that a CPU has reclaimed a page. Kswapd then counts its rounds without progress from 0
    /// again. If it had given up, it tries again, too.
    pub(super) fn note_progress(&self, machine: &M) {
        if self.failures.load(machine, Relaxed) != 0 {
            self.failures.store(machine, 0, Relaxed);
        }
    }

    /// Asks kswapd to run. Returns true if kswapd is asleep; then the caller has to wake its
    /// thread.
    pub(crate) fn ask(&self, machine: &M) -> bool {
        // AcqRel pairs with the AcqRel in `falls_asleep` and `begins`: kswapd sees everything that
        // this CPU did before it asked. That is why this is a swap even if the state is `WANTED`
        // already.
        self.state.swap(machine, WANTED, AcqRel) == ASLEEP
    }

    /// Begins a step of kswapd's thread. Returns false if kswapd is asleep, so that the thread must
    /// not run.
    pub(crate) fn begins(&self, machine: &M) -> bool {
        // Acquire pairs with the AcqRel in `ask`.
        if self.state.load(machine, Acquire) == ASLEEP {
            return false;
        }
        // AcqRel pairs with the AcqRel in `ask`. An allocation that asks after this swap finds
        // `AWAKE`, and sets `WANTED` again.
        if self.state.swap(machine, AWAKE, AcqRel) == WANTED {
            self.dozing.set(0);
        }
        true
    }

    /// Lets kswapd fall asleep, unless an allocation has asked for it since the step began. Returns
    /// whether kswapd is asleep now.
    pub(crate) fn falls_asleep(&self, machine: &M) -> bool {
        self.dozing.set(0);
        self.running.set(0);
        // AcqRel pairs with the AcqRel in `ask`. If `ask` comes first, this exchange fails. If this
        // exchange comes first, `ask` finds `ASLEEP`, and the caller of `ask` wakes the thread.
        let slept = self
            .state
            .compare_exchange(machine, AWAKE, ASLEEP, AcqRel)
            .is_ok();
        if !slept {
            self.running.set(1);
        }
        slept
    }

    fn highest(&self, machine: &M) -> ZoneKind {
        let highest = self.highest.load(machine, Relaxed);
        let kind = usize::try_from(highest).ok();
        let kind = kind.and_then(|kind| ZoneKind::ALL.get(kind)).copied();
        kind.unwrap_or(ZoneKind::Normal)
    }
}

impl<M: Machine, E: Embedder<M>> Reclaim<M, E> {
    /// Wakes the kswapd of each node that `request` would try, unless some zone of the node is
    /// above its high watermark, or kswapd has given up (Linux: `wakeup_kswapd`).
    pub fn wake(&self, machine: &M, pages: &PageAllocator<M>, request: Request) {
        pages.each_node(machine, request, |node| {
            let kswapd = self.kswapd_of(node);
            if kswapd.is_hopeless(machine) || pages.is_balanced(machine, node, request.class) {
                return;
            }
            let class = request.class as i64;
            if kswapd.highest.load(machine, Relaxed) < class {
                // Relaxed, because this is only a hint. If two CPUs store at once, the lower kind
                // may remain until the next wake-up for the higher one.
                kswapd.highest.store(machine, class, Relaxed);
            }
            if kswapd.ask(machine) {
                self.embedder().wake_kswapd(machine, node);
            }
        });
    }

    /// Does one step of the kswapd of `node`. If no zone is above its high watermark, reclaims
    /// until one is; otherwise lets kswapd doze, and then fall asleep (Linux: `balance_pgdat`,
    /// `kswapd_try_to_sleep`). Returns the time of the next step. One thread of the embedder at a
    /// time calls this for a node.
    pub fn kswapd(&self, machine: &M, node: NodeId) -> Next {
        let kswapd = self.kswapd_of(node);
        if !kswapd.begins(machine) {
            return Next::Woken;
        }
        let mut next = Next::At(machine.now());
        let mut has_memory = false;
        self.embedder().with_memory(machine, &mut |memory| {
            has_memory = true;
            next = self.step(memory, kswapd, node);
        });
        if !has_memory && kswapd.falls_asleep(machine) {
            return Next::Woken;
        }
        next
    }

    fn step(&self, memory: Memory<'_, M>, kswapd: &Kswapd<M>, node: NodeId) -> Next {
        let (machine, pages) = (memory.machine, memory.manager.pages());
        if kswapd.running.get() == 0 {
            kswapd.running.set(1);
            pages.set_kswapd(machine, node, crate::page::Kswapd::Awake);
            machine.emit(Event::KswapdWake(node));
        }
        let highest = kswapd.highest(machine);
        if !pages.is_balanced(machine, node, highest) && !kswapd.is_hopeless(machine) {
            kswapd.dozing.set(0);
            self.round(memory, kswapd, node, highest);
            return Next::At(machine.now());
        }
        if kswapd.dozing.get() == 0 {
            kswapd.dozing.set(1);
            let tenth = Jiffies(u64::from(machine.hz().get()) / 10);
            return Next::At(Nanos(machine.now().0 + machine.hz().nanos(tenth).0));
        }
        pages.set_kswapd(machine, node, crate::page::Kswapd::Asleep);
        kswapd.highest.store(machine, 0, Relaxed);
        if kswapd.falls_asleep(machine) {
            machine.emit(Event::KswapdSleep(node));
            return Next::Woken;
        }
        pages.set_kswapd(machine, node, crate::page::Kswapd::Awake);
        Next::At(machine.now())
    }

    /// Reclaims until the node is balanced, that is, until some zone is above its high watermark.
    /// Stops earlier if even a pass over half of the lists frees nothing or looks at too few pages.
    fn round(&self, memory: Memory<'_, M>, kswapd: &Kswapd<M>, node: NodeId, highest: ZoneKind) {
        let (machine, pages) = (memory.machine, memory.manager.pages());
        let Some(shrinker) = Shrinker::new(memory, node) else {
            // Without lists there is nothing to reclaim, now or later.
            kswapd.failures.store(machine, FAILURES_MAX, Relaxed);
            return;
        };
        pages.set_reclaiming(machine, node, highest, Reclaiming::Yes);
        let (mut priority, mut reclaimed) = (PRIORITY_FIRST, 0);
        while priority > 0 && !pages.is_balanced(machine, node, highest) {
            shrinker.balance();
            let pass = Pass {
                by: ReclaimedBy::Kswapd,
                priority,
                target: pages.pass_of_kswapd(machine, node, highest),
                forced: false,
            };
            // Kswapd never waits for pages that other CPUs have isolated.
            let passed = shrinker.pass(pass, || ());
            reclaimed += passed.reclaimed;
            // The next pass looks at a larger part of the lists only if this one freed nothing, or
            // looked at too few pages.
            if passed.reclaimed == 0 || passed.scanned < pass.target {
                priority -= 1;
            }
        }
        pages.set_reclaiming(machine, node, highest, Reclaiming::No);
        shrinker.end();
        if reclaimed > 0 {
            kswapd.note_progress(machine);
        } else if priority == 0 {
            kswapd.failures.add(machine, 1, Relaxed);
        }
    }
}
