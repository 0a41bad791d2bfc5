//! Counts holds of zone locks by the number of pages that they moved. The counts form a histogram
//! with the buckets of the mailing-list thread on batching.

use plimsoll_mm::site::Site;

use crate::measure::metric::Unit;
use crate::report::value::human;

/// The column headings for [`HoldLog::rows`].
pub const COLUMNS: [&str; 7] = [
    "design",
    "call site",
    "holds",
    "pages",
    "per hold",
    "most pages",
    "over 1000",
];

/// The number of buckets of the histogram of pages per hold. Each bucket is 250 pages wide, except
/// the last, which also counts all holds that moved more pages.
pub const BUCKETS: usize = 10;

const SITES: usize = Site::ALL.len();

/// For each call site, how many holds of zone locks there were, and how many pages these holds
/// moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldLog {
    sites: [SiteHolds; SITES],
    /// The number of holds of zone locks that moved two or more blocks, and in total more pages
    /// than a batch.
    pub over_batch: u64,
}

/// The holds of zone locks at one call site, counted by the number of pages that they moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteHolds {
    /// The number of holds at this call site.
    pub holds: u64,
    /// The number of pages that the holds at this call site moved, in total.
    pub pages: u64,
    /// The largest number of pages that a single hold moved.
    pub max: u32,
    /// The number of holds of zone locks that moved more than 1000 pages.
    pub over_1000: u64,
    /// For each bucket, the number of holds of zone locks that moved a number of pages in this
    /// bucket. A bucket is 250 pages wide.
    pub buckets: [u64; BUCKETS],
}

impl Default for HoldLog {
    fn default() -> Self {
        Self {
            sites: [SiteHolds::default(); SITES],
            over_batch: 0,
        }
    }
}

impl HoldLog {
    /// Counts one hold of a zone lock at `site`. The hold moved `pages` pages in `blocks` blocks.
    /// `batch` was the zone's batch, in pages.
    pub fn note(&mut self, site: Site, pages: u32, blocks: u32, batch: u32) {
        let holds = &mut self.sites[site as usize];
        holds.holds += 1;
        holds.pages += u64::from(pages);
        holds.max = holds.max.max(pages);
        holds.over_1000 += u64::from(pages > 1000);
        holds.buckets[(pages as usize / 250).min(BUCKETS - 1)] += 1;
        // A single block that is larger than the batch cannot be moved in parts, so a hold that
        // moved only one block is not counted here.
        self.over_batch += u64::from(pages > batch && blocks > 1);
    }

    /// The counts for one call site.
    #[must_use]
    pub fn site(&self, site: Site) -> &SiteHolds {
        &self.sites[site as usize]
    }

    /// Returns a table row for each call site that took a zone lock. The row shows how many pages
    /// the holds of this call site moved.
    #[must_use]
    pub fn rows(&self, design: &str) -> Vec<Vec<String>> {
        let row = |site: Site| {
            let holds = self.site(site);
            (holds.holds > 0).then(|| {
                vec![
                    design.to_owned(),
                    site.name().to_owned(),
                    human(holds.holds as f64, Unit::Count),
                    human(holds.pages as f64, Unit::Count),
                    format!("{:.1}", holds.pages as f64 / holds.holds as f64),
                    holds.max.to_string(),
                    human(holds.over_1000 as f64, Unit::Count),
                ]
            })
        };
        Site::ALL.into_iter().filter_map(row).collect()
    }

    /// The counts for all call sites together.
    #[must_use]
    pub fn all(&self) -> SiteHolds {
        let mut all = SiteHolds::default();
        for part in &self.sites {
            all.holds += part.holds;
            all.pages += part.pages;
            all.max = all.max.max(part.max);
            all.over_1000 += part.over_1000;
            for (sum, count) in all.buckets.iter_mut().zip(part.buckets) {
                *sum += count;
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_fall_into_the_thread_s_buckets() {
        let mut log = HoldLog::default();
        log.note(Site::Spill, 63, 63, 63);
        log.note(Site::Spill, 2016, 2016, 63);
        log.note(Site::Decay, 512, 1, 63);
        let all = log.all();
        assert_eq!((all.holds, all.pages, all.max), (3, 2591, 2016));
        assert_eq!((all.over_1000, log.over_batch), (1, 1));
        assert_eq!((all.buckets[0], all.buckets[2], all.buckets[8]), (1, 1, 1));
        assert_eq!(log.site(Site::Decay).max, 512);
    }
}
