//! Tests of the library from C: a program is compiled with the header, and linked with the static
//! and with the shared library.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the folder of the library files that cargo has built for this test. The test program
/// itself is in the same folder.
fn libraries() -> PathBuf {
    let test = env::current_exe().expect("a test has a path");
    test.parent().expect("a program is in a folder").to_owned()
}

/// Returns the newest file of `folder` whose name begins with `libplimsoll` and has the extension
/// `extension`.
fn newest(folder: &Path, extension: &str) -> PathBuf {
    let is_one = |path: &PathBuf| {
        let name = path.file_stem().and_then(OsStr::to_str).unwrap_or("");
        let is_ours = name == "libplimsoll" || name.starts_with("libplimsoll-");
        is_ours && path.extension() == Some(OsStr::new(extension))
    };
    let files = fs::read_dir(folder).expect("it can be read").flatten();
    let files = files.map(|file| file.path()).filter(is_one);
    let time = |path: &PathBuf| path.metadata().and_then(|data| data.modified()).ok();
    let file = files.max_by_key(time);
    file.unwrap_or_else(|| panic!("no libplimsoll.{extension} in {}", folder.display()))
}

/// Returns the name of a C compiler, or prints that there is no C compiler.
fn compiler() -> Option<String> {
    let name = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let found = Command::new(&name).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: there is no C compiler `{name}`; set CC to have the C program tested");
    }
    found.then_some(name)
}

fn assert_ran(what: &str, output: &Output) {
    let Output {
        status,
        stdout,
        stderr,
    } = output;
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8_lossy(text));
    assert!(status.success(), "{what}: {status}\n{stdout}{stderr}");
}

/// Compiles `tests/test.c` with the additional arguments `more`, and runs the program.
fn compile_and_run(compiler: &str, name: &str, more: &[&OsStr]) {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut compile = Command::new(compiler);
    compile
        .args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-g",
            "-D_POSIX_C_SOURCE=200809L",
        ])
        .arg("-I")
        .arg(folder().join("include"))
        .arg(folder().join("tests/test.c"))
        .args(more)
        .arg("-lpthread")
        .arg("-o")
        .arg(&program);
    assert_ran("cc", &compile.output().expect("the compiler runs"));
    let output = Command::new(&program).output().expect("it was just made");
    assert_ran(name, &output);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("behaves as its header says"), "{text}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_c_program_works_with_the_static_library() {
    let Some(compiler) = compiler() else { return };
    let library = newest(&libraries(), "a");
    let libraries = ["-lgcc_s", "-lutil", "-lrt", "-lm", "-ldl", "-lc"].map(OsStr::new);
    let mut more = vec![library.as_os_str()];
    more.extend(libraries);
    compile_and_run(&compiler, "with_static", &more);
}

#[test]
#[cfg(target_os = "linux")]
fn a_c_program_works_with_the_shared_library() {
    let Some(compiler) = compiler() else { return };
    let library = newest(&libraries(), "so");
    let mut path = OsStr::new("-Wl,-rpath,").to_owned();
    path.push(library.parent().expect("it is in a folder"));
    compile_and_run(&compiler, "with_shared", &[library.as_os_str(), &path]);
}

/// Returns the names of the functions that the Rust code exports.
fn exported() -> Vec<String> {
    let sources = fs::read_dir(folder().join("src"))
        .expect("it is there")
        .flatten();
    let mut names = Vec::new();
    for source in sources {
        let text = fs::read_to_string(source.path()).expect("a source is text");
        let starts = text.match_indices("extern \"C\" fn plimsoll_");
        let skip = "extern \"C\" fn ".len();
        names.extend(starts.map(|(at, _)| {
            let name = &text[at + skip..];
            name[..name.find('(').expect("a function has parameters")].to_owned()
        }));
    }
    names
}

#[test]
fn the_header_and_the_test_know_every_function() {
    let read = |path: &str| fs::read_to_string(folder().join(path)).expect("it is there");
    let (header, test) = (read("include/plimsoll.h"), read("tests/test.c"));
    let exported = exported();
    assert!(exported.len() > 10, "{exported:?}");
    for name in &exported {
        let call = format!("{name}(");
        assert!(
            header.contains(&call),
            "run `cargo xtask c-header`: it lacks {name}"
        );
        assert!(test.contains(&call), "tests/test.c does not call {name}");
    }
}

#[test]
fn the_header_is_current() {
    let in_target = folder().join("../../target/tools/bin/cbindgen");
    let program = if in_target.exists() {
        in_target
    } else {
        "cbindgen".into()
    };
    let made = Command::new(&program)
        .args(["--quiet", "--lang", "c", "--config"])
        .arg(folder().join("cbindgen.toml"))
        .arg(folder())
        .output();
    let Ok(made) = made else {
        eprintln!("skipped: `cargo install --locked cbindgen@0.29.4` to have the header checked");
        return;
    };
    assert_ran("cbindgen", &made);
    let header = fs::read_to_string(folder().join("include/plimsoll.h")).expect("it is there");
    let made = String::from_utf8(made.stdout).expect("a header is text");
    assert!(
        made == header,
        "the header is out of date: run `cargo xtask c-header`"
    );
}
