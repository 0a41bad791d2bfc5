//! The designs and machines that a user can name, and suggestions for a misspelt name.

pub mod designs;
pub mod machines;
pub(crate) mod names;
