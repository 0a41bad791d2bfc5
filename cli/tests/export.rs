//! Reads exported tables with pyarrow, a widely used reader of Parquet.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Prints the schema, the metadata, and each row of a file of Parquet, as the test expects them.
const READ: &str = "
import sys, json, pyarrow.parquet as parquet
table = parquet.read_table(sys.argv[1])
print(' '.join(f'{field.name}:{field.type}' for field in table.schema))
print(parquet.read_metadata(sys.argv[1]).metadata[b'plimsoll.schema'].decode())
for row in table.to_pylist():
    print(json.dumps(row))
";

/// Compares the objects in two files, which may order keys and write numbers in different ways.
const SAME: &str = "
import sys, json
one, other = ([json.loads(line) for line in open(file)] for file in sys.argv[1:])
assert len(one) == len(other) > 0, (len(one), len(other))
for a, b in zip(one, other):
    assert a == b, (a, b)
";

/// Returns the path of a Python that has pyarrow: the Python that `.ci/run` has installed, or the
/// user's.
fn python() -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/pyarrow/bin/python3");
    let mut all = [tools, PathBuf::from("python3")].into_iter();
    all.find(|python| {
        let import = Command::new(python).args(["-c", "import pyarrow"]).output();
        import.is_ok_and(|out| out.status.success())
    })
}

fn plimsoll(store: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let out = command.args(arguments).arg("--store").arg(store).output();
    let out = out.expect("the command starts");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).expect("the command prints text")
}

/// Runs several commands, and returns the ids of the runs, in their order.
fn run_some(store: &Path) -> Vec<String> {
    let selftest = |seeds| ["reproduce", "selftest", "--seeds", seeds];
    let compare = ["compare", "stress-vm", "--machine", "laptop-2"];
    let short = ["--seeds", "2", "--length-ms", "15"];
    plimsoll(store, &selftest("7"));
    // Both runs together have 108,000 rows, and a group of rows has 100,000.
    plimsoll(store, &selftest("9000"));
    plimsoll(store, &selftest("9000"));
    plimsoll(store, &[compare, short].concat());
    let list = plimsoll(store, &["results", "list", "--format", "json"]);
    let of_line = |line: &str| line.split('"').nth(5).expect("an id").to_owned();
    list.lines().map(of_line).collect()
}

/// Exports runs as Parquet and as JSON, and checks that Python reads the same rows from both.
fn check_exported(python: &Path, store: &Path, ids: &[String]) {
    let file = store.join("table.parquet");
    let file = file.to_str().expect("a path of ASCII");
    let mut export = vec!["results", "export"];
    export.extend(ids.iter().map(String::as_str));
    let json = plimsoll(store, &[&export[..], &["--format", "json"]].concat());
    plimsoll(store, &[&export[..], &["--output", file]].concat());
    let read = run_python(python, READ, &[file]);
    let mut lines = read.lines();
    let schema = lines.next().expect("the schema comes first");
    assert!(schema.starts_with("run:string started:string "), "{schema}");
    assert!(
        schema.ends_with(" nth:uint64 seed:uint64 value:double"),
        "{schema}"
    );
    assert_eq!(lines.next(), Some("1"), "the version of the table");
    let rows: Vec<&str> = lines.collect();
    let files = [(json, "table.json"), (rows.join("\n"), "read.json")].map(|(text, name)| {
        let file = store.join(name);
        fs::write(&file, text).expect("the store can be written");
        file.to_str().expect("a path of ASCII").to_owned()
    });
    run_python(python, SAME, &[&files[0], &files[1]]);
}

/// Runs a program of Python, and returns the text that it prints.
fn run_python(python: &Path, program: &str, arguments: &[&str]) -> String {
    let out = Command::new(python)
        .args(["-c", program])
        .args(arguments)
        .output();
    let out = out.expect("python3 has started before");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).expect("the programs print text")
}

#[test]
fn another_reader_of_parquet_reads_the_rows_that_json_has() {
    let Some(python) = python() else {
        println!("skipped: no python3 has pyarrow; `.ci/run` installs it");
        return;
    };
    let store = Path::new(env!("CARGO_TARGET_TMPDIR")).join("export");
    // Removes the store of an earlier test run. Fails, without effect, if there is no such store.
    let _ = fs::remove_dir_all(&store);
    let ids = run_some(&store);
    assert_eq!(ids.len(), 4, "{ids:?}");
    check_exported(&python, &store, &ids[3..]);
    // A run that is named twice is exported once.
    check_exported(&python, &store, &[ids.clone(), ids[..1].to_vec()].concat());
}
