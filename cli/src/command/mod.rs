//! The commands of `plimsoll`, one file for each. A command turns its arguments into a report.

pub(crate) mod bench;
pub(crate) mod compare;
pub(crate) mod designs;
pub(crate) mod ending;
pub(crate) mod experiment;
pub(crate) mod explain;
#[cfg(target_os = "linux")]
pub(crate) mod guest;
#[cfg(target_os = "linux")]
pub(crate) mod linux;
#[cfg(target_os = "linux")]
pub(crate) mod linux_build;
pub(crate) mod machines;
#[cfg(target_os = "linux")]
pub(crate) mod record;
pub(crate) mod replay;
pub(crate) mod reproduce;
pub(crate) mod results;
pub(crate) mod sensitivity;
pub(crate) mod shell;
pub(crate) mod show;
pub(crate) mod sweep;
