//! The progress of a guest, which it reports on its console.

use crate::boot::Stage;

/// Prints the line of a stage on the console.
pub(super) fn say(stage: &Stage) {
    // The report needs a line of its own even if a load's last line is incomplete. Standard error
    // is not buffered.
    eprintln!("\n{}", stage.line());
}
