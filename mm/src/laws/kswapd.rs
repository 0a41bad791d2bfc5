//! Laws (tests for threads, model checkers and the simulator) of allocations that ask kswapd to
//! reclaim while kswapd falls asleep, or dozes (waits a tenth of a second before it falls asleep).

use alloc::vec;
use core::fmt;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::Law;
use super::reclaim::NODE;
use crate::machine::{Machine, Word};
use crate::page::{Kswapd, ZoneKind};
use crate::reclaim::Next;
use crate::reclaim::laws::{Drowsy, Duty};
use crate::units::{Nanos, NodeId};

/// The state of the tests in this file: a kswapd that is awake and has nothing to do, and the words
/// in which the CPUs of a test record what has happened.
pub struct Needed<M: Machine> {
    kswapd: Drowsy<M>,
    /// 1 once memory of the normal zone is short. The lower zones, such as DMA, always have enough.
    short: M::Word,
    /// The number of times that the thread of kswapd was woken.
    woken: M::Word,
    /// 1 if kswapd has found that memory is short.
    seen: M::Word,
    /// 1 while the node is marked as one whose kswapd is awake.
    awake: M::Word,
}

impl<M: Machine> fmt::Debug for Needed<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Needed").finish_non_exhaustive()
    }
}

/// The work of the kswapd of [`Needed`]. This kswapd only notes that memory is short.
struct Watching<'n, M: Machine> {
    machine: &'n M,
    needed: &'n Needed<M>,
}

impl<M: Machine> Duty for Watching<'_, M> {
    fn node(&self) -> NodeId {
        NODE
    }

    fn is_short(&self, highest: ZoneKind) -> bool {
        highest >= ZoneKind::Normal && self.needed.short.load(self.machine, Relaxed) != 0
    }

    fn reclaim(&self, _: ZoneKind) {
        self.needed.seen.store(self.machine, 1, Relaxed);
    }

    fn becomes(&self, kswapd: Kswapd) {
        let awake = i64::from(kswapd == Kswapd::Awake);
        let before = self.needed.awake.swap(self.machine, awake, Relaxed);
        assert_ne!(before, awake, "kswapd becomes {kswapd:?} once");
    }
}

impl<M: Machine> Needed<M> {
    fn new(machine: &M) -> Self {
        let needed = Self {
            kswapd: Drowsy::new(machine),
            short: machine.word(0),
            woken: machine.word(0),
            seen: machine.word(0),
            awake: machine.word(0),
        };
        let asked = needed.kswapd.ask(machine, ZoneKind::Dma);
        assert!(asked, "it was asleep");
        needed
    }

    /// Uses the last free page of normal memory, and asks kswapd to reclaim.
    fn allocates(&self, machine: &M) {
        self.short.store(machine, 1, Relaxed);
        if self.kswapd.ask(machine, ZoneKind::Normal) {
            self.woken.add(machine, 1, AcqRel);
        }
    }

    /// Does one step of kswapd's thread. Returns the span after which the next step is due; `None`
    /// if kswapd is asleep, or has found that memory is short.
    fn step(&self, machine: &M) -> Option<Nanos> {
        let begun = self.kswapd.begins(machine)?;
        let duty = Watching {
            machine,
            needed: self,
        };
        let next = self.kswapd.step(machine, begun, &duty);
        if self.seen.load(machine, Relaxed) != 0 {
            return None;
        }
        match next {
            Next::At(at) => Some(at.since(machine.now())),
            Next::Woken => None,
        }
    }

    /// Does kswapd's steps until kswapd is asleep or has found that memory is short. If kswapd
    /// dozes, its next step comes at once, as if kswapd had dozed for the whole time.
    fn steps(&self, machine: &M) {
        while self.step(machine).is_some() {}
    }

    /// Does kswapd's steps until kswapd dozes, or has found that memory is short.
    fn steps_until_it_dozes(&self, machine: &M) {
        while self
            .step(machine)
            .is_some_and(|span| span < Nanos::from_ms(50))
        {}
    }

    fn is_cared_for(&self, machine: &M) {
        let (seen, woken) = (
            self.seen.load(machine, Acquire),
            self.woken.load(machine, Acquire),
        );
        assert!(
            seen + woken > 0,
            "kswapd sleeps or dozes while memory is short"
        );
        // If the thread was woken, it runs now.
        self.steps(machine);
        let seen = self.seen.load(machine, Acquire);
        assert!(
            seen > 0,
            "kswapd sees the kind of zone that was asked for last"
        );
    }

