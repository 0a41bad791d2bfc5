//! The kinds of fronts (stacks of free pages), and which kinds this process can use.

use std::fmt;

use super::registrar::Registrar;
use super::rseq;
use super::sync::STRANGE_MAX;
use crate::locks;

/// How the threads of a [`Host`](crate::Host) use *fronts*, the stacks of free pages in front of
/// the page lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fronts {
    /// Threads use fronts in restartable sequences (Linux: `rseq`). This kind exists on x86-64 and
    /// AArch64. An allocation or a free of a single page has no atomic read-modify-write
    /// instruction. Every thread can use the front of the CPU on which it runs. Needs Linux 5.10.
    Restartable,
    /// The thread that plays (acts as) a CPU accesses the CPU's front with plain loads and stores.
    /// Only a free needs an atomic exchange, which changes the tag of the page. Needs `membarrier`
    /// (Linux 4.14).
    Owned,
    /// There are no fronts: every allocation and every free locks a page list.
    Off,
}

impl Fronts {
    /// The first of [`Fronts::Restartable`], [`Fronts::Owned`] and [`Fronts::Off`] that this
    /// process can use.
    #[must_use]
    pub fn best() -> Self {
        let all = [Self::Restartable, Self::Owned];
        all.into_iter()
            .find(|fronts| fronts.is_available())
            .unwrap_or(Self::Off)
    }

    /// Returns whether this process can use fronts (stacks of free pages) of this kind.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Restartable => rseq::is_available(),
            Self::Owned => locks::barriers_are_available(),
            Self::Off => true,
        }
    }

    /// Names the features of the kernel and of the processor that fronts (stacks of free pages) of
    /// this kind need, in a phrase for people.
    #[must_use]
    pub const fn needs(self) -> &'static str {
        match self {
            Self::Restartable => "rseq and membarrier (Linux 5.10), x86-64 or AArch64",
            Self::Owned => "membarrier (Linux 4.14)",
            Self::Off => "nothing",
        }
    }

    /// The library that registers the threads of this process for restartable sequences. Returns `None`
    /// if this process cannot use such sequences.
    #[must_use]
    pub fn registrar() -> Option<Registrar> {
        rseq::registrar()
    }

    /// Returns this kind if it [is available](Fronts::is_available), and otherwise the next kind
    /// that is available.
    pub(crate) fn or_next(self) -> Self {
        match self {
            Self::Restartable if !self.is_available() => Self::Owned.or_next(),
            Self::Owned if !self.is_available() => Self::Off,
            available => available,
        }
    }

    /// Prepares the calling thread, which begins to act as a CPU, to use fronts (stacks of free
    /// pages) of this kind.
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

/// A front (a stack of free pages) gets a new user after this many calls in a row by threads that
/// are not its user.
pub(crate) const PATIENCE: u32 = STRANGE_MAX;
