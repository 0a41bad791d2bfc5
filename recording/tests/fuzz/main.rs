//! Readers of bytes that may be anything: damaged files, foreign texts, ring buffers of another
//! kernel. A reader returns events or a typed error. It never panics, and its limits hold.
//!
//! Each module makes good input, changes it where a reader has to decide, and reads it. Bytes at
//! random alone would be refused by the first checksum.

mod binary;
mod limits;
mod ring;
mod text;
