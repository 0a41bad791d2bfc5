//! `plimsoll completions` and `plimsoll man`: files for the shell and for `man`, generated from the
//! same declarations as the help.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use clap_complete::Shell;

use crate::help;
use crate::output::BadInput;

/// Prints the completions for a shell.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut help::command(), "plimsoll", &mut script);
    // `generate` panics if writing fails, for example on a closed pipe. So let it write to memory,
    // not directly to standard output.
    io::stdout().write_all(&script)?;
    Ok(())
}

/// Writes a man page of the program, and a man page of each command, to an existing folder.
pub(crate) fn man(folder: &Path) -> anyhow::Result<()> {
    if !folder.is_dir() {
        let refused = format!(
            "{} is not a folder; create it first with mkdir -p",
            folder.display()
        );
        return Err(BadInput(refused).into());
    }
    let mut command = help::command();
    command.build();
    page(&command, folder)?;
    for of in command.get_subcommands().filter(|of| !of.is_hide_set()) {
        if of.get_name() != "help" {
            page(of, folder)?;
        }
    }
    Ok(())
}

fn page(command: &clap::Command, folder: &Path) -> anyhow::Result<()> {
    let page = clap_mangen::Man::new(command.clone());
    let path = folder.join(page.get_filename());
    let mut text = Vec::new();
    page.render(&mut text)?;
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}
