//! Colours of a report on a terminal.

use anstyle::{AnsiColor, Style};

/// Says whether a report has colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paint {
    /// No colours, for files, mails and pipes.
    #[default]
    Plain,
    /// Colours by the escape sequences of a terminal. Titles are bold, the word `better` is green,
    /// and the word `worse` is red.
    Colour,
}

impl Paint {
    /// Formats `text` as a title.
    pub(crate) fn bold(self, text: &str) -> String {
        self.styled(Style::new().bold(), text)
    }

    /// Colours `word`, a verdict, if it is `better` or `worse`.
    pub(crate) fn word(self, word: &str) -> String {
        let colour = match word {
            "better" => AnsiColor::Green,
            "worse" => AnsiColor::Red,
            _ => return word.to_owned(),
        };
        self.styled(Style::new().fg_color(Some(colour.into())), word)
    }

    /// Colours the verdict in brackets at the end of `line`, a line of a table, if the verdict is
    /// `better` or `worse`.
    pub(crate) fn line(self, line: &str) -> String {
        for word in ["better", "worse"] {
            if let Some(rest) = line.strip_suffix(&format!("({word})")) {
                return format!("{rest}({})", self.word(word));
            }
        }
        line.to_owned()
    }

    fn styled(self, style: Style, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Colour => format!("{style}{text}{style:#}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_titles_and_judgements_have_a_style_and_plain_text_has_none() {
        assert_eq!(Paint::Colour.bold("a"), "\u{1b}[1ma\u{1b}[0m");
        assert_eq!(Paint::Colour.word("worse"), "\u{1b}[31mworse\u{1b}[0m");
        assert_eq!(Paint::Colour.word("equal"), "equal");
        assert_eq!(
            Paint::Plain.line("1  B is lower (better)"),
            "1  B is lower (better)"
        );
        assert_eq!(
            Paint::Colour.line("1  B is lower (better)"),
            "1  B is lower (\u{1b}[32mbetter\u{1b}[0m)"
        );
    }
}
