//! Fronts: for each CPU, a stack of free pages that the CPU uses without a lock.
//!
//! How a thread may use a stack (`stack.rs`) depends on the system. A machine finds the best way
//! when it is made ([`Fronts::best`]):
//!
//! * with restartable sequences (`rseq/`), which serve every thread, whether it plays a CPU or not;
//! * otherwise with owners: a stack belongs to the thread that plays its CPU (`stack.rs`);
//! * otherwise there are no fronts.
//!
//! Counters use restartable sequences too (`homes.rs`).

mod homes;
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod rseq;
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
#[path = "no_rseq.rs"]
mod rseq;
mod stack;
mod sync;

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll_mm::machine::{Freed, Front};

use self::stack::{STRANGE_MAX, Stack};
use self::sync::STACK_CAPACITY;
use crate::Host;
use crate::locks::{self, Sitter};
use crate::words::PageTags;

pub(crate) use self::homes::Homes;
pub(crate) use self::rseq::leave;

/// How the threads of a [`Host`] use the fronts of page lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fronts {
    /// By restartable sequences (Linux: `rseq`), on x86-64 and AArch64. An allocation or a free of a
    /// single page has no atomic read-modify-write instruction. Every thread can use the front of
    /// the CPU on which it runs. Needs Linux 5.10.
    Restartable,
    /// By plain stores of the thread that plays the CPU. A free has one atomic exchange, that of the
    /// page's tag. Needs `membarrier` (Linux 4.14).
    Owned,
    /// There are no fronts: every allocation and every free locks a page list.
    Off,
}

impl Fronts {
    /// The first of [`Fronts::Restartable`], [`Fronts::Owned`] and [`Fronts::Off`] that this process
    /// can use.
    #[must_use]
    pub fn best() -> Self {
        let all = [Self::Restartable, Self::Owned];
        all.into_iter()
            .find(|fronts| fronts.is_available())
            .unwrap_or(Self::Off)
    }

    /// Returns whether this process can use this kind of fronts.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Restartable => rseq::is_available(),
            Self::Owned => locks::barriers_are_available(),
            Self::Off => true,
        }
    }

    /// Returns this kind if it [is available](Fronts::is_available), and otherwise the best kind
    /// after it.
    pub(crate) fn or_next(self) -> Self {
        match self {
            Self::Restartable if !self.is_available() => Self::Owned.or_next(),
            Self::Owned if !self.is_available() => Self::Off,
            available => available,
        }
    }

    /// Prepares the calling thread, which begins to play a CPU.
    pub(crate) fn prepare_thread(self) {
        match self {
            Self::Restartable => {
                let _area = rseq::set_up();
            }
            Self::Owned => locks::sit_down(),
            Self::Off => {}
        }
    }
}

impl fmt::Display for Fronts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Restartable => "restartable sequences",
            Self::Owned => "owned",
            Self::Off => "none",
        })
    }
}

/// The real CPU on which the calling thread runs, if the thread can run restartable sequences.
#[inline(always)]
pub(crate) fn real_cpu() -> Option<u32> {
    rseq::mine().cpu()
}

/// A front of a [`Host`].
pub struct HostFront(Stack);

impl HostFront {
    pub(crate) fn new() -> Self {
        Self(Stack::new())
    }

    /// Stops the user with number `home`, which has `NOBODY` as its home already.
    fn quiesce(&self, machine: &Host, home: u32) {
        match machine.fronts() {
            Fronts::Restartable => rseq::abort_on(home),
            Fronts::Owned => {
                locks::heavy_barrier();
                let seat = locks::seat_of(home);
                self.0
                    .wait_outside(seat, |looks| locks::spin_or_leave(machine, looks));
            }
            Fronts::Off => {}
        }
    }

    #[cold]
    #[inline(never)]
    fn admit(&self, machine: &Host) -> bool {
        machine.abort_in_child();
        let me = match machine.fronts() {
            Fronts::Restartable => rseq::set_up().and_then(rseq::Area::cpu),
            Fronts::Owned => locks::mine().map(Sitter::number),
            Fronts::Off => None,
        };
        let patience = machine.shared().patience;
        me.is_some_and(|me| {
            self.0
                .admit(me, patience, |home| self.quiesce(machine, home))
        })
    }
}

impl Front<Host> for HostFront {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a state has 16 bits for the pages"
    )]
    const CAPACITY: u32 = STACK_CAPACITY as u32;

    #[inline(always)]
    fn pop(&self, machine: &Host) -> Option<u32> {
        // The comparison with the best kind comes first.
        if machine.fronts() == Fronts::Restartable {
            return rseq::pop(rseq::mine(), &self.0);
        }
        match machine.fronts() {
            Fronts::Owned => self.0.pop_at(locks::mine()?),
            Fronts::Restartable | Fronts::Off => None,
        }
    }

    /// With [`Fronts::Owned`], the tag is changed by an atomic exchange, so of two calls for one
    /// page, at least one finds that it has changed. With [`Fronts::Restartable`], two calls can
    /// both succeed only if both threads are between two instructions, the load and the store of the
    /// tag, at the same time. The kernel does not preempt or interrupt a thread there without
    /// making it load the tag again; a hypervisor may.
    #[inline(always)]
    fn free(&self, machine: &Host, tags: &PageTags, page: u32, old: u8, new: u8) -> Freed {
        let tag = tags.of(page);
        // The comparison with the best kind comes first.
        if machine.fronts() == Fronts::Restartable {
            return rseq::free(rseq::mine(), &self.0, page, tag, [old, new]);
        }
        match machine.fronts() {
            Fronts::Owned => {
                let Some(me) = locks::mine().filter(|me| self.0.is_home(*me)) else {
                    return Freed::Unchanged;
                };
                // Relaxed is enough: the trait `Tags` promises nothing more.
                if tag.compare_exchange(old, new, Relaxed, Relaxed).is_err() {
                    Freed::Unchanged
                } else if self.0.push_at(me, page) {
                    Freed::Pushed
                } else {
                    Freed::Tagged
                }
            }
            Fronts::Restartable | Fronts::Off => Freed::Unchanged,
        }
    }

    #[inline]
    fn push(&self, machine: &Host, page: u32) -> bool {
        match machine.fronts() {
            Fronts::Restartable => rseq::push(rseq::mine(), &self.0, page),
            Fronts::Owned => locks::mine().is_some_and(|me| self.0.push_at(me, page)),
            Fronts::Off => false,
        }
    }

    fn admits(&self, machine: &Host) -> bool {
        self.admit(machine)
    }

    fn empty(&self, machine: &Host, f: impl FnMut(&[u32])) {
        machine.abort_in_child();
        self.0.empty(|home| self.quiesce(machine, home), f);
    }

    fn pages(&self) -> u32 {
        self.0.len()
    }

    fn is_idle(&self) -> bool {
        self.0.is_idle()
    }

    #[inline(always)]
    fn limit(&self) -> u32 {
        // Relaxed is enough: a push loads the limit again.
        self.0.limit.load(Relaxed)
    }

    fn set_limit(&self, pages: u32) {
        let pages = pages.min(Self::CAPACITY);
        // Relaxed is enough: a front that is fuller than its limit does no harm.
        self.0.limit.store(pages, Relaxed);
    }
}

/// The number of calls by strangers after which a front changes its user.
pub(crate) const PATIENCE: u32 = STRANGE_MAX;

impl fmt::Debug for HostFront {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostFront")
            .field("pages", &self.0.len())
            .finish_non_exhaustive()
    }
}
