//! The table `[bandwidth]` of a profile: the memory bandwidth of each node, and the bytes that
//! steps move.

use plimsoll_mm::site::Work;

use super::Card;
use super::error::ProfileError;
use super::load::{Cards, LoadedBandwidth, Sourced, entry};
use super::read::{Section, Value};

/// The kinds of work whose memory traffic uses up the bandwidth of a node. `Fault`, `SwapIn` and
/// `SwapOut` move whole pages between a CPU and memory. `LruMove` moves a page between lists of
/// used pages: it changes records of pages, which are seldom in a cache because there are so many
/// records. All other work moves a few cache lines, whose transfers are part of its price.
pub(crate) const MOVERS: [Work; 4] = [Work::Fault, Work::SwapIn, Work::SwapOut, Work::LruMove];

/// The memory bandwidth of each node, as written in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// The bandwidth of each node, in gigabytes per second.
    pub node: Sourced,
    /// For each kind of work that moves pages, the bytes that one unit moves.
    pub bytes: Vec<(Work, Sourced)>,
}

/// Returns whether the memory traffic of `work` uses up bandwidth, that is, whether `work` is one
/// of the [`MOVERS`].
#[inline(always)]
pub(crate) const fn is_mover(work: Work) -> bool {
    matches!(
        work,
        Work::Fault | Work::SwapIn | Work::SwapOut | Work::LruMove
    )
}

/// Parses the table `[bandwidth]` of a profile. Returns `None` if the profile has no such table.
pub(super) fn read(root: &Section<'_>) -> Result<Option<Bandwidth>, ProfileError> {
    const TABLE: &str = "write a [bandwidth] table";
    const GB_PER_S: std::ops::RangeInclusive<u32> = 1..=100_000;
    const BYTES_MAX: u32 = 1 << 20;
    let Some(value) = root.get("bandwidth") else {
        return Ok(None);
    };
    let section = value.section(TABLE)?;
    let mut keys = vec!["node"];
    keys.extend(MOVERS.map(Work::name));
    section.only(&keys)?;
    let speed = |value: &Value<'_>| {
        let number = value.number()?;
        if !GB_PER_S.contains(&number) {
            return Err(value.absurd("is out of range; write 1 to 100000 GB/s".to_owned()));
        }
        Ok(number)
    };
    let node = entry(&section, "node", Cards::Fall, speed)?;
    let moved = |value: &Value<'_>| {
        let number = value.number()?;
        if number > BYTES_MAX {
            return Err(value.absurd("is more than 1 MiB for one page; write bytes".to_owned()));
        }
        Ok(number)
    };
    let of_work = |work: Work| {
        let bytes = entry(&section, work.name(), Cards::Rise, moved)?;
        Ok((work, bytes))
    };
    let bytes = MOVERS.into_iter().map(of_work).collect::<Result<_, _>>()?;
    Ok(Some(Bandwidth { node, bytes }))
}

impl Bandwidth {
    /// The bandwidth, and the bytes that each kind of work moves, at `card` (the low end, the
    /// middle or the high end of each range).
    pub(super) fn at(&self, card: Card) -> LoadedBandwidth {
        let mut moved_bytes = [0; Work::ALL.len()];
        for (work, bytes) in &self.bytes {
            moved_bytes[*work as usize] = bytes.range.at(card);
        }
        LoadedBandwidth {
            node_gb_per_s: self.node.range.at(card),
            moved_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_movers_are_those_that_count_bytes() {
        for work in Work::ALL {
            assert_eq!(is_mover(work), MOVERS.contains(&work), "{work:?}");
        }
    }
}
