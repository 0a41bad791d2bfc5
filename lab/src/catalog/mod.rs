//! The designs, knobs and machines that a user can name, and suggestions for a misspelt name. Also
//! what a machine on this computer uses.

pub mod designs;
pub mod host;
pub mod knobs;
pub mod machines;
pub(crate) mod names;
mod profiles;
pub mod tuned;
