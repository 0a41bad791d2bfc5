//! Laws (tests for threads, model checkers and the simulator) of direct reclaim, and of a kswapd
//! that makes no progress: how often an allocation waits, and which kswapd it wakes. In each test
//! one CPU does everything, so the tests have no interleavings.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

use super::Law;
use super::reclaim::{ARENA, NODE, Pressed};
use crate::machine::{Machine, Once, Word};
use crate::page::sizing::Sizes;
use crate::page::watermark::{Urgency, Watermarks};
use crate::page::{Layout, Request, ZoneKind, ZoneLayout};
use crate::reclaim::{Embedder, Next, Reclaim};
use crate::space::Memory;
use crate::space::lru::{Aged, Fate, List, Run};
use crate::space::swap::SwapSlot;
use crate::units::{Nanos, NodeId, Order, Pages, Pfn};

/// A node without CPUs.
const REMOTE: NodeId = NodeId(1);

/// Stands for a pause that never comes, in tests in which nothing happens during a pause. Pauses
/// are numbered, and every test has fewer pauses than this number.
const NEVER: i64 = i64::MAX;

/// The state of the tests in this file: a machine with two pages that can be reclaimed, and an
/// embedder that counts pauses and wake-ups.
pub struct Short<M: Machine> {
    reclaim: Reclaim<M, Counting<M>>,
}

/// The embedder in the tests of this file. It counts pauses and wake-ups. In chosen pauses, it puts
/// back the isolated page, or says that the allocating task was killed.
struct Counting<M: Machine> {
    pressed: Pressed<M>,
    /// The page that another CPU has isolated.
    isolated: M::Once<Run>,
    /// The number of times that an allocation has waited.
    pauses: M::Word,
    /// During the pause with this number, the other CPU puts back the page that it has isolated.
    /// Pauses are numbered from 1, over all waits of an allocation.
    put_back_at: i64,
    /// The allocating task is killed during the pause with this number. The first pause has number
    /// 1.
    killed_at: i64,
    /// The number of times that a kswapd was woken.
    woken: M::Word,
    /// Each wake-up of a kswapd adds the number of that kswapd's node to this word. So the word
    /// shows which of the two nodes had wake-ups.
    woken_nodes: M::Word,
}

impl<M: Machine> fmt::Debug for Short<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Short").finish_non_exhaustive()
    }
}

impl<M: Machine> Embedder<M> for Counting<M> {
    fn with_memory(&self, machine: &M, f: &mut dyn FnMut(Memory<'_, M>)) {
        f(self.pressed.memory(machine));
    }

    fn wake_kswapd(&self, machine: &M, node: NodeId) {
        self.woken.add(machine, 1, Relaxed);
        self.woken_nodes.add(machine, i64::from(node.0), Relaxed);
    }

    fn pause(&self, machine: &M, _: Nanos) -> bool {
        let pauses = self.pauses.add(machine, 1, Relaxed);
        if pauses == self.put_back_at {
            self.put_back(machine);
        }
        pauses < self.killed_at
    }
}

impl<M: Machine> Counting<M> {
    fn aged(&self) -> &Aged<M> {
        self.pressed.spaces.lru().aged().expect("pages are aged")
    }

    /// Isolates one of the two inactive pages. An allocation then waits before it isolates the
    /// other page, because the number of isolated pages is more than an eighth of the number of
    /// pages left on the list.
    fn isolate(&self, machine: &M) {
        let run = self.aged().isolate(machine, NODE, List::Inactive, 1);
        assert!(self.isolated.set(run).is_ok(), "it was not done before");
    }

    fn put_back(&self, machine: &M) {
        let run = self.isolated.get().expect("a page was isolated");
        let stays = Fate::Stays {
            list: List::Inactive,
            referenced: false,
        };
        self.aged()
            .conclude(machine, NODE, &[(run.get()[0], stays)]);
    }
}

impl<M: Machine> Short<M> {
    fn new(machine: &M, put_back_at: i64, killed_at: i64) -> Self {
        let layout = Layout::arena(Pages(ARENA));
        Self::on(machine, &layout, NODE, [put_back_at, killed_at])
    }

