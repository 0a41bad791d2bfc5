//! Returning the memory of free huge blocks to the kernel, in the background (Linux:
//! `mm/page_reporting.c`; a balloon that reports free pages).
//!
//! A thread looks for such blocks in rounds. If a block of 512 or 1024 pages has stayed free from
//! one round to the next, it leaves its zone while the kernel takes the memory back. After that,
//! the block is free again. An allocation that gets such a block need not know: the first access to
//! a page takes memory from the kernel again. So memory that a program needed once does not stay
//! resident.
//!
//! Locks: a mutex guards the condition for which the thread waits. No thread takes another lock
//! while it holds this mutex. A forked child does not take the mutex, because a thread that does
//! not exist in the child may hold it.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, io, mem};

use plimsoll_mm::Manager;
use plimsoll_mm::page::{Reported, Sweep};
use plimsoll_mm::units::{Order, Pages};

use crate::Host;
use crate::discard::ToKernel;

/// How often and how much free memory is returned to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The time between two rounds; it must not be 0. A round returns the memory of a block if the
    /// block was free in the previous round too, and was not used in between. So a block's memory
    /// is returned when the block has been free for one to two intervals, if `most` is large
    /// enough.
    pub interval: Duration,
    /// The approximate limit on the number of pages that one round returns. It must be at least
    /// 1024. If more pages are due, later rounds return them: at the default, 64 GiB take 512
    /// rounds, or 17 minutes.
    pub most: Pages,
}

impl Default for Pace {
    /// A round every 2 seconds, as in Linux, that returns at most 128 MiB.
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(2),
            most: Pages::from_bytes(128 << 20),
        }
    }
}

/// The thread that returns free memory. Dropping this value stops and joins the thread. In a forked
/// child, which has no such thread, the drop does nothing.
#[must_use = "dropping it stops the thread"]
pub struct ReturnFree {
    host: Host,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    table: Mutex<Table>,
    changed: Condvar,
}

#[derive(Default)]
struct Table {
    stopping: bool,
    rounds: u64,
    given: u64,
    refused: u64,
}

/// What the thread of a [`ReturnFree`] has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Returned {
    /// The number of rounds that have ended.
    pub rounds: u64,
    /// The number of pages whose memory the kernel took. A page counts each time that its memory is
    /// taken.
    pub given: u64,
    /// The number of pages whose memory the kernel refused. [`ToKernel::take_error`] has the reason
    /// for the first refusal.
    pub refused: u64,
}

impl ReturnFree {
    /// Starts the thread, which returns the memory of free pages of `manager`. Page `n` of
    /// `manager` must be frame `n` of the arena of `to_kernel`.
    ///
    /// `manager` must belong to `host`. If the thread panics, it ends; [`ReturnFree::is_running`]
    /// says so.
    ///
    /// # Errors
    /// If `pace.most` is less than 1024 pages, `pace.interval` is 0, or the thread could not be
    /// created.
    ///
    /// # Safety
    /// The thread zeroes frames whose pages are free in `manager`. While page `n` is free in
    /// `manager`, no reference to the memory of frame `n` may exist, and no thread may read or
    /// write this memory, even if the page was never allocated. So no other manager may use the
    /// arena, and no thread may access a page after it was freed.
    #[expect(
        unsafe_code,
        reason = "it destroys the contents of free frames, even for code that has a reference"
    )]
    pub unsafe fn start(
        host: &Host,
        manager: Arc<Manager<Host>>,
        to_kernel: ToKernel,
        pace: Pace,
    ) -> io::Result<Self> {
        if pace.most < Order::MAX.pages() {
            let why = "a round returns whole blocks: give it at least 1024 pages";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if pace.interval.is_zero() {
            let why = "the thread would never sleep: set an interval above 0";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let state = Arc::new(State::default());
        let parent = host.clone();
        let (host, shared) = (host.clone(), Arc::clone(&state));
        let thread = thread::Builder::new().name("plimsoll/return".into());
        let thread = thread.spawn(move || {
            let mut sweep = Sweep::default();
            while shared.sleep(pace.interval) {
                // SAFETY: `report_free` calls this while the block is free in `manager` and off its
                // lists. By the contract of `start`, nothing uses the frames of free pages.
                let report = |pfn, order| unsafe { to_kernel.give_block(&host, pfn, order) };
                let pages = manager.pages();
                shared.count(pages.report_free(&host, &mut sweep, pace.most, report));
            }
        })?;
        Ok(Self {
            host: parent,
            state,
            thread: Some(thread),
        })
    }

    /// Whether the thread still runs. If the thread has panicked, no more memory is returned to the
    /// kernel.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    /// What the thread has done so far.
    #[must_use]
    pub fn returned(&self) -> Returned {
        let table = self.state.table();
        Returned {
            rounds: table.rounds,
            given: table.given,
            refused: table.refused,
        }
    }
}

impl State {
    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps for `time`. Returns false, at once, if the thread has to stop.
    fn sleep(&self, time: Duration) -> bool {
        let goes_on = |table: &mut Table| !table.stopping;
        let waited = self.changed.wait_timeout_while(self.table(), time, goes_on);
        let (table, _timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        !table.stopping
    }

    fn count(&self, reported: Reported) {
        let mut table = self.table();
        table.rounds += 1;
        table.given += u64::from(reported.given.0);
        table.refused += u64::from(reported.refused.0);
    }
}

impl Drop for ReturnFree {
    fn drop(&mut self) {
        if self.host.is_in_child() {
            // A forked child does not have this thread. Joining or detaching a thread that does not
            // exist is undefined.
            mem::forget(self.thread.take());
            return;
        }
        self.state.table().stopping = true;
        self.state.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the panic was printed, and no memory is returned any more.
            let _outcome = thread.join();
        }
    }
}

impl fmt::Debug for ReturnFree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReturnFree")
            .field("returned", &self.returned())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_all_rounds_are_added() {
        let state = State::default();
        for (given, refused) in [(1024, 512), (0, 512), (2048, 0)] {
            let [given, refused] = [given, refused].map(Pages);
            state.count(Reported { given, refused });
        }
        let table = state.table();
        assert_eq!((table.rounds, table.given, table.refused), (3, 3072, 1024));
    }
}
