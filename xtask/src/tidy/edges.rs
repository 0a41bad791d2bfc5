//! The rule about dependencies between the workspace's crates. mm, recording and xtask depend on no
//! other crate. The crates of machines (`machines/`) depend only on mm, and linux depends only on
//! recording. The lab depends on the machines, mm and recording; the command depends on the lab,
//! linux and recording. The C library depends on host and mm, and the package for Python depends on
//! the lab and mm.

use toml::{Table, Value};

use super::{File, Tree};

/// The folder of each crate, with the packages on which it may depend.
const EDGES: [(&str, &[&str]); 12] = [
    ("mm", &[]),
    ("machines/host", &["plimsoll-mm"]),
    ("machines/sim", &["plimsoll-mm"]),
    ("machines/model", &["plimsoll-mm"]),
    (
        "lab",
        &[
            "plimsoll-host",
            "plimsoll-sim",
            "plimsoll-model",
            "plimsoll-mm",
            "plimsoll-recording",
        ],
    ),
    ("recording", &[]),
    ("linux", &["plimsoll-recording"]),
    (
        "cli",
        &["plimsoll-lab", "plimsoll-linux", "plimsoll-recording"],
    ),
    ("bindings/c", &["plimsoll-host", "plimsoll-mm"]),
    // `bindings/python` and `peers` are separate workspaces.
    ("bindings/python", &["plimsoll-lab", "plimsoll-mm"]),
    ("xtask", &[]),
    // `peers` compares other allocators with the page allocator.
    ("peers", &["plimsoll-lab"]),
];

pub(super) fn check(tree: &Tree) -> Vec<String> {
    tree.crates()
        .flat_map(|(folder, manifest)| check_crate(folder, manifest))
        .collect()
}

fn check_crate(folder: &str, manifest: &File) -> Vec<String> {
    let Some((_, allowed)) = EDGES.iter().find(|(known, _)| *known == folder) else {
        return vec![format!(
            "{}: a crate that is not in the table of edges; add it to xtask/src/tidy/edges.rs",
            manifest.path
        )];
    };
    let table: Table = match manifest.text.parse() {
        Ok(table) => table,
        Err(error) => return vec![format!("{}: not TOML: {error}", manifest.path)],
    };
    let foreign = |name: &&String| !allowed.contains(&name.as_str());
    let of_ours = dependencies(&table)
        .into_iter()
        .filter(|name| name.starts_with("plimsoll"));
    let of_ours: Vec<String> = of_ours.collect();
    let text = |name: &String| {
        let may = if allowed.is_empty() {
            "no other crate".to_owned()
        } else {
            allowed.join(", ")
        };
        format!(
            "{}: {folder} may not know {name}; it may know {may}",
            manifest.path
        )
    };
    of_ours.iter().filter(foreign).map(text).collect()
}

/// Returns the packages in all dependency tables, including tables for specific targets.
fn dependencies(manifest: &Table) -> Vec<String> {
    let mut found = Vec::new();
    for (key, value) in manifest {
        let Value::Table(table) = value else { continue };
        if key.ends_with("dependencies") {
            found.extend(table.iter().map(|(name, value)| package(name, value)));
        } else if key == "target" {
            let targets = table.values().filter_map(Value::as_table);
            found.extend(targets.flat_map(dependencies));
        }
    }
    found
}

/// Returns the name of the package on which a crate depends. The manifest may give the dependency
/// another name.
fn package(name: &str, dependency: &Value) -> String {
    let renamed = dependency.get("package").and_then(Value::as_str);
    renamed.unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::tree::broken_by;
    use super::*;

    #[test]
    fn the_manager_may_know_nobody_of_ours_in_any_way() {
        for section in [
            "[dependencies]\nplimsoll-sim.workspace = true\n",
            "[dev-dependencies]\nplimsoll-sim = { path = \"../machines/sim\" }\n",
            "[build-dependencies]\nplimsoll-sim = \"1\"\n",
            "[target.'cfg(unix)'.dependencies]\nplimsoll-sim = \"1\"\n",
            "[dependencies]\nother = { package = \"plimsoll-sim\", version = \"1\" }\n",
        ] {
            assert_eq!(
                broken_by(check, "mm/Cargo.toml", section),
                ["mm/Cargo.toml: mm may not know plimsoll-sim; it may know no other crate"]
            );
        }
    }

    #[test]
    fn an_edge_may_not_skip_a_layer() {
        let text = "[dependencies]\nplimsoll-mm.workspace = true\nplimsoll-lab.workspace = true\n";
        assert_eq!(
            broken_by(check, "cli/Cargo.toml", text),
            [
                "cli/Cargo.toml: cli may not know plimsoll-mm; it may know plimsoll-lab, \
                 plimsoll-linux, plimsoll-recording"
            ]
        );
    }

    #[test]
    fn a_new_crate_must_be_placed_and_a_manifest_must_be_toml() {
        let placed = broken_by(check, "guard/Cargo.toml", "[package]\nname = \"guard\"\n");
        assert!(
            placed[0].contains("add it to xtask/src/tidy/edges.rs"),
            "{placed:?}"
        );
        let broken = broken_by(check, "mm/Cargo.toml", "[package\n");
        assert!(
            broken[0].starts_with("mm/Cargo.toml: not TOML"),
            "{broken:?}"
        );
    }
}
