//! `libplimsoll`: the page allocator, the counters and the choice of a process to kill, for C.
//!
//! `include/plimsoll.h` documents the functions. `cargo xtask c-header` makes this header from the
//! Rust code, and `cargo xtask c-install` installs the header together with the libraries and
//! `plimsoll.pc`.
//!
//! `status` has the error codes, and turns a panic into an error code; `raw` turns C's pointers
//! into references. The other files have the exported functions.

pub mod counter;
pub mod cpu;
pub mod pool;
mod raw;
pub mod select;
pub mod status;
