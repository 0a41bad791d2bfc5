//! Out of memory: whom to kill, and what comes after.
//!
//! [`badness()`] says how much would be gained by killing a process, in points, and [`Standing`] who
//! may be killed at all. A selector ([`Selecting`], in `select/`) looks for the candidate with the
//! most points. Memory is counted by [`counter`](crate::counter)s that are cheap to read but only
//! within bounds, so the selectors differ in what they do about that.
//!
//! [`OomKiller`] kills, with all who have to die as well; its [`Reaper`] empties what a victim does not
//! give back soon, and [`release()`] does so at once for whoever asks. [`OutOfMemory`] joins all of it to
//! the page allocator, as its last resort.
//!
//! No selection knows a machine, takes a lock or allocates. A caller describes its processes, or its
//! tenants, by the trait [`Candidates`]:
//!
//! ```
//! use plimsoll_mm::counter::Range;
//! use plimsoll_mm::oom::{
//!     Candidates, Facts, Outcome, Reading, Scope, Selecting, Slot, TotalPages,
//! };
//!
//! /// Tenants whose memory is known slowly, and cheaply to 100 pages.
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
//! // Tenant 1 is surely smaller. Of the others one sum is enough to tell them apart.
//! assert_eq!(selection.precise_sums, 1);
//! # Ok(())
//! # }
//! ```
//!
//! Locks: `ReapQueue`, by the reaper; `OomKill`, by who is about to kill.

mod badness;
mod candidate;
mod census;
mod kill;
mod out_of_memory;
mod over_budget;
mod process;
mod reaper;
mod release;
mod report;
mod scope;
mod select;
mod shortage;

pub use self::badness::{NoPages, POINTS_MAX, POINTS_MIN, TotalPages, Usage, badness, oom_score};
pub use self::candidate::{
    AdjOutOfRange, Candidates, Facts, GroupId, Kind, Memory, Reading, ScoreAdj,
};
pub use self::census::{Census, Pages};
pub use self::kill::{Aftermath, Killed, OomKiller, Signals};
pub use self::out_of_memory::{First, Look, OutOfMemory, Owner, Rules};
pub use self::process::{Parted, Process, State};
pub use self::reaper::{Done, How, Next, Patience, Reaper, Stepped};
pub use self::release::{ReleaseError, Released, release};
pub use self::report::{Report, Row, Verdict};
pub use self::scope::{Constraint, NodeSet, Scope, Standing, Trigger};
pub use self::select::{
    Approximate, Bounded, NoVictim, Outcome, Precise, SelectError, Selecting, Selection, Slot,
    TwoPass, Victim,
};
