//! Runs the commands of docs/machines.md with which a user describes a machine of their own.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Returns the lines of the first block of shell commands below `heading` in `page`.
fn commands(page: &str, heading: &str) -> Vec<String> {
    let (_, section) = page.split_once(heading).expect("the page has the heading");
    let (_, block) = section.split_once("```sh\n").expect("there is a block");
    let (block, _) = block.split_once("```").expect("the block ends");
    block.lines().map(str::to_owned).collect()
}

/// Runs `line` as a shell in `folder` does.
fn shell(folder: &Path, line: &str) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_plimsoll"));
    let before = std::env::var("PATH").unwrap_or_default();
    let beside = program
        .parent()
        .expect("a program is in a folder")
        .display();
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(folder);
    command.env("PATH", format!("{beside}:{before}"));
    command
        .env_remove("PLIMSOLL_STORE")
        .output()
        .expect("there is a shell")
}

#[test]
fn the_commands_of_the_page_work_as_they_are_written() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(root.join("docs/machines.md")).expect("the page is there");
    let lines = commands(&page, "\n## Your own machine\n");
    assert!(lines.len() >= 4, "{lines:?}");
    let folder = tempfile::tempdir().expect("a folder");
    let mut printed = String::new();
    for line in &lines {
        let out = shell(folder.path(), line);
        let error = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{line}: {error}");
        printed.push_str(&String::from_utf8_lossy(&out.stdout));
    }
    assert!(printed.contains("my-128"), "{printed}");

    // A user may write the machine's name instead of the name of its file. The error then says how
    // to name the file.
    let experiment = "schema = 1\nname = \"mine\"\nmachines = [\"my-128\"]\n\
                      [workload]\nname = \"make-like\"\n[[design]]\ndesign = \"linux\"\n";
    fs::write(folder.path().join("mine.toml"), experiment).expect("the folder is writable");
    for line in [
        "plimsoll check mine.toml",
        "plimsoll compare make-like --machine my-128",
    ] {
        let out = shell(folder.path(), line);
        let error = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{line}: {error}");
        assert!(
            error.contains("named by its file: write `my-128.toml`"),
            "{line}: {error}"
        );
    }

    // The file is not replaced, because it may have the user's prices.
    let file = folder.path().join("my-128.toml");
    fs::write(&file, "mine").expect("the file is writable");
    let again = shell(folder.path(), &lines[0]);
    assert_eq!(again.status.code(), Some(2));
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "mine");
}
