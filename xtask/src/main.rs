//! Repository chores: `cargo xtask tidy | ci | determinism | mutants | api`, and for the
//! C library `c-header | c-install`.
//!
//! This crate does not depend on the other crates: it reads their files and runs their binaries.

mod api;
mod c_library;
mod chores;
mod mutants;
mod tidy;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask <CHORE>

Chores:
  tidy                      Checks the rules that no other tool knows
  ci                        Runs everything that a change must pass (.ci/run)
  determinism [EXPERIMENT]  Compares the hashes of a debug and a release build [default: drain]
  mutants [OPTIONS]         Changes mm in one place at a time and sees whether the tests notice
  api [--write]             Compares the public interface with docs/api, or writes it there
  c-header                  Makes the header of the C library from its Rust code, with cbindgen
  c-install PREFIX          Builds the C library and installs it, with plimsoll.pc, below PREFIX
";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = root();
    let outcome = match *args {
        ["tidy"] => tidy::run(&root),
        ["ci"] => chores::ci(&root),
        ["determinism"] => chores::determinism(&root, "drain"),
        ["determinism", experiment] => chores::determinism(&root, experiment),
        ["api"] => api::check(&root),
        ["api", "--write"] => api::write(&root),
        ["c-header"] => c_library::header(&root),
        ["c-install", ref arguments @ ..] => c_library::install(&root, arguments),
        ["mutants", "--help"] => mutants::help(),
        ["mutants", ref options @ ..] => mutants::run(&root, options),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{}", why.trim_end());
            ExitCode::FAILURE
        }
    }
}

/// Returns the folder of the workspace, regardless of the current folder.
fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask
        .parent()
        .expect("xtask is a folder of the workspace")
        .to_owned()
}
