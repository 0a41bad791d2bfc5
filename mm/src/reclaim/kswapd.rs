//! The thread of a node that reclaims before allocations have to (Linux: `kswapd`).
//!
//! ```text
//!           ask                 step: balanced          step: still balanced
//! Asleep ───────> Wanted ─step─> Awake ───────> Dozing ───────────────────────> Asleep
//!                   ^  ^           │              │  a tenth of a second
//!                   │  └────ask────┘              │
//!                   └───────────────ask───────────┘
//! ```
//!
//! The embedder's thread calls [`Reclaim::kswapd`] and acts on its result. A word for each node
//! says whether the node's thread sleeps. The word also says for which kind of zone kswapd was
//! asked to reclaim since the thread fell asleep. Only the thread sets this word to `DOZING` or
//! `ASLEEP`, in an atomic step that fails if an allocation has asked kswapd to reclaim since the
//! thread's current step began. An allocation that asks while the thread dozes or sleeps wakes it.
//! So no request is lost.
//!
//! Locks: the locks that `shrink` takes.

use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use super::scan::PRIORITY_FIRST;
use super::shrink::{Pass, Shrinker};
use super::{Embedder, Reclaim};
use crate::event::{Event, ReclaimedBy};
use crate::machine::{Field, Machine, Word};
use crate::page::{self, PageAllocator, Reclaiming, Request, ZoneKind};
use crate::space::Memory;
use crate::units::{Jiffies, Nanos, NodeId};

/// The number of rounds in a row without progress after which kswapd gives up (Linux:
/// `MAX_RECLAIM_RETRIES`). From then on, only allocations reclaim. Once an allocation has freed a
/// page, kswapd tries again.
const FAILURES_MAX: i64 = 16;

/// The mask for the lowest bits of kswapd's state, which hold its mode: asleep, awake, wanted or
/// dozing. The bits above hold, as a number, the highest kind of zone for which an allocation has
/// asked since kswapd fell asleep.
const MODES: i64 = 0b11;
const KIND_SHIFT: u32 = MODES.count_ones();
const ASLEEP: i64 = 0;
const AWAKE: i64 = 1;
/// An allocation has asked kswapd to reclaim since kswapd's last step began; kswapd is awake or
/// about to be woken.
const WANTED: i64 = 2;
/// Kswapd waits a tenth of a second before it falls asleep.
const DOZING: i64 = 3;

/// The state of the kswapd of a node.
pub(crate) struct Kswapd<M: Machine> {
    state: M::Word,
    /// The number of rounds of kswapd in a row in which no page was reclaimed.
    failures: M::Word,
    /// 1 from kswapd's first step after a wake-up until kswapd falls asleep, and 0 otherwise. Only
    /// a step of kswapd writes this field.
    running: M::Field,
}

/// The time at which the thread of a node next calls [`Reclaim::kswapd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The thread next calls [`Reclaim::kswapd`] at this time, which may have passed already. If
    /// [`Embedder::wake_kswapd`] is called earlier, the thread need not wait any longer.
    At(Nanos),
    /// The thread calls [`Reclaim::kswapd`] after the next call of [`Embedder::wake_kswapd`], which
    /// may already be under way.
    Woken,
}

/// The state of kswapd when a step of its thread began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    /// True if kswapd has dozed, and no allocation has asked it to reclaim while it dozed.
    dozed: bool,
    /// The kind of zone for which kswapd reclaims, as a number.
    kind: i64,
}

/// What a step of kswapd needs from its node: whether the node is short of memory, and how to
/// reclaim the node's pages.
pub(crate) trait Duty {
    fn node(&self) -> NodeId;

    /// Returns true if no zone up to the kind `highest` is above its high watermark.
    fn is_short(&self, highest: ZoneKind) -> bool;

    /// Reclaims for zones up to the kind `highest`.
    fn reclaim(&self, highest: ZoneKind);

    /// Called when kswapd has woken up or is about to fall asleep.
    fn becomes(&self, kswapd: page::Kswapd);
}

