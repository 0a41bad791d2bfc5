//! The effects of load on a machine at one card (low, middle or high): how much busy CPUs slow each
//! other down.
//!
//! There are two effects, one on the speed of cores and one on memory bandwidth, and both are
//! optional. Without them, each CPU runs as if it were alone on the machine.

use plimsoll_mm::site::Work;

use super::cost::Range;
use super::error::ProfileError;
use super::read::{Section, Value};

/// The effects of load, at one card (low, middle or high).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// The speeds of busy cores; `None` if every core keeps its full speed.
    pub clock: Option<LoadedClock>,
    /// The memory bandwidth of each node; `None` if it is unlimited.
    pub bandwidth: Option<LoadedBandwidth>,
}

/// The speeds of busy cores, at one card (low, middle or high).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedClock {
    /// The speed of a core while every core of its socket is busy, in percent of its speed while
    /// all other cores are idle.
    pub all_core_percent: u32,
    /// The speed of a CPU while another CPU of its core is busy, in percent of its speed while it
    /// has the core to itself.
    pub sibling_percent: u32,
}

/// The memory bandwidth of each node, at one price card (the low end, the middle or the high end of
/// every range).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedBandwidth {
    /// The bandwidth of each node in gigabytes per second, which are bytes per nanosecond.
    pub node_gb_per_s: u32,
    /// The bytes that one unit of each kind of work moves between a CPU and memory, indexed by
    /// `Work as usize`.
    pub moved_bytes: [u32; Work::ALL.len()],
}

/// One quantity of a profile: its value at each card (low, middle and high), and the source of
/// these values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sourced {
    /// The value at each card: low, middle and high.
    pub range: Range,
    /// The source of the numbers. `estimate: …` means that no numbers were published.
    pub source: String,
}

/// The form of an entry, as error messages show it.
const SHAPE: &str = "write { low = …, mid = …, high = …, source = \"…\" }";

/// Whether the values of an entry rise or fall from the low (cheap) card to the high card.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cards {
    /// The high card (the expensive one) has the largest value, as with prices.
    Rise,
    /// The high card (the expensive one) has the smallest value, as with speeds.
    Fall,
}

/// Reads the entry `key` of `section`. Calls `end` to read each of the three values of the entry.
pub(super) fn entry(
    section: &Section<'_>,
    key: &str,
    cards: Cards,
    end: impl Fn(&Value<'_>) -> Result<u32, ProfileError>,
) -> Result<Sourced, ProfileError> {
    let table = section.need(key, SHAPE)?.section(SHAPE)?;
    table.only(&["low", "mid", "high", "source"])?;
    let at = |card: &str| end(&table.need(card, SHAPE)?);
    let (low, mid, high) = (at("low")?, at("mid")?, at("high")?);
    for (card, value, next, after) in [("low", low, "mid", mid), ("mid", mid, "high", high)] {
        let (wrong, word) = match cards {
            Cards::Rise => (value > after, "above"),
            Cards::Fall => (value < after, "below"),
        };
        if wrong {
            let why = "the low card is the cheapest, so its machine is the fastest";
            return Err(table.absurd(card, format!("is {word} {next}; {why}")));
        }
    }
    let source = "write where the numbers come from, or \"estimate: …\" and why";
    let source = table.need("source", source)?.text(source)?.to_owned();
    let range = Range { low, mid, high };
    Ok(Sourced { range, source })
}
