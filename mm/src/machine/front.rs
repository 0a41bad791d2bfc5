//! Fronts: for each CPU, stacks of free blocks that the CPU uses without a lock.

use super::Machine;

/// A stack of free blocks of one order in front of one CPU's page lists. That CPU pushes and pops
/// blocks without a lock. Any CPU can empty the stack. A CPU has a front for single pages and one
/// for huge blocks in each zone.
///
/// A thread can use a front only while the machine knows that the thread is on the front's CPU. If
/// a call reports that the caller cannot use the front at the moment, the caller uses the page
/// lists instead. So a machine may refuse any call except [`Front::empty`].
///
/// The manager emits no events for blocks that it pops from a front or frees to it. So a machine
/// whose observers need these events makes fronts without room.
///
/// Every function takes or returns a block as the index of its first page within the zone. A caller
/// of [`Front::push`] owns the block until the push succeeds; a caller that pops a block owns it
/// from then on.
pub trait Front<M: Machine> {
    /// The largest number of blocks that the stack can hold. No stack has a higher limit.
    const CAPACITY: u32;

    /// Takes the block that was pushed last. Returns `None` if the stack is empty, or if the caller
    /// cannot use the stack at the moment.
    fn pop(&self, machine: &M) -> Option<u32>;

    /// Frees an allocated block to the stack: changes the tag of `page`, the block's first page,
    /// from `old` to `new`, and pushes the block. If two calls free the same block, one of them
    /// finds that the tag is not `old`, unless both read the tag before either changes it. The
    /// documentation of the machine says how likely it is that both calls read the tag first.
    fn free(&self, machine: &M, tags: &M::Tags, page: u32, old: u8, new: u8) -> Freed;

    /// Pushes a block whose tag the caller has set. Returns `false`, without having done anything,
    /// if the stack is at its limit, or if the caller cannot use the stack at the moment.
    fn push(&self, machine: &M, page: u32) -> bool;

    /// Pops up to `pages.len()` blocks into `pages`. The block that was pushed last comes first.
    /// Returns the number of blocks. The result is that of as many calls of [`Front::pop`].
    fn pop_run(&self, machine: &M, pages: &mut [u32]) -> usize {
        let mut got = 0;
        while got < pages.len()
            && let Some(page) = self.pop(machine)
        {
            pages[got] = page;
            got += 1;
        }
        got
    }

    /// Pushes the blocks `pages`, whose tags the caller has set, in their order. Returns how many
    /// of them it has pushed. A stack that has no room for all of them may refuse all of them.
    fn push_run(&self, machine: &M, pages: &[u32]) -> usize {
        let pushed = pages.iter().take_while(|&&page| self.push(machine, page));
        pushed.count()
    }

    /// Returns whether the caller can use the stack now. If no other CPU uses the stack, the caller
    /// becomes its user. Otherwise, the caller takes the stack over after many such calls, if the
    /// other CPU has not used the stack between them.
    fn admits(&self, machine: &M) -> bool;

    /// Keeps every CPU from using the stack, passes all blocks to `f`, and then lets the CPUs use
    /// the stack again. Passes the blocks in runs, from the block pushed last to the block pushed
    /// first. If another CPU calls this function at the same time, that CPU waits. All other calls
    /// that use the stack are refused until this function returns. `f` must not use the stack. Any
    /// CPU may call this.
    fn empty(&self, machine: &M, f: impl FnMut(&[u32]));

    /// Offers a run of blocks to the stacks that other CPUs have for the same zone and order. The
    /// blocks have the tags of blocks on a stack. They count as blocks of this stack until another
    /// stack takes them or this stack is emptied. Returns `false`, without having done anything, if
    /// the machine does not keep the run.
    fn give_run(&self, _machine: &M, _pages: &[u32]) -> bool {
        false
    }

    /// Takes a run that a CPU has offered by [`Front::give_run`], and copies it to `pages`. Returns
    /// `false`, without having done anything, if no run of this length is on offer.
    fn take_run(&self, _machine: &M, _pages: &mut [u32]) -> bool {
        false
    }

    /// The number of blocks on the stack. The number may be outdated, but includes every push that
    /// happened before the call.
    fn blocks(&self) -> u32;

    /// Returns whether no CPU has pushed or popped a block since the last call of this function.
    fn is_idle(&self) -> bool;

    /// The number of blocks that the stack may hold. If this is 0, no block can be pushed.
    fn limit(&self) -> u32;

    /// Changes the limit. Blocks beyond the limit stay until they are popped or the stack is
    /// emptied.
    fn set_limit(&self, blocks: u32);
}

/// The outcome of [`Front::free`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freed {
    /// The block has its new tag, and is on the stack of free blocks.
    Pushed,
    /// The block has its new tag, but is not on the stack of free blocks. The caller still owns it.
    Tagged,
    /// Nothing has changed: the block has another tag than `old`, or the caller cannot use the
    /// stack of free blocks.
    Unchanged,
}
