//! Marks: lines that the recorder itself writes between the kernel's events, such as the line that
//! says when it has read `/proc/zoneinfo`.

/// The text of a recorder's mark, without the prefix `plimsoll: ` and surrounding space.
pub(super) fn note(text: &str) -> &str {
    text.trim()
        .strip_prefix("plimsoll: ")
        .unwrap_or(text.trim())
}
