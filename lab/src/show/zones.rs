//! The zone of a page frame, according to the `/proc/zoneinfo` in a recording.

use plimsoll_recording::Header;

/// The zones of the recorded computer. Empty if the recording does not show them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zones {
    /// For each zone, its first frame and the frame just past its last one.
    spans: Vec<(u64, u64)>,
}

impl Zones {
    /// The zones that `/proc/zoneinfo` listed at the start of the recording. If the recording has
    /// no such text from its start, the zones that `/proc/zoneinfo` listed at the end.
    #[must_use]
    pub fn of(header: &Header) -> Self {
        let text = header.text("zoneinfo before");
        let text = text.or_else(|| header.text("zoneinfo after"));
        Self::parse(text.unwrap_or_default())
    }

    /// The index of the zone that contains a frame. `None` if the frame is in no known zone.
    #[must_use]
    pub fn zone(&self, pfn: u64) -> Option<usize> {
        let inside = |&(first, behind): &(u64, u64)| first <= pfn && pfn < behind;
        self.spans.iter().position(inside)
    }

    /// Parses the text of `/proc/zoneinfo`. For each zone, this text has the line `spanned` before
    /// the line `start_pfn`.
    fn parse(zoneinfo: &str) -> Self {
        let mut spans = Vec::new();
        let mut spanned = 0;
        for line in zoneinfo.lines() {
            let mut words = line.split_whitespace();
            let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
            match words.next() {
                Some("Node") => spanned = 0,
                Some("spanned") => spanned = number(words.next()).unwrap_or(0),
                Some("start_pfn:") => {
                    let first = number(words.next()).unwrap_or(0);
                    spans.push((first, first.saturating_add(spanned)));
                }
                _ => {}
            }
        }
        Self { spans }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONEINFO: &str = "\
Node 0, zone      DMA
  pages free     3840
        spanned  4095
        present  3998
  start_pfn:           1
Node 0, zone    DMA32
        spanned  520160
  start_pfn:           4096
";

    #[test]
    fn a_frame_is_in_the_zone_that_spans_it() {
        let texts = vec![("zoneinfo before".to_owned(), ZONEINFO.to_owned())];
        let header = Header {
            texts,
            ..Header::default()
        };
        let zones = Zones::of(&header);
        let found = [0, 1, 4095, 4096, 524_255, 524_256].map(|pfn| zones.zone(pfn));
        assert_eq!(
            found,
            [None, Some(0), Some(0), Some(1), Some(1), None],
            "{zones:?}"
        );
        assert_eq!(Zones::of(&Header::default()).zone(7), None);
    }
}
