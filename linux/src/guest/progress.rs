//! The progress of a guest, which the guest reports on its console.

use crate::boot::GuestState;

/// Prints the line that reports a state of the run, such as `plimsoll: load`, on the guest's
/// console.
pub(super) fn say(state: &GuestState) {
    // The report starts with a newline, because a load may have left its last line incomplete.
    // Standard error is not buffered.
    eprintln!("\n{}", state.line());
}
