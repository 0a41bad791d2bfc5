//! A design together with the values of its knobs.

use std::fmt;

use plimsoll_mm::tunables::Tunables;

use super::designs::Named;

/// A design with a value for each knob.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The design, with its label.
    pub named: Named,
    /// The values of the knobs.
    pub tunables: Tunables,
}

impl fmt::Display for Tuned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.named.fmt(f)
    }
}
