//! What a recorder writes between the events.

/// What a recorder wrote between the events, without its prefix.
pub(super) fn note(text: &str) -> &str {
    text.trim()
        .strip_prefix("plimsoll: ")
        .unwrap_or(text.trim())
}
