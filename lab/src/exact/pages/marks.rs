//! Marks that a recorder writes between the events.

/// The text of a recorder's mark, without the prefix `plimsoll: ` and surrounding space.
pub(super) fn note(text: &str) -> &str {
    text.trim()
        .strip_prefix("plimsoll: ")
        .unwrap_or(text.trim())
}
