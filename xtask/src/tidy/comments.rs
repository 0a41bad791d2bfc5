//! Rules about the English of comments. CONTRIBUTING.md says how to write a comment.

use super::{File, Tree};

/// Openings that a doc comment must not have. Some openings begin a clause without a noun where the
/// reader expects an actor. Other openings refer to something that rustdoc does not show beside the
/// item. "What", "How" and "Whether" are allowed, because they read well in the documentation of a
/// field: "How far a request may go".
const OPENINGS: [&str; 8] = [
    "Who ",
    "Whoever ",
    "Whose ",
    "So many ",
    "Of several ",
    "The same,",
    "See the file",
    "As above",
];

/// Phrases that no comment may contain, because they hide an actor or a number.
const ANYWHERE: [&str; 7] = [
    "who asks",
    "whoever ",
    "Whoever ",
    "Is who ",
    "nobody is told",
    "so many percent",
    "of several the",
];

/// The minimum number of words of a doc comment. A shorter comment adds nothing to the item's name,
/// unless the comment is a link or names the counterpart in Linux.
const WORDS_MIN: usize = 2;

pub(super) fn plain(tree: &Tree) -> Vec<String> {
    tree.ending(".rs")
        .filter(|file| file.path != "xtask/src/tidy/comments.rs")
        .flat_map(|file| {
            let mut found = openings(file);
            found.extend(anywhere(file));
            found
        })
        .collect()
}

/// Returns an error for each doc comment whose first line begins with one of [`OPENINGS`] or has
/// fewer than [`WORDS_MIN`] words.
fn openings(file: &File) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside = false;
    for (nth, line) in file.text.lines().enumerate() {
        let Some(text) = doc(line) else {
            inside = false;
            continue;
        };
        if !inside {
            let at = format!("{}:{}", file.path, nth + 1);
            if let Some(opening) = OPENINGS.iter().find(|opening| text.starts_with(*opening)) {
                let opening = opening.trim_end();
                found.push(format!(
                    "{at}: opens with \"{opening}\"; begin with a noun or a verb"
                ));
            }
            if text.split_whitespace().count() < WORDS_MIN && !text.contains('`') {
                found.push(format!("{at}: one word; say what it is, in a sentence"));
            }
        }
        inside = true;
    }
    found
}

/// Returns an error for each comment line with a phrase that hides an actor.
fn anywhere(file: &File) -> Vec<String> {
    let comments = file.text.lines().enumerate().filter_map(|(nth, line)| {
        let text = line.trim_start().strip_prefix("//")?;
        let phrase = ANYWHERE.iter().find(|phrase| text.contains(*phrase))?;
        let at = format!("{}:{}", file.path, nth + 1);
        Some(format!(
            "{at}: \"{}\"; name the CPU, task or caller that is meant",
            phrase.trim()
        ))
    });
    comments.collect()
}

/// Returns the text of a doc comment's line; `None` for any other line.
fn doc(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line
        .strip_prefix("///")
        .or_else(|| line.strip_prefix("//!"))?;
    Some(text.trim_start())
}

#[cfg(test)]
mod tests {
    use super::super::tree::broken_by;
    use super::*;

    fn broken(text: &str) -> Vec<String> {
        broken_by(plain, "lab/src/x.rs", &format!("//! A file.\n\n{text}\n"))
    }

    #[test]
    fn a_doc_comment_opens_with_a_noun_or_a_verb() {
        for bad in [
            "/// Who holds the lock.",
            "    /// Whose lists these are.",
            "/// So many CPUs.",
            "/// See the file's header.",
        ] {
            let found = broken(bad);
            assert_eq!(found.len(), 1, "{bad}");
            assert!(
                found[0].starts_with("lab/src/x.rs:3: opens with"),
                "{found:?}"
            );
        }
        for good in [
            "/// The holder of the lock.\n/// What it costs is paid by the caller.",
            "/// Whether the lock is held.",
            "// What follows is not documentation.",
        ] {
            assert_eq!(broken(good), [""; 0], "{good}");
        }
    }

    #[test]
    fn a_doc_comment_says_something() {
        assert!(broken("/// Waiters.")[0].contains("one word"));
        assert_eq!(broken("/// Tasks that wait."), [""; 0]);
        assert_eq!(broken("/// [`Flat`]."), [""; 0]);
    }

    #[test]
    fn a_comment_names_its_actor() {
        for bad in [
            "// Ends when whoever holds it leaves.",
            "/// A page for who asks.",
        ] {
            assert_eq!(broken(bad).len(), 1, "{bad}");
        }
        assert_eq!(broken("let who_asks = \"who asks\";"), [""; 0]);
    }
}
