//! The targets for our designs, and the table of them.

use crate::report::{Table, tabulate};

/// One target that our design must reach.
#[derive(Clone, Debug)]
pub(in crate::experiment) struct Target {
    pub(in crate::experiment) what: &'static str,
    pub(in crate::experiment) wanted: &'static str,
    pub(in crate::experiment) measured: String,
    /// True if the design reaches the target; `None` if the runs have not measured what the target
    /// is about.
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

/// A table of `targets`, with a verdict on each.
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
