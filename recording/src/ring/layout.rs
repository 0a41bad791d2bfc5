//! The offsets of fields in events and in the headers of sub-buffers.

/// One field of an event: the field's name, and its place among the event's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) offset: usize,
    /// The size of the field, in bytes; 0 if the field extends to the end of the event.
    pub(super) size: usize,
    pub(super) signed: bool,
}

/// The format of one kind of event: its name, and the place and size of each field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Format {
    pub(super) name: String,
    pub(super) fields: Vec<Field>,
}

/// The offsets of the fields in the header of a sub-buffer, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) timestamp: usize,
    pub(super) commit: usize,
    /// The size of the field `commit`, in bytes: 8, or 4 on a 32-bit kernel.
    pub(super) commit_bytes: usize,
    pub(super) data: usize,
    /// The size of a whole sub-buffer, in bytes; 0 if it is not known.
    pub(super) bytes: usize,
}

impl Default for Page {
    /// Returns the layout of sub-buffers in a 64-bit kernel.
    fn default() -> Self {
        Self {
            timestamp: 0,
            commit: 8,
            commit_bytes: 8,
            data: 16,
            bytes: 0,
        }
    }
}