impl Begun {
    fn highest(self) -> ZoneKind {
        let kind = usize::try_from(self.kind).ok();
        let kind = kind.and_then(|kind| ZoneKind::ALL.get(kind)).copied();
        kind.unwrap_or(ZoneKind::Normal)
    }
}

impl<M: Machine> Kswapd<M> {
    pub(crate) fn new(machine: &M) -> Self {
        Self {
            state: machine.word(ASLEEP),
            failures: machine.word(0),
            running: machine.field(0),
        }
    }

    /// Returns whether kswapd has given up.
    pub(super) fn is_hopeless(&self, machine: &M) -> bool {
        // Relaxed, as for all accesses to this word: it is only a count, and orders no other
        // accesses.
        self.failures.load(machine, Relaxed) >= FAILURES_MAX
    }

    /// Notes that a CPU has reclaimed a page. Kswapd then counts its rounds without progress from 0
    /// again. If kswapd had given up, it tries again, too.
    pub(super) fn note_progress(&self, machine: &M) {
        if self.failures.load(machine, Relaxed) != 0 {
            self.failures.store(machine, 0, Relaxed);
        }
    }

    /// Asks kswapd to reclaim for zones up to `class`. Returns true if kswapd sleeps or dozes; then
    /// the caller has to wake kswapd's thread.
    pub(crate) fn ask(&self, machine: &M, class: ZoneKind) -> bool {
        let mut state = self.state.load(machine, Relaxed);
        loop {
            let kind = (state >> KIND_SHIFT).max(class as i64);
            let wanted = WANTED | kind << KIND_SHIFT;
            // AcqRel pairs with the AcqRel in `begins` and `rests`: kswapd sees everything that
            // this CPU did before it asked. That is why the state is written even if it is `WANTED`
            // already.
            match self.state.compare_exchange(machine, state, wanted, AcqRel) {
                Ok(_) => return matches!(state & MODES, ASLEEP | DOZING),
                Err(others) => state = others,
            }
        }
    }

    /// Begins a step of kswapd's thread. Returns `None` if kswapd is asleep; the thread then has
    /// nothing to do.
    pub(crate) fn begins(&self, machine: &M) -> Option<Begun> {
        let mut state = self.state.load(machine, Relaxed);
        while state & MODES != ASLEEP {
            let awake = AWAKE | state & !MODES;
            // AcqRel pairs with the AcqRel in `ask`. An allocation that asks after this step finds
            // `AWAKE`, and sets `WANTED` again.
            match self.state.compare_exchange(machine, state, awake, AcqRel) {
                Ok(_) => {
                    return Some(Begun {
                        dozed: state & MODES == DOZING,
                        kind: state >> KIND_SHIFT,
                    });
                }
                Err(others) => state = others,
            }
        }
        None
    }

    /// Does a step that kswapd has begun: reclaims, dozes, or falls asleep.
    pub(crate) fn step(&self, machine: &M, begun: Begun, duty: &impl Duty) -> Next {
        if self.running.get() == 0 {
            self.running.set(1);
            duty.becomes(page::Kswapd::Awake);
            machine.emit(Event::KswapdWake(duty.node()));
        }
        if duty.is_short(begun.highest()) && !self.is_hopeless(machine) {
            duty.reclaim(begun.highest());
            return Next::At(machine.now());
        }
        if !begun.dozed {
            let tenth = Jiffies(u64::from(machine.hz().get()) / 10);
            let until = machine.now().0 + machine.hz().nanos(tenth).0;
            if self.rests(machine, begun, DOZING | begun.kind << KIND_SHIFT) {
                return Next::At(Nanos(until));
            }
            return Next::At(machine.now());
        }
        // These two calls precede the change of state, because another step may begin as soon as
        // kswapd is asleep.
        self.running.set(0);
        duty.becomes(page::Kswapd::Asleep);
        if self.falls_asleep(machine, begun) {
            machine.emit(Event::KswapdSleep(duty.node()));
            return Next::Woken;
        }
        self.running.set(1);
        duty.becomes(page::Kswapd::Awake);
        Next::At(machine.now())
    }

    /// Lets kswapd fall asleep, unless an allocation has asked it to reclaim since the step began.
    /// Returns whether kswapd is asleep now.
    pub(crate) fn falls_asleep(&self, machine: &M, begun: Begun) -> bool {
        self.rests(machine, begun, ASLEEP)
    }

