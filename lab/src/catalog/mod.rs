//! The designs, knobs and machines that a user can name, and suggestions for a misspelt name.

pub mod designs;
pub mod knobs;
pub mod machines;
pub(crate) mod names;
mod profiles;
pub mod tuned;
