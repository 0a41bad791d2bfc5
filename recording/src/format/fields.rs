//! Encodes the header of a recording as pairs of a name and a value, so that a reader can skip
//! unknown names.

use super::varint::{put_text, take_text};
use crate::header::{Header, LOST_MAX};

/// The prefix that marks the name of a pair as one of [`Header::texts`]. The rest of the name is
/// the text's name.
const TEXT: &str = "text ";

/// Packs all of a header except its symbols, which have separate chunks.
pub(super) fn pack(header: &Header) -> Vec<u8> {
    let mut out = Vec::new();
    let mut pair = |name: &str, value: &str| {
        if !value.is_empty() {
            put_text(&mut out, name);
            put_text(&mut out, value);
        }
    };
    let number = |value: u32| match value {
        0 => String::new(),
        value => value.to_string(),
    };
    pair("release", &header.release);
    pair("machine", &header.machine);
    pair("hz", &number(header.hz));
    pair("cpus", &number(header.cpus));
    pair("page_bytes", &number(header.page_bytes));
    pair("pageblock_pages", &number(header.pageblock_pages));
    pair("command", &header.command);
    for recorded in &header.recorded {
        pair("recorded", recorded);
    }
    for missing in &header.missing {
        pair("missing", missing);
    }
    for (cpu, events) in &header.lost {
        pair("lost", &format!("{cpu} {events}"));
    }
    for (name, text) in &header.texts {
        // `pair` drops empty values, so each text gets a final newline, which `unpack` removes
        // again.
        pair(&format!("{TEXT}{name}"), &format!("{text}\n"));
    }
    out
}

/// Adds to `header` the pairs that [`pack`] wrote, and skips unknown names. Returns `None` if the
/// bytes end too early.
pub(super) fn unpack(mut bytes: &[u8], header: &mut Header) -> Option<()> {
    while !bytes.is_empty() {
        let name = take_text(&mut bytes)?;
        let value = take_text(&mut bytes)?;
        let number = || value.parse().unwrap_or(0);
        match name.as_str() {
            "release" => header.release = value,
            "machine" => header.machine = value,
            "hz" => header.hz = number(),
            "cpus" => header.cpus = number(),
            "page_bytes" => header.page_bytes = number(),
            "pageblock_pages" => header.pageblock_pages = number(),
            "command" => header.command = value,
            "recorded" => header.recorded.push(value),
            "missing" => header.missing.push(value),
            "lost" => header.lost.extend(lost(&value)),
            _ => {
                if let Some(name) = name.strip_prefix(TEXT) {
                    let text = value.strip_suffix('\n').unwrap_or(&value);
                    header.texts.push((name.to_owned(), text.to_owned()));
                }
            }
        }
    }
    Some(())
}

fn lost(value: &str) -> Option<(u32, u64)> {
    let (cpu, events) = value.split_once(' ')?;
    let events: u64 = events.parse().ok()?;
    Some((cpu.parse().ok()?, events.min(LOST_MAX)))
}

/// Returns the parts of `last` that `first` lacks. The last chunk of a recording holds these parts,
/// and the first chunk holds `first`.
pub(super) fn added(first: &Header, last: &Header) -> Header {
    fn new<T: Clone + PartialEq>(first: &[T], last: &[T]) -> Vec<T> {
        let unknown = last.iter().filter(|field| !first.contains(field));
        unknown.cloned().collect()
    }
    let unless = |first: &str, last: &str| {
        let text = if first == last { "" } else { last };
        text.to_owned()
    };
    let changed = |first: u32, last: u32| if first == last { 0 } else { last };
    Header {
        release: unless(&first.release, &last.release),
        machine: unless(&first.machine, &last.machine),
        hz: changed(first.hz, last.hz),
        cpus: changed(first.cpus, last.cpus),
        page_bytes: changed(first.page_bytes, last.page_bytes),
        pageblock_pages: changed(first.pageblock_pages, last.pageblock_pages),
        command: unless(&first.command, &last.command),
        texts: new(&first.texts, &last.texts),
        recorded: new(&first.recorded, &last.recorded),
        missing: new(&first.missing, &last.missing),
        symbols: Vec::new(),
        lost: new(&first.lost, &last.lost),
    }
}
