//! The kernel's tracefs: finding or mounting it, and an instance of our own in it.
//!
//! An instance has its own ring buffers and its own set of events, so that recording disturbs no
//! one else who traces. It is removed when it is dropped, however the recording ends.

mod instance;
mod mount;
mod probe;

pub(crate) use instance::{Instance, Marker};
pub(crate) use mount::Tracefs;
pub(crate) use probe::{NoProbe, Probe};
