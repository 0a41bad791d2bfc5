//! Slices: what each CPU of a simulated run did from when until when, with nanoseconds of virtual
//! time.
//!
//! A [`Tracer`] observes one run and keeps the slices that lie in given windows of virtual time. It
//! reads only what takes no virtual time to read, so a traced run has the same hash as one that is
//! not traced. A trace for Perfetto ([`crate::perfetto`]) and the explanation of waits
//! ([`crate::explain`]) are made from slices.

mod collect;
mod data;
mod ends;
mod window;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

pub use self::collect::Tracer;
pub use self::data::{
    Count, Counted, Disturbed, Held, Mark, Moved, PhaseSlice, Releaser, Run, Slices, Waited,
};
pub use self::window::Window;

/// The number of slices of a run that are kept unless the user names a window. A trace of so many
/// slices has about 13 MB.
pub const SLICES_MAX: usize = 250_000;
/// The largest number of slices of a run that are kept. With the trace that is made from them, they
/// take about 1.5 GB of memory.
pub const SLICES_MOST: usize = 8_000_000;
/// The number of the longest waits that are kept of each run.
pub const LONGEST: usize = 10;

/// Which slices of a run to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The windows; slices that lie in none of them are not kept.
    pub windows: Vec<Window>,
    /// The largest number of slices.
    pub slices_max: usize,
}

/// The slices of a run, with the places of its machine and its design among those of the command.
type Placed = ((usize, usize), Slices);

/// The slices of the traced runs of a command: of the first seed's run of each design. Clones share
/// them.
#[derive(Clone, Debug)]
pub struct Traces {
    limits: Limits,
    /// The windows of single runs, by machine and design, in place of those of `limits`.
    each: BTreeMap<(String, String), Vec<Window>>,
    kept: Arc<Mutex<Vec<Placed>>>,
}

impl Traces {
    /// Keeps the slices of each run that `limits` describes.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            each: BTreeMap::new(),
            kept: Arc::default(),
        }
    }

    /// Keeps the slices in the windows that `each` has for a machine and a design.
    #[must_use]
    pub fn in_windows(each: BTreeMap<(String, String), Vec<Window>>) -> Self {
        let limits = Limits {
            windows: Vec::new(),
            slices_max: SLICES_MOST,
        };
        Self {
            each,
            ..Self::new(limits)
        }
    }

    /// The limits of the run of `design` on `machine`.
    pub(crate) fn limits(&self, machine: &str, design: &str) -> Limits {
        let key = (machine.to_owned(), design.to_owned());
        let windows = self.each.get(&key).unwrap_or(&self.limits.windows);
        Limits {
            windows: windows.clone(),
            ..self.limits
        }
    }

    /// Keeps the slices of a run. `place` is the place of its machine and its design among those of
    /// the command.
    pub(crate) fn keep(&self, place: (usize, usize), slices: Slices) {
        self.lock().push((place, slices));
    }

    /// Removes and returns the slices that have been kept, in the order of machines and designs.
    #[must_use]
    pub fn take(&self) -> Vec<Slices> {
        let mut kept = std::mem::take(&mut *self.lock());
        kept.sort_by_key(|(place, _)| *place);
        kept.into_iter().map(|(_, slices)| slices).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Placed>> {
        self.kept.lock().expect("no holder of this lock panics")
    }
}
