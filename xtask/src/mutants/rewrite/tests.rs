//! Rewrites a small source to which every kind of change can be made, and compiles it once. Then
//! runs the program once for each mutant, and once without a mutant.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Rewritten, rewrite, switch};
use crate::mutants::change::{Change, Genre, Place};

const SOURCE: &str = r#"
pub const SHIFT: u32 = 1 + 1;

pub const fn evaluated(a: u32) -> u32 {
    a + 1
}

pub const TABLE: [u32; 2] = [0; evaluated(1) as usize];

pub const fn three() -> u32 {
    3
}

struct Pair {
    left: u32,
    right: u32,
}

impl Pair {
    const BOTH: Pair = Pair { left: 1, right: 2 };

    fn sum(&self) -> u32 {
        self.left + self.right * 10
    }
}

fn arm(value: u32) -> u32 {
    match value {
        0 => return 7,
        1 if value < 5 => return 8,
        _ => {}
    }
    9
}

fn chained(of: Option<u32>, flag: bool) -> bool {
    if let Some(value) = of && flag && !(value == 3) {
        return true;
    }
    false
}

fn main() {
    let mut count = 5;
    count -= 2;
    let pair = Pair { left: 4, ..Pair::BOTH };
    let all = [1, 2].iter().any(|number| *number > 1) || count == 1 && pair.left < 2;
    println!(
        "{count} {} {} {} {} {} {} {all}",
        pair.sum(), arm(0), arm(1), chained(Some(3), true), chained(Some(4), true), three(),
    );
    assert_eq!(SHIFT + TABLE.len() as u32 + pair.right, 6);
}
"#;

/// The text that the program prints when no mutant is switched on.
const PLAIN: &str = "3 24 7 8 false true 3 true";

/// The changes to try. Each has its genre (the kind of change), the text just before it, the text
/// that it replaces, the replacement, and the text that the program then prints.
const CHANGES: [(Genre, &str, &str, &str, &str); 12] = [
    (
        Genre::BinaryOperator,
        "count ",
        "-=",
        "+=",
        "7 24 7 8 false true 3 true",
    ),
    (
        Genre::BinaryOperator,
        "self.left ",
        "+",
        "*",
        "3 80 7 8 false true 3 true",
    ),
    (
        Genre::BinaryOperator,
        "self.right ",
        "*",
        "+",
        "3 16 7 8 false true 3 true",
    ),
    (
        Genre::BinaryOperator,
        "*number ",
        ">",
        "<",
        "3 24 7 8 false true 3 false",
    ),
    (
        Genre::BinaryOperator,
        "*number > 1) ",
        "||",
        "&&",
        "3 24 7 8 false true 3 false",
    ),
    (
        Genre::UnaryOperator,
        "flag && ",
        "!",
        "",
        "3 24 7 8 true false 3 true",
    ),
    (
        Genre::MatchArm,
        "match value {\n        ",
        "0 => return 7,",
        "",
        "3 24 9 8 false true 3 true",
    ),
    (
        Genre::MatchArmGuard,
        "1 if ",
        "value < 5",
        "false",
        "3 24 7 9 false true 3 true",
    ),
    (
        Genre::StructField,
        "let pair = Pair { ",
        "left: 4,",
        "",
        "3 21 7 8 false true 3 true",
    ),
    (
        Genre::FnValue,
        "three() -> u32 {\n    ",
        "3",
        "5",
        "3 24 7 8 false true 5 true",
    ),
    (
        Genre::FnValue,
        "sum(&self) -> u32 {\n        ",
        "self.left + self.right * 10",
        "1",
        "3 1 7 8 false true 3 true",
    ),
    (
        Genre::BinaryOperator,
        "value ",
        "<",
        "==",
        "3 24 7 9 false true 3 true",
    ),
];

fn place(byte: usize) -> Place {
    let before = &SOURCE[..byte];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    Place {
        line: before.matches('\n').count() + 1,
        column: SOURCE[line_start..byte].chars().count() + 1,
    }
}

fn change(genre: Genre, before: &str, now: &str, then: &str) -> Change {
    let found = SOURCE.find(&format!("{before}{now}"));
    let start = found.expect("the source has this text") + before.len();
    Change {
        file: "main.rs".to_owned(),
        genre,
        start: place(start),
        end: place(start + now.len()),
        replacement: then.to_owned(),
    }
}

