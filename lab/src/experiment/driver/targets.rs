//! The targets for our designs, and the table that shows whether they were reached.

use crate::report::{Table, tabulate};

/// One target that our design must reach.
#[derive(Clone, Debug)]
pub(in crate::experiment) struct Target {
    pub(in crate::experiment) what: &'static str,
    pub(in crate::experiment) wanted: &'static str,
    pub(in crate::experiment) measured: String,
    /// True if the design reaches the target. `None` if the runs have not measured the value that
    /// decides this.
    pub(in crate::experiment) met: Option<bool>,
}

impl Target {
    const fn verdict(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        }
    }
}

/// A table of `targets`, which says for each target whether the design reaches it.
pub(in crate::experiment) fn targets(title: &str, note: &str, targets: &[Target]) -> Table {
    tabulate!(
        title,
        note,
        targets,
        |target| {
            "what" => target.what,
            "wanted" => target.wanted,
            "measured" => target.measured,
            "verdict" => target.verdict(),
        }
    )
}
