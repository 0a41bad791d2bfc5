//! The accepted survivors, with the reason for each: mutants that no test can notice, or that no
//! test needs to notice. The file `xtask/survivors.toml` lists these mutants.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use toml::{Table, Value};

/// The path of the list of accepted survivors, from the root of the repository.
pub(crate) const FILE: &str = "xtask/survivors.toml";

/// Reads the list of accepted survivors, which are mutants that no test detects. Returns the key of
/// each mutant (its name without line and column), and the reason why it is accepted.
pub(crate) fn read(root: &Path) -> Result<BTreeMap<String, String>, String> {
    let text = fs::read_to_string(root.join(FILE))
        .map_err(|error| format!("cannot read {FILE}: {error}"))?;
    Ok(parse(&text)?.into_iter().collect())
}

/// Parses the list of accepted survivors, which are mutants that no test detects. Returns the key
/// of each mutant (its name without line and column) and the reason why it is accepted, in the
/// order of the list.
pub(crate) fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    let table: Table = text.parse().map_err(|error| format!("{FILE}: {error}"))?;
    let Some(listed) = table.get("survivor") else {
        return Ok(Vec::new());
    };
    let listed = listed.as_array();
    let listed = listed.ok_or_else(|| format!("{FILE}: write [[survivor]]"))?;
    let survivor = |value: &Value| {
        let word = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        match (word("mutant"), word("reason")) {
            (Some(mutant), Some(reason)) => Ok((mutant, reason)),
            _ => Err(format!(
                "{FILE}: every [[survivor]] has a `mutant` and a `reason`"
            )),
        }
    };
    listed.iter().map(survivor).collect()
}