fn rewritten(changes: &[Change], constants: &BTreeSet<super::FnName>) -> Rewritten {
    let numbered: Vec<_> = changes.iter().enumerate().collect();
    rewrite(SOURCE, &numbered, constants).expect("a good source")
}

fn evaluated() -> BTreeSet<super::FnName> {
    BTreeSet::from([(None, "evaluated".to_owned())])
}

/// Returns the text that the program prints.
fn prints(program: &Path, variable: Option<(&str, &str)>) -> String {
    let mut command = Command::new(program);
    command.envs(variable);
    let output = command.output().expect("the program runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned()
}

#[test]
fn each_switch_changes_what_its_mutant_changes_and_nothing_else() {
    let changes = CHANGES.map(|(genre, before, now, then, _)| change(genre, before, now, then));
    let rewritten = rewritten(&changes, &evaluated());
    assert_eq!((rewritten.constant, rewritten.forbidden), (vec![], vec![]));
    let folder = tempfile::tempdir().expect("a folder");
    let main = folder.path().join("main.rs");
    fs::write(&main, rewritten.text + switch::DECLARATION).expect("a file");
    let module = switch::module(changes.len());
    fs::write(folder.path().join(switch::FILE), module).expect("a file");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(rustc);
    command.args(["--edition", "2024", "main.rs"]);
    let output = command.current_dir(folder.path()).output();
    let output = output.expect("rustc runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    let program = folder.path().join("main");
    assert_eq!(prints(&program, None), PLAIN);
    for (number, (genre, before, now, then, printed)) in CHANGES.iter().enumerate() {
        let with = prints(&program, Some((switch::MUTANT, &number.to_string())));
        assert_eq!(with, *printed, "{genre:?}: {before}{now} -> {then}");
    }
    let reached = folder.path().join("reached");
    let variable = (switch::REACHED, &*reached.to_string_lossy());
    assert_eq!(prints(&program, Some(variable)), PLAIN);
    let reached = fs::read_to_string(reached).expect("the program writes the file");
    let mut reached: Vec<usize> = reached.lines().map(|line| line.parse().unwrap()).collect();
    reached.sort_unstable();
    assert_eq!(reached, Vec::from_iter(0..CHANGES.len()));
}

#[test]
fn what_no_switch_can_change_is_named() {
    let changes = [
        change(Genre::BinaryOperator, "SHIFT: u32 = 1 ", "+", "-"),
        change(Genre::BinaryOperator, "a ", "+", "-"),
        change(Genre::BinaryOperator, "= of ", "&&", "||"),
        change(Genre::BinaryOperator, "flag ", "&&", "||"),
    ];
    let rewritten = rewritten(&changes, &evaluated());
    assert_eq!(rewritten.constant, [0, 1]);
    assert_eq!(BTreeSet::from_iter(rewritten.forbidden), [2, 3].into());
    assert_eq!(rewritten.regions, []);
}

#[test]
fn a_function_that_is_not_evaluated_loses_its_const() {
    let text = rewritten(&[], &evaluated()).text;
    assert!(text.contains("pub const fn evaluated("), "{text}");
    assert!(text.contains("pub  fn three("), "{text}");
    let text = rewritten(&[], &BTreeSet::new()).text;
    assert!(text.contains("pub  fn evaluated("), "{text}");
}

#[test]
fn regions_hold_the_text_of_their_mutants() {
    let changes = [change(Genre::BinaryOperator, "self.left ", "+", "-")];
    let rewritten = rewritten(&changes, &evaluated());
    let texts: Vec<&str> = rewritten
        .regions
        .iter()
        .map(|region| &rewritten.text[region.bytes.clone()])
        .collect();
    assert_eq!(texts[0], "self.left  -  self.right * 10");
    assert!(texts[1].starts_with("(if crate::"), "{}", texts[1]);
    assert!(
        texts[1].ends_with("else { self.left + self.right * 10 })"),
        "{}",
        texts[1]
    );
    assert!(
        texts[2].starts_with("{\n        (if crate::"),
        "{}",
        texts[2]
    );
    assert!(texts[2].ends_with("})\n    }"), "{}", texts[2]);
    assert_eq!(texts.len(), 3);
}
