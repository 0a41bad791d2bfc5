//! Out of memory: which process to kill, and what happens after the kill.
//!
//! [`badness()`] computes, in points, how much memory killing a process would free. [`Standing`]
//! says whether a process may be killed at all. A selector ([`Selecting`], in `select/`) looks for
//! the candidate with the most points. Memory is counted by [`counter`](crate::counter)s, whose
//! cheap readings have an error within known bounds. The selectors differ in how they deal with
//! this error.
//!
//! [`OomKiller`] kills a victim and every process that has to die with it. Its [`Reaper`] empties
//! the memory of victims that do not free it soon. On request, [`release()`] empties the memory of
//! a dying process at once. [`OutOfMemory`] connects all of this to the page allocator, as its last
//! resort.
//!
//! A selection takes no lock, does not allocate, and can run on any machine. The caller of a
//! selection describes the processes, or the tenants, by the trait [`Candidates`]:
//!
//! ```
//! use plimsoll_mm::counter::{Range, Reading};
//! use plimsoll_mm::oom::{Candidates, Facts, Outcome, Scope, Selecting, Slot, TotalPages};
//!
//! /// Tenants whose memory is slow to read exactly, and cheap to read to within 100 pages.
//! struct Tenants([i64; 3]);
//!
//! impl Candidates for Tenants {
//!     fn len(&self) -> u32 {
//!         3
//!     }
//!     fn facts(&self, _tenant: u32) -> Option<Facts> {
//!         Some(Facts::PROCESS)
//!     }
//!     fn approximate(&self, tenant: u32) -> Option<Reading> {
//!         let estimate = self.0[tenant as usize] / 100 * 100 + 50;
//!         let range = Range { min: estimate - 100, max: estimate + 100 };
//!         Some(Reading { estimate, range })
//!     }
//!     fn precise(&self, tenant: u32) -> Option<i64> {
//!         Some(self.0[tenant as usize])
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn core::error::Error>> {
//! let tenants = Tenants([910, 370, 1090]);
//! let scope = Scope::machine(TotalPages::new(1 << 20)?);
//! let selection = Selecting::Bounded.select(&tenants, &scope, &mut [Slot::EMPTY; 3])?;
//! assert!(matches!(selection.outcome, Outcome::Victim(victim) if victim.candidate == 2));
//! // Tenant 1 is surely smaller. One precise sum is enough to tell the other two apart.
//! assert_eq!(selection.precise_sums, 1);
//! # Ok(())
//! # }
//! ```
//!
//! Locks: the reaper takes `ReapQueue`. A CPU takes `OomKill` before it kills a process.

mod badness;
mod candidate;
mod census;
mod facts;
mod kill;
mod membership;
mod out_of_memory;
mod over_budget;
mod process;
mod reaper;
mod release;
mod report;
mod scope;
mod select;
mod shortage;
mod standing;
mod usages;

pub use self::badness::{NoPages, POINTS_MAX, POINTS_MIN, TotalPages, Usage, badness, oom_score};
pub use self::candidate::Candidates;
pub use self::census::{Census, Pages};
pub use self::facts::{AdjOutOfRange, Facts, GroupId, Kind, Memory, ScoreAdj};
pub use self::kill::{Aftermath, Killed, OomKiller, Signals};
pub use self::out_of_memory::{First, Look, OutOfMemory, Owner, Rules};
pub use self::process::{Parted, Process, State};
pub use self::reaper::{Done, How, Next, Patience, Reaper, Stepped};
pub use self::release::{ReleaseError, Released, release};
pub use self::report::{Report, Row, Verdict};
pub use self::scope::{Constraint, Scope, Trigger};
pub use self::select::{
    Approximate, Bounded, NoVictim, Outcome, Precise, SelectError, Selecting, Selection, Selector,
    Slot, TwoPass, Victim,
};
pub use self::standing::Standing;
pub use self::usages::{sum_rss, sum_spaces};
