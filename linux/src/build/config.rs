//! The kernel's configuration: `tinyconfig`, plus the options that a recording needs.

use std::fs;
use std::path::Path;

use super::source::Source;
use super::{Checks, Error, Recipe, Tools};

/// The options that every recorded kernel needs, as lines of a `.config` with comments.
const FRAGMENT: &str = include_str!("fragment.config");
/// The options of a kernel with runtime checks (lockdep, `DEBUG_VM` and others), as lines of a
/// `.config`.
const DEBUG: &str = include_str!("debug.config");
/// The name of a file in each build folder. It stores the configuration fragment with which the
/// folder was configured.
const CONFIGURED: &str = "plimsoll.config";

/// Configures `folder` to build `source`, unless the folder already has this configuration. After
/// each new configuration, `make` compiles every object again.
pub(super) fn configure(
    tools: &Tools,
    source: &Source,
    recipe: &Recipe,
    folder: &Path,
) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(Error::file("make", folder))?;
    let fragment = fragment(recipe);
    let (config, configured) = (folder.join(".config"), folder.join(CONFIGURED));
    let known = fs::read_to_string(&configured).unwrap_or_default();
    if known != fragment || !config.is_file() {
        make(tools, source, folder, "tinyconfig")?;
        let tiny = fs::read_to_string(&config).map_err(Error::file("read", &config))?;
        // If an option occurs twice, the kernel uses the later line.
        fs::write(&config, tiny + &fragment).map_err(Error::file("write", &config))?;
        make(tools, source, folder, "olddefconfig")?;
    }
    let made = fs::read_to_string(&config).map_err(Error::file("read", &config))?;
    let refused = refused(&fragment, &made);
    if !refused.is_empty() {
        return Err(Error::Asked(format!(
            "{} cannot be configured for recordings: its configuration refuses {}; name another --series",
            source.package,
            refused.join(", ")
        )));
    }
    fs::write(&configured, &fragment).map_err(Error::file("write", &configured))
}

/// Returns the lines that a kernel of `recipe` needs in addition to `tinyconfig`.
fn fragment(recipe: &Recipe) -> String {
    let debug = match recipe.checks {
        Checks::Off => "",
        Checks::On => DEBUG,
    };
    format!("{FRAGMENT}{debug}CONFIG_HZ_{}=y\n", recipe.rate.hz())
}

fn make(tools: &Tools, source: &Source, folder: &Path, goal: &str) -> Result<(), Error> {
    let mut command = tools.make(&source.folder, folder);
    Tools::run(command.arg(goal), &format!("configuring ({goal})")).map(|_| ())
}

/// Returns the options of `fragment` that do not have the requested value in `made`, which is a
/// whole `.config`.
fn refused<'a>(fragment: &'a str, made: &str) -> Vec<&'a str> {
    let lines: Vec<&str> = made.lines().collect();
    let options = fragment.lines().filter(|line| line.starts_with("CONFIG_"));
    let is_refused = |line: &&str| match line.strip_suffix("=n") {
        Some(name) => {
            let set = format!("{name}=");
            lines.iter().any(|made| made.starts_with(&set))
        }
        None => !lines.contains(line),
    };
    options.filter(is_refused).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::Rate;

    #[test]
    fn an_option_that_the_kernel_does_not_take_is_seen() {
        let fragment = "# x\nCONFIG_A=y\nCONFIG_B=n\nCONFIG_C=n\nCONFIG_D=256\nCONFIG_E=y\n";
        let made = "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=y\nCONFIG_D=64\nCONFIG_E2=y\n";
        assert_eq!(
            refused(fragment, made),
            ["CONFIG_C=n", "CONFIG_D=256", "CONFIG_E=y"]
        );
    }

    #[test]
    fn the_fragment_names_each_option_once_and_leaves_the_rate_to_the_recipe() {
        let all = format!("{FRAGMENT}{DEBUG}");
        let names: Vec<&str> = all
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split_once('=').expect("an option and its value").0)
            .collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), names.len());
        assert!(!names.iter().any(|name| name.starts_with("CONFIG_HZ_")));
        assert!(names.contains(&"CONFIG_KPROBE_EVENTS"));
    }

    #[test]
    fn only_a_kernel_with_checks_has_lockdep() {
        let recipe = Recipe::new("6.12", Rate::Hz250, Vec::new()).unwrap();
        let lockdep = "CONFIG_PROVE_LOCKING=y";
        assert!(!fragment(&recipe).lines().any(|line| line == lockdep));
        let checked = fragment(&recipe.checked());
        assert!(checked.lines().any(|line| line == lockdep));
        assert!(checked.ends_with("CONFIG_HZ_250=y\n"));
    }
}
