//! A limit of pages for an address space or a group of them (Linux: the `page_counter` of a memory
//! cgroup).
//!
//! ```text
//! machine   used 700 of 1000
//!   └─ app  used 500 of  600    killed together: who dies here takes the others along
//!        ├─ tab   used 300, no limit
//!        └─ tab   used 200 of 200
//! ```
//!
//! What is charged to a budget is charged to every one above it, or to none. One word per level,
//! no lock: a charge adds, looks, and takes back what was too much. So nobody who was let in is
//! ever beyond a limit, but of two who come at once both may be refused although one would fit.
//!
//! Invariant: `used` is what was charged and not uncharged, when nothing is under way.

use alloc::sync::Arc;
use core::fmt;
use core::iter;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::machine::{Field, Machine, Word};

/// More pages than any machine has, and so few that sums of them cannot wrap.
const PAGES_MAX: u64 = 1 << 48;

/// Pages that may be used, and how many are.
pub struct Budget<M: Machine> {
    used: M::Word,
    limit: M::Field,
    parent: Option<Arc<Self>>,
    group: Group,
}

/// What else dies when a member is killed for want of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    /// Nothing.
    Apart,
    /// Everybody under the budget (Linux: `memory.oom.group`).
    Together,
}

impl<M: Machine> Budget<M> {
    /// At most `limit` pages, under nothing else; [`u64::MAX`] is no limit.
    #[must_use]
    pub fn new(machine: &M, limit: u64) -> Self {
        Self {
            used: machine.word(0),
            limit: machine.field(limit),
            parent: None,
            group: Group::Apart,
        }
    }

    /// The same under `parent`, which every page is charged to as well.
    #[must_use]
    pub fn under(machine: &M, limit: u64, parent: Arc<Self>) -> Self {
        Self {
            parent: Some(parent),
            ..Self::new(machine, limit)
        }
    }

    /// The same, but all under it die together (Linux: `memory.oom.group`).
    #[must_use]
    pub fn killed_together(self) -> Self {
        Self {
            group: Group::Together,
            ..self
        }
    }

    /// Charges `pages` to this budget and to all above it (Linux: `page_counter_try_charge`).
    ///
    /// Others may see the pages of a charge that is then refused, until it returns.
    ///
    /// # Errors
    /// The first budget, from this one upwards, that would be beyond its limit. Nothing is charged
    /// then. No pages are never too many.
    pub fn charge(&self, machine: &M, pages: u64) -> Result<(), OverBudget> {
        if pages == 0 {
            return Ok(());
        }
        for (level, budget) in (0..).zip(self.upwards()) {
            if let Err(used) = budget.charge_here(machine, pages) {
                let charged = self.upwards().take(level as usize);
                charged.for_each(|below| below.uncharge_here(machine, pages));
                let limit = budget.limit();
                return Err(OverBudget { level, limit, used });
            }
        }
        Ok(())
    }

    /// Takes `pages` away from this budget and from all above it (Linux: `page_counter_uncharge`).
    ///
    /// More than were charged is a mistake of the caller: it stops a build with debug assertions,
    /// and otherwise leaves 0.
    pub fn uncharge(&self, machine: &M, pages: u64) {
        self.upwards()
            .for_each(|budget| budget.uncharge_here(machine, pages));
    }

    /// Pages charged to it, those of charges under way included.
    pub fn used(&self, machine: &M) -> u64 {
        // Relaxed: a number to look at; nobody orders anything by it.
        u64::try_from(self.used.load(machine, Relaxed)).unwrap_or(0)
    }

    /// Pages it may have; [`u64::MAX`] is no limit.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit.get()
    }

    /// Changes the limit. It may be below what is used: then nothing is taken away, but every charge
    /// is refused until enough was uncharged. Of two changes at once either may last.
    pub fn set_limit(&self, limit: u64) {
        self.limit.set(limit);
    }

    /// What it is under.
    #[must_use]
    pub fn parent(&self) -> Option<&Arc<Self>> {
        self.parent.as_ref()
    }

    /// The budget so many levels above; 0 is this one.
    #[must_use]
    pub fn above(self: &Arc<Self>, level: u32) -> Option<&Arc<Self>> {
        iter::successors(Some(self), |budget| budget.parent()).nth(level as usize)
    }

    /// All under which budget die if a member of this one is killed because `domain` ran out, or
    /// the machine if that is `None`: the highest budget that is killed together, this one included,
    /// not above `domain` (Linux: `mem_cgroup_get_oom_group`).
    ///
    /// `None` if the member dies alone, or if this budget is not under `domain`.
    #[must_use]
    pub fn dies_together(self: &Arc<Self>, domain: Option<&Arc<Self>>) -> Option<Arc<Self>> {
        let mut highest = None;
        for budget in iter::successors(Some(self), |budget| budget.parent()) {
            if budget.group == Group::Together {
                highest = Some(budget);
            }
            if domain.is_some_and(|domain| Arc::ptr_eq(domain, budget)) {
                return highest.cloned();
            }
        }
        // The root was passed: every budget is in the machine, but not in a domain that was not met.
        highest.filter(|_| domain.is_none()).cloned()
    }

    /// This one, then its parent, up to the root.
    fn upwards(&self) -> impl Iterator<Item = &Self> {
        iter::successors(Some(self), |budget| budget.parent.as_deref())
    }

    /// Charges this level alone, or says how much of it others use.
    fn charge_here(&self, machine: &M, pages: u64) -> Result<(), u64> {
        let limit = self.limit().min(PAGES_MAX);
        let wanted = match i64::try_from(pages) {
            Ok(wanted) if pages <= limit => wanted,
            _ => return Err(self.used(machine)),
        };
        // Acquire pairs with the Release in `uncharge_here`: who gets in because somebody else left
        // comes after what that one did before it left.
        let now = self.used.add(machine, wanted, Acquire);
        if u64::try_from(now).unwrap_or(0) <= limit {
            return Ok(());
        }
        self.uncharge_here(machine, pages);
        Err(u64::try_from(now - wanted).unwrap_or(0))
    }

    fn uncharge_here(&self, machine: &M, pages: u64) {
        // So much was never charged; below 0 it is noticed.
        let gone = i64::try_from(pages.min(PAGES_MAX)).unwrap_or(i64::MAX);
        // Release pairs with the Acquire in `charge_here`.
        let now = self.used.add(machine, -gone, Release);
        debug_assert!(now >= 0, "no more is uncharged than was charged");
        if now < 0 {
            // Gives back its own part of what is missing: of several who err each does so.
            self.used.add(machine, gone.min(-now), Relaxed);
        }
    }
}

impl<M: Machine> fmt::Debug for Budget<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("limit", &self.limit())
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

/// Which budget had no room. Nothing was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverBudget {
    /// 0 is the budget that was charged, 1 its parent, and so on.
    pub level: u32,
    /// Its limit in pages.
    pub limit: u64,
    /// Pages of it that others used just then.
    pub used: u64,
}

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, limit, used } = self;
        write!(f, "over budget: {used} of {limit} pages are used")?;
        if *level > 0 {
            write!(f, " by the group {level} above")?;
        }
        f.write_str(": give some back, or raise the limit")
    }
}

impl core::error::Error for OverBudget {}
