//! Address spaces.

pub mod rss;
