//! Slices of a simulated run. A slice is one thing that a CPU or a task did, from one virtual time
//! to another.
//!
//! A [`Tracer`] observes one run and keeps the slices that lie in given windows of virtual time. It
//! reads only values that can be read without virtual time. So a traced run has the same hash as a
//! run that is not traced. A trace for Perfetto ([`crate::perfetto`]) and the explanation of waits
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

/// How many slices (things that a CPU or a task did) of a run are kept unless the user names a
/// window. A trace with this number of slices has about 13 MB.
pub const SLICES_MAX: usize = 250_000;
/// How many slices (things that a CPU or a task did) of a run can be kept at most. Together with
/// the trace that is made from them, they take about 600 MB of memory.
pub const SLICES_MOST: usize = 8_000_000;
/// How many of the longest waits of each run are kept.
pub const LONGEST: usize = 10;

/// Says which slices (things that a CPU or a task did) of a run are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The windows of virtual time. A slice is kept only if it lies in at least one of these
    /// windows.
    pub windows: Vec<Window>,
    /// The largest number of slices that are kept.
    pub slices_max: usize,
}

/// The slices (what each CPU and task did) of a run, with the index of its machine and the index of
/// its design in the command.
type Placed = ((usize, usize), Slices);

/// The slices (what each CPU and task did, and when) of the traced runs of a command. For each
/// design, the run with the first seed is traced. Clones share the slices.
#[derive(Clone, Debug)]
pub struct Traces {
    limits: Limits,
    /// For each machine and design in this map, the windows that are used instead of
    /// `limits.windows`.
    each: BTreeMap<(String, String), Vec<Window>>,
    kept: Arc<Mutex<Vec<Placed>>>,
}

impl Traces {
    /// Makes traces that keep the slices of each run within `limits`.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            each: BTreeMap::new(),
            kept: Arc::default(),
        }
    }

    /// Makes traces that keep only the slices in certain windows of time. `each` gives the windows
    /// for each machine and design.
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

    /// Returns the limits on the slices that are kept from the run of `design` on `machine`.
    pub(crate) fn limits(&self, machine: &str, design: &str) -> Limits {
        let key = (machine.to_owned(), design.to_owned());
        let windows = self.each.get(&key).unwrap_or(&self.limits.windows);
        Limits {
            windows: windows.clone(),
            ..self.limits
        }
    }

    /// Keeps the slices of a run. `place` has two indices: that of the run's machine, and that of
    /// the run's design, as the command lists them.
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