    /// Sets the state to `rest`, unless an allocation has asked kswapd to reclaim since the step
    /// began.
    fn rests(&self, machine: &M, begun: Begun, rest: i64) -> bool {
        let awake = AWAKE | begun.kind << KIND_SHIFT;
        // AcqRel pairs with the AcqRel in `ask`. If `ask` comes first, this exchange fails. If this
        // exchange comes first, `ask` finds `DOZING` or `ASLEEP`, and the caller of `ask` wakes the
        // thread.
        let rested = self.state.compare_exchange(machine, awake, rest, AcqRel);
        rested.is_ok()
    }
}

/// The parts that a step of the kswapd of `node` needs.
struct OfNode<'a, M: Machine> {
    memory: Memory<'a, M>,
    kswapd: &'a Kswapd<M>,
    node: NodeId,
}

impl<M: Machine, E: Embedder<M>> Reclaim<M, E> {
    /// Wakes the kswapd of each node that `request` would try (Linux: `wakeup_kswapd`). Does not
    /// wake it if a zone of the node is above its high watermark, or if this kswapd has given up.
    pub fn wake(&self, machine: &M, pages: &PageAllocator<M>, request: Request) {
        pages.each_node(machine, request, |node| {
            let Some(kswapd) = self.kswapd_of(node) else {
                return;
            };
            if kswapd.is_hopeless(machine) || pages.is_balanced(machine, node, request.class) {
                return;
            }
            if kswapd.ask(machine, request.class) {
                self.embedder().wake_kswapd(machine, node);
            }
        });
    }

    /// Does one step of the kswapd of `node`. If no zone is above its high watermark, reclaims
    /// until one is; otherwise lets kswapd doze, and then fall asleep (Linux: `balance_pgdat`,
    /// `kswapd_try_to_sleep`). Returns the time of the next step. Only one thread of the embedder
    /// at a time may call this for a node.
    pub fn kswapd(&self, machine: &M, node: NodeId) -> Next {
        let begun = self
            .kswapd_of(node)
            .and_then(|kswapd| Some((kswapd, kswapd.begins(machine)?)));
        let Some((kswapd, begun)) = begun else {
            return Next::Woken;
        };
        let mut next = None;
        self.embedder().with_memory(machine, &mut |memory| {
            let duty = OfNode {
                memory,
                kswapd,
                node,
            };
            next = Some(kswapd.step(machine, begun, &duty));
        });
        // The embedder has no memory to reclaim from, so kswapd falls asleep.
        next.unwrap_or_else(|| {
            if kswapd.falls_asleep(machine, begun) {
                Next::Woken
            } else {
                Next::At(machine.now())
            }
        })
    }
}

impl<M: Machine> Duty for OfNode<'_, M> {
    fn node(&self) -> NodeId {
        self.node
    }

    fn is_short(&self, highest: ZoneKind) -> bool {
        let Memory {
            machine, manager, ..
        } = self.memory;
        !manager.pages().is_balanced(machine, self.node, highest)
    }

    fn becomes(&self, kswapd: page::Kswapd) {
        let Memory {
            machine, manager, ..
        } = self.memory;
        manager.pages().set_kswapd(machine, self.node, kswapd);
    }

    /// Reclaims until the node is balanced, that is, until some zone is above its high watermark.
    /// Stops earlier if even a pass over half of the lists frees nothing, or looks at fewer pages
    /// than the pass was to free.
    fn reclaim(&self, highest: ZoneKind) {
        let Self {
            memory,
            kswapd,
            node,
        } = *self;
        let (machine, pages) = (memory.machine, memory.manager.pages());
        let Some(shrinker) = Shrinker::new(memory, node) else {
            // The node has no lists of used pages, so there is nothing to reclaim, now or later.
            // Kswapd gives up.
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
            let passed = shrinker.pass(pass, |_| true);
            reclaimed += passed.reclaimed;
            // The next pass looks at a larger part of the lists only if this pass freed nothing, or
            // looked at fewer pages than it was to free.
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
