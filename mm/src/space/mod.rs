//! Address spaces.

pub mod budget;
pub mod lru;
pub mod object;
pub mod rss;
pub mod swap;
pub mod vma_tree;
