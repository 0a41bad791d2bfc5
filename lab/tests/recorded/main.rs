//! Recordings of real kernels, judged once more: the counts are known.

mod exact;
mod judged_by_linux;
mod kills;
mod recording;
mod replay_start;
