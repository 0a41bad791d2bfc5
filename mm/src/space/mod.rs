//! Address spaces.

pub mod budget;
pub mod rss;
pub mod vma_tree;
