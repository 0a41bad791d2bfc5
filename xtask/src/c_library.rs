//! The C library: making its header, and installing it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use toml::Table;

/// The libraries that a program has to link besides the static library, on Linux with glibc
/// (`rustc --print native-static-libs`).
const LIBS_PRIVATE: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";

const INSTALL: &str = "Usage: cargo xtask c-install PREFIX

Builds libplimsoll and copies it to PREFIX/lib, its header to PREFIX/include, and plimsoll.pc to
PREFIX/lib/pkgconfig. PREFIX is an absolute path, such as /usr/local.";

/// Makes `bindings/c/include/plimsoll.h` from the Rust code.
pub(crate) fn header(root: &Path) -> Result<(), String> {
    let folder = root.join("bindings/c");
    let in_target = root.join("target/tools/bin/cbindgen");
    let program = if in_target.exists() {
        in_target.into_os_string()
    } else {
        OsString::from("cbindgen")
    };
    let mut cbindgen = Command::new(program);
    cbindgen
        .args(["--quiet", "--lang", "c", "--config"])
        .arg(folder.join("cbindgen.toml"))
        .arg("--output")
        .arg(folder.join("include/plimsoll.h"))
        .arg(&folder);
    run(&mut cbindgen)
        .map_err(|why| format!("{why}\n`cargo install --locked cbindgen@0.29.4` installs cbindgen"))
}

/// Builds the library, and installs it in the folder that the only argument names.
pub(crate) fn install(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let prefix = match *arguments {
        [prefix] if Path::new(prefix).is_absolute() => PathBuf::from(prefix),
        _ => return Err(INSTALL.to_owned()),
    };
    let target = root.join("target");
    run(&mut build(root, &target))?;

    let built = target.join("release");
    let libraries = prefix.join("lib");
    let mut copied = 0;
    for name in ["libplimsoll.a", "libplimsoll.so", "libplimsoll.dylib"] {
        let library = built.join(name);
        if library.exists() {
            copy(&library, &libraries.join(name))?;
            copied += 1;
        }
    }
    if copied == 0 {
        return Err(format!("{} has no libplimsoll", built.display()));
    }
    let header = root.join("bindings/c/include/plimsoll.h");
    copy(&header, &prefix.join("include/plimsoll.h"))?;
    let text = pkg_config(root, &prefix)?;
    let file = libraries.join("pkgconfig/plimsoll.pc");
    make_folder_of(&file)?;
    fs::write(&file, text).map_err(|why| format!("cannot write {}: {why}", file.display()))
}

/// Returns the command that builds the library in the folder `target`, even if the configuration of
/// cargo names another folder.
fn build(root: &Path, target: &Path) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build
        .args(["build", "--locked", "--release", "--package", "plimsoll-c"])
        .arg("--target-dir")
        .arg(target)
        .current_dir(root);
    build
}

/// Returns the text of `plimsoll.pc`.
fn pkg_config(root: &Path, prefix: &Path) -> Result<String, String> {
    let template = read(&root.join("bindings/c/plimsoll.pc.in"))?;
    let manifest = read(&root.join("Cargo.toml"))?;
    let table: Table = manifest
        .parse()
        .map_err(|why| format!("Cargo.toml: {why}"))?;
    let version = table["workspace"]["package"]["version"].as_str();
    let version = version.ok_or("Cargo.toml has no version of the workspace")?;
    Ok(template
        .replace("@PREFIX@", &prefix.display().to_string())
        .replace("@VERSION@", version)
        .replace("@LIBS_PRIVATE@", LIBS_PRIVATE))
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().display().to_string();
    let status = command.status();
    match status.map_err(|why| format!("cannot run {program}: {why}"))? {
        status if status.success() => Ok(()),
        status => Err(format!("{program} failed: {status}")),
    }
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|why| format!("cannot read {}: {why}", file.display()))
}

/// Copies the file `from` to `to`. The copy gets another name first, and then replaces the file
/// `to`. So programs that have mapped the old file keep its content.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    make_folder_of(to)?;
    let mut beside = to.as_os_str().to_owned();
    beside.push(".new");
    let copied = fs::copy(from, &beside).and_then(|_bytes| fs::rename(&beside, to));
    copied.map_err(|why| format!("cannot write {}: {why}", to.display()))
}

fn make_folder_of(file: &Path) -> Result<(), String> {
    let folder = file.parent().expect("a file is in a folder");
    fs::create_dir_all(folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pkg_config_file_has_no_gaps() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = pkg_config(&root, Path::new("/opt/here")).expect("the template is there");
        assert!(text.starts_with("prefix=/opt/here\n"), "{text}");
        assert!(!text.contains('@'), "{text}");
    }

    #[test]
    fn the_library_is_built_where_it_is_looked_for() {
        let command = build(Path::new("/here"), Path::new("/here/target"));
        let arguments: Vec<_> = command.get_args().collect();
        assert!(arguments.ends_with(&["--target-dir".as_ref(), "/here/target".as_ref()]));
    }

    #[test]
    #[cfg(unix)]
    fn a_program_that_has_mapped_the_old_library_keeps_it() {
        use std::io::Read;

        let folder = std::env::temp_dir().join(format!("plimsoll-copy-{}", std::process::id()));
        let [old, new] = ["old", "new"].map(|name| folder.join(name));
        fs::create_dir_all(&folder).expect("the folder is new");
        fs::write(&old, "old").expect("it can be written");
        fs::write(&new, "new").expect("it can be written");
        let mut opened = fs::File::open(&old).expect("it is there");
        copy(&new, &old).expect("it can be replaced");
        let mut text = String::new();
        opened.read_to_string(&mut text).expect("it is open");
        assert_eq!(text, "old");
        assert_eq!(fs::read_to_string(&old).expect("it is there"), "new");
        fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn an_install_needs_an_absolute_prefix() {
        for wrong in [&[][..], &["relative"], &["/a", "/b"]] {
            let refused = install(Path::new("/"), wrong).expect_err("it builds nothing");
            assert!(
                refused.starts_with("Usage: cargo xtask c-install"),
                "{refused}"
            );
        }
    }
}
