//! Breaks text into lines.

use super::visible::visible;

/// The characters after which a word that is longer than a line can break.
const ENDS: &str = "+-_/@.,:;=";

/// Breaks `text` between words into lines of at most `width` characters. A word that is longer than
/// a line begins on a line of its own, and is broken. Control characters become visible.
#[must_use]
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = visible(word);
        let length = word.chars().count();
        match lines.last_mut() {
            Some(line) if line.chars().count().saturating_add(1 + length) <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            _ if length <= width => lines.push(word.into_owned()),
            _ => lines.extend(broken(&word, width)),
        }
    }
    lines
}

/// Breaks `word` into parts of at most `width` characters. If possible, a part ends with one of
/// [`ENDS`], unless the part would then have fewer than half of `width` characters.
fn broken(word: &str, width: usize) -> Vec<String> {
    let mut rest: Vec<char> = word.chars().collect();
    let mut parts = Vec::new();
    while rest.len() > width {
        let end = rest[..width].iter().rposition(|c| ENDS.contains(*c));
        let end = end.map(|at| at + 1).filter(|length| length * 2 >= width);
        let part: String = rest.drain(..end.unwrap_or(width)).collect();
        parts.push(part);
    }
    parts.push(rest.into_iter().collect());
    parts
}

/// Breaks `text` into lines like [`wrap`]. Puts `first` before the first line, and spaces of the
/// same width before each other line.
#[must_use]
pub(crate) fn hanging(first: &str, text: &str, width: usize) -> Vec<String> {
    let indent = first.chars().count();
    let lines = wrap(text, width.saturating_sub(indent));
    let lines = lines.into_iter().enumerate().map(|(nth, line)| match nth {
        0 => format!("{first}{line}"),
        _ => format!("{}{line}", " ".repeat(indent)),
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_wrap() {
        assert_eq!(
            wrap("a bb  ccc\ndddd e", 5),
            ["a bb", "ccc", "dddd", "e"].map(str::to_owned).to_vec()
        );
        assert!(wrap("", 5).is_empty());
        assert_eq!(hanging("* ", "aa bb cc", 7), ["* aa bb", "  cc"]);
    }

    #[test]
    fn a_word_that_is_longer_than_a_line_is_broken_where_its_parts_end() {
        assert_eq!(
            wrap("of linux+phased+bounded now", 10),
            ["of", "linux+", "phased+", "bounded", "now"]
        );
        assert_eq!(wrap("a-23456789abc d", 8), ["a-234567", "89abc d"]);
        assert_eq!(wrap("ab", 0), ["a", "b"]);
        assert_eq!(wrap("\u{1b}[1mx", 20), [r"\u{1b}[1mx"]);
    }
}
