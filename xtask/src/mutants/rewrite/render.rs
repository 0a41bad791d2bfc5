//! Writes the text of a rewritten file, and notes the place of each mutant in this text.

use std::fmt::Write;
use std::ops::Range;

use super::sites::{Form, Found, Site, Version};
use super::switch::condition;
use super::{Region, RegionKind, Rewritten};

/// Returns `text` with all sites of `found` rewritten. A site is a place in the text that mutants
/// change; most sites become code that, when it runs, selects the original or one of the mutants.
pub(super) fn render(text: &str, found: Found) -> Rewritten {
    let mut writer = Writer {
        text,
        sites: &found.sites,
        next: 0,
        written: Rewritten::default(),
        copies: Vec::new(),
    };
    writer.copy(0..text.len());
    let functions = writer.functions(&found.functions);
    let mut written = writer.written;
    written.regions.extend(functions);
    written.constant = found.constant;
    written.forbidden = found.forbidden;
    written
}

struct Writer<'f> {
    text: &'f str,
    sites: &'f [Site],
    /// The index of the next site (a place that mutants change) to write.
    next: usize,
    written: Rewritten,
    /// The parts of the original text that were copied unchanged. Each part is stored as three
    /// numbers: the position of its first byte in the original text, the position of the same byte
    /// in the written text, and the length of the part in bytes.
    copies: Vec<(usize, usize, usize)>,
}

impl Writer<'_> {
    /// Copies the byte range `bytes` of the original text, but writes the rewritten text of each
    /// site (a place that mutants change) in this range.
    fn copy(&mut self, bytes: Range<usize>) {
        let mut at = bytes.start;
        while let Some(site) = self.sites.get(self.next) {
            if site.bytes.start >= bytes.end {
                break;
            }
            self.next += 1;
            self.copy_as_is(at..site.bytes.start);
            self.site(site);
            at = site.bytes.end;
        }
        self.copy_as_is(at..bytes.end);
    }

    fn copy_as_is(&mut self, bytes: Range<usize>) {
        let length = bytes.len();
        self.copies
            .push((bytes.start, self.written.text.len(), length));
        self.written.text.push_str(&self.text[bytes]);
    }

    fn site(&mut self, site: &Site) {
        let start = self.written.text.len();
        match site.form {
            Form::Const => return,
            Form::Body => {
                for version in &site.mutants {
                    self.open(version.number);
                    self.changed(version.number, &format!("return {};", version.replacement));
                    self.written.text.push_str(" } ");
                }
            }
            Form::Block | Form::Operand => {
                let (before, behind) = match site.form {
                    Form::Operand => ("(", " })"),
                    _ => ("", " }"),
                };
                self.written.text.push_str(before);
                for version in &site.mutants {
                    self.open(version.number);
                    self.changed(version.number, &self.version(site, version));
                    self.written.text.push_str(" } else ");
                }
                self.written.text.push_str("{ ");
                self.copy(site.bytes.clone());
                self.written.text.push_str(behind);
            }
        }
        let mutants = site.mutants.iter().map(|version| version.number).collect();
        self.written.regions.push(Region {
            bytes: start..self.written.text.len(),
            mutants,
            kind: RegionKind::Versions,
        });
    }

    fn open(&mut self, mutant: usize) {
        write!(self.written.text, "if {} {{ ", condition(mutant))
            .expect("a text can always be added to");
    }

    /// Returns the text of `site` (a place that mutants change) with the change of one mutant.
    fn version(&self, site: &Site, version: &Version) -> String {
        format!(
            "{} {} {}",
            &self.text[site.bytes.start..version.replaced.start],
            version.replacement,
            &self.text[version.replaced.end..site.bytes.end],
        )
    }

    fn changed(&mut self, mutant: usize, text: &str) {
        let start = self.written.text.len();
        self.written.text.push_str(text);
        self.written.regions.push(Region {
            bytes: start..self.written.text.len(),
            mutants: vec![mutant],
            kind: RegionKind::Changed,
        });
    }

    /// Returns a region, a byte range of the rewritten text, for each function that has mutants.
    /// `functions` has the byte ranges of all functions' bodies in the original text.
    fn functions(&self, functions: &[Range<usize>]) -> Vec<Region> {
        let regions = functions.iter().map(|bytes| {
            let within =
                |site: &&Site| bytes.start <= site.bytes.start && site.bytes.end <= bytes.end;
            let sites = self.sites.iter().filter(within);
            let mutants = sites.flat_map(|site| &site.mutants);
            Region {
                bytes: self.place(bytes.start)..self.place(bytes.end),
                mutants: mutants.map(|version| version.number).collect(),
                kind: RegionKind::Function,
            }
        });
        regions
            .filter(|region| !region.mutants.is_empty())
            .collect()
    }

    /// Returns the position in the rewritten text of the byte that is at `byte` in the original
    /// text.
    fn place(&self, byte: usize) -> usize {
        let copy = self
            .copies
            .iter()
            .find(|(from, _, length)| (*from..=from + length).contains(&byte));
        copy.map_or(self.written.text.len(), |(from, to, _)| to + byte - from)
    }
}