    fn on(machine: &M, layout: &Layout, node: NodeId, [put_back_at, killed_at]: [i64; 2]) -> Self {
        let pressed = Pressed::on(machine, layout.clone(), node);
        let counting = Counting {
            pressed,
            isolated: machine.once(),
            pauses: machine.word(0),
            put_back_at,
            killed_at,
            woken: machine.word(0),
            woken_nodes: machine.word(0),
        };
        Self {
            reclaim: Reclaim::new(machine, layout, counting),
        }
    }

    fn isolated(machine: &M, put_back_at: i64, killed_at: i64) -> Self {
        let short = Self::new(machine, put_back_at, killed_at);
        short.parts().isolate(machine);
        short
    }

    /// Makes a machine, and allocates all its free pages.
    fn full(machine: &M, killed_at: i64) -> Self {
        let short = Self::new(machine, NEVER, killed_at);
        short.fill(machine);
        short
    }

    /// Makes a machine without a free page. Its second node has no CPUs. The pages that can be
    /// reclaimed belong to that node.
    fn with_remote_memory(machine: &M) -> Self {
        let zone = |node: u32| ZoneLayout {
            kind: ZoneKind::Normal,
            node: NodeId(node),
            start: Pfn(node << Order::MAX.index()),
            spanned: Pages(ARENA),
            holes: Vec::new(),
        };
        let layout = Layout::of([0, 1].map(zone));
        let short = Self::on(machine, &layout, REMOTE, [NEVER, NEVER]);
        short.fill(machine);
        short
    }

    fn fill(&self, machine: &M) {
        let request = Request::new(Order::ZERO).urgent(Urgency::Reserve);
        let pages = self.parts().pressed.manager.pages();
        while pages.alloc(machine, request).is_ok() {}
    }

    fn parts(&self) -> &Counting<M> {
        self.reclaim.embedder()
    }

    fn reclaims(&self, machine: &M) -> Option<Pages> {
        self.reclaim.reclaim(machine, Request::new(Order::ZERO))
    }

    /// Asks kswapd to reclaim, as an allocation does. Returns how often a kswapd was woken so far.
    fn wakes(&self, machine: &M) -> i64 {
        let pages = self.parts().pressed.manager.pages();
        self.reclaim.wake(machine, pages, Request::new(Order::ZERO));
        self.parts().woken.load(machine, Relaxed)
    }

    fn pauses(&self, machine: &M) -> i64 {
        self.parts().pauses.load(machine, Relaxed)
    }

    /// Takes every free slot of swap.
    fn without_swap(&self, machine: &M) -> Vec<SwapSlot> {
        let swap = self.parts().pressed.spaces.swap();
        let mut slots = vec![SwapSlot(0); 8];
        let got = swap.take_many(machine, &mut slots);
        slots.truncate(got);
        assert_eq!(swap.free(), 0);
        slots
    }

    fn with_swap(&self, machine: &M, slots: &[SwapSlot]) {
        let given = self.parts().pressed.spaces.swap().give_back(machine, slots);
        given.expect("they were taken");
    }

    /// Runs kswapd until it dozes (waits a tenth of a second before it falls asleep). Returns the
    /// number of rounds in which kswapd tried to reclaim before it dozed.
    fn rounds(&self, machine: &M) -> u32 {
        let mut rounds = 0;
        while let Next::At(at) = self.reclaim.kswapd(machine, NODE)
            && at.since(machine.now()) < Nanos::from_ms(50)
        {
            rounds += 1;
        }
        rounds
    }

    /// Asserts that a direct reclaim waits until the other CPU has put back the page that it had
    /// isolated, and then frees a page.
    fn waits_for_the_other_cpu(&self, machine: &M) {
        assert_eq!(self.reclaims(machine), Some(Pages(1)));
        assert_eq!(self.pauses(machine), 3);
    }

    /// Asserts that a direct reclaim ends without having freed a page, because another CPU has
    /// isolated a page and does not put it back.
    fn waits_in_vain(&self, machine: &M) {
        assert_eq!(self.reclaims(machine), Some(Pages::ZERO));
        // The reclaim looks at the lists twice (two sweeps), and each sweep waits for a fiftieth of
        // a second.
        let ticks = (i64::from(machine.hz().get()) / 50).max(1);
        assert_eq!(self.pauses(machine), 2 * ticks);
    }

