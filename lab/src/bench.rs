//! How fast Plimsoll itself is, by name.

use crate::error::Error;
use crate::progress::Progress;
use crate::report::Table;

/// One measurement of Plimsoll itself.
#[derive(Clone, Copy, Debug)]
pub struct Bench {
    /// As `plimsoll bench` knows it.
    pub name: &'static str,
    /// What it measures, in one line.
    pub about: &'static str,
    /// Measures.
    pub run: fn(&Progress) -> Result<Vec<Table>, Error>,
}

/// Every bench.
pub const ALL: &[Bench] = &[Bench {
    name: "sim",
    about: "ordered interactions per second of the simulator, on one core",
    run: |_| Err(Error::Unimplemented("the bench of the simulator")),
}];

/// The bench called `name`.
///
/// # Errors
/// [`Error::Unknown`] with the nearest names.
pub fn find(name: &str) -> Result<&'static Bench, Error> {
    let names: Vec<&str> = ALL.iter().map(|bench| bench.name).collect();
    let found = ALL.iter().find(|bench| bench.name == name);
    found.ok_or_else(|| Error::unknown("bench", name, &names))
}
