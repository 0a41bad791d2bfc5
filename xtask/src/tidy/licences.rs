//! Whose licence is whose: what changes the kernel is under the kernel's, in a folder of its own,
//! and nothing else is.

use super::{File, Tree};

/// The folder of what changes the kernel.
const KERNEL: &str = "kernel/";
/// The licence there; written in two parts, or this file would name it as its own.
const LICENCE: &str = concat!("SPDX-License-Identifier: ", "GPL-2.0-only");
/// A licence of that family named as a file's own.
const FOREIGN: &str = concat!("SPDX-License-Identifier: ", "GPL");
/// How many lines a licence may be from the top.
const LINES: usize = 3;

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut broken: Vec<String> = tree.files.iter().filter_map(misplaced).collect();
    let has_files = tree.files.iter().any(|file| file.path.starts_with(KERNEL));
    if has_files && !tree.root.join(KERNEL).join("COPYING").is_file() {
        broken.push(format!(
            "{KERNEL}COPYING: missing; put the text of the GPL-2.0 there"
        ));
    }
    broken
}

fn misplaced(file: &File) -> Option<String> {
    let mut top = file.text.lines().take(LINES);
    if file.path.starts_with(KERNEL) {
        let says = top.any(|line| line.contains(LICENCE));
        return (!says).then(|| format!("{}:1: say `{LICENCE}` at the top", file.path));
    }
    let line = file.text.lines().position(|line| line.contains(FOREIGN))?;
    Some(format!(
        "{}:{}: what is under the GPL belongs in {KERNEL}",
        file.path,
        line + 1
    ))
}

#[cfg(test)]
mod tests {
    use super::super::tree::broken_by;
    use super::*;

    #[test]
    fn what_changes_the_kernel_says_its_licence_and_has_its_text() {
        let copying = "kernel/COPYING: missing; put the text of the GPL-2.0 there";
        assert_eq!(
            broken_by(check, "kernel/x.cocci", "// x\n"),
            [
                format!("kernel/x.cocci:1: say `{LICENCE}` at the top"),
                copying.to_owned()
            ]
        );
        let good = format!("// {LICENCE}\n");
        assert_eq!(broken_by(check, "kernel/x.cocci", &good), [copying]);
        let late = format!("//\n//\n//\n// {LICENCE}\n");
        assert_eq!(broken_by(check, "kernel/x.cocci", &late).len(), 2);
    }

    #[test]
    fn nothing_else_is_under_that_licence() {
        let text = format!("//! x\n// {LICENCE}\n");
        assert_eq!(
            broken_by(check, "lab/src/x.rs", &text),
            ["lab/src/x.rs:2: what is under the GPL belongs in kernel/"]
        );
        assert_eq!(
            broken_by(check, "lab/src/x.rs", "//! The GPL-2.0-only licence.\n"),
            [""; 0]
        );
    }
}
