//! The rule that the files of a crate must not form circles. In some crates, the folders must not
//! form circles either (`folders.rs`).
//!
//! To understand a file, a reader needs the files that it names, so the named files must not lead
//! back to it. The rule makes a graph for each crate. A node is a file below `src`. An edge leads
//! from file A to file B if the code of A names an item that is defined in B: in a private `use`,
//! in a path, or in the arguments of a macro. The rule follows a name through re-exports to the
//! file that defines the item. It refuses files that can reach each other by edges.
//!
//! A `mod.rs` may form circles with the files of its folder. Its items are for all these files, and
//! it may name the items of these files. For files outside the folder, `mod.rs` is a file like any
//! other. For example, `b/x.rs` and `b/mod.rs` may name each other. But if `a.rs` names `b/x.rs`,
//! `b/x.rs` names `b/mod.rs`, and `b/mod.rs` names `a.rs`, the three are a circle.
//!
//! The following are not edges:
//! * `mod x;`, and a `pub use` that only re-exports a name;
//! * anything that exists only in tests or only for rustdoc: `#[cfg(test)]`, `#[cfg(doc)]`,
//!   attributes, and comments;
//! * a method that is called without naming its type.

mod conditions;
mod folders;
mod graph;
mod modules;
mod names;
mod search;

use std::collections::BTreeSet;

use self::graph::{Edge, Graph};
use self::modules::Modules;
use self::names::Names;
use super::Tree;

/// The files in `src` that may be the root of a crate.
const ROOTS: [&str; 2] = ["lib.rs", "main.rs"];

/// A circle that the rule accepts: the folder of the crate, the files below `src`, and the reason
/// why the circle still exists. A circle is a set of files that depend on each other.
type Known = (&'static str, &'static [&'static str], &'static str);

/// The circles that this rule accepts for now, each with a reason. A circle is a set of files that
/// name each other.
const KNOWN: [Known; 0] = [];

pub(super) fn check(tree: &Tree) -> Vec<String> {
    check_but(tree, &KNOWN)
}

/// Checks every crate. Accepts the circles in `known`. It is an error if a circle in `known` does
/// not exist.
fn check_but(tree: &Tree, known: &[Known]) -> Vec<String> {
    let mut found = Vec::new();
    for (folder, _) in tree.crates() {
        for root in ROOTS {
            let root = format!("{folder}/src/{root}");
            if tree.file(&root).is_some() {
                match Modules::read(tree, &root) {
                    Ok(modules) => found.extend(circles(modules, folder, known)),
                    Err(error) => found.push(error),
                }
            }
        }
    }
    found
}

/// Returns an error for each circle of files (files that name each other) that is not in `known`.
/// Also returns an error for each circle in `known` that no longer exists.
fn circles(mut modules: Modules, folder: &str, known: &[Known]) -> Vec<String> {
    let graph = graph_of(&mut modules);
    let mut found = folders::check(&graph, folder);
    let source = format!("{folder}/src/");
    let short = |file: &str| file.strip_prefix(&source).unwrap_or(file).to_owned();
    let mut known: Vec<BTreeSet<String>> = known
        .iter()
        .filter(|(known, ..)| *known == folder)
        .map(|(_, files, _)| files.iter().map(|file| format!("{source}{file}")).collect())
        .collect();
    for circle in graph.circles() {
        let is_it =
            |known: &BTreeSet<String>| known.iter().map(String::as_str).eq(circle.iter().copied());
        if let Some(nth) = known.iter().position(is_it) {
            known.remove(nth);
            continue;
        }
        let files: Vec<String> = circle.iter().map(|file| short(file)).collect();
        let step = |edge: Edge<'_>| {
            let Edge { from, to, why } = edge;
            let (from, to) = (short(from), short(to));
            format!("{from}:{} names `{}` of {to}", why.line, why.name)
        };
        let way: Vec<String> = graph.shortest(&circle).into_iter().map(step).collect();
        found.push(format!(
            "{folder}: {} files need each other: {}. The shortest circle: {}. Move what they share \
             to a file that names none of them",
            files.len(),
            files.join(", "),
            way.join(", "),
        ));
    }
    found.extend(known.into_iter().map(|files| {
        let files: Vec<String> = files.iter().map(|file| short(file)).collect();
        let files = files.join(", ");
        format!(
            "{folder}: {files} are no circle any more; remove it from xtask/src/tidy/circles/mod.rs"
        )
    }));
    found
}

