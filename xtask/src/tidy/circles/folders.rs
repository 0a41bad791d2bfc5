//! The rule that the folders directly below `src` must not depend on each other in a circle. It
//! applies to crates that are built in layers.
//!
//! A file directly below `src` counts as a separate folder; `lib.rs` does not count. An edge leads
//! from one folder to another if a file of the first names an item that a file of the second
//! defines. This rule is stricter than the rule for files: two folders may form a circle although
//! no files form a circle.

use std::collections::BTreeSet;

use super::ROOTS;
use super::graph::{Edge, Graph};

/// The folders of the crates to which the rule applies. The other crates still have circles of
/// folders.
const LAYERED: [&str; 4] = ["machines/model", "mm", "recording", "xtask"];

/// An exception from the rule that folders must not depend on each other in a circle. The first
/// text is the folder of a crate. The second is a folder or file directly below the `src` of this
/// crate, which every layer is allowed to name. The third is the reason.
type Common = (&'static str, &'static str, &'static str);

/// The exceptions from the rule that folders must not form circles, each with a reason.
const COMMON: [Common; 1] = [(
    "mm",
    "design",
    "a design names one variant of each mechanism, and every layer is made as a design says",
)];

/// Returns an error for each circle between folders of the crate in `folder`.
pub(super) fn check(graph: &Graph, folder: &str) -> Vec<String> {
    if LAYERED.contains(&folder) {
        check_but(graph, folder, &COMMON)
    } else {
        Vec::new()
    }
}

/// Checks that the edges between the folders of one crate form no circle. Edges that lead to a
/// folder in `common` do not count. Also returns an error for an unnecessary exception. An
/// exception is unnecessary if the edges to its folder would close no circle.
fn check_but(graph: &Graph, folder: &str, common: &[Common]) -> Vec<String> {
    let source = format!("{folder}/src/");
    let common = common.iter().filter(|(known, ..)| *known == folder);
    let common: BTreeSet<&str> = common.map(|(_, layer, _)| *layer).collect();
    let layers = |common: &BTreeSet<&str>| {
        graph.folded(|from, to| {
            let (from, to) = (layer(from, &source)?, layer(to, &source)?);
            (!common.contains(to)).then_some((from, to))
        })
    };
    let mut found = described(&layers(&common), folder);
    for unneeded in &common {
        let others = common.iter().filter(|other| *other != unneeded);
        let layers = layers(&others.copied().collect());
        if layers.is_named(unneeded) && described(&layers, folder) == found {
            found.push(format!(
                "{folder}: {unneeded} is in no circle of folders any more; remove it from \
                 xtask/src/tidy/circles/folders.rs"
            ));
        }
    }
    found
}

/// Returns the name of the folder directly below `source` that contains `file`. If `file` itself is
/// directly below `source`, returns its name without `.rs`. Returns `None` for a file outside
/// `source`, and for `lib.rs` and `main.rs`.
fn layer<'p>(file: &'p str, source: &str) -> Option<&'p str> {
    let file = file.strip_prefix(source)?;
    let (layer, _) = file.split_once('/').unwrap_or((file, ""));
    (!ROOTS.contains(&layer)).then(|| layer.strip_suffix(".rs").unwrap_or(layer))
}

fn described(layers: &Graph, folder: &str) -> Vec<String> {
    let circle = |circle: BTreeSet<&str>| {
        let step = |edge: Edge<'_>| edge.why.name.clone();
        let way: Vec<String> = layers.shortest(&circle).into_iter().map(step).collect();
        let names: Vec<&str> = circle.into_iter().collect();
        format!(
            "{folder}: folders below src need each other: {}. The shortest circle: {}. Let the \
             arrows point one way: move what the lower one needs into it, or below both",
            names.join(", "),
            way.join(", "),
        )
    };
    layers.circles().into_iter().map(circle).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Modules, graph_of};
    use super::*;
    use crate::tidy::tree::of_tree;

    const LIB: (&str, &str) = ("mm/src/lib.rs", "mod high;\nmod low;\nmod base;\n");
    const HIGH: (&str, &str) = ("mm/src/high/mod.rs", "mod one;\npub mod two;\n");
    const BASE: (&str, &str) = ("mm/src/base.rs", "pub struct Base;\n");
    /// `high/one.rs` needs `low.rs`. If `low.rs` needs `high/two.rs`, no file is in a circle, but
    /// the folder `high` and the file `low.rs` form a circle of folders.
    const ONE: (&str, &str) = ("mm/src/high/one.rs", "use crate::low::Low;\n");
    const TWO: (&str, &str) = ("mm/src/high/two.rs", "pub struct Two;\n");

    fn broken(low: &'static str, common: &[Common]) -> Vec<String> {
        let files = [LIB, HIGH, BASE, ONE, TWO, ("mm/src/low.rs", low)];
        of_tree(&files, |tree| {
            let mut modules = Modules::read(tree, LIB.0).expect("Rust");
            check_but(&graph_of(&mut modules), "mm", common)
        })
    }

    #[test]
    fn folders_that_need_each_other_are_a_circle_though_their_files_are_none() {
        let upwards = "use crate::high::two::Two;\npub struct Low;\n";
        assert_eq!(
            broken(upwards, &[]),
            [
                "mm: folders below src need each other: high, low. The shortest circle: \
                 mm/src/high/one.rs:1 names `crate::low::Low` of mm/src/low.rs, mm/src/low.rs:1 \
                 names `crate::high::two::Two` of mm/src/high/two.rs. Let the arrows point one \
                 way: move what the lower one needs into it, or below both"
            ]
        );
        let downwards = "use crate::base::Base;\npub struct Low;\n";
        assert_eq!(broken(downwards, &[]), [""; 0]);
    }

    /// Every layer may name a folder that is listed as an exception. Listing the folder is an error
    /// if no circle of folders would exist without the exception.
    #[test]
    fn what_is_common_may_be_named_from_below_as_long_as_that_is_needed() {
        let upwards = "use crate::high::two::Two;\npub struct Low;\n";
        let common = [("mm", "high", "a reason")];
        assert_eq!(broken(upwards, &common), [""; 0]);
        let files = "use crate::base::Base;\npub struct Low;\n";
        let unneeded = broken(files, &[("mm", "base", "a reason")]);
        assert!(
            unneeded[0].contains("base is in no circle of folders any more"),
            "{unneeded:?}"
        );
    }
}
