//! Checks on the values of a profile. The memory must fit. A cost must not fall from the low end to
//! the high end of its range. Moving a cache line must not cost less over a longer distance.

use plimsoll_mm::topology::{Distance, Topology};
use plimsoll_mm::units::PAGE_SIZE;

use super::Card;
use super::cost::{Cost, Range, Then};
use super::error::ProfileError;
use super::key::{CostKey, DISTANCES};
use super::read::{Section, Value};
use super::size;

/// The least memory of a node, in bytes: a smaller node has no room for page lists.
const NODE_BYTES_MIN: u64 = 16 << 20;
/// The most memory of a node, in bytes. A zone is never larger than its node, so this limit keeps
/// the page numbers of a zone well below 2³².
const NODE_BYTES_MAX: u64 = 8 << 40;
/// The largest number of pages of a machine, because a page frame number has 32 bits.
const PAGES_MAX: u64 = u32::MAX as u64;
/// The highest cost of a step: one second, in nanoseconds. A higher cost is assumed to be a typing
/// error.
const COST_NS_MAX: u32 = 1_000_000_000;
/// If a price depends on the length of a hold of the zone lock, the profile gives the average price
/// in a short hold and in a longer hold. The longer hold must not move more pages than this.
const HOLD_PAGES_MAX: u32 = 65_535;

/// Reads `node_memory`, which is one size for all nodes, or a list with one size for each node.
/// Returns the size of each node, in bytes.
pub(super) fn node_bytes(root: &Section<'_>, nodes: u32) -> Result<Vec<u64>, ProfileError> {
    let value = root.need(
        "node_memory",
        "write the memory of each node, such as \"480 GB\"",
    )?;
    let bytes = match value.list() {
        Some(list) => list.iter().map(one_node).collect::<Result<Vec<u64>, _>>()?,
        None => vec![one_node(&value)?; nodes as usize],
    };
    if bytes.len() < nodes as usize {
        let given = bytes.len();
        return Err(value.absurd(format!(
            "{given} sizes for {nodes} nodes; write one for each"
        )));
    }
    let pages: u64 = bytes.iter().map(|bytes| bytes / PAGE_SIZE).sum();
    if pages > PAGES_MAX {
        let why = format!("{pages} pages in all; a machine has at most {PAGES_MAX} (16 TiB)");
        return Err(value.absurd(why));
    }
    Ok(bytes)
}

/// Reads the size of one node's memory, in bytes, rounded down to whole pages.
fn one_node(value: &Value<'_>) -> Result<u64, ProfileError> {
    let written = value.text("write a size such as \"480 GB\" or \"8 GiB\"")?;
    let bytes = size::parse(written).ok_or_else(|| {
        let units = "a whole number and B, KB, MB, GB, TB, KiB, MiB, GiB or TiB";
        value.absurd(format!("{written:?} is no size; write {units}"))
    })?;
    if bytes < NODE_BYTES_MIN {
        return Err(value.absurd(format!(
            "{written} is too small; a node has at least 16 MiB"
        )));
    }
    if bytes > NODE_BYTES_MAX {
        return Err(value.absurd(format!("{written} is too big; a node has at most 8 TiB")));
    }
    Ok(bytes / PAGE_SIZE * PAGE_SIZE)
}

/// Reads the entry `key` of a section as a cost. The entry is a table with the keys `low`, `mid`,
/// `high` and `source`.
pub(super) fn cost(section: &Section<'_>, key: CostKey) -> Result<Cost, ProfileError> {
    const SHAPE: &str = "write { low = …, mid = …, high = …, source = \"…\" } in nanoseconds";
    let value = section.need(key.name(), SHAPE)?;
    let table = value.section(SHAPE)?;
    let keys: &[&str] = if key.depends_on_hold() {
        &["low", "mid", "high", "at", "then", "source"]
    } else {
        &["low", "mid", "high", "source"]
    };
    table.only(keys)?;
    let range = range(&table, key)?;
    let then = then(&table, key, range)?;
    let source = "write where the numbers come from, or \"estimate: …\" and why";
    let source = table.need("source", source)?.text(source)?.to_owned();
    Ok(Cost {
        key,
        range,
        then,
        source,
    })
}

/// Reads `low`, `mid` and `high` of the price `key`, whose table is `table`.
pub(super) fn range(table: &Section<'_>, key: CostKey) -> Result<Range, ProfileError> {
    let end = |card: Card| {
        let name = card.name();
        let value = table.need(name, &format!("write the {name} end of its range in ns"))?;
        let ns = value.number()?;
        if ns == 0 && !key.may_be_zero() {
            return Err(value.absurd("0 ns: every step takes time; write at least 1".to_owned()));
        }
        if ns > COST_NS_MAX {
            return Err(value.absurd(format!("{ns} ns is more than a second; prices are in ns")));
        }
        Ok(ns)
    };
    let range = Range {
        low: end(Card::Low)?,
        mid: end(Card::Mid)?,
        high: end(Card::High)?,
    };
    in_order(table, range)?;
    Ok(range)
}