    /// Asserts that a direct reclaim ends when its task is killed while it waits for the other CPU.
    fn is_killed_behind_the_other_cpu(&self, machine: &M) {
        assert_eq!(self.reclaims(machine), None);
        assert_eq!(self.pauses(machine), 2);
    }

    /// Asserts that a task that is killed while it waits for kswapd returns without reclaiming, and
    /// that its next call reclaims.
    fn is_killed_behind_kswapd(&self, machine: &M) {
        assert_eq!(self.reclaims(machine), None);
        assert_eq!(self.pauses(machine), 2);
        // The task was killed before this call, so it does not wait for kswapd again.
        assert_eq!(self.reclaims(machine), Some(Pages(2)));
    }

    /// Asserts that kswapd gives up if it can reclaim nothing, and is woken again after an
    /// allocation has reclaimed pages.
    fn revives_kswapd(&self, machine: &M) {
        let slots = self.without_swap(machine);
        assert_eq!(self.wakes(machine), 1);
        assert_eq!(self.rounds(machine), 16);
        let asleep = self.reclaim.kswapd(machine, NODE);
        assert_eq!(asleep, Next::Woken);
        assert_eq!(self.reclaims(machine), Some(Pages::ZERO));
        assert_eq!(self.wakes(machine), 1, "it has given up");
        self.with_swap(machine, &slots);
        assert_eq!(self.reclaims(machine), Some(Pages(2)));
        assert_eq!(self.wakes(machine), 2, "there is hope");
    }

    /// Lets kswapd make progress in its sixteenth round, after 15 rounds without progress. Asserts
    /// that kswapd gives up only after 16 more rounds without progress.
    fn counts_rounds_anew(&self, machine: &M) {
        let slots = self.without_swap(machine);
        self.wakes(machine);
        for _ in 0..15 {
            self.reclaim.kswapd(machine, NODE);
        }
        self.with_swap(machine, &slots);
        self.reclaim.kswapd(machine, NODE);
        let used = self.parts().pressed.spaces.swap().used(machine);
        assert!(used > 0, "pages were moved to swap");
        self.without_swap(machine);
        assert_eq!(self.rounds(machine), 16);
    }

    /// Returns the number of pages that kswapd tries to reclaim in a pass if the high watermark of
    /// the only zone is `high`.
    fn pass_at(&self, machine: &M, high: u32) -> u64 {
        let pages = self.parts().pressed.manager.pages();
        let marks = Watermarks {
            high: Pages(high),
            ..Watermarks::default()
        };
        let sizes = Sizes {
            batch: Pages(1),
            high_min: Pages(1),
            high_max: Pages(1),
        };
        let set = pages.seed_sizes(machine, 0, marks, sizes);
        set.expect("there is a zone");
        pages.pass_of_kswapd(machine, NODE, ZoneKind::Normal)
    }

    /// Asserts that a pass of kswapd tries to reclaim the number of pages that the high watermark
    /// gives, but at least 32.
    fn passes_have_a_batch(&self, machine: &M) {
        let passes = [0, 5, 32, 40].map(|high| self.pass_at(machine, high));
        assert_eq!(passes, [32, 32, 32, 40]);
    }

