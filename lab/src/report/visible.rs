//! Makes control characters in text visible, so that a terminal shows them instead of obeying them.
//!
//! Names in a report can come from anywhere: from a file, the command line, or the threads of a
//! recorded kernel.

use std::borrow::Cow;

/// Returns `text` with an escape, such as `\u{1b}`, in place of each character that could change
/// how a terminal shows other characters. Only line breaks remain.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Returns whether a terminal would obey `c`: a control character other than a line break, a
/// separator of lines or paragraphs, or a character that changes the direction of text.
fn is_hidden(c: char) -> bool {
    match c {
        '\n' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            true
        }
        c => c.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_stand_in_place_of_what_a_terminal_obeys() {
        assert_eq!(visible("\u{1b}[31mred"), r"\u{1b}[31mred");
        assert_eq!(
            visible("a\tb\rc\u{7}\u{9b}\u{7f}"),
            r"a\tb\rc\u{7}\u{9b}\u{7f}"
        );
        assert_eq!(visible("abc\u{202e}cba"), r"abc\u{202e}cba");
        let plain = "grace-72 × 2 µs\nÄ `a`";
        assert!(matches!(visible(plain), Cow::Borrowed(text) if text == plain));
    }
}
