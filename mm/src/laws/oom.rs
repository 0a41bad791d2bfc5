//! Laws (tests for threads, model checkers and the simulator) of kills, exits and the reaper when
//! they run at the same time.
//!
//! Two processes share an address space. All delays are 0, so a victim in the reaper's queue is due
//! at once.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

use super::{Law, cast};
use crate::design::Design;
use crate::machine::{Machine, Word};
use crate::manager::Manager;
use crate::oom::{
    Kind, Look, Next, OomKiller, OutOfMemory, Owner, Patience, Process, Rules, Signals, State,
};
use crate::page::{Config, Layout, Relief};
use crate::space::budget::Budget;
use crate::space::{AddressSpace, Flag, Memory, Spaces};
use crate::units::{Nanos, Pages, Vpn};

/// The memory of the machine; some of it is for page tables.
const PAGES: Pages = Pages(64);

/// The state of the tests in this file: two processes with one address space, and an OOM killer.
pub struct TwoProcesses<M: Machine> {
    manager: Manager<M>,
    spaces: Spaces<M>,
    killer: OomKiller<M, Heard<M>>,
    space: Arc<AddressSpace<M>>,
    processes: Vec<Arc<Process<M>>>,
}

/// Counts the kills and the hand-overs to the reaper: the calls of [`Signals::kill`] and of
/// [`Signals::reap_at`].
struct Heard<M: Machine> {
    kills: M::Word,
    due: M::Word,
}

impl<M: Machine> Heard<M> {
    fn new(machine: &M) -> Self {
        Self {
            kills: machine.word(0),
            due: machine.word(0),
        }
    }
}

impl<M: Machine> Signals<M> for Heard<M> {
    fn kill(&self, machine: &M, process: &Arc<Process<M>>) {
        assert!(process.is(machine, State::Killed), "it is dying");
        // Relaxed: both counts are read only after every CPU has ended its part of the test.
        self.kills.add(machine, 1, Relaxed);
    }

    fn thaw(&self, _machine: &M, _process: &Arc<Process<M>>) {}

    fn reap_at(&self, machine: &M, _at: Nanos) {
        self.due.add(machine, 1, Relaxed);
    }
}

impl<M: Machine> fmt::Debug for TwoProcesses<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TwoProcesses").finish_non_exhaustive()
    }
}

impl<M: Machine> TwoProcesses<M> {
    /// Makes an address space with `users` processes.
    fn new(machine: &M, users: u32) -> Self {
        let manager = Manager::new(machine, Config::new(Layout::arena(PAGES)));
        let manager = manager.expect("a small arena is a layout");
        let spaces = Spaces::new(machine, &Design::OURS, 0).expect("countable");
        let heard = Heard::new(machine);
        let now = Patience {
            delay: Nanos(0),
            pause: Nanos(0),
            attempts_max: 2,
        };
        let killer = OomKiller::new(machine, heard, now);
        let space = AddressSpace::new(Memory::new(machine, &manager, &spaces));
        let space = Arc::new(space.expect("there is memory"));
        let enroll = |id| {
            let space = Some(Arc::clone(&space));
            cast::enroll(machine, &killer, id, Kind::Process, space)
        };
        Self {
            processes: (0..users).map(enroll).collect(),
            manager,
            spaces,
            killer,
            space,
        }
    }

    /// Makes an address space with one user and one page.
    fn with_a_page(machine: &M) -> Self {
        let two = Self::new(machine, 1);
        cast::fill(two.memory(machine), &two.space, Vpn(512), 1);
        two
    }

    fn memory<'m>(&'m self, machine: &'m M) -> Memory<'m, M> {
        Memory::new(machine, &self.manager, &self.spaces)
    }

    fn kill(&self, machine: &M, nth: usize) {
        let (victim, all) = (&self.processes[nth], self.processes.iter());
        self.killer.kill(self.memory(machine), victim, &all, None);
    }

    fn exit(&self, machine: &M, nth: usize) {
        let exited = self.killer.exit(self.memory(machine), &self.processes[nth]);
        assert!(exited.is_ok(), "it exits once: {exited:?}");
    }

    fn step(&self, machine: &M) -> Next {
        self.killer.reaper().step(self.memory(machine)).next
    }

    fn heard(&self, machine: &M) -> [i64; 2] {
        let heard = self.killer.signals();
        [&heard.kills, &heard.due].map(|word| word.load(machine, Relaxed))
    }

    /// Asserts that each of the two processes was signalled once, and that their space was handed
    /// to the reaper once.
    fn is_queued_once(&self, machine: &M) {
        assert_eq!(self.heard(machine), [2, 1], "kills, hand-overs");
        assert_eq!(self.killer.reaper().queued(machine), 1);
        assert_eq!(self.killer.victims(machine), 2);
        assert!(self.space.has(machine, Flag::Killed));
    }

    /// Asserts that the exit has freed all pages, including those of page tables.
    fn is_empty(&self, machine: &M) {
        assert!(self.space.has(machine, Flag::Ended), "the exit is over");
        assert_eq!(self.space.table_pages(machine), 0);
    }

