//! The designs that experiments compare, by name.

use crate::error::Error;
use crate::report::Table;

/// A choice for every mechanism that has variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DesignInfo {
    /// As reports and options spell it.
    pub name: &'static str,
    /// What it chooses, in one line.
    pub about: &'static str,
}

/// Every design, what Linux does first.
pub const ALL: &[DesignInfo] = &[];

/// The design called `name`.
///
/// # Errors
/// [`Error::Unknown`] with the nearest names.
pub fn find(name: &str) -> Result<&'static DesignInfo, Error> {
    let names: Vec<&str> = ALL.iter().map(|design| design.name).collect();
    let found = ALL.iter().find(|design| design.name == name);
    found.ok_or_else(|| Error::unknown("design", name, &names))
}

/// Every design with one line about it.
#[must_use]
pub fn list() -> Table {
    let row = |design: &DesignInfo| vec![design.name.to_owned(), design.about.to_owned()];
    Table {
        title: String::new(),
        note: "`plimsoll replay --a DESIGN --b DESIGN` compares two of them.".to_owned(),
        columns: ["design", "about"].map(str::to_owned).to_vec(),
        rows: ALL.iter().map(row).collect(),
    }
}
