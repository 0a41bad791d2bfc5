//! Finds the profile (the description) of the simulated machine that the user names. The machine is
//! either built in or described in a file of the user.

use std::fs;
use std::path::Path;

use plimsoll_sim::profile::{Card, Problem, Profile, ProfileError, ProfileText};

use crate::error::Error;

/// Loads the profile of a built-in machine or of a file. A profile gives each price (the
/// nanoseconds of one kind of step) as a range. `card` says whether the low end, the middle or the
/// high end of this range is taken.
///
/// # Errors
/// If the machine is unknown. In this case, the error offers the nearest names, or a profile file
/// of the user that has a machine of this name. Also if the profile is bad. In this case, the error
/// says in which file and at which key.
pub fn load(machine: &str, card: Card) -> Result<Profile, Error> {
    load_in(Path::new(""), machine, card)
}

/// Loads `machine` as [`load`] does. A relative path begins at `folder`.
///
/// # Errors
/// The errors of [`load`].
pub fn load_in(folder: &Path, machine: &str, card: Card) -> Result<Profile, Error> {
    let resolved = machine_at(folder, machine);
    if is_file(&resolved) {
        return Ok(Profile::from_path(Path::new(&resolved), card)?);
    }
    Profile::load(machine, card).map_err(|error| unknown(error, machine, folder))
}

/// Makes the error for `machine`, which is not the name of a built-in machine. If `folder` has a
/// profile file of this machine, the error says how to write its name.
pub(super) fn unknown(error: ProfileError, machine: &str, folder: &Path) -> Error {
    let name = machine.split(['+', '@']).next().unwrap_or_default();
    let found = matches!(error.problem, Problem::UnknownMachine(_))
        .then(|| file_of(folder, name))
        .flatten();
    found.map_or_else(
        || error.into(),
        |file| {
            let variant = machine[name.len()..].split('@').next().unwrap_or_default();
            Error::Invalid(format!(
                "no built-in machine is called `{name}`; a machine of your own is named by its \
                 file: write `{file}{variant}`"
            ))
        },
    )
}

/// The name of the profile file in `folder` whose machine has the name `name`. The function returns
/// `name.toml` if this file exists. Otherwise, it reads the files in the order of their names, and
/// returns the first with such a machine.
fn file_of(folder: &Path, name: &str) -> Option<String> {
    let usual = format!("{name}.toml");
    if folder.join(&usual).is_file() {
        return Some(usual);
    }
    let here = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let files = fs::read_dir(here).ok()?.flatten();
    let mut files: Vec<String> = files
        .filter_map(|file| file.file_name().into_string().ok())
        .filter(|file| file.ends_with(".toml"))
        .collect();
    files.sort();
    files.into_iter().find(|file| {
        ProfileText::from_path(&folder.join(file)).is_ok_and(|profile| profile.name == name)
    })
}

/// Returns the profile of the built-in machine `machine` as the text of a profile file. In this
/// text, the name of the machine is `name`.
///
/// # Errors
/// [`Error::Invalid`] if the machine is unknown, or `name` cannot be the name of a machine.
pub fn copy_of(machine: &str, name: &str) -> Result<String, Error> {
    let toml = Profile::toml_of(machine)?;
    let of_machine = format!("\nname = \"{machine}\"\n");
    let copy = toml.replacen(&of_machine, &format!("\nname = \"{name}\"\n"), 1);
    ProfileText::parse(name, &copy)?;
    Ok(copy)
}

/// Resolves `machine`, a name in a file that lies in `folder`. If it is a path, or the name of a
/// file in `folder`, it becomes a path from the current folder. If it is the name of a built-in
/// machine, it stays as it is.
#[must_use]
pub fn machine_at(folder: &Path, machine: &str) -> String {
    let is_path = machine.contains('/') || machine.contains(".toml");
    let beside = folder.join(machine);
    if (is_path || beside.is_file()) && Path::new(machine).is_relative() {
        beside.display().to_string()
    } else {
        machine.to_owned()
    }
}

/// Returns whether `machine` names a profile file. If `machine` contains a `/` or `.toml`, it names
/// a file, even if the file does not exist. Any other name is the name of a file only if the file
/// exists. So a misspelt name of a built-in machine is not reported as a missing file.
pub(super) fn is_file(machine: &str) -> bool {
    machine.contains('/') || machine.contains(".toml") || Path::new(machine).is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_differs_from_the_machine_only_in_its_name() {
        for machine in Profile::list().into_iter().map(|listed| listed.name) {
            if machine.contains('+') {
                let refused = copy_of(&machine, "mine").expect_err("a variant has no file");
                assert!(refused.to_string().contains("did you mean"), "{refused}");
                continue;
            }
            let copy = copy_of(&machine, "my-128").unwrap();
            let mut text = ProfileText::parse("my-128.toml", &copy).unwrap();
            assert_eq!(text.name, "my-128");
            text.name.clone_from(&machine);
            assert_eq!(text, Profile::describe(&machine).unwrap());
        }
        for bad in ["my 128", "my+128"] {
            let refused = copy_of("grace-72", bad).expect_err("no name for a machine");
            assert!(refused.to_string().contains("name"), "{refused}");
        }
    }

    #[test]
    fn the_name_of_an_own_machine_is_answered_with_its_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |file: &str, name: &str| {
            let copy = copy_of("laptop-2", name).unwrap();
            fs::write(folder.path().join(file), copy).expect("the folder is writable");
        };
        write("my-128.toml", "my-128");
        write("box.toml", "my-64");
        fs::write(folder.path().join("other.toml"), "seeds = 6").expect("the folder is writable");
        let load = |machine: &str| load_in(folder.path(), machine, Card::Mid);
        let told = |machine: &str| {
            load(machine)
                .expect_err("is no built-in machine")
                .to_string()
        };
        assert_eq!(
            told("my-128"),
            "no built-in machine is called `my-128`; a machine of your own is named by its file: \
             write `my-128.toml`"
        );
        assert!(told("my-64").ends_with("write `box.toml`"));
        assert!(told("my-128+no-jitter").ends_with("write `my-128.toml+no-jitter`"));
        assert!(told("my-32").starts_with("unknown machine"));
        assert_eq!(
            load("my-128.toml+no-jitter").unwrap().name,
            "my-128+no-jitter"
        );
    }
}
