//! Checks that Plimsoll makes the same decisions as the real kernels in recordings. Each test
//! states how many decisions must be identical.

mod exact;
mod judged_by_linux;
mod kills;
mod recording;
mod replay_start;
