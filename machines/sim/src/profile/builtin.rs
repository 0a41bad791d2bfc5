//! The machine profiles that are built into the simulator.

use super::error::{Problem, ProfileError, nearest};
use super::text::ProfileText;

/// The name and the TOML text of each built-in profile, in the order in which users see them
/// listed.
const FILES: [(&str, &str); 8] = [
    ("grace-72", include_str!("../../profiles/grace-72.toml")),
    (
        "bergamo-176",
        include_str!("../../profiles/bergamo-176.toml"),
    ),
    ("turin-316", include_str!("../../profiles/turin-316.toml")),
    (
        "epyc-9654-2s",
        include_str!("../../profiles/epyc-9654-2s.toml"),
    ),
    (
        "epyc-9654-256",
        include_str!("../../profiles/epyc-9654-256.toml"),
    ),
    ("phone-8", include_str!("../../profiles/phone-8.toml")),
    ("laptop-2", include_str!("../../profiles/laptop-2.toml")),
    ("many-1024", include_str!("../../profiles/many-1024.toml")),
];

/// A machine or a variant of one, as an entry of the list of built-in machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name that [`super::Profile::load`] takes.
    pub name: String,
    /// A description in one line.
    pub about: String,
}

/// Lists the built-in machines, each followed by its variants.
pub(super) fn list() -> Vec<Listed> {
    let entries = |text: ProfileText| {
        let variants = text.variants.iter().map(|variant| Listed {
            name: format!("{}+{}", text.name, variant.name),
            about: format!("{}, {}", text.about, variant.about),
        });
        let variants: Vec<Listed> = variants.collect();
        [Listed {
            name: text.name,
            about: text.about,
        }]
        .into_iter()
        .chain(variants)
    };
    FILES
        .iter()
        .filter_map(|(name, _)| describe(name).ok())
        .flat_map(entries)
        .collect()
}

/// The parsed profile of `name`, which is a machine or `machine+variant`.
pub(super) fn describe(name: &str) -> Result<ProfileText, ProfileError> {
    let (machine, variant) = name
        .split_once('+')
        .map_or((name, None), |(m, v)| (m, Some(v)));
    let text = ProfileText::parse(machine, toml(machine)?)?;
    variant.map_or(Ok(text.clone()), |variant| text.variant(variant))
}

/// The text of the file of the built-in machine `machine`.
pub(super) fn toml(machine: &str) -> Result<&'static str, ProfileError> {
    if let Some((_, toml)) = FILES.iter().find(|(known, _)| *known == machine) {
        return Ok(toml);
    }
    let known: Vec<String> = FILES.iter().map(|(known, _)| (*known).to_owned()).collect();
    Err(ProfileError {
        file: machine.to_owned(),
        line: None,
        key: None,
        problem: Problem::UnknownMachine(nearest(machine, &known)),
    })
}