    /// Asserts that an allocation wakes the kswapds of both nodes, and that the kswapd of the node
    /// without CPUs reclaims the pages of its node.
    fn wakes_both(&self, machine: &M) {
        assert_eq!(self.wakes(machine), 2, "both nodes are short");
        let nodes = self.parts().woken_nodes.load(machine, Relaxed);
        assert_eq!(nodes, 1, "nodes 0 and 1");
        let used = || self.parts().pressed.spaces.swap().used(machine);
        self.reclaim.kswapd(machine, NODE);
        assert_eq!(used(), 0, "no page of node 0 can be reclaimed");
        self.reclaim.kswapd(machine, REMOTE);
        assert!(used() > 0, "pages of node 1 were moved to swap");
    }
}

/// Another CPU has isolated half of the inactive pages, and puts them back soon. An allocation that
/// reclaims waits until then, and no longer.
#[must_use]
pub fn waits_for_isolated_pages<M: Machine>() -> Law<M, Short<M>> {
    Law {
        name: "an allocation waits only as long as too many pages are isolated",
        setup: |machine| Short::isolated(machine, 3, NEVER),
        bodies: vec![|machine, short| short.waits_for_the_other_cpu(machine)],
        check: |_, _| (),
    }
}

/// Another CPU has isolated half of the inactive pages, and keeps them. An allocation that reclaims
/// waits for a fiftieth of a second in each of its two sweeps, and then gives up.
#[must_use]
pub fn waits_for_isolated_pages_in_vain<M: Machine>() -> Law<M, Short<M>> {
    Law {
        name: "an allocation waits for isolated pages for a fiftieth of a second at most",
        setup: |machine| Short::isolated(machine, NEVER, NEVER),
        bodies: vec![|machine, short| short.waits_in_vain(machine)],
        check: |_, _| (),
    }
}

/// A task is killed while its allocation waits for isolated pages. The wait ends at once.
#[must_use]
pub fn killed_while_pages_are_isolated<M: Machine>() -> Law<M, Short<M>> {
    Law {
        name: "a killed task waits for isolated pages no longer, and has made progress",
        setup: |machine| Short::isolated(machine, NEVER, 2),
        bodies: vec![|machine, short| short.is_killed_behind_the_other_cpu(machine)],
        check: |_, _| (),
    }
}

/// A task is killed while its allocation waits for kswapd. The wait ends at once, and the next call
/// reclaims.
#[must_use]
pub fn killed_while_it_waits_for_kswapd<M: Machine>() -> Law<M, Short<M>> {
    Law {
        name: "a task that is killed while it waits for kswapd has made progress, and then reclaims",
        setup: |machine| Short::full(machine, 2),
        bodies: vec![|machine, short| short.is_killed_behind_kswapd(machine)],
        check: |_, _| (),
    }
}

/// Kswapd finds nothing to reclaim for 16 rounds and gives up. When an allocation has reclaimed
/// pages, kswapd can be woken again.
#[must_use]
pub fn a_hopeless_kswapd_is_revived<M: Machine>() -> Law<M, Short<M>> {
    Law {
        name: "kswapd gives up after 16 rounds without progress, until an allocation makes progress",
        setup: |machine| Short::full(machine, NEVER),
        bodies: vec![|machine, short| short.revives_kswapd(machine)],
        check: |_, _| (),
    }
}

/// Kswapd makes progress in its sixteenth round. It gives up only after 16 more rounds without
/// progress.
#[must_use]
pub fn progress_gives_kswapd_hope<M: Machine>() -> Law<M, Short<M>> {
    Law {
        name: "only 16 rounds without progress in a row make kswapd give up",
        setup: |machine| Short::full(machine, NEVER),
        bodies: vec![|machine, short| short.counts_rounds_anew(machine)],
        check: |_, _| (),
    }
}

/// Memory is short on a node without CPUs too. The kswapd of that node is woken, and reclaims the
/// node's pages.
#[must_use]
pub fn a_node_without_cpus_has_a_kswapd<M: Machine>() -> Law<M, Short<M>> {
    Law {
        name: "the kswapd of a node without CPUs is woken, and reclaims the pages of its node",
        setup: Short::with_remote_memory,
        bodies: vec![|machine, short| short.wakes_both(machine)],
        check: |_, _| (),
    }
}

/// A pass of kswapd tries to reclaim as many pages as the high watermark of a zone, but at least
/// 32.
#[must_use]
pub fn a_pass_of_kswapd_has_at_least_a_batch<M: Machine>() -> Law<M, Short<M>> {
    Law {
        name: "kswapd tries to reclaim the high watermark of a zone in a pass, at least 32 pages",
        setup: |machine| Short::new(machine, NEVER, NEVER),
        bodies: vec![|machine, short| short.passes_have_a_batch(machine)],
        check: |_, _| (),
    }
}
