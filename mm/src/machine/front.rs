//! Fronts: for each CPU, a stack of free single pages that the CPU uses without a lock.

use super::Machine;

/// A stack of free single pages in front of one CPU's page lists. That CPU pushes and pops pages
/// without a lock. Any CPU can empty the stack.
///
/// A thread can use a front only while the machine knows that the thread is on the front's CPU. If
/// a call reports that the caller cannot use the front at the moment, the caller uses the page
/// lists instead. So a machine may refuse any call except [`Front::empty`].
///
/// The manager emits no events for pages that it pops from a front or frees to it. So a machine
/// that has observers makes fronts without room.
///
/// Every function takes or returns a page as its index within the zone. A caller of [`Front::push`]
/// owns the page until the push succeeds; a caller that pops a page owns it from then on.
pub trait Front<M: Machine> {
    /// The largest number of pages that the stack can hold. No stack has a higher limit.
    const CAPACITY: u32;

    /// Takes the page that was pushed last. Returns `None` if the stack is empty, or if the caller
    /// cannot use the stack at the moment.
    fn pop(&self, machine: &M) -> Option<u32>;

    /// Frees an allocated page to the stack: changes the tag of `page` from `old` to `new`, then
    /// pushes the page. If two calls free the same page, one of them finds that the tag is not
    /// `old`, unless both read the tag before either changes it. The documentation of the machine
    /// says how likely it is that both calls read the tag first.
    fn free(&self, machine: &M, tags: &M::Tags, page: u32, old: u8, new: u8) -> Freed;

    /// Pushes a page whose tag the caller has set. Returns `false`, without having done anything,
    /// if the stack is at its limit, or if the caller cannot use the stack at the moment.
    fn push(&self, machine: &M, page: u32) -> bool;

    /// Pops up to `pages.len()` pages into `pages`. The page that was pushed last comes first.
    /// Returns the number of pages. The result is that of as many calls of [`Front::pop`].
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

    /// Pushes `pages`, whose tags the caller has set, in their order. Returns how many of them it
    /// has pushed. A stack that has no room for all of them may refuse all of them.
    fn push_run(&self, machine: &M, pages: &[u32]) -> usize {
        let pushed = pages.iter().take_while(|&&page| self.push(machine, page));
        pushed.count()
    }

    /// Returns whether the caller can use the stack now. If no other CPU uses the stack, the caller
    /// becomes its user. Otherwise, the caller takes the stack over after many such calls, if the
    /// other CPU has not used the stack between them.
    fn admits(&self, machine: &M) -> bool;

    /// Keeps every CPU from using the stack, passes all pages to `f`, and then lets the CPUs use
    /// the stack again. Passes the pages in runs, from the page pushed last to the page pushed
    /// first. If another CPU calls this function at the same time, that CPU waits. All other calls
    /// that use the stack are refused until this function returns. `f` must not use the stack. Any
    /// CPU may call this.
    fn empty(&self, machine: &M, f: impl FnMut(&[u32]));

    /// Offers a run of pages to the stacks that other CPUs have for the same zone. The pages have
    /// the tags of pages on a stack. They count as pages of this stack until another stack takes
    /// them or this stack is emptied. Returns `false`, without having done anything, if the machine
    /// does not keep the run.
    fn give_run(&self, _machine: &M, _pages: &[u32]) -> bool {
        false
    }

    /// Takes a run that a CPU has offered by [`Front::give_run`], and copies it to `pages`. Returns
    /// `false`, without having done anything, if no run of this length is on offer.
    fn take_run(&self, _machine: &M, _pages: &mut [u32]) -> bool {
        false
    }

    /// The number of pages on the stack. The number may be outdated, but includes every push that
    /// happened before the call.
    fn pages(&self) -> u32;

    /// Returns whether no CPU has pushed or popped a page since the last call of this function.
    fn is_idle(&self) -> bool;

    /// The number of pages that the stack may hold. If this is 0, no page can be pushed.
    fn limit(&self) -> u32;

    /// Changes the limit. Pages beyond the limit stay until they are popped or the stack is
    /// emptied.
    fn set_limit(&self, pages: u32);
}

/// The outcome of [`Front::free`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freed {
    /// The page has its new tag, and is on the stack of free pages.
    Pushed,
    /// The page has its new tag, but is not on the stack of free pages. The caller still owns it.
    Tagged,
    /// Nothing has changed: the page has another tag than `old`, or the caller cannot use the stack
    /// of free pages.
    Unchanged,
}
