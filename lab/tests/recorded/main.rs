//! Checks that Plimsoll decides as real kernels did, according to their recordings. Each test
//! states how many decisions must be identical.

mod exact;
mod judged_by_linux;
mod kills;
mod recording;
mod replay_start;