    /// Asserts that every victim has exited, that no victim is queued for the reaper, and that all
    /// memory has been freed.
    fn is_over(&self, machine: &M) {
        let [kills, due] = self.heard(machine);
        assert!(kills <= 1 && due <= 1, "{kills} kills, {due} hand-overs");
        let steps = (0..4).map(|_| self.step(machine));
        let idle = steps.filter(|next| *next == Next::Idle).count();
        assert!(idle > 0, "the reaper ends");
        assert_eq!(self.killer.victims(machine), 0, "no victim is left");
        assert!(self.space.has(machine, Flag::Ended), "no process uses it");
        assert_eq!(self.space.rss().resident_precise(machine), 0);
        cast::is_whole(self.memory(machine));
    }
}

/// The state of a test: two processes under a budget that has no room, and the OOM killer for that
/// budget.
pub struct PressedGroup<M: Machine> {
    oom: OutOfMemory<M, Heard<M>, Listed<M>>,
    group: Arc<Budget<M>>,
}

/// The owner of the processes of a test. Its list of processes never changes.
struct Listed<M: Machine>(Vec<Arc<Process<M>>>);

impl<M: Machine> Owner<M> for Listed<M> {
    fn with_processes(&self, _machine: &M, look: &mut Look<'_, M>) {
        look(&self.0);
    }

    fn current(&self, _machine: &M) -> Option<Arc<Process<M>>> {
        None
    }

    fn pause(&self, _machine: &M) {}
}

impl<M: Machine> PressedGroup<M> {
    fn new(machine: &M) -> Self {
        let TwoProcesses {
            manager, spaces, ..
        } = TwoProcesses::new(machine, 0);
        let memory = Memory::new(machine, &manager, &spaces);
        let group = Arc::new(Budget::new(machine, 0));
        let killer = Arc::new(OomKiller::new(
            machine,
            Heard::new(machine),
            Patience::LINUX,
        ));
        let enroll = |id| {
            let space = AddressSpace::new(memory).expect("there is memory");
            let space = Some(Arc::new(space.limited(Arc::clone(&group))));
            cast::enroll(machine, &killer, id, Kind::Process, space)
        };
        let owner = Listed((0..2).map(enroll).collect());
        let oom = OutOfMemory::new(machine, killer, owner, Rules::default(), Vec::new());
        Self { oom, group }
    }

    /// Asks the OOM killer for room for one page under the budget. Asserts that a victim is dying
    /// afterwards.
    fn press(&self, machine: &M) {
        let relief = self.oom.relieve_group(machine, &self.group, 1);
        assert_eq!(relief, Relief::Retry, "a victim is dying");
    }

    fn one_was_killed(&self, machine: &M) {
        assert_eq!(self.oom.killer().kills(machine), 1);
        assert_eq!(self.oom.killer().victims(machine), 1);
    }
}

impl<M: Machine> fmt::Debug for PressedGroup<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PressedGroup").finish_non_exhaustive()
    }
}

/// Two CPUs find no room under a full budget at the same time. Only one process is killed.
#[must_use]
pub fn two_shortages_at_once<M: Machine>() -> Law<M, PressedGroup<M>> {
    Law {
        name: "one process is killed, however many want memory at once",
        setup: PressedGroup::new,
        bodies: vec![|machine, group| group.press(machine); 2],
        check: |machine, group| group.one_was_killed(machine),
    }
}

/// Two CPUs kill two processes that share an address space, at the same time. The space is queued
/// for the reaper once, and each process is signalled once.
#[must_use]
pub fn two_kills_at_once<M: Machine>() -> Law<M, TwoProcesses<M>> {
    Law {
        name: "a space is queued once, and each of its users is told once, however many CPUs kill at once",
        setup: |machine| TwoProcesses::new(machine, 2),
        bodies: vec![|machine, two| two.kill(machine, 0), |machine, two| {
            two.kill(machine, 1);
        }],
        check: |machine, two| two.is_queued_once(machine),
    }
}

/// A process exits on its own while another CPU kills it. The process counts as a victim until it
/// has exited, and no longer.
#[must_use]
pub fn kill_against_exit<M: Machine>() -> Law<M, TwoProcesses<M>> {
    Law {
        name: "a process that becomes a victim while it exits is waited for until it has exited, no longer",
        setup: |machine| TwoProcesses::new(machine, 1),
        bodies: vec![|machine, two| two.kill(machine, 0), |machine, two| {
            two.exit(machine, 0);
        }],
        check: |machine, two| two.is_over(machine),
    }
}

/// A victim exits while another CPU checks whether a victim is left. If that CPU sees none, it also
/// sees that the victim's memory is free.
#[must_use]
pub fn exit_against_look<M: Machine>() -> Law<M, TwoProcesses<M>> {
    Law {
        name: "a CPU that sees no victim left sees the victim's memory given back",
        setup: |machine| {
            let two = TwoProcesses::with_a_page(machine);
            two.kill(machine, 0);
            two
        },
        bodies: vec![|machine, two| two.exit(machine, 0), |machine, two| {
            if two.killer.victims(machine) == 0 {
                two.is_empty(machine);
            }
        }],
        check: |machine, two| two.is_over(machine),
    }
}

/// A process is killed, exits, and is reaped, all at the same time. All its memory is free
/// afterwards.
#[must_use]
pub fn reaper_against_exit<M: Machine>() -> Law<M, TwoProcesses<M>> {
    Law {
        name: "a victim that exits while it is queued and reaped leaves nothing behind",
        setup: TwoProcesses::with_a_page,
        bodies: vec![
            |machine, two| two.kill(machine, 0),
            |machine, two| two.exit(machine, 0),
            |machine, two| {
                two.step(machine);
                two.step(machine);
            },
        ],
        check: |machine, two| two.is_over(machine),
    }
}
