//! Breaks text into lines.

/// Breaks `text` between words into lines of at most `width` characters. Only a line with a single
/// word can be longer.
#[must_use]
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
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
    fn words_wrap_and_a_long_word_keeps_its_line() {
        assert_eq!(
            wrap("a bb  ccc\ndddddddd e", 5),
            ["a bb", "ccc", "dddddddd", "e"]
        );
        assert!(wrap("", 5).is_empty());
        assert_eq!(hanging("* ", "aa bb cc", 7), ["* aa bb", "  cc"]);
    }
}
