//! Tests of arenas, which are mappings whose memory a manager hands out as pages. The arenas have a
//! file descriptor or are bound to nodes. They are tested while a zone grows and shrinks, in a
//! process that forks, and while the memory of free pages returns to the kernel. Linux only.
#![cfg(target_os = "linux")]

mod forks;
mod kinds;
mod resize;
mod returned;