    /// Lets kswapd doze, and asks it to reclaim. Asserts that kswapd then dozes for the whole time
    /// again.
    fn dozes_twice(&self, machine: &M) {
        let dozes = |span: Option<Nanos>| span.is_some_and(|span| span > Nanos::from_ms(50));
        assert!(dozes(self.step(machine)), "memory is not short");
        assert!(self.kswapd.ask(machine, ZoneKind::Dma), "it dozed");
        assert!(dozes(self.step(machine)), "it was asked for meanwhile");
        assert_eq!(self.step(machine), None, "nothing was asked for");
        assert!(self.kswapd.begins(machine).is_none(), "it is asleep");
    }

    /// Asks kswapd to reclaim while the embedder has no memory to reclaim from. Asserts that the
    /// next steps mark the node as awake, and then as asleep.
    fn wakes_late(&self, machine: &M) {
        // `Reclaim::kswapd` calls `begins` and then `falls_asleep` if the embedder has no memory
        // from which pages could be reclaimed.
        let begun = self.kswapd.begins(machine).expect("it is awake");
        assert!(!self.kswapd.ask(machine, ZoneKind::Dma), "it is awake");
        assert!(!self.kswapd.falls_asleep(machine, begun));
        assert_eq!(self.awake.load(machine, Relaxed), 0);
        assert!(self.step(machine).is_some(), "it dozes");
        assert_eq!(self.awake.load(machine, Relaxed), 1);
        assert_eq!(self.step(machine), None, "it falls asleep");
        assert_eq!(self.awake.load(machine, Relaxed), 0);
    }
}

/// An allocation asks kswapd to reclaim while kswapd falls asleep. Either kswapd sees the shortage,
/// or its thread is woken.
#[must_use]
pub fn asked_while_falling_asleep<M: Machine>() -> Law<M, Needed<M>> {
    Law {
        name: "kswapd sees the shortage for which it was asked, or its thread is woken",
        setup: Needed::new,
        bodies: vec![
            |machine, needed| needed.allocates(machine),
            |machine, needed| needed.steps(machine),
        ],
        check: |machine, needed| needed.is_cared_for(machine),
    }
}

/// An allocation asks kswapd to reclaim while kswapd begins to doze. Either kswapd sees the
/// shortage, or its doze is interrupted.
#[must_use]
pub fn asked_while_dozing<M: Machine>() -> Law<M, Needed<M>> {
    Law {
        name: "kswapd sees the shortage for which it was asked, or its doze is interrupted",
        setup: Needed::new,
        bodies: vec![
            |machine, needed| needed.allocates(machine),
            |machine, needed| needed.steps_until_it_dozes(machine),
        ],
        check: |machine, needed| needed.is_cared_for(machine),
    }
}

/// An allocation asks kswapd to reclaim while kswapd dozes, but memory is no longer short. Kswapd
/// then begins its doze anew.
#[must_use]
pub fn dozes_again_when_asked<M: Machine>() -> Law<M, Needed<M>> {
    Law {
        name: "a kswapd that was asked for while it dozed dozes for the whole time again",
        setup: Needed::new,
        bodies: vec![|machine, needed| needed.dozes_twice(machine)],
        check: |_, _| (),
    }
}

/// An allocation for the DMA zone asks kswapd to reclaim after one for the normal zone. Kswapd sees
/// that normal memory is short.
#[must_use]
pub fn asked_for_a_lower_zone_too<M: Machine>() -> Law<M, Needed<M>> {
    Law {
        name: "a request for a lower zone does not make kswapd forget one for a higher zone",
        setup: Needed::new,
        bodies: vec![|machine, needed| {
            needed.allocates(machine);
            needed.kswapd.ask(machine, ZoneKind::Dma);
            needed.steps(machine);
        }],
        check: |machine, needed| needed.is_cared_for(machine),
    }
}

/// An allocation asks kswapd to reclaim while the embedder has no memory to reclaim from. Once
/// there is memory, kswapd marks its node as awake.
#[must_use]
pub fn asked_without_memory<M: Machine>() -> Law<M, Needed<M>> {
    Law {
        name: "a kswapd that had no memory marks its node as awake when there is memory",
        setup: Needed::new,
        bodies: vec![|machine, needed| needed.wakes_late(machine)],
        check: |_, _| (),
    }
}
