//! Tests of arenas for real use: with a file descriptor, on nodes, that grow and shrink, in a
//! process that forks, and whose free memory returns to the kernel. Linux only.
#![cfg(target_os = "linux")]

mod forks;
mod kinds;
mod resize;
mod returned;
