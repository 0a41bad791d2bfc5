//! The rule about licences: files that change the kernel have the kernel's licence and are in a
//! separate folder. No other file has the kernel's licence.

use super::{File, Tree};

/// The folder of the files that change the kernel.
const KERNEL: &str = "kernel/";
/// The licence line of files in [`KERNEL`]. The constant has two parts, because the rule would
/// otherwise find the licence line in this file.
const LICENCE: &str = concat!("SPDX-License-Identifier: ", "GPL-2.0-only");
/// The licence line of any file under the GPL.
const FOREIGN: &str = concat!("SPDX-License-Identifier: ", "GPL");
/// The number of lines at the top in which a file must state its licence.
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
        "{}:{}: a file under the GPL belongs in {KERNEL}",
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
            ["lab/src/x.rs:2: a file under the GPL belongs in kernel/"]
        );
        assert_eq!(
            broken_by(check, "lab/src/x.rs", "//! The GPL-2.0-only licence.\n"),
            [""; 0]
        );
    }
}
