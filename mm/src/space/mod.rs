//! Address spaces.

pub mod rss;
pub mod vma_tree;
