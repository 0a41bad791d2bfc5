//! Marks: lines that the recorder itself writes between the kernel's events. For example, a mark
//! says that the recorder has just read `/proc/zoneinfo`.

/// The text of a recorder's mark, without the prefix `plimsoll: ` and surrounding space.
pub(super) fn note(text: &str) -> &str {
    text.trim()
        .strip_prefix("plimsoll: ")
        .unwrap_or(text.trim())
}
