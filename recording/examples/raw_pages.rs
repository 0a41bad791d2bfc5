//! Makes a recording from ring buffer pages that a guest has dumped.
//!
//! Usage: `raw_pages PAGES CONSOLE HZ OUT`. PAGES is a file of records. A record has the letters
//! `PG`, the number of a CPU (2 bytes), a length in bytes (4 bytes), and a page of this length.
//! CONSOLE is the guest's console output. It has the tracefs format files, with `FMT ` before each
//! line; lines of `/proc/kallsyms`; and texts, each after a line `PLIM NAME`.

use std::env;
use std::error::Error;
use std::fs;

use plimsoll_recording::ring::{self, Formats};
use plimsoll_recording::{Header, Kallsyms};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [pages, console, hz, out] = &arguments[..] else {
        return Err("raw_pages PAGES CONSOLE HZ OUT".into());
    };
    let pages = fs::read(pages)?;
    let console = String::from_utf8_lossy(&fs::read(console)?).replace('\r', "");
    let format_lines = console.lines().filter_map(|line| line.strip_prefix("FMT "));
    let mut formats = Formats::default();
    formats.add(&format_lines.collect::<Vec<_>>().join("\n"))?;

    let header = Header {
        hz: hz.parse()?,
        page_bytes: 4096,
        cpus: word(&console, "cpus=").parse().unwrap_or(0),
        release: word(&console, "kernel=").to_owned(),
        texts: texts(&console),
        ..Header::default()
    };
    let mut rest = &pages[..];
    let sub_buffers = std::iter::from_fn(|| {
        let (head, behind) = rest.split_first_chunk::<8>()?;
        let [b'P', b'G', c0, c1, l0, l1, l2, l3] = *head else {
            return None;
        };
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let (page, behind) = behind.split_at_checked(length)?;
        rest = behind;
        Some((u32::from(u16::from_le_bytes([c0, c1])), page))
    });
    let kallsyms = Kallsyms::parse(&console);
    let (recording, wrong) = ring::decode(header, formats, kallsyms, sub_buffers);
    for error in &wrong {
        eprintln!("{error}");
    }
    let (_, totals) = recording.write(fs::File::create(out)?)?;
    eprintln!(
        "{} events, {} bytes, {} pages make no sense, lost {:?}",
        totals.events,
        totals.bytes,
        wrong.len(),
        recording.header.lost
    );
    Ok(())
}

/// Returns the part after `key` of the first word that begins with `key`; empty if there is no such
/// word.
fn word<'a>(console: &'a str, key: &str) -> &'a str {
    let words = console.split_whitespace();
    let found = words.filter_map(|word| word.strip_prefix(key)).next();
    found.unwrap_or_default()
}

/// Returns the texts of the console, by name. Each text begins after a `PLIM name` line and ends
/// before the next such line.
fn texts(console: &str) -> Vec<(String, String)> {
    let mut texts: Vec<(String, String)> = Vec::new();
    for line in console.lines() {
        if let Some(name) = line.strip_prefix("PLIM ") {
            texts.push((name.to_owned(), String::new()));
        } else if let Some((_, text)) = texts.last_mut()
            && !line.starts_with("FMT ")
        {
            text.push_str(line);
            text.push('\n');
        }
    }
    texts.retain(|(_, text)| !text.is_empty());
    texts
}