/// Reads the keys `at` and `then` of the price `key` from `table`. They give the average price in a
/// long hold of the zone lock. `first` has the average prices in a short hold.
fn then(table: &Section<'_>, key: CostKey, first: Range) -> Result<Option<Then>, ProfileError> {
    const SHAPE: &str = "write then = { pages = …, low = …, mid = …, high = … }";
    let (at, then) = match (table.get("at"), table.get("then")) {
        (None, None) => return Ok(None),
        (Some(at), Some(then)) => (at, then.section(SHAPE)?),
        (None, Some(_)) => {
            let write = "write the pages of a hold to which low, mid and high apply, such as 63";
            return Err(table.missing("at", write));
        }
        (Some(_), None) => {
            return Err(table.missing("then", &format!("{SHAPE}, or leave out at")));
        }
    };
    then.only(&["pages", "low", "mid", "high"])?;
    let pages = then.need("pages", "write the number of pages in the longer hold")?;
    let (at, pages) = lengths(&at, &pages)?;
    let longer = range(&then, key)?;
    for card in Card::ALL {
        let (ns, first_ns) = (longer.at(card), first.at(card));
        if ns > first_ns {
            let why = format!(
                "{ns} ns is more than the {first_ns} ns in the shorter hold; write at most {first_ns}"
            );
            return Err(then.absurd(card.name(), why));
        }
        let first_part_ns = u64::from(at) * u64::from(first_ns) + u64::from(pages - at);
        let least_ns = first_part_ns.div_ceil(u64::from(pages));
        if u64::from(ns) < least_ns {
            let why = format!(
                "leaves less than 1 ns for each page after the first {at}; write {least_ns}"
            );
            return Err(then.absurd(card.name(), format!("{ns} ns {why} or more")));
        }
    }
    Ok(Some(Then {
        at,
        pages,
        range: longer,
    }))
}

/// Returns how many pages the short hold of the zone lock (`at`) and the long hold (`pages`) move.
/// Refuses numbers that are out of range or not in ascending order.
fn lengths(at: &Value<'_>, pages: &Value<'_>) -> Result<(u32, u32), ProfileError> {
    let (short, long) = (at.number()?, pages.number()?);
    if short == 0 {
        return Err(at.absurd("0 pages; a hold moves at least 1".to_owned()));
    }
    if long <= short {
        let why = format!("{long} pages, but at is {short}; the second hold must be longer");
        return Err(pages.absurd(why));
    }
    if long > HOLD_PAGES_MAX {
        return Err(pages.absurd(format!("{long} pages; write at most {HOLD_PAGES_MAX}")));
    }
    Ok((short, long))
}

/// Checks that `low` is at most `mid`, and `mid` at most `high`.
pub(super) fn in_order(table: &Section<'_>, range: Range) -> Result<(), ProfileError> {
    let Range { low, mid, high } = range;
    if low > mid {
        return Err(table.absurd("low", "is above mid; order them low, mid, high".to_owned()));
    }
    if mid > high {
        return Err(table.absurd("mid", "is above high; order them low, mid, high".to_owned()));
    }
    Ok(())
}

/// Returns the distances that occur between CPUs of the machine. The profile must give a price for
/// each of them.
pub(super) fn distances(topology: &Topology) -> Vec<Distance> {
    let places = || topology.ids().map(|cpu| topology.place(cpu));
    let count = |mut ids: Vec<u32>| {
        ids.sort_unstable();
        ids.dedup();
        ids.len()
    };
    // Each core is in one last-level cache, and each cache is in one socket. So if there are fewer
    // caches than cores, some cores share a cache; if there are fewer sockets than caches, some
    // caches share a socket.
    let sockets = count(places().map(|place| place.socket).collect());
    let llcs = count(places().map(|place| place.llc).collect());
    let cores = count(places().map(|place| place.core).collect());
    let exists = |distance: &Distance| match distance {
        Distance::Same => true,
        Distance::Core => cores < places().count(),
        Distance::Llc => llcs < cores,
        Distance::Socket => sockets < llcs,
        Distance::Remote => sockets > 1,
    };
    DISTANCES.into_iter().filter(exists).collect()
}

/// Checks that, at every card (low, middle and high), moving a cache line over a distance costs no
/// more than moving it over a longer distance.
pub(super) fn nearer_is_cheaper(
    section: &Section<'_>,
    transfers: &[Cost],
) -> Result<(), ProfileError> {
    for pair in transfers.windows(2) {
        let [near, far] = pair else { continue };
        let dearer = Card::ALL
            .into_iter()
            .find(|card| near.range.at(*card) > far.range.at(*card));
        if let Some(card) = dearer {
            let (ns, far_ns) = (near.range.at(card), far.range.at(card));
            let (near, far) = (near.key.name(), far.key.name());
            let order = "same ≤ core ≤ llc ≤ socket ≤ remote";
            let why = format!("{ns} ns at {card}, but {far} is {far_ns} ns; keep {order}");
            return Err(section.absurd(near, why));
        }
    }
    Ok(())
}
