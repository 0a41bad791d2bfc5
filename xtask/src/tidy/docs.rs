//! The rules about Markdown: links must lead to existing files, and maps of the repository must be
//! complete.

use std::path::Path;

use super::{File, Tree};

/// The largest number of lines of ARCHITECTURE.md.
const TOUR_LINES_MAX: usize = 200;

pub(super) fn links(tree: &Tree) -> Vec<String> {
    tree.ending(".md")
        .flat_map(|file| dangling(tree, file))
        .collect()
}

/// Returns an error for each relative link in `file` whose target does not exist.
fn dangling(tree: &Tree, file: &File) -> Vec<String> {
    let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
    let mut found = Vec::new();
    let mut in_code = false;
    for (nth, line) in file.text.lines().enumerate() {
        in_code ^= line.trim_start().starts_with("```");
        if in_code {
            continue;
        }
        for target in targets(line) {
            let path = target.split(['#', ' ']).next().unwrap_or_default();
            let is_elsewhere = target.contains("://") || target.starts_with("mailto:");
            if !is_elsewhere && !path.is_empty() && !tree.root.join(folder).join(path).exists() {
                found.push(format!("{}:{}: `{path}` is not there", file.path, nth + 1));
            }
        }
    }
    found
}

/// Returns the targets of the links in a line: `[text](target)` and `[name]: target`.
fn targets(line: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find("](") {
        rest = &rest[at + 2..];
        targets.push(&rest[..rest.find(')').unwrap_or(rest.len())]);
    }
    if line.starts_with('[') {
        targets.extend(line.split_once("]: ").map(|(_, target)| target.trim()));
    }
    targets
}

/// Finds that ARCHITECTURE.md, a tour that takes a newcomer ten minutes, has become too long.
pub(super) fn short_tour(tree: &Tree) -> Vec<String> {
    let lines = |file: &File| file.text.lines().count();
    tree.ending("ARCHITECTURE.md")
        .filter(|file| lines(file) > TOUR_LINES_MAX)
        .map(|file| {
            format!(
                "{}: {} lines; move details to docs/ until it has {TOUR_LINES_MAX}",
                file.path,
                lines(file)
            )
        })
        .collect()
}

pub(super) fn readme_map(tree: &Tree) -> Vec<String> {
    let Some(readme) = tree.file("README.md") else {
        return vec!["README.md: missing; write it, with a map of the crates".to_owned()];
    };
    let unmapped = tree
        .crates()
        .filter(|(folder, _)| !names_folder(&readme.text, folder));
    let text = |(folder, _)| format!("README.md: name `{folder}/` in the map of the crates");
    unmapped.map(text).collect()
}

/// Returns whether the text names `folder`, either in code style or as a branch of a tree that is
/// drawn with lines.
fn names_folder(text: &str, folder: &str) -> bool {
    let last = folder.rsplit('/').next().unwrap_or(folder);
    let branch = format!("── {last}/");
    text.contains(&format!("`{folder}`"))
        || text.contains(&format!("`{folder}/"))
        || text.lines().any(|line| line.contains(&branch))
}

pub(super) fn lock_classes(tree: &Tree) -> Vec<String> {
    let Some(site) = tree.file("mm/src/site.rs") else {
        return vec!["mm/src/site.rs: missing; the rule reads `enum LockClass` there".to_owned()];
    };
    let classes = variants(&site.text, "pub enum LockClass {");
    if classes.is_empty() {
        return vec!["mm/src/site.rs: no `pub enum LockClass` with variants found".to_owned()];
    }
    let Some(locks) = tree.file("docs/locks.md") else {
        return vec!["docs/locks.md: missing; write what each lock guards, in order".to_owned()];
    };
    let unnamed = classes
        .into_iter()
        .filter(|class| !names_word(&locks.text, class));
    unnamed
        .map(|class| format!("docs/locks.md: say what `{class}` guards"))
        .collect()
}

/// Returns the variants of the plain enum that begins with `opening`, as formatted by rustfmt.
fn variants<'a>(text: &'a str, opening: &str) -> Vec<&'a str> {
    let body = text.split_once(opening).map_or("", |(_, rest)| rest);
    let body = body.split_once("\n}").map_or("", |(body, _)| body);
    let lines = body.lines().map(str::trim);
    let lines = lines.filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()));
    lines.map(|line| line.trim_end_matches(',')).collect()
}

fn names_word(text: &str, word: &str) -> bool {
    text.split(|letter: char| !letter.is_alphanumeric())
        .any(|known| known == word)
}

#[cfg(test)]
mod tests {
    use super::super::tree::broken_by;
    use super::*;

    #[test]
    fn a_link_to_nothing_is_found_and_other_links_are_left_alone() {
        let text = "[a](gone.md) [b](https://x.y/z) [c](#here)\n[d]: ../gone.rs\n[e](locks.md#x)\n\
                    ```\n[f](in-code.md)\n```\n";
        assert_eq!(
            broken_by(links, "docs/page.md", text),
            [
                "docs/page.md:1: `gone.md` is not there",
                "docs/page.md:2: `../gone.rs` is not there"
            ]
        );
    }

    #[test]
    fn the_tour_may_have_200_lines_and_no_more() {
        let text = |lines: usize| "a line\n".repeat(lines);
        assert_eq!(
            broken_by(short_tour, "ARCHITECTURE.md", &text(200)),
            [""; 0]
        );
        assert_eq!(
            broken_by(short_tour, "ARCHITECTURE.md", &text(201)),
            ["ARCHITECTURE.md: 201 lines; move details to docs/ until it has 200"]
        );
    }

    #[test]
    fn every_crate_is_in_the_map() {
        assert_eq!(
            broken_by(readme_map, "README.md", "Only `mm/` and `lab/` here.\n"),
            ["README.md: name `machines/sim/` in the map of the crates"]
        );
        let drawn = "├── mm/   x\n├── machines/\n│   └── sim/   y\n└── lab/  z\n";
        assert_eq!(broken_by(readme_map, "README.md", drawn), [""; 0]);
        let missing = broken_by(readme_map, "README.md", "");
        assert_eq!(
            missing,
            ["README.md: missing; write it, with a map of the crates"]
        );
    }

    #[test]
    fn every_lock_class_is_explained() {
        assert_eq!(
            broken_by(lock_classes, "docs/locks.md", "Only `Zone`, and `Pcps`.\n"),
            ["docs/locks.md: say what `Pcp` guards"]
        );
        assert!(broken_by(lock_classes, "docs/locks.md", "")[0].contains("missing"));
        assert!(broken_by(lock_classes, "mm/src/site.rs", "")[0].contains("missing"));
        let renamed = broken_by(lock_classes, "mm/src/site.rs", "//! x\npub enum Lock {}\n");
        assert!(
            renamed[0].contains("no `pub enum LockClass`"),
            "{renamed:?}"
        );
    }
}
