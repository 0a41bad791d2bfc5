//! Fuzzes the readers with arbitrary bytes: damaged files, foreign texts, ring buffers of another
//! kernel. A reader returns events or a typed error. A reader never panics, and never exceeds its
//! limits on sizes and memory.
//!
//! Each module makes good input, changes it at a place where a reader has to make a decision, and
//! reads the changed input. Random bytes alone would fail the first checksum.

mod binary;
mod limits;
mod ring;
mod text;
