//! The designs and machines that a user can name, and the nearest name if one is wrong.

pub mod designs;
pub mod machines;
pub(crate) mod names;
