//! The places of fields in events and at the beginning of sub-buffers.

/// One field of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) offset: usize,
    /// Size of the field in bytes; 0 if it extends to the end of the event.
    pub(super) size: usize,
    pub(super) signed: bool,
}

/// The format of one kind of event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Format {
    pub(super) name: String,
    pub(super) fields: Vec<Field>,
}

/// The places of the fields at the beginning of a sub-buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) timestamp: usize,
    pub(super) commit: usize,
    /// Size of the field `commit`: 8 bytes, or 4 on a kernel of 32 bits.
    pub(super) commit_bytes: usize,
    pub(super) data: usize,
    /// Size of a whole sub-buffer, in bytes; 0 if it is not known.
    pub(super) bytes: usize,
}

impl Default for Page {
    /// The layout of a kernel of 64 bits.
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
