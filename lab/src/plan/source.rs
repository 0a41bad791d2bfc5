//! The text of an experiment file, and the mistakes in this text. The error for a mistake shows the
//! number and the text of the line, the column, and the key.

use std::fmt::Write;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::DeTable;

use crate::error::Error;

/// How large a file can be, in bytes. Experiment files are much smaller.
const BYTES_MAX: u64 = 1 << 20;
/// How many mistakes one error shows at most.
const SHOWN_MAX: usize = 10;
/// The largest number of characters of a line that an error quotes.
const QUOTED_MAX: usize = 96;

/// A mistake in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    /// The bytes of the text that are wrong.
    pub(crate) span: Range<usize>,
    /// The full key at which the mistake is. Empty if the mistake has no key.
    pub(crate) key: String,
    /// What is wrong, and what to write instead.
    pub(crate) why: String,
}

/// Reads the file at `path`. Returns its name for errors, and its text.
///
/// # Errors
/// [`Error::Invalid`] if the file cannot be read.
pub(crate) fn load(path: &Path) -> Result<(String, String), Error> {
    let file = path.display().to_string();
    let unreadable = |why: String| Error::Invalid(format!("{file}: cannot be read: {why}"));
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Error::Invalid(format!(
            "{file}: there is no such file; `plimsoll new NAME` writes an experiment file, with \
             comments that explain it"
        )),
        _ => unreadable(error.to_string()),
    };
    let size = fs::metadata(path).map_err(failed)?;
    if size.len() > BYTES_MAX {
        return Err(unreadable("it is larger than 1 MiB".to_owned()));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    Ok((file, text))
}

/// Parses the text of `file`.
///
/// # Errors
/// [`Error::Invalid`] with the first mistake, if the text is not TOML. The parser continues after a
/// mistake, but can then misread the rest of the text. Therefore the mistakes that it finds later
/// can be false, and are not reported.
pub(crate) fn parse<'a>(file: &str, text: &'a str) -> Result<Spanned<DeTable<'a>>, Error> {
    DeTable::parse(text).map_err(|error| {
        let mistake = Mistake {
            span: error.span().unwrap_or(0..0),
            key: String::new(),
            why: format!("this is not TOML: {}", error.message()),
        };
        error_of(file, text, vec![mistake])
    })
}

/// Makes one error from `mistakes` in the text of `file`, in the order of the file.
pub(crate) fn error_of(file: &str, text: &str, mut mistakes: Vec<Mistake>) -> Error {
    mistakes.sort_by_key(|mistake| mistake.span.start);
    mistakes.dedup();
    let shown = mistakes.iter().take(SHOWN_MAX);
    let mut texts: Vec<String> = shown.map(|mistake| show(file, text, mistake)).collect();
    if mistakes.len() > SHOWN_MAX {
        texts.push(format!("and {} more", mistakes.len() - SHOWN_MAX));
    }
    Error::Invalid(texts.join("\n\n"))
}

fn show(file: &str, text: &str, mistake: &Mistake) -> String {
    let Mistake { span, key, why } = mistake;
    let start = floor(text, span.start);
    let from = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let until = text[from..].find('\n').map_or(text.len(), |at| from + at);
    let line = text[..from].matches('\n').count() + 1;
    let column = text[from..start].chars().count() + 1;
    let end = floor(text, span.end.min(until)).max(start);
    let width = text[start..end].chars().count().max(1);
    let mut shown = format!("{file}:{line}:{column}: ");
    if !key.is_empty() {
        shown.push_str(key);
        shown.push_str(": ");
    }
    shown.push_str(why);
    // If the line is long, the error quotes only a part of it. `skipped` counts the characters
    // before this part.
    let skipped = (column - 1).saturating_sub(QUOTED_MAX / 2);
    let skipped = if text[from..until].chars().count() > QUOTED_MAX {
        skipped
    } else {
        0
    };
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let quoted = text[from..until].chars().skip(skipped).take(QUOTED_MAX);
    let quoted: String = quoted.map(printable).collect();
    let number = line.to_string();
    let margin = " ".repeat(number.len());
    let indent = " ".repeat(column - 1 - skipped);
    let marks = "^".repeat(width.min(QUOTED_MAX));
    let quoted = quoted.trim_end();
    let written = write!(
        shown,
        "\n{margin} |\n{number} | {quoted}\n{margin} | {indent}{marks}"
    );
    written.expect("writing to a text succeeds");
    shown
}

/// The byte offset of the last character boundary in `text` that is not after the byte offset `at`.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistake(span: Range<usize>) -> Mistake {
        Mistake {
            span,
            key: "seeds".to_owned(),
            why: "write a number".to_owned(),
        }
    }

    #[test]
    fn a_mistake_shows_its_line_and_marks_the_place() {
        let text = "name = \"ä\"\nseeds = \"six\"\n";
        let at = text.find("\"six").expect("it is there");
        let error = error_of("a.toml", text, vec![mistake(at..at + 5)]);
        assert_eq!(
            error.to_string(),
            "a.toml:2:9: seeds: write a number\n  |\n2 | seeds = \"six\"\n  |         ^^^^^"
        );
    }

    #[test]
    fn text_that_is_not_toml_has_one_error() {
        // Because of the missing quote, the parser misreads the rest of the file.
        let text = "name = \"first\nseeds = 6\nquestion = \"\"\nseeds = 6\nquestion = \"\"\n";
        let told = parse("a.toml", text).expect_err("a quote is missing");
        let told = told.to_string();
        assert_eq!(told.matches("a.toml:").count(), 1, "{told}");
        assert!(told.starts_with("a.toml:1:"), "{told}");
    }

    #[test]
    fn any_span_in_any_text_can_be_shown() {
        let long = format!("x = \"{}\"", "ü".repeat(300));
        for text in ["", "\n", "ä", "\t\u{1}", long.as_str()] {
            for start in 0..=text.len() + 1 {
                for len in [0, 1, 400] {
                    let shown = error_of("f", text, vec![mistake(start..start + len)]).to_string();
                    assert!(
                        shown.lines().all(|line| line.chars().count() < 160),
                        "{shown}"
                    );
                }
            }
        }
    }

    #[test]
    fn many_mistakes_are_counted_and_none_is_shown_twice() {
        let many = (0..30).map(|at| mistake(at..at + 1)).chain([mistake(0..1)]);
        let shown = error_of("f", &"x".repeat(40), many.collect()).to_string();
        assert!(shown.ends_with("and 20 more"), "{shown}");
    }
}
