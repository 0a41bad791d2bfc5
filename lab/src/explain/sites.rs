//! For each call site that takes a lock, words for the work of a CPU that takes the lock there.

use plimsoll_mm::site::Site;

/// Says what a CPU that takes a lock at `site` is doing. The text is the end of the sentence "The
/// CPU was …".
pub(super) const fn doing(site: Site) -> &'static str {
    match site {
        Site::Refill => "refilling a page list from the zone",
        Site::AllocDirect => "allocating a block from the zone",
        Site::Spill => "returning pages of a full list to the zone",
        Site::Decay => "returning pages that its lists no longer need, in its vmstat work",
        Site::Drain => "draining page lists into the zone",
        Site::DrainRemoteNode => "returning pages of another node's zone, in its vmstat work",
        Site::FreeDirect => "freeing a block to the zone",
        Site::PcpAlloc => "allocating from a page list",
        Site::PcpFree => "freeing to a page list",
        Site::Control => "reading or changing settings of the zone",
        Site::CounterFold => "folding its part of a counter",
        Site::CounterSum => "summing a counter",
        Site::CounterInit => "creating counters",
        Site::CounterDestroy => "destroying counters",
        Site::Mmap => "adding a mapping",
        Site::Munmap => "removing a mapping",
        Site::Fault => "handling a page fault",
        Site::SwapOut => "moving a page to swap",
        Site::SwapAlloc => "allocating a swap slot",
        Site::SwapFree => "freeing swap slots",
        Site::LruAdd => "adding new pages to the LRU lists",
        Site::LruRemove => "removing freed pages from the LRU lists",
        Site::ObjectPage => "looking up or adding a page of a file",
        Site::ObjectEmpty => "freeing the pages of a file",
        Site::Exit => "emptying its own address space",
        Site::Reap => "reaping the address space of a victim",
        Site::Release => "emptying a dying address space by process_mrelease",
        Site::OutOfMemory => "choosing a process to kill",
        Site::Gather => "allocating or freeing a batch of a gather",
        Site::LruIsolate => "taking pages off the LRU lists for reclaim",
        Site::LruPutBack => "putting pages back on the LRU lists",
        Site::Reclaim => "reclaiming pages",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_site_has_its_own_words() {
        let words: BTreeSet<&str> = Site::ALL.into_iter().map(doing).collect();
        assert_eq!(words.len(), Site::ALL.len());
    }
}
