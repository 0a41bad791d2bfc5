//! The contents of `/proc/zoneinfo`: zones, and the page lists of each CPU.

/// A zone that has memory. All sizes are in pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ZoneInfo {
    pub(super) node: u32,
    /// The zone's name: `DMA`, `DMA32`, `Normal` or `Movable`.
    pub(super) name: String,
    pub(super) start: u64,
    pub(super) spanned: u64,
    pub(super) managed: u64,
    pub(super) free: u64,
    /// The min, low and high watermarks, without a boost.
    pub(super) marks: [u64; 3],
    /// The number of pages by which the watermarks are temporarily raised (`boost`). The watermarks
    /// that `/proc/zoneinfo` prints include these pages.
    pub(super) boost: u64,
    /// For each CPU, its lists in the zone, or `None` if the CPU is offline.
    pub(super) lists: Vec<Option<ListInfo>>,
}

/// One CPU's page lists in a zone. All sizes are in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ListInfo {
    pub(super) count: u64,
    pub(super) high: u64,
    pub(super) batch: u64,
    /// `high_min` and `high_max`, the bounds of `high`. `None` for kernels before 6.13, whose
    /// `/proc/zoneinfo` does not have them.
    pub(super) bounds: Option<(u64, u64)>,
}

impl ZoneInfo {
    pub(super) fn contains(&self, pfn: u64) -> bool {
        (self.start..self.start + self.spanned).contains(&pfn)
    }

    /// The number of CPUs that have lists, which equals the number of online CPUs.
    pub(super) fn cpus(&self) -> u32 {
        u32::try_from(self.lists.iter().flatten().count()).unwrap_or(u32::MAX)
    }
}

/// Parses the text of `/proc/zoneinfo`. Returns the zones with memory in the order of the text.
/// Returns no zones if `text` is not such a text.
pub(super) fn parse(text: &str) -> Vec<ZoneInfo> {
    let mut zones: Vec<ZoneInfo> = Vec::new();
    let mut cpu = 0;
    for line in text.lines() {
        if let Some((node, name)) = head(line) {
            zones.push(ZoneInfo {
                node,
                name,
                ..ZoneInfo::default()
            });
            continue;
        }
        let Some(zone) = zones.last_mut() else {
            continue;
        };
        let mut words = line.split_whitespace();
        let key = words.next().unwrap_or_default();
        let word = words.next().unwrap_or_default();
        if (key, word) == ("pages", "free") {
            zone.free = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
            continue;
        }
        let Ok(value) = word.parse::<u64>() else {
            continue;
        };
        if key == "cpu:" {
            cpu = usize::try_from(value).unwrap_or(0).min(CPUS_MAX);
            zone.lists.resize((cpu + 1).max(zone.lists.len()), None);
            zone.lists[cpu] = Some(ListInfo::default());
            continue;
        }
        set_zone(zone, key, value);
        if let Some(Some(lists)) = zone.lists.get_mut(cpu) {
            set_lists(lists, key, value);
        }
    }
    zones.retain(|zone| zone.managed > 0);
    zones
}

/// The highest CPU number, because Linux can be built for at most 8192 CPUs. The parser treats
/// higher numbers in the text as this number.
const CPUS_MAX: usize = 8191;

fn head(line: &str) -> Option<(u32, String)> {
    let rest = line.strip_prefix("Node ")?;
    let (node, rest) = rest.split_once(',')?;
    let name = rest.trim().strip_prefix("zone")?.trim();
    Some((node.trim().parse().ok()?, name.to_owned()))
}

fn set_zone(zone: &mut ZoneInfo, key: &str, value: u64) {
    let fields_of_lists = !zone.lists.is_empty();
    match key {
        "boost" if !fields_of_lists => zone.boost = value,
        "min" if !fields_of_lists => zone.marks[0] = value.saturating_sub(zone.boost),
        "low" if !fields_of_lists => zone.marks[1] = value.saturating_sub(zone.boost),
        "high" if !fields_of_lists => zone.marks[2] = value.saturating_sub(zone.boost),
        "spanned" => zone.spanned = value,
        "managed" => zone.managed = value,
        "start_pfn:" => zone.start = value,
        _ => {}
    }
}

fn set_lists(lists: &mut ListInfo, key: &str, value: u64) {
    let (min, max) = lists.bounds.unwrap_or_default();
    match key {
        "count:" => lists.count = value,
        "high:" => lists.high = value,
        "batch:" => lists.batch = value,
        "high_min:" => lists.bounds = Some((value, max)),
        "high_max:" => lists.bounds = Some((min, value)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 0
  pages free     3776
        min      10
        low      13
        high     16
        spanned  4095
        managed  3840
  pagesets
    cpu: 0
              count: 0
              high:  0
              batch: 1
  vm stats threshold: 6
  start_pfn:           1
Node 0, zone    DMA32
  pages free     472535
        min      1403
        low      1901
        high     2399
        spanned  520160
        managed  501148
      nr_free_pages 472535
  pagesets
    cpu: 0
              count: 162
              high:  252
              batch: 63
              high_min: 252
              high_max: 15660
  vm stats threshold: 30
    cpu: 2
              count: 75
              high:  506
              batch: 63
  start_pfn:           4096
Node 0, zone   Normal
  pages free     0
        managed  0
";

    #[test]
    fn zones_with_memory_and_their_lists_are_found() {
        let zones = parse(TEXT);
        assert_eq!(zones.len(), 2);
        let dma32 = &zones[1];
        assert_eq!((dma32.name.as_str(), dma32.free), ("DMA32", 472_535));
        assert_eq!(dma32.marks, [1403, 1901, 2399]);
        assert_eq!(dma32.cpus(), 2);
        assert_eq!(dma32.lists[0].unwrap().count, 162);
        assert_eq!(dma32.lists[0].unwrap().bounds, Some((252, 15_660)));
        assert_eq!(dma32.lists[1], None);
        assert_eq!(dma32.lists[2].unwrap().high, 506);
        assert!(dma32.contains(4096) && !dma32.contains(4095));
    }

    #[test]
    fn watermarks_are_those_without_a_boost() {
        let boosted = TEXT.replace("min      1403\n", "boost    512\n        min      1915\n");
        let boosted = boosted.replace("low      1901", "low      2413");
        let boosted = boosted.replace("high     2399", "high     2911");
        assert_eq!(parse(&boosted)[1].marks, [1403, 1901, 2399]);
        assert_eq!(parse(&boosted)[1].boost, 512);
    }

    #[test]
    fn other_text_has_no_zones() {
        assert_eq!(parse("MemTotal: 1 kB\n"), []);
    }
}
