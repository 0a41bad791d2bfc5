//! The parameters of workloads, declared once as data. The checker, the template, the JSON Schema
//! and the documentation all use these declarations.

use std::collections::BTreeMap;

use crate::error::Error;

/// A number that a user can choose for a workload.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The key in the table `[workload]`. The key ends in the unit of the value, unless the value
    /// is a plain count.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// The unit of the value.
    pub unit: &'static str,
    /// The value if the user chooses none. `None` stands for the number of CPUs that are online
    /// when a run begins.
    pub default: Option<u64>,
    /// The smallest value.
    pub min: u64,
    /// The largest value.
    pub max: u64,
}

impl Parameter {
    /// The default as text.
    #[must_use]
    pub fn default_text(&self) -> String {
        self.default.map_or_else(
            || "one per online CPU".to_owned(),
            |value| value.to_string(),
        )
    }

    /// Checks that `value` is within the bounds.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not. The error states the bounds and the unit.
    pub fn check(&self, value: u64) -> Result<(), Error> {
        let Self {
            name,
            unit,
            min,
            max,
            ..
        } = self;
        if (*min..=*max).contains(&value) {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "{name} cannot be {value} ({unit}): it takes {min} to {max}"
        )))
    }
}

/// The values of all parameters of a workload. Each value is within its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values(BTreeMap<&'static str, u64>);

impl Values {
    /// Makes the values of `parameters`: the values in `chosen`, and for all other parameters the
    /// defaults. `cpus` is the number of CPUs that are online when a run begins.
    pub(super) fn new(
        parameters: &'static [Parameter],
        chosen: &BTreeMap<String, u64>,
        cpus: u32,
    ) -> Self {
        let value = |of: &'static Parameter| {
            let chosen = chosen.get(of.name).copied();
            let value = chosen.or(of.default).unwrap_or(u64::from(cpus));
            (of.name, value)
        };
        Self(parameters.iter().map(value).collect())
    }

    /// The value of the parameter `name`.
    ///
    /// # Panics
    /// If the workload does not declare the parameter.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        let value = self.0.get(name);
        *value.unwrap_or_else(|| panic!("the workload declares no parameter {name}"))
    }

    /// The value of the parameter `name`, which is declared with a maximum below 2³².
    ///
    /// # Panics
    /// If the workload does not declare the parameter, or declares a larger maximum.
    #[must_use]
    pub fn small(&self, name: &str) -> u32 {
        u32::try_from(self.get(name)).expect("its declared maximum is below 2³²")
    }

    /// Replaces each `{name}` in `template` by the value of the parameter `name`.
    #[must_use]
    pub fn fill(&self, template: &str) -> String {
        let replace = |text: String, (name, value): (&&str, &u64)| {
            text.replace(&format!("{{{name}}}"), &value.to_string())
        };
        self.0.iter().fold(template.to_owned(), replace)
    }
}
