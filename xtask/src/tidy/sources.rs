//! The rules about Rust source files: their size, their header comment, hidden inputs, and reasons
//! for silenced lints.

use super::{File, Tree};

/// The largest number of lines in a file; a longer file would contain more than one idea.
const LINES_MAX: usize = 500;

/// Names that `mm` must not use, because a run would then depend on more than its inputs.
const HIDDEN_INPUTS: [&str; 6] = [
    "std::time",
    "std::env",
    "std::thread",
    "HashMap",
    "HashSet",
    "rand::",
];

pub(super) fn small(tree: &Tree) -> Vec<String> {
    let lines = |file: &File| file.text.lines().count();
    let large = tree.ending(".rs").filter(|file| lines(file) > LINES_MAX);
    let text = |file: &File| {
        format!(
            "{}: {} lines; split it below {LINES_MAX}",
            file.path,
            lines(file)
        )
    };
    large.map(text).collect()
}

pub(super) fn headers(tree: &Tree) -> Vec<String> {
    let bare = tree
        .ending(".rs")
        .filter(|file| !file.text.starts_with("//!"));
    bare.map(|file| format!("{}:1: say what the file is, in a `//!` comment", file.path))
        .collect()
}

pub(super) fn hidden_inputs(tree: &Tree) -> Vec<String> {
    let of_mm = tree
        .ending(".rs")
        .filter(|file| file.path.starts_with("mm/src/"));
    let check = |file: &File, number: usize, line: &str| {
        let found = HIDDEN_INPUTS.iter().find(|input| line.contains(*input))?;
        Some(format!(
            "{}:{number}: `{found}` is a hidden input; ask the machine",
            file.path
        ))
    };
    of_mm
        .flat_map(|file| code_lines(file).filter_map(|(n, line)| check(file, n, line)))
        .collect()
}

pub(super) fn suppressions(tree: &Tree) -> Vec<String> {
    tree.ending(".rs").flat_map(unexplained).collect()
}

/// Finds attributes that silence a lint without a reason. rustfmt may spread an attribute over
/// several lines.
fn unexplained(file: &File) -> Vec<String> {
    let mut found = Vec::new();
    for opening in ["#[allow(", "#![allow(", "#[expect(", "#![expect("] {
        for (at, _) in file.text.match_indices(opening) {
            let attribute = &file.text[at..];
            let attribute = &attribute[..attribute.find(']').unwrap_or(attribute.len())];
            let before = &file.text[..at];
            let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
            // An attribute begins its line. All other matches are inside a string or comment.
            let is_attribute = before[line_start..].trim().is_empty();
            if is_attribute && !attribute.contains("reason") {
                let number = before.lines().count().max(1) + usize::from(before.ends_with('\n'));
                found.push(format!(
                    "{}:{number}: write `#[expect(…, reason = \"…\")]`, or mend what it hides",
                    file.path
                ));
            }
        }
    }
    found
}

/// Returns the lines of a file that are not comments, numbered from 1.
fn code_lines(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let lines = file
        .text
        .lines()
        .enumerate()
        .map(|(nth, line)| (nth + 1, line));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

#[cfg(test)]
mod tests {
    use super::super::tree::broken_by;
    use super::*;

    #[test]
    fn a_file_may_have_500_lines_and_no_more() {
        let text = |lines: usize| "//! x\n".repeat(lines);
        assert_eq!(broken_by(small, "lab/src/x.rs", &text(500)), [""; 0]);
        assert_eq!(
            broken_by(small, "lab/src/x.rs", &text(501)),
            ["lab/src/x.rs: 501 lines; split it below 500"]
        );
    }

    #[test]
    fn a_file_opens_with_what_it_is() {
        assert_eq!(
            broken_by(headers, "lab/src/x.rs", "use std::fmt;\n//! Late.\n"),
            ["lab/src/x.rs:1: say what the file is, in a `//!` comment"]
        );
    }

    #[test]
    fn the_manager_asks_the_machine_and_nothing_else() {
        for line in [
            "use std::time::Instant;",
            "use rand::Rng;",
            "let x: HashMap<u8, u8>;",
        ] {
            let text = format!("//! x\n{line}\n");
            let broken = broken_by(hidden_inputs, "mm/src/page/x.rs", &text);
            assert_eq!(broken.len(), 1, "{line}");
            assert!(broken[0].starts_with("mm/src/page/x.rs:2: "), "{broken:?}");
            assert_eq!(broken_by(hidden_inputs, "lab/src/x.rs", &text), [""; 0]);
        }
        let comment = "//! x\n// No HashMap: its order is random.\n";
        assert_eq!(broken_by(hidden_inputs, "mm/src/x.rs", comment), [""; 0]);
    }

    #[test]
    fn a_lint_is_silenced_with_a_reason_or_not_at_all() {
        for bare in [
            "#[allow(dead_code)]",
            "#![allow(dead_code)]",
            "#[expect(\n    dead_code\n)]",
        ] {
            let text = format!("//! x\n{bare}\n");
            assert_eq!(
                broken_by(suppressions, "lab/src/x.rs", &text).len(),
                1,
                "{bare}"
            );
        }
        for fine in [
            "#[expect(dead_code, reason = \"so\")]",
            "#[expect(\n    dead_code,\n    reason = \"so\"\n)]",
            "// an #[allow(x)] in prose",
        ] {
            let text = format!("//! x\n{fine}\n");
            assert_eq!(
                broken_by(suppressions, "lab/src/x.rs", &text),
                [""; 0],
                "{fine}"
            );
        }
    }
}