/// Returns the graph of the files that name each other.
fn graph_of(modules: &mut Modules) -> Graph {
    let mut names: Vec<Names> = modules
        .all
        .iter()
        .map(|module| Names::of(&module.items))
        .collect();
    for (nth, names) in names.iter_mut().enumerate() {
        for import in names.inner.drain(..) {
            modules.import(nth, import);
        }
    }
    let mut graph = Graph::default();
    for (nth, names) in names.iter().enumerate() {
        let own = modules.all[nth].file.as_str();
        graph.add_file(own, modules.files_around(nth));
        for named in &names.paths {
            for to in modules.defining(nth, &named.path) {
                if to != own {
                    graph.add(own, to, named.line, &named.path.join("::"));
                }
            }
        }
        for named in &names.macros {
            for to in modules.defining_macro(&named.path[0]) {
                if to != own {
                    graph.add(own, to, named.line, &format!("{}!", named.path[0]));
                }
            }
        }
    }
    graph
}

#[cfg(test)]
mod tests {
    use super::super::tree::of_tree;
    use super::*;

    const MANIFEST: (&str, &str) = ("lab/Cargo.toml", "[package]\nname = \"lab\"\n");

    /// Returns the errors that the check for circles finds in a crate with these files below `src`.
    /// A circle is a set of files that need each other.
    fn broken(files: &[(&str, &str)]) -> Vec<String> {
        broken_but(files, &[])
    }

    fn broken_but(files: &[(&str, &str)], known: &[Known]) -> Vec<String> {
        let files = files
            .iter()
            .map(|(path, text)| (format!("lab/src/{path}"), *text));
        let mut files: Vec<(String, &str)> = files.collect();
        files.push((MANIFEST.0.to_owned(), MANIFEST.1));
        of_tree(&files, |tree| check_but(tree, known))
    }

    /// Returns the errors for a crate whose `a.rs` and `b.rs` have these texts.
    fn two(a: &str, b: &str) -> Vec<String> {
        broken(&[("lib.rs", "mod a;\nmod b;\n"), ("a.rs", a), ("b.rs", b)])
    }

    #[test]
    fn two_files_that_import_each_other_are_a_circle() {
        assert_eq!(
            two(
                "use crate::b::Two;\npub struct One;\n",
                "\nuse super::a::One;\npub struct Two;\n"
            ),
            [
                "lab: 2 files need each other: a.rs, b.rs. The shortest circle: a.rs:1 names \
                 `crate::b::Two` of b.rs, b.rs:2 names `super::a::One` of a.rs. Move what they \
                 share to a file that names none of them"
            ]
        );
    }

    #[test]
    fn a_path_or_the_argument_of_a_macro_names_an_item_too() {
        const ONE: &str = "pub struct One;\nfn f() { crate::b::two() }\n";
        for naming in [
            "fn two() { crate::a::One; }",
            "fn two(_: Vec<super::a::One>) {}",
            "fn two() { println!(\"{:?}\", crate::a::One); }",
            "fn two() { use crate::a; assert!(f(1..2, a::One)); }",
            "struct S { one: crate::a::One }",
            "use crate::a::One;\nfn two(_: One) {}",
            "impl crate::a::One {}",
            "use crate::a::{self as other};\nfn two() { other::One; }",
        ] {
            assert_eq!(two(ONE, &format!("pub {naming}")).len(), 1, "{naming}");
        }
        for other in [
            "fn two(a: A) { a.One; }",
            "fn two() { ::a::One; }",
            "fn two() { println!(\"crate::a::One\"); }",
            "/// [`crate::a::One`]\nfn two() {}",
            "pub use crate::a::One;\nfn two() {}",
            "mod inner { pub struct One; }\nfn two() { inner::One; }",
        ] {
            assert_eq!(two(ONE, other), [""; 0], "{other}");
        }
    }

    /// A file that uses a `macro_rules!` macro names the file that defines the macro.
    #[test]
    fn a_macro_by_example_is_an_item() {
        let files = [
            ("lib.rs", "#[macro_use]\nmod a;\nmod b;\n"),
            ("a.rs", "macro_rules! one { () => { $crate::b::TWO } }\n"),
            ("b.rs", "pub const TWO: u8 = 2;\nfn f() { one!(); }\n"),
        ];
        assert_eq!(broken(&files).len(), 1);
    }

