//! A limit of pages for an address space or a group of them (Linux: the `page_counter` of a memory
//! cgroup).
//!
//! ```text
//! machine   used 700 of 1000
//!   └─ app  used 500 of  600    killed together: the death of a member takes the others along
//!        ├─ tab   used 300, no limit
//!        └─ tab   used 200 of 200
//! ```
//!
//! A charge counts against its budget and against every budget above. If one of these budgets
//! refuses the charge, the charge counts against none of them. Each budget has one word for its
//! charged pages, and no lock. A charge adds its pages to the word, compares the sum with the
//! limit, and subtracts the pages again if the sum exceeds the limit. So no accepted charge ever
//! exceeds a limit. But if two CPUs charge at the same time, both charges can be refused, although
//! one of them would fit.
//!
//! Invariant: when no charge is under way, `used` is the number of pages charged and not uncharged.

use alloc::sync::Arc;
use core::fmt;
use core::iter;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::machine::{Field, Machine, Word};
use crate::units::{at_least_0, signed};

/// The largest number of pages that can be charged to a budget, even to one without a limit. It is
/// more than any machine has, but small enough that sums of charges cannot wrap.
const PAGES_MAX: u64 = 1 << 48;

/// A limit on the number of pages, and the number of pages charged against it.
pub struct Budget<M: Machine> {
    used: M::Word,
    limit: M::Field,
    parent: Option<Arc<Self>>,
    group: Group,
}

/// Which other processes under a budget the OOM killer also kills when it kills one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    /// No other process.
    Apart,
    /// Every process under the budget (Linux: `memory.oom.group`).
    Together,
}

impl<M: Machine> Budget<M> {
    /// Makes a budget without a parent, with a limit of `limit` pages. [`u64::MAX`] means no limit.
    #[must_use]
    pub fn new(machine: &M, limit: u64) -> Self {
        Self {
            used: machine.word(0),
            limit: machine.field(limit),
            parent: None,
            group: Group::Apart,
        }
    }

    /// Makes a budget of at most `limit` pages under `parent`. Every page charged to the new budget
    /// is also charged to `parent`.
    #[must_use]
    pub fn under(machine: &M, limit: u64, parent: Arc<Self>) -> Self {
        Self {
            parent: Some(parent),
            ..Self::new(machine, limit)
        }
    }

    /// Returns this budget, marked so that all processes under it are killed together (Linux:
    /// `memory.oom.group`).
    #[must_use]
    pub fn killed_together(self) -> Self {
        Self {
            group: Group::Together,
            ..self
        }
    }

    /// Charges `pages` to this budget and to all above it (Linux: `page_counter_try_charge`).
    ///
    /// The pages of a charge that is refused can be visible in [`Budget::used`] for a moment.
    ///
    /// # Errors
    /// [`OverBudget`] names the first budget, from this one upwards, that would exceed its limit.
    /// In that case, nothing is charged. A charge of 0 pages always succeeds.
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

    /// Uncharges `pages` from this budget and from all above it (Linux: `page_counter_uncharge`).
    ///
    /// Uncharging more than was charged is a mistake of the caller. With debug assertions, this
    /// call panics; without them, it leaves the budget at 0.
    pub fn uncharge(&self, machine: &M, pages: u64) {
        self.upwards()
            .for_each(|budget| budget.uncharge_here(machine, pages));
    }

    /// Returns the number of pages charged to this budget, including those of charges under way.
    pub fn used(&self, machine: &M) -> u64 {
        // Relaxed: the number is only for information. If a caller uncharges too many pages, the
        // word is below 0 until that caller adds the missing pages.
        at_least_0(self.used.load(machine, Relaxed))
    }

    /// Returns the limit in pages; [`u64::MAX`] means no limit.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit.get()
    }

    /// Changes the limit. If the new limit is below `used`, no page is freed, but every charge is
    /// refused until enough is uncharged. If two CPUs change the limit at once, either value may
    /// remain.
    pub fn set_limit(&self, limit: u64) {
        self.limit.set(limit);
    }

    /// Returns the budget directly above this one.
    #[must_use]
    pub fn parent(&self) -> Option<&Arc<Self>> {
        self.parent.as_ref()
    }

    /// Returns the budget `level` levels above this one; level 0 is this budget itself.
    #[must_use]
    pub fn above(self: &Arc<Self>, level: u32) -> Option<&Arc<Self>> {
        iter::successors(Some(self), |budget| budget.parent()).nth(level as usize)
    }

    /// Returns the budget whose processes are all killed if a process of this budget is killed
    /// because `domain` ran out of pages. A `domain` of `None` means the machine. The result is the
    /// highest budget between this one and `domain` that is [marked](Self::killed_together) so that
    /// all its processes are killed together (Linux: `mem_cgroup_get_oom_group`).
    ///
    /// Returns `None` if only the process itself is killed, or if this budget is not under
    /// `domain`.
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
        // The loop has passed the root without finding `domain`. If `domain` is `None`, the
        // shortage is one of the whole machine, and every budget is under the machine. Otherwise
        // this budget is not under `domain`.
        highest.filter(|_| domain.is_none()).cloned()
    }

    /// Returns this budget, then its parent, up to the root.
    fn upwards(&self) -> impl Iterator<Item = &Self> {
        iter::successors(Some(self), |budget| budget.parent.as_deref())
    }

    /// Charges this budget, but none of those above it. If the charge would exceed the limit,
    /// returns, as the error, the number of pages that other charges use.
    fn charge_here(&self, machine: &M, pages: u64) -> Result<(), u64> {
        let limit = self.limit().min(PAGES_MAX);
        let wanted = match i64::try_from(pages) {
            Ok(wanted) if pages <= limit => wanted,
            _ => return Err(self.used(machine)),
        };
        // Acquire pairs with the Release in `uncharge_here`: if this charge succeeds because
        // another CPU has uncharged, this CPU sees everything that the other CPU did before it
        // uncharged.
        let now = self.used.add(machine, wanted, Acquire);
        if at_least_0(now) <= limit {
            return Ok(());
        }
        self.uncharge_here(machine, pages);
        Err(at_least_0(now - wanted))
    }

    fn uncharge_here(&self, machine: &M, pages: u64) {
        // No more than `PAGES_MAX` pages can be charged in total. So if `pages` is larger,
        // subtracting only `PAGES_MAX` still makes the value negative, and the mistake is noticed.
        let gone = signed(pages.min(PAGES_MAX));
        // Release pairs with the Acquire in `charge_here`.
        let now = self.used.add(machine, -gone, Release);
        debug_assert!(now >= 0, "no more is uncharged than was charged");
        if now < 0 {
            // Adds pages back until the value is 0, but no more than this call has subtracted. If
            // several calls uncharge too much, each of them corrects its own part.
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

/// The error of a refused charge: the budget whose limit the charge would exceed. Nothing was
/// charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverBudget {
    /// The budget's level: 0 is the budget that was charged, 1 its parent, and so on.
    pub level: u32,
    /// The budget's limit in pages.
    pub limit: u64,
    /// The number of the budget's pages that other charges used when this charge was refused.
    pub used: u64,
}

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, limit, used } = self;
        write!(f, "over budget: {used} of {limit} pages ")?;
        match level {
            0 => {}
            1 => f.write_str("of the parent budget ")?,
            _ => write!(f, "of the budget {level} levels above ")?,
        }
        f.write_str("are used: give some back, or raise the limit")
    }
}

impl core::error::Error for OverBudget {}
