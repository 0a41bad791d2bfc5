//! The engine: CPUs with separate clocks. The CPU with the earliest clock runs next.

pub(crate) mod cpu;
pub(crate) mod disturbances;
pub(crate) mod fault;
pub(crate) mod handle;
pub(crate) mod jitter;
pub(crate) mod load;
pub(crate) mod price;
pub(crate) mod random;
pub(crate) mod record;
pub(crate) mod resume;
pub(crate) mod run_loop;
pub(crate) mod spend;
pub(crate) mod state;
pub(crate) mod tree;