    #[test]
    fn a_name_is_followed_to_its_definition() {
        let folder = |low: &str, top: &str| {
            broken(&[
                ("lib.rs", "mod low;\nmod top;\n"),
                ("low.rs", low),
                (
                    "top/mod.rs",
                    "mod high;\nmod leaf;\npub use high::High;\npub use leaf::*;\n",
                ),
                ("top/high.rs", top),
                ("top/leaf.rs", "pub struct Leaf;\n"),
            ])
        };
        const HIGH: &str = "use crate::low::Low;\npub struct High;\n";
        assert_eq!(
            folder("use crate::top::Leaf;\npub struct Low;\n", HIGH),
            [""; 0]
        );
        let circle = folder("use crate::top::High as Other;\npub struct Low;\n", HIGH);
        assert!(
            circle[0].contains("2 files need each other: low.rs, top/high.rs"),
            "{circle:?}"
        );
    }

    #[test]
    fn the_items_of_a_folder_s_mod_rs_are_common_to_its_files() {
        let files = |outside: &'static str| {
            broken(&[
                ("lib.rs", "mod folder;\nmod outside;\n"),
                (
                    "folder/mod.rs",
                    "mod x;\npub struct Common;\nfn f() { x::X; }\n",
                ),
                (
                    "folder/x.rs",
                    "use super::Common;\nuse crate::outside::Far;\npub struct X;\n",
                ),
                ("outside.rs", outside),
            ])
        };
        assert_eq!(files("pub struct Far;\n"), [""; 0]);
        // For files outside a folder, the folder's mod.rs is a file like any other.
        let circle = files("use crate::folder::Common;\npub struct Far;\n");
        assert!(circle[0].contains("3 files need each other"), "{circle:?}");
        let circle = files("use crate::folder::x::X;\npub struct Far;\n");
        assert!(
            circle[0].contains("The shortest circle: folder/x.rs:2"),
            "{circle:?}"
        );
    }

    #[test]
    fn what_is_only_for_tests_or_rustdoc_names_nothing() {
        const ONE: &str = "use crate::b::Two;\npub struct One;\n";
        for unbuilt in [
            "#[cfg(test)]\nuse crate::a::One;\n",
            "#[cfg(doc)]\nuse crate::a::One;\n",
            "#[cfg(all(test, unix))]\nmod tests { use crate::a::One; }\n",
            "#[cfg(test)]\nmod b_tests;\n",
            "struct S { #[cfg(test)] one: crate::a::One }\n",
            "impl Two { #[cfg(test)] fn f() { crate::a::One; } }\n",
        ] {
            assert_eq!(two(ONE, &format!("pub struct Two;\n{unbuilt}")), [""; 0]);
        }
        let built = "pub struct Two;\n#[cfg(not(test))]\nuse crate::a::One;\n";
        assert_eq!(two(ONE, built).len(), 1);
    }

    #[test]
    fn a_known_circle_is_accepted_until_it_is_gone() {
        let known: [Known; 1] = [("lab", &["a.rs", "b.rs"], "a reason")];
        let files = |b| {
            [
                ("lib.rs", "mod a;\nmod b;\n"),
                ("a.rs", "use crate::b::B;\npub struct A;\n"),
                ("b.rs", b),
            ]
        };
        let circle = files("use crate::a::A;\npub struct B;\n");
        assert_eq!(broken_but(&circle, &known), [""; 0]);
        let gone = broken_but(&files("pub struct B;\n"), &known);
        assert!(
            gone[0].contains("a.rs, b.rs are no circle any more"),
            "{gone:?}"
        );
    }

    #[test]
    fn imports_that_lead_to_themselves_end_the_search() {
        let files = two(
            "use a::a;\nuse super::b::*;\nfn f() { g(); }\n",
            "use super::a::*;\nfn f() { g(); }\n",
        );
        assert_eq!(files, [""; 0]);
        let text = broken(&[("lib.rs", "fn (\n")]);
        assert!(
            text[0].starts_with("lab/src/lib.rs:1: not Rust"),
            "{text:?}"
        );
    }
}
