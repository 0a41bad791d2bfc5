//! Judges recordings of real kernels, for which the expected counts are known.

mod exact;
mod judged_by_linux;
mod kills;
mod recording;
mod replay_start;
